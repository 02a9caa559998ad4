"""Are intervals and probabilities honest? ``python -m benchmarks.calibration [--sets 20] [--figure PATH]``.

Tables from the model, and from another simulator, with a tenth of the entries removed: coverage of 90 % intervals of
removed entries and of loadings, and how often loadings with a stated inclusion probability are truly active.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import pairwise

import numpy as np
from sklearn.utils import Bunch

from nsfa import NSFA, Gamma, Priors
from nsfa.datasets import make_sparse_factors
from nsfa.metrics import match_factors
from nsfa.model import preset
from nsfa.model.simulate import simulate_data, simulate_state

PATTERNS = ("random", "overlapping", "regulon")
EDGES = np.array([0.0, 0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0])


# Tables from the model itself: neither so little noise nor so large loadings that there is nothing left to learn.
MODEL = Priors(noise=Gamma(3.0, 3.0), loading_shape=3.0, loading_rate=Gamma(20.0, 10.0), concentration=Gamma(6.0, 3.0))


def from_model(seed: int) -> tuple[Bunch, NSFA]:
    """A table drawn from the model, and an estimator that knows its hyperparameters."""
    rng = np.random.default_rng(seed)
    state = simulate_state(preset("nsfa", priors=MODEL), 60, 100, rng)
    complete = simulate_data(state, rng).T
    X = np.where(rng.random(complete.shape) < 0.1, np.nan, complete)
    data = Bunch(X=X, X_complete=complete, loadings=state.loadings.copy(), active=state.active.copy())
    return data, NSFA(random_state=seed, prior=MODEL, scale=None)


def from_simulator(seed: int) -> tuple[Bunch, NSFA]:
    """A table with another kind of structure, equal noise everywhere, and the default estimator."""
    settings = {"pattern": PATTERNS[seed % 3], "snr": (3.0, 10.0)[seed % 2], "missing": 0.1, "density": 0.15}
    return make_sparse_factors(100, 60, 6, random_state=seed, **settings), NSFA(random_state=seed)


def one(data: Bunch, model: NSFA) -> dict[str, np.ndarray]:
    """Covered entries, covered loadings, and (probability, active) of every loading of the matched factors."""
    model.fit(data.X)
    holes = np.isnan(data.X)
    _, lower, upper = model.impute(data.X, level=0.9)
    found = model.posterior_.consensus()
    true, hat, cosine = match_factors(data.loadings, found.loadings)
    true, hat, cosine = (x[np.abs(cosine) > 0.5] for x in (true, hat, cosine))
    low, high = found.lower[:, hat], found.upper[:, hat]
    low, high = np.where(cosine > 0, low, -high), np.where(cosine > 0, high, -low)
    truth = data.loadings[:, true]
    return {
        "entries": ((lower <= data.X_complete) & (data.X_complete <= upper))[holes],
        "loadings": ((low <= truth) & (truth <= high))[found.inclusion[:, hat] > 0.05],
        "probability": found.inclusion[:, hat].ravel(),
        "active": data.active[:, true].ravel(),
    }


def reliability(probability: np.ndarray, active: np.ndarray) -> list[tuple[float, float, float, int]]:
    """Per bin of the stated probability: its mean, the true share, its standard error, and the number of loadings."""
    rows = []
    for low, high in pairwise(EDGES):
        inside = (probability >= low) & ((probability < high) | (high == 1.0))
        if inside.sum() >= 10:
            share = active[inside].mean()
            error = np.sqrt(max(share * (1 - share), 0.25 / inside.sum()) / inside.sum())
            rows.append((probability[inside].mean(), share, error, int(inside.sum())))
    return rows


def draw(rows: list[tuple[float, float, float, int]], path: str) -> None:
    """The reliability plot."""
    from matplotlib import pyplot as plt

    stated, share, error, count = (np.array(column) for column in zip(*rows, strict=True))
    figure, ax = plt.subplots(figsize=(4.6, 4.4), layout="constrained")
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, label="perfectly calibrated")
    ax.errorbar(
        stated, share, yerr=2 * error, fmt="o", color="#0072B2", capsize=2, label="loadings, ± 2 standard errors"
    )
    for x, y, n in zip(stated, share, count, strict=True):
        ax.annotate(f"{n:,}", (x, y), textcoords="offset points", xytext=(7, -10), fontsize=7, color="0.4")
    ax.set(xlabel="stated inclusion probability", ylabel="share truly active", xlim=(-0.03, 1.14), ylim=(-0.03, 1.05))
    ax.legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__.split("\n")[0])
    parser.add_argument("--sets", type=int, default=24)
    parser.add_argument("--figure")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, source in (("the model itself", from_model), ("make_sparse_factors", from_simulator)):
        results = [one(*source(seed)) for seed in range(arguments.sets)]
        pooled = {key: np.concatenate([r[key] for r in results]) for key in results[0]}
        print(f"{arguments.sets} tables from {name}")
        print(f"90 % intervals of removed entries cover {pooled['entries'].mean():.1%} of {pooled['entries'].size:,}")
        print(f"90 % intervals of loadings cover {pooled['loadings'].mean():.1%} of {pooled['loadings'].size:,}")
        rows = reliability(pooled["probability"], pooled["active"])
        print(f"{'stated':>8}{'true':>8}{'± s.e.':>8}{'loadings':>10}")
        for stated, share, error, count in rows:
            print(f"{stated:>8.3f}{share:>8.3f}{error:>8.3f}{count:>10,}", flush=True)
        if arguments.figure and source is from_model:
            draw(rows, arguments.figure)


if __name__ == "__main__":
    main()
