"""What the three real data sets share: splits with a tenth of the entries hidden, and models scored on those.

The splits are those of ``nsfa.compare(X, ..., random_state=0)``. The score is lppd: per hidden entry the log of the
mean over draws of its predictive density, in the table's units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from nsfa.arrays import Bools, Floats
from nsfa.comparison import hide
from nsfa.experiments import peers
from nsfa.tasks import Number, Task

SHARE, SEED = 0.1, 0
PAPER = "NSFA, paper's priors"
FAMILIES = ("FA", "AFA", "FOK", "BFRM", "SFA")
# draws for the posterior mean, whose error hardly falls with more
MEAN_DRAWS = 25


class RunLength(NamedTuple):
    """Sweeps in all, sweeps per kept draw, and how many of the last kept draws are scored."""

    sweeps: int
    thin: int
    scored: int


@dataclass(frozen=True)
class Setting:
    """A data set and how it is used: ``genes`` limits it to its most variable ones, for a quick run."""

    data: str
    splits: int
    length: RunLength
    genes: int | None = None

    def model(self, label: str, seconds: float, **settings: Any) -> list[Task]:
        """A task per split for a model of this package, whose class is the label's first word."""
        what = {"family": label.split()[0].rstrip(","), "settings": settings, "length": self.length}
        return self._tasks(label, fit, what, seconds)

    def sized(self, families: Iterable[str], sizes: dict[int, float]) -> list[Task]:
        """Models with fixed K, each at several K with their guessed seconds."""
        each = ((f"{name} K{k}", seconds, k) for name in families for k, seconds in sizes.items())
        return [task for label, seconds, k in each for task in self.model(label, seconds, n_components=k)]

    def peers(self, others: dict[str, dict[int, float]]) -> list[Task]:
        """Other people's methods, each at several K (0: none is asked for), with guessed seconds."""
        out = []
        for name, peer in peers.PEERS.items():
            for k, seconds in others.get(name, {}).items():
                label, what = peer.label + (f" K{k}" if k else ""), {"peer": name, "size": k}
                out += self._tasks(label, fit_peer, what, seconds, peer.module)
        return out

    def _tasks(self, label: str, function: Any, what: dict[str, Any], seconds: float, module: Any = None) -> list[Task]:
        where = {"data": self.data, "genes": self.genes}
        return [
            Task(label, split, function, where | what | {"split": split}, seconds, module=module)
            for split in range(self.splits)
        ]


def table(data: str, genes: int | None) -> Floats:
    """The table (n_samples, n_features), or its most variable features only."""
    from nsfa import datasets

    X: Floats = getattr(datasets, f"fetch_{data}")().X
    if genes is None or genes >= X.shape[1]:
        return X
    return np.ascontiguousarray(X[:, np.sort(np.argsort(-X.var(axis=0), kind="stable")[:genes])])


def hidden(X: Floats, split: int) -> Bools:
    """The entries that a split hides."""
    return hide(X, SHARE, np.random.default_rng([SEED, split]))


def fit(
    data: str, genes: int | None, split: int, family: str, settings: dict[str, Any], length: RunLength
) -> Iterator[Number]:
    """Scores of one model on one split, its number of factors during the run, and its cost."""
    import nsfa
    from nsfa.metrics import log_mean_density, rmse

    X = table(data, genes)
    where = hidden(X, split)
    run = {"tune": 0, "draws": length.sweeps // length.thin, "thin": length.thin, "chains": 1, "n_jobs": 1}
    model = getattr(nsfa, family)(**settings, **run, random_state=split)
    posterior = model.fit(np.where(where, np.nan, X)).posterior_
    if family == "NSFA":
        for at, n_factors in enumerate(posterior.n_factors[0], 1):
            yield "K", at * length.thin, n_factors
    last = posterior.chains[0][-length.scored :]
    yield "K_mean", 0, np.mean([draw.n_factors for draw in last])
    yield "active_mean", 0, np.mean([draw.n_active for draw in last])
    logs = [replace(posterior, chains=((draw,),)).log_predictive_density(X, where) for draw in last]
    yield "lppd", 0, log_mean_density(logs).mean()
    yield "mean_of_logs", 0, np.mean(logs)
    some = tuple(last[i] for i in np.linspace(0, len(last) - 1, min(MEAN_DRAWS, len(last))).astype(int))
    yield "rmse", 0, rmse(X[where], replace(posterior, chains=(some,)).predict_missing(where))
    each = np.diff(posterior.trace("seconds")[0], prepend=0.0) / length.thin
    yield "seconds_per_sweep", 0, each.mean()
    # over sums: sweeps without a factor cost something too
    yield "seconds_per_sweep_and_factor", 0, each.sum() / max(posterior.n_factors[0].sum(), 1)


def fit_peer(data: str, genes: int | None, split: int, peer: str, size: int) -> Iterator[Number]:
    """Scores of somebody else's method on one split."""
    from nsfa.filling import log_density
    from nsfa.metrics import rmse

    X = table(data, genes)
    where = hidden(X, split)
    found = peers.predict(peer, np.where(where, np.nan, X), size, split)
    yield "K_mean", 0, found.n_factors
    yield "lppd", 0, log_density(found.mean[where], found.variance[where], X[where]).mean()
    yield "rmse", 0, rmse(X[where], found.mean[where])
