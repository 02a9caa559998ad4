"""How the consensus is made: a few passes over the aligned draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsfa.arrays import Floats, Ints
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.kernels import Kernels
from nsfa.kernels.device import GpuError
from nsfa.model.spec import ModelSpec
from nsfa.posterior.align import Alignment, evenly
from nsfa.posterior.columns import in_order, mostly_zero
from nsfa.posterior.consensus import Consensus
from nsfa.posterior.factors import check_factors, trace_factors
from nsfa.posterior.latent import Tables
from nsfa.posterior.on_device import moments_on_device
from nsfa.posterior.predict import INTERVAL_BYTES
from nsfa.posterior.project import SampleMoments, is_large, sample_moments
from nsfa.posterior.shares import Block, Picks, Shares, aligned_blocks

# Aligned draws that together take no more than this are made once.
CACHE_BYTES = 50_000_000
# Averages of scores over this many evenly spaced draws are as good as over all; in large tables over fewer.
SCORE_DRAWS = 400
SCORE_ENTRIES = 200_000_000
# In very large tables, where a draw changes scores little, over as many as take so many multiplications.
SCORE_WORK, LEAST_SCORE_DRAWS = 500_000_000_000, 10
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


def score_draws(
    draws: Sequence[Draw], alignment: Alignment, keep: Ints, n_samples: int, most: int | None = None
) -> Ints:
    """The draws over which scores are averaged: fewer in large tables, and in very large ones fewer still.

    At ``most`` so many, but that each of the pivot's columns ``keep`` is in some.
    """
    enough = _enough_draws(draws, n_samples)
    some = evenly(len(draws), enough if most is None else min(enough, most))
    seen = np.zeros(len(keep), dtype=np.bool_)
    for i in some:
        seen[alignment.columns(i, keep)[1]] = True
    more = [some]
    for k in keep[~seen]:
        there = np.flatnonzero([k in alignment.factor[i] for i in range(len(draws))])
        more.append(there[evenly(len(there), LEAST_SCORE_DRAWS)])
    return np.unique(np.concatenate(more))


def _enough_draws(draws: Sequence[Draw], n_samples: int) -> int:
    size = max(len(draws[0].noise_precision) * max(draw.n_factors for draw in draws), 1)
    affordable = max(SCORE_WORK // (size * max(n_samples, 1)), LEAST_SCORE_DRAWS)
    return min(SCORE_DRAWS, max(SCORE_ENTRIES // size, 100), affordable)


def score_means(
    tables: Tables, draws: Sequence[Draw], alignment: Alignment, keep: Ints, n_samples: int
) -> tuple[Floats, Floats]:
    """Posterior mean and standard deviation (N, K) of the samples' scores on the pivot's columns ``keep``.

    ``n_samples`` is how many there are in all, of which ``data`` may be a block.

    Over the draws that contain the factor: in the others it has no scores.
    """
    data = tables.data
    # of a table that is elsewhere nobody's
    shape = 0 if data.elsewhere else data.shape[1], len(keep)
    if not shape[0]:
        return np.zeros(shape), np.zeros(shape)
    some = score_draws(draws, alignment, keep, n_samples, tables.enough(len(draws)))

    def scores(i: int) -> SampleMoments:
        seen = tables.under(draws[i], i).data
        return sample_moments(seen, draws[i], tables.kernels, alignment.rotation[i], density=False)

    # a device with too little memory leaves it to the CPU
    with suppress(GpuError), moments_on_device(tables) as there:
        if there is not None:
            return _averages((there(draws[i], alignment.rotation[i]) for i in some), some, shape, alignment, keep)
    at_once = mostly_zero(draws[some[0]]) and not is_large(data)
    return _averages(in_order(scores, some, at_once), some, shape, alignment, keep)


def _averages(
    found: Iterable[SampleMoments], some: Ints, shape: tuple[int, int], alignment: Alignment, keep: Ints
) -> tuple[Floats, Floats]:
    """Mean and standard deviation (N, K) over what was found of some draws."""
    mean, square, count = np.zeros(shape), np.zeros(shape), np.zeros(shape[1])
    for i, moments in zip(some, found, strict=True):
        own, where, sign = alignment.columns(i, keep)
        mean[:, where] += moments.mean[:, own] * sign
        square[:, where] += moments.variance[:, own] + moments.mean[:, own] ** 2
        count[where] += 1
    count = np.maximum(count, 1)
    mean /= count
    return mean, np.sqrt(np.maximum(square / count - mean**2, 0.0))
