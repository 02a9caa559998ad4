"""The experiments of Knowles & Ghahramani (2011), Sections 2 and 5, run with the models of this package.

``run("breast", "out")`` writes the figures, every number behind them (``numbers.csv``), and what became of the paper's
claims (``claims.json``). The real data come from ``nsfa.datasets``, so that only NSFA_DATA_DIR need be set. The module
of an experiment has its numbers, the TOML file beside it its words.
"""

from nsfa.experiments.experiment import NAMES, cost, run

__all__ = ["NAMES", "cost", "run"]
