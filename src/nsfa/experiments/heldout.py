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
# draws for the posterior mean, whose error hardly falls with more
MEAN_DRAWS = 25


class Length(NamedTuple):
    """Sweeps in all, sweeps per kept draw, and how many of the last kept draws are scored."""

    sweeps: int
    thin: int
    scored: int


@dataclass(frozen=True)
class Model:
    """One model of this package: what it is called, its class and settings, and a guess at its seconds."""

    label: str
    family: str
    settings: dict[str, Any]
    seconds: float = 5.0
    length: Length | None = None
    splits: int | None = None


@dataclass(frozen=True)
class Setting:
    """A data set and how it is used: ``genes`` limits it to its most variable ones, for a quick run."""

    data: str
    splits: int
    length: Length
    genes: int | None = None


def family(name: str, sizes: dict[int, float]) -> list[Model]:
    """A model with fixed K at several K, each with its guessed seconds."""
    return [Model(f"{name} K{k}", name, {"n_components": k}, seconds) for k, seconds in sizes.items()]


def plan(setting: Setting, models: Iterable[Model], others: dict[str, dict[int, float]]) -> list[Task]:
    """A task per model and split; ``others`` gives the K of every peer, and guessed seconds."""
    tasks = []
    for model in models:
        length = model.length or setting.length
        for split in range(min(setting.splits, model.splits or setting.splits)):
            arguments = {
                "data": setting.data, "genes": setting.genes, "split": split, "family": model.family,
                "settings": model.settings, "length": length,
            }  # fmt: skip
            tasks.append(Task(model.label, split, fit, arguments, model.seconds))
    for name, peer in peers.PEERS.items():
        for size, seconds in others.get(name, {}).items():
            label = peer.label + (f" K{size}" if size else "")
            for split in range(setting.splits):
                arguments = {"data": setting.data, "genes": setting.genes, "split": split, "peer": name, "size": size}
                tasks.append(Task(label, split, fit_peer, arguments, seconds, module=peer.module))
    return tasks


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
    data: str, genes: int | None, split: int, family: str, settings: dict[str, Any], length: Length
) -> Iterator[Number]:
    """Scores of one model on one split, its number of factors during the run, and its cost."""
    import nsfa
    from nsfa.metrics import log_mean_density, rmse

    X = table(data, genes)
    where = hidden(X, split)
    run = {"tune": 0, "draws": length.sweeps // length.thin, "thin": length.thin, "chains": 1, "n_jobs": 1}
    model = getattr(nsfa, family)(**settings, **run, random_state=split)
    posterior = model.fit(np.where(where, np.nan, X)).posterior_
    for at, n_factors in zip(_spaced(posterior), posterior.n_components[0], strict=True):
        if family == "NSFA":
            yield "K", at, n_factors
    last = posterior.chains[0][-length.scored :]
    yield "K_mean", 0, np.mean([draw.n_factors for draw in last])
    yield "active_mean", 0, np.mean([draw.n_active for draw in last])
    logs = [replace(posterior, chains=((draw,),)).log_predictive_density(X, where) for draw in last]
    yield "lppd", 0, log_mean_density(logs).mean()
    yield "mean_of_logs", 0, np.mean(logs)
    some = tuple(last[i] for i in np.linspace(0, len(last) - 1, min(MEAN_DRAWS, len(last))).astype(int))
    yield "rmse", 0, rmse(X[where], replace(posterior, chains=(some,)).predict_missing(where))
    yield from _cost(posterior, length)


def _spaced(posterior: Any) -> Any:
    return np.arange(1, posterior.length.draws + 1) * posterior.length.thin


def _cost(posterior: Any, length: Length) -> Iterator[Number]:
    """Seconds per sweep, and per sweep and factor, over the whole run."""
    seconds = posterior.trace("seconds")[0]
    each = np.diff(seconds, prepend=0.0) / length.thin
    yield "seconds_per_sweep", 0, each.mean()
    # over sums: sweeps without a factor cost something too
    yield "seconds_per_sweep_and_factor", 0, each.sum() / max(posterior.n_components[0].sum(), 1)


def fit_peer(data: str, genes: int | None, split: int, peer: str, size: int) -> Iterator[Number]:
    """Scores of somebody else's method on one split."""
    from nsfa.metrics import rmse

    X = table(data, genes)
    where = hidden(X, split)
    found = peers.predict(peer, np.where(where, np.nan, X), size, split)
    yield "K_mean", 0, found.n_factors
    yield "lppd", 0, peers.log_density(found, X, where).mean()
    yield "rmse", 0, rmse(X[where], found.mean[where])
