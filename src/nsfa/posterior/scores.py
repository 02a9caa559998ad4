"""Scores of samples, old or new, averaged over draws: of a table in memory by parts, or in blocks on Dask workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from nsfa.arrays import Floats, Ints
from nsfa.blocks import no_blocks_for
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.kernels import get_kernels
from nsfa.kernels.dask_blocks import mapped
from nsfa.kernels.device import GpuError
from nsfa.model.spec import ModelSpec
from nsfa.posterior.align import Alignment, evenly
from nsfa.posterior.columns import in_order, mostly_zero
from nsfa.posterior.consensus import Consensus
from nsfa.posterior.latent import Tables
from nsfa.posterior.on_device import moments_on_device
from nsfa.posterior.project import SampleMoments, is_large, sample_blocks, sample_moments
from nsfa.threads import one_thread

# Averages of scores over this many evenly spaced draws are as good as over all; in large tables over fewer.
SCORE_DRAWS = 400
SCORE_ENTRIES = 200_000_000
# In very large tables, where a draw changes scores little, over as many as take so many multiplications.
SCORE_WORK, LEAST_SCORE_DRAWS = 500_000_000_000, 10


def scores_of(
    X: Any, tables: Tables, draws: Sequence[Draw], alignment: Alignment, consensus: Consensus
) -> tuple[Floats, Floats]:
    """Posterior mean and standard deviation (n_samples, K) of samples with the features of the fit's ``tables``."""
    given = draws, alignment, consensus.pivot, getattr(X, "shape", (1,))[0]
    with threadpool_limits(1):
        blocks = sample_blocks(tables.data, X)
        parts = [score_means(tables._replace(data=block, fitted=False), *given) for block in blocks]
    mean, deviation = (np.concatenate(part) for part in zip(*parts, strict=True))
    return mean * consensus.sign, deviation


def scores_in_blocks(
    X: Any, data: Observed, spec: ModelSpec, draws: Sequence[Draw], alignment: Alignment, consensus: Consensus
) -> tuple[Any, Any]:
    """The same for a dask array: two lazy ones with its blocks of samples."""
    no_blocks_for(spec)
    if X.ndim != 2 or X.shape[1] != data.n_features:
        raise ValueError(f"X must have the {data.n_features} features of the fit. Got shape {X.shape}.")
    some = score_draws(draws, alignment, consensus.pivot, X.shape[0])
    own = [draws[i] for i in some]
    given = data.without_samples(), spec, own, alignment.taken(some), consensus.pivot, consensus.sign
    both, width = mapped(X, _block_scores, given, 2 * consensus.n_factors), consensus.n_factors
    return both[:, :width], both[:, width:]


def _block_scores(chunk: Any, payload: tuple[Any, ...]) -> Floats:
    """Means and standard deviations (n, 2 K) of a block's scores, on a worker."""
    data, spec, draws, alignment, keep, sign = payload
    with one_thread():
        # of draws that were chosen for the whole table, all
        given, kernels = (draws, alignment, keep, 1), get_kernels("numba")
        parts = [score_means(Tables(block, spec, kernels, False), *given) for block in sample_blocks(data, chunk)]
    mean, deviation = (np.concatenate(part) for part in zip(*parts, strict=True))
    return np.hstack([mean * sign, deviation])


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
