"""How the consensus is made: a few passes over the aligned draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsfa.arrays import Floats
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.kernels import Kernels
from nsfa.model.spec import ModelSpec
from nsfa.posterior.align import Alignment, evenly
from nsfa.posterior.consensus import Consensus
from nsfa.posterior.factors import check_factors, trace_factors
from nsfa.posterior.latent import Tables
from nsfa.posterior.predict import INTERVAL_BYTES
from nsfa.posterior.scores import score_means
from nsfa.posterior.shares import Block, Picks, Shares, aligned_blocks

# Aligned draws that together take no more than this are made once.
CACHE_BYTES = 50_000_000
GAUSSIAN = ModelSpec()
# All draws are aligned in so many parts.
_PARTS = 20


def build_consensus(
    data: Observed,
    chains: Sequence[Sequence[Draw]],
    alignment: Alignment,
    kernels: Kernels,
    min_support: float = 0.5,
    level: float = 0.9,
    preview: bool = False,
    tables: Tables | None = None,
) -> Consensus:
    """Consensus of the factors found in more than ``min_support`` of the draws. Cost: a few passes over the draws.

    ``tables`` is the table as the draws see it; the values as they are, unless given.
    """
    draws = [draw for chain in chains for draw in chain]
    support = alignment.support()
    keep = np.flatnonzero(support.mean(axis=0) > min_support)
    aligned: Iterable[Block] = aligned_blocks(draws, np.arange(len(draws)), alignment, keep)
    if 8 * len(draws) * draws[0].shape[0] * (len(keep) + 1) <= CACHE_BYTES:
        aligned = list(aligned)
    traces = trace_factors(draws, len(chains), len(keep), aligned)
    count = traces.there.sum(axis=(0, 1))
    mean, inclusion, relevance = (part / count for part in (traces.sums.sum(axis=0), traces.active, traces.relevant))
    share = traces.share.mean(axis=(0, 1))
    # the largest mean loading is positive, and the factor that explains most comes first
    sign = np.where(mean[np.abs(mean).argmax(axis=0), np.arange(len(keep))] < 0, -1.0, 1.0)
    order = np.argsort(-share, kind="stable")
    tail = (1 - level) / 2
    some = evenly(len(draws), max(INTERVAL_BYTES // (4 * max(int((inclusion > tail).sum()), 1)), 50))
    if len(some) < len(draws) or not isinstance(aligned, list):
        aligned = aligned_blocks(draws, some, alignment, keep)
    lower, upper = _intervals(aligned, len(some), inclusion, tail)
    # adding 0 makes −0 a plain zero
    lower, upper = np.where(sign > 0, lower, -upper) + 0.0, np.where(sign > 0, upper, -lower) + 0.0
    seen = tables or Tables(data, GAUSSIAN, kernels, fitted=True)
    scores, deviation = score_means(seen, draws, alignment, keep, data.shape[1])
    return Consensus(
        loadings=data.to_user(mean * sign + 0.0)[:, order],
        lower=data.to_user(lower)[:, order],
        upper=data.to_user(upper)[:, order],
        level=level,
        inclusion=data.to_user(inclusion, power=0)[:, order],
        relevance=data.to_user(relevance, power=0)[:, order],
        support=traces.there.mean(axis=(0, 1))[order],
        chain_support=traces.there.mean(axis=1)[:, order],
        variance_explained=share[order],
        scores=(scores * sign)[:, order],
        scores_std=deviation[:, order],
        feature_names=data.names,
        pivot=keep[order],
        sign=sign[order],
        checks=check_factors(traces, preview).taken(order),
        shares=Shares(data, draws, alignment, keep[order]),
    )


def _intervals(aligned: Iterable[Block], n_draws: int, inclusion: Floats, tail: float) -> tuple[Floats, Floats]:
    """Central interval of every loading given the factor; [0, 0] where the loading is almost surely inactive."""
    rows, columns = np.nonzero(inclusion > tail)
    lower, upper = np.zeros(inclusion.shape), np.zeros(inclusion.shape)
    if len(rows) == 0:
        return lower, upper
    # factor by factor
    order = np.argsort(columns, kind="stable")
    rows, columns = rows[order], columns[order]
    some = Picks(rows, columns, inclusion.shape)
    values, present = np.empty((n_draws, len(rows)), dtype=np.float32), np.empty((n_draws, inclusion.shape[1]), bool)
    first = 0
    for block in aligned:
        last = first + len(block.which)
        values[first:last], present[first:last] = block.picked(some), block.there
        first = last
    for k in np.unique(columns):
        own, there = slice(*np.searchsorted(columns, [k, k + 1])), present[:, k]
        # rare factors may be in none of the draws
        if there.any():
            lower[rows[own], k], upper[rows[own], k] = _bounds(values[there, own], tail)
    return lower, upper


def _bounds(values: NDArray[np.float32], tail: float) -> Floats:
    """The quantiles ``tail`` and 1 − ``tail`` (2, entries) over the first axis: the i-th of n values is i/(n + 1)."""
    n = len(values)
    ordered = np.sort(values.T, axis=1)
    place = np.clip(np.array([tail, 1 - tail]) * (n + 1) - 1, 0, n - 1)
    below = np.minimum(place.astype(np.int64), max(n - 2, 0))
    low, high = ordered[:, below].T.astype(np.float64), ordered[:, np.minimum(below + 1, n - 1)].T
    out: Floats = low + (high - low) * (place - below)[:, None]
    return out


def aligned_draws(
    data: Observed, draws: Sequence[Draw], alignment: Alignment, consensus: Consensus, dtype: Any = np.float64
) -> NDArray[Any]:
    """Loadings of every draw on the consensus factors, (draws, n_features, K), in the user's units."""
    out = np.empty((len(draws), data.n_features, consensus.n_factors), dtype)
    # a few draws at a time: on the way they take several times their place
    for some in np.array_split(np.arange(len(draws)), min(_PARTS, len(draws))):
        for block in aligned_blocks(draws, some, alignment, consensus.pivot):
            out[block.which] = data.to_user(block.dense() * consensus.sign).transpose(1, 0, 2)
    return out
