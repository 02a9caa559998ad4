"""Robust beside Gaussian noise on hidden entries of real tables: ``NSFA_DATA_DIR=… python -m benchmarks.robust``.

    python -m benchmarks.robust [--tables ecoli breast prostate] [--splits 3] [-o FILE]

A tenth of the entries is hidden, the same for both, and default fits say what they think of them: the mean log density
(lppd), robust less Gaussian with the standard error over entries, the root of the mean squared error, and at the end
the mean over splits.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

from nsfa import NSFA, datasets

FIRST_SEED = 7


def hidden_of(shape: tuple[int, int], split: int) -> np.ndarray:
    """Entries (samples × genes) to hide; drawn genes × samples."""
    return np.random.default_rng(FIRST_SEED + split).random(shape[::-1]).T < 0.1


def fitted(X: np.ndarray, hidden: np.ndarray, noise: str) -> tuple[np.ndarray, float, float, float]:
    """Log densities of the hidden entries, the mean number of factors, seconds, and the error of the hidden entries."""
    started = time.perf_counter()
    posterior = NSFA(noise=noise, random_state=0).fit(np.where(hidden, np.nan, X)).posterior_
    seconds = time.perf_counter() - started
    log = posterior.log_predictive_density(X, hidden)
    rmse = float(np.sqrt(np.mean((posterior.predict_missing(hidden) - X[hidden]) ** 2)))
    return log, float(posterior.n_factors.mean()), seconds, rmse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=["ecoli", "breast", "prostate"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first split")
    parser.add_argument("-o", "--out", type=Path, help="add the lines to this file, too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")

    def tell(line: str) -> None:
        print(line, flush=True)
        if arguments.out:
            with arguments.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    for name in arguments.tables:
        X, gains = getattr(datasets, f"fetch_{name}")().X, []
        for split in range(arguments.first, arguments.first + arguments.splits):
            hidden = hidden_of(X.shape, split)
            plain, robust = (fitted(X, hidden, noise) for noise in ("diagonal", "robust"))
            gain = robust[0] - plain[0]
            gains.append(gain.mean())
            error = gain.std() / np.sqrt(len(gain))
            factors, seconds = f"{plain[1]:.1f} and {robust[1]:.1f}", f"{plain[2]:.0f} and {robust[2]:.0f} s"
            lppd = f"{plain[0].mean():.4f} and {robust[0].mean():.4f}"
            rmse = f"{plain[3]:.4f} and {robust[3]:.4f}"
            told = f"{lppd}, {gain.mean():+.4f} ± {error:.4f}, rmse {rmse}, K {factors}, {seconds}"
            tell(f"{name}, split {split}: {told}")
        if len(gains) > 1:
            error = np.std(gains, ddof=1) / np.sqrt(len(gains))
            tell(f"{name}, {len(gains)} splits: {np.mean(gains):+.4f} ± {error:.4f}")


if __name__ == "__main__":
    main()
