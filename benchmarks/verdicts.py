"""What a default fit says of its chains: ``NSFA_DATA_DIR=… python -m benchmarks.verdicts``.

    python -m benchmarks.verdicts [--tables breast prostate planted-2500 ...] [--seeds 0 1 ...] [--noise robust]
                                  [--hide] [--draws N] [--tune N|auto] [--thin N]

Default fits of the tables of ``benchmarks.mixing``: seconds, the range of each chain's number of factors, R-hat of all
that takes part in the verdict, and how many consensus factors of five genes and more are settled, and in more than half
of the draws of every chain. With ``--hide`` a tenth of the entries is hidden, and the score of these comes too.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from benchmarks.mixing import table
from benchmarks.robust import hidden_of
from nsfa import NSFA
from nsfa.posterior.factors import SETTLED, SOME_CHAINS


def say(name: str, seed: int, hide: bool, settings: dict[str, object]) -> str:
    """The lines of one fit."""
    X = table(name)
    hidden = hidden_of(X.shape, seed) if hide else np.zeros(X.shape, bool)
    started = time.perf_counter()
    posterior = NSFA(random_state=seed, **settings).fit(np.where(hidden, np.nan, X)).posterior_
    seconds = time.perf_counter() - started
    found, consensus = posterior.diagnostics(), posterior.consensus()
    words = np.array(consensus.checks.verdict)[consensus.sizes >= 5]
    ranges = "; ".join(f"{chain.min()} to {chain.max()}" for chain in posterior.n_factors)
    everywhere, settled = int((words != SOME_CHAINS).sum()), int((words == SETTLED).sum())
    lines = [
        f"{name}, seed {seed}{', a tenth hidden' * hide}, {settings or 'default'}: {seconds:.0f} s, K {ranges}",
        "  R-hat: " + ", ".join(f"{d.quantity} {d.rhat:.3f}" for d in found.table),
        f"  substantial {len(words)}, in all chains {everywhere}, settled {settled}; "
        f"of all {consensus.n_factors} settled {found.settled}",
    ]
    if hide:
        log = posterior.log_predictive_density(X, hidden)
        rmse = np.sqrt(np.mean((posterior.predict_missing(hidden) - X[hidden]) ** 2))
        lines.append(f"  hidden entries: lppd {log.mean():.4f}, rmse {rmse:.4f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=["breast", "planted-2500", "planted-12558", "dense-2500"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--noise", default="diagonal")
    parser.add_argument("--hide", action="store_true")
    parser.add_argument("--tune", help="warm-up sweeps, or auto")
    parser.add_argument("--draws", type=int)
    parser.add_argument("--thin", type=int)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    tune = arguments.tune if arguments.tune in (None, "auto") else int(arguments.tune)
    given = {"tune": tune, "draws": arguments.draws, "thin": arguments.thin}
    settings: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if arguments.noise != "diagonal":
        settings["noise"] = arguments.noise
    for name in arguments.tables:
        for seed in arguments.seeds:
            print(say(name, seed, arguments.hide, settings), flush=True)


if __name__ == "__main__":
    main()
