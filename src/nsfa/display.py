"""How plots and the report show a result: whose it is, which loadings, in which order, groups and words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nsfa.arrays import Floats, Ints
from nsfa.model.spec import is_integer
from nsfa.posterior import Posterior
from nsfa.posterior.consensus import Consensus

MOST_GROUPS = 20
# more bars than this, with marks on them, are a thicket
MOST_BARS = 40
OTHERS, UNLABELLED = "all other groups", "unlabelled"


def posterior_of(model: Any) -> Posterior:
    """The posterior of a fitted estimator, or ``model`` itself where it already is one."""
    posterior: Posterior = _able(model, "trace", " or its posterior")
    return posterior


def consensus_of(model: Any) -> Consensus:
    """The consensus factors of a fitted estimator or posterior, or ``model`` itself where it already is a consensus."""
    if isinstance(model, Consensus):
        return model
    consensus: Consensus = _able(model, "consensus", ", its posterior or a Consensus").consensus()
    return consensus


def _able(model: Any, verb: str, others: str) -> Any:
    """What answers for a model, if it has the verb."""
    if hasattr(model, "fit"):
        check_is_fitted(model)
    posterior = getattr(model, "posterior_", model)
    if not hasattr(posterior, verb):
        raise TypeError(f"model must be a fitted estimator of this package{others}. Got {type(model).__name__}.")
    return posterior


def check_factor(factor: Any, n_factors: int) -> int:
    """The number of a factor, from 0 to ``n_factors`` - 1."""
    if not is_integer(factor) or not 0 <= factor < n_factors:
        raise ValueError(f"a factor must be an int from 0 to {n_factors - 1}. Got {factor!r}.")
    return int(factor)


def likely_loadings(consensus: Consensus, threshold: float = 0.5) -> Floats:
    """Mean loadings (n_features, K), zero where the inclusion probability is below the threshold."""
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must lie between 0 and 1. Got {threshold!r}.")
    return np.where(consensus.inclusion >= threshold, consensus.loadings, 0.0)


def symbols_of(consensus: Consensus, gene_names: Mapping[str, str] | None) -> tuple[str, ...] | None:
    """The features as people call them, their own names where there is no other; None where there are none at all."""
    if not gene_names:
        return None
    return tuple(gene_names.get(name) or name for name in consensus.feature_names)


def block_order(values: Floats, most: int) -> Ints:
    """Rows by the column of their largest |entry|, then by that entry, falling; rows of zeros are left out.

    Of more than ``most`` rows, the largest of each column are taken in turn.
    """
    used = np.flatnonzero(values.any(axis=1))
    if len(used) == 0:
        return used
    column = np.abs(values[used]).argmax(axis=1)
    entry = values[used, column]
    order = np.lexsort((-np.abs(entry), column))
    turn = np.arange(len(order)) - np.searchsorted(column[order], column[order])
    kept = order[np.argsort(turn, kind="stable")[:most]]
    out: Ints = used[kept[np.lexsort((-entry[kept], column[kept]))]]
    return out


class Bins(NamedTuple):
    """Whole numbers in bins of equal width, which is 1 unless there are too many to be told apart."""

    starts: Ints
    width: int

    @property
    def middle(self) -> Floats:
        """Where to draw each."""
        out: Floats = self.starts + np.float64(self.width - 1) / 2
        return out

    def shares(self, counts: Ints) -> Floats:
        """Share of the counts in each bin."""
        out: Floats = ((counts.ravel()[:, None] - self.starts) // self.width == 0).mean(axis=0)
        return out

    def name(self, number: int) -> str:
        """A bin in words: 75, or 75 to 79."""
        start = int(self.starts[number])
        return str(start) if self.width == 1 else f"{start} to {start + self.width - 1}"


def count_bins(counts: Ints) -> Bins:
    """Bins for whole numbers: as narrow as leaves few enough of them, 1, 2, 5, 10, ... wide."""
    low, high = int(counts.min()), int(counts.max())
    widths = (digit * 10**power for power in count() for digit in (1, 2, 5))
    width = next(w for w in widths if high // w - low // w < MOST_BARS)
    return Bins(np.arange(low // width * width, high + 1, width), width)


def count_shares(counts: Ints) -> tuple[Ints, Floats]:
    """The different numbers, rising, and the share of each."""
    values, times = np.unique(counts, return_counts=True)
    return values, times / times.sum()


def group_codes(groups: Any, n_samples: int) -> tuple[list[str], Ints]:
    """Names of the groups, and each sample's place in them; unlabelled samples and pooled groups come last."""
    if groups is None:
        return [], np.zeros(n_samples, dtype=np.int64)
    import pandas as pd

    labels = _counted(pd.Categorical(groups).remove_unused_categories())
    if len(labels) != n_samples:
        raise ValueError(f"groups must have one label per sample, {n_samples}. Got {len(labels)}.")
    names, codes = [str(name) for name in labels.categories], np.array(labels.codes, dtype=np.int64)
    if len(names) > MOST_GROUPS:
        sizes = np.bincount(codes[codes >= 0], minlength=len(names))
        kept = np.sort(np.argsort(-sizes, kind="stable")[: MOST_GROUPS - 1])
        place = np.full(len(names), len(kept))
        place[kept] = np.arange(len(kept))
        codes = np.where(codes < 0, -1, place[codes])
        names = [names[g] for g in kept] + [OTHERS]
    if (codes < 0).any():
        codes = np.where(codes < 0, len(names), codes)
        names = [*names, UNLABELLED]
    return names, codes


def _counted(labels: Any) -> Any:
    """Labels that are numbers written as text in the order of the numbers: 2 before 10."""
    names = labels.categories
    if labels.ordered or not len(names) or not all(str(name).isdecimal() for name in names):
        return labels
    return labels.reorder_categories(sorted(names, key=int))


def percent(share: float) -> str:
    """A share as text: 3.2 % below ten, else whole."""
    value = 100.0 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"
