"""The experiments of Knowles & Ghahramani (2011), Sections 2 and 5, run with the models of this package.

``run("breast", "out")`` writes the figures, every number behind them (``numbers.csv``), and what became of the paper's
claims (``claims.json``). The real data come from ``nsfa.datasets``, so that only NSFA_DATA_DIR need be set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from nsfa.tasks import Step

NAMES = ("ibp", "synthetic", "convergence", "ecoli", "breast", "prostate")

__all__ = ["NAMES", "run"]


def run(
    name: str,
    out: str | Path,
    quick: bool = False,
    progress: Callable[[Step], Any] | None = None,
    n_jobs: int | None = None,
) -> Path:
    """Run one experiment, or go on with an interrupted one, and return the directory of its files.

    Parameters
    ----------
    name : one of ``NAMES``
    out : the directory to write to, new or with an unfinished run of the same experiment
    quick : a small version, a minute or two, that shows that everything works
    progress : called with a ``tasks.Step`` whenever a task is done
    n_jobs : tasks at once; None is one per core. The numbers do not depend on it, times apart
    """
    from nsfa.experiments.experiment import run as run_experiment

    return run_experiment(name, out, quick, progress, n_jobs)
