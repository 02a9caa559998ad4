"""The compiled CPU backend: numba row loops and BLAS products, shared out over a thread pool.

Threads cost a few dozen microseconds each time they are woken, so small problems stay on the calling thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from nsfa.kernels import (
    Born,
    Doubled,
    Own,
    Split,
    birth_kernels,
    block_kernels,
    carried_kernels,
    column_kernels,
    doublet_kernels,
    factor_kernels,
    few_missing,
    latent_kernels,
    marginal_kernels,
    module_kernels,
    pair_kernels,
    products,
    rate_kernels,
    rotation_kernels,
    row_kernels,
    sample_kernels,
    share_kernels,
    sparse_kernels,
)
from nsfa.kernels.compiled import fill_gammas, fill_normals
from nsfa.kernels.complete_scores import moments_complete, scores_complete, shared_root
from nsfa.kernels.streams import Numbers, numbered

if TYPE_CHECKING:
    from nsfa.arrays import Bools, Floats, Ints
    from nsfa.kernels import (
        Births,
        Centred,
        Columns,
        Doublets,
        Hidden,
        Holes,
        Marginal,
        Pairs,
        Projection,
        Rows,
        Scales,
        Splits,
    )

# Below this many matrix entries a chunk of work is not worth a thread.
_WORTH_A_THREAD = 20_000
# Below N K² of this size, calling the libraries for the scores costs more than they save.
_SMALL_SCORES = 50_000
# From this many samples on, complete ones draw their scores block by block, with less room and on all threads.
_SAMPLES_PER_BLOCK = 16_384

# Squared errors, in units of the noise variance, from which every entry is looked at closely.
_CEILINGS = 64


class NumbaKernels:
    """Compiled kernels on ``threads`` threads; see ``nsfa.kernels.Kernels`` for what each does."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        # the calling thread takes its share, so one helper fewer
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def _each(self, function: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
        """The results of function(part) in order, the parts handed out to whichever thread is free."""
        parts = list(parts)
        if self._pool is None or len(parts) == 1:
            return [function(part) for part in parts]
        results: list[Any] = [None] * len(parts)
        # a deque hands each index to one thread only
        waiting = deque(range(len(parts)))

        def drain() -> None:
            while waiting:
                try:
                    i = waiting.popleft()
                except IndexError:
                    return
                results[i] = function(parts[i])

        helpers = [self._pool.submit(drain) for _ in range(min(self._threads, len(parts)) - 1)]
        drain()
        for helper in helpers:
            helper.result()
        return results

    def _over_rows(self, function: Callable[[int, int], Any], n_rows: int, width: int) -> list[Any]:
        """Call function(lo, hi) over ranges that cover the rows; its results must not depend on the ranges."""
        wanted = min(4 * self._threads, n_rows * width // _WORTH_A_THREAD)
        if self._pool is None or wanted < 2:
            return [function(0, n_rows)]
        edges = np.linspace(0, n_rows, wanted + 1).astype(int).tolist()
        return self._each(lambda part: function(*part), pairwise(edges))

    def cross(self, data: Centred, scores: Floats, out: Floats) -> None:
        if data.offset is None:
            products.cross(data, scores, out, self._each)
            return
        rest = *_stored(data), np.ascontiguousarray(scores), sparse_kernels.block_size(scores.shape[1]), out
        self._over_rows(lambda lo, hi: sparse_kernels.cross_rows(lo, hi, *rest), len(out), _width(data, scores, out))
        out -= data.offset[:, None] * scores.sum(axis=0)

    def project(self, data: Centred, loadings: Floats, noise_precision: Floats) -> tuple[Floats, Floats]:
        if data.offset is None:
            return products.project(data, loadings, noise_precision, self._each)
        weighted = np.ascontiguousarray(noise_precision[:, None] * loadings)
        out = np.empty((data.values.shape[1], weighted.shape[1]))
        rest = *_stored(data), weighted, sparse_kernels.block_size(weighted.shape[1]), out
        self._over_rows(
            lambda lo, hi: sparse_kernels.project_rows(lo, hi, *rest), len(out), _width(data, weighted, out)
        )
        out -= data.offset @ weighted
        return out, weighted.T @ loadings

    def residuals(self, loadings: Floats, active: Bools, rows: Rows, which: Ints, skip: Bools) -> Floats:
        out = np.empty(len(which))

        def one(lo: int, hi: int) -> None:
            row_kernels.residual_rows(loadings, active, rows, which[lo:hi], skip, out[lo:hi])

        self._over_rows(one, len(which), loadings.shape[1])
        return out

    def sweep_collapsed(
        self, loadings: Floats, active: Bools, rows: Rows, usage: Ints, prior: tuple[float, float], key: int
    ) -> Floats:
        residual = np.empty(len(loadings))
        row_kernels.collapsed_rows(
            loadings, active, rows, _room(rows), usage, prior[0], prior[1], np.uint64(key), residual
        )
        return residual

    def sweep_independent(
        self, loadings: Floats, active: Bools, rows: Rows, logit: Floats, anchor: Ints, key: int
    ) -> tuple[Ints, Floats]:
        residual, complete = np.empty(len(loadings)), _complete(rows.holes)

        def one(lo: int, hi: int) -> Ints:
            usage = np.zeros(loadings.shape[1], dtype=np.int64)
            rest = logit, anchor, np.uint64(key), usage, residual
            if complete:
                block_kernels.block_rows(lo, hi, loadings, active, rows, *rest)
            else:
                row_kernels.independent_rows(lo, hi, loadings, active, rows, _room(rows), *rest)
            return usage

        return sum(self._over_rows(one, *loadings.shape)), residual

    def sweep_marginal(self, problem: Marginal, values: Floats, key: int) -> None:
        weighted = problem.loadings / problem.noise_variance[:, None]
        A = weighted.T @ values
        P = np.linalg.inv(np.eye(len(A)) + weighted.T @ problem.loadings)
        PA = P @ A
        power = np.einsum("dn,dn->d", values, values)
        marginal_kernels.marginal_rows(problem, values, power, A, P, PA @ PA.T, np.uint64(key))

    def draw_gammas(self, shape: Floats, rate: Floats, key: int, numbers: Numbers = 0) -> Floats:
        out, rows = np.empty(len(shape)), numbered(numbers, len(shape))

        def one(lo: int, hi: int) -> None:
            fill_gammas(np.uint64(key), rows[lo:hi], shape[lo:hi], rate[lo:hi], out[lo:hi])

        self._over_rows(one, len(shape), 8)
        return out

    def own_factors(self, loadings: Floats, active: Bools, rows: Rows, usage: Ints, residual: Floats) -> Own:
        if not len(usage):
            # nothing to list: and arrays without columns have a layout of their own, which would be compiled for
            none = np.zeros(0, dtype=np.int64)
            return Own(none, none, np.zeros(len(loadings), dtype=np.int64), np.zeros(len(loadings)), residual)
        return Own(*birth_kernels.own_factors(loadings, active, rows, usage, residual))

    def draw_births(self, problem: Births, key: int) -> Born:
        def one(lo: int, hi: int) -> tuple[Any, ...]:
            return birth_kernels.birth_rows(lo, hi, problem, np.uint64(key))  # type: ignore[no-any-return]

        parts = self._over_rows(one, len(problem.noise_precision), 4)
        return Born(*parts[0]) if len(parts) == 1 else Born(*map(np.concatenate, zip(*parts, strict=True)))

    def draw_splits(self, problem: Splits, key: int) -> Split:
        precision, row, loading, *dead = birth_kernels.split_rows(problem, np.uint64(key))
        return Split(precision, row, precision[row], loading, (dead[0], dead[1]))

    def draw_doublets(
        self, problem: Doublets, residual: Floats, scores: Floats, attempts: int, key: int
    ) -> tuple[Doubled, Floats]:
        *found, new_scores = doublet_kernels.try_doublets(problem, residual, scores, attempts, np.uint64(key))
        return Doubled(*found), new_scores

    def climb(
        self, residual: Floats, start: Floats, slab: tuple[float, float], stickiness: float, steps: int
    ) -> tuple[Floats, float, float]:
        return module_kernels.climb(residual, start, slab, stickiness, steps)  # type: ignore[no-any-return]

    def tilt(self, problem: Pairs, pairs: Ints, key: int) -> int:
        return int(pair_kernels.tilt_pairs(problem, pairs, np.uint64(key)))

    def rotate(self, problem: Pairs, pairs: Ints, key: int) -> int:
        return int(rotation_kernels.rotate_pairs(problem, pairs, np.uint64(key)))

    def draw_columns(self, problem: Columns, factors: Ints, log_odds: Floats, key: int) -> None:
        column_kernels.draw_columns(problem, factors, log_odds, np.uint64(key))

    def rescale(self, problem: Scales, key: int) -> Floats:
        return factor_kernels.rescale(problem, np.uint64(key))  # type: ignore[no-any-return]

    def draw_shears(
        self, gram: Floats, inner: Floats, precision: Floats, inside: Bools, key: int
    ) -> tuple[Floats, Floats]:
        return factor_kernels.draw_shears(gram, inner, precision, inside, np.uint64(key))  # type: ignore[no-any-return]

    def draw_dense(self, loadings: Floats, rows: Rows, key: int) -> Floats:
        residual, active = np.empty(len(loadings)), np.ones(loadings.shape, dtype=np.bool_)
        ones = None if _complete(rows.holes) else np.ones(len(rows.scores))

        def one(lo: int, hi: int) -> None:
            row_kernels.dense_rows(lo, hi, loadings, active, rows, ones, np.uint64(key), residual)

        self._over_rows(one, loadings.shape[0], loadings.shape[1] ** 2)
        return residual

    def draw_scores(self, problem: Projection, scores: Floats, key: int, numbers: Numbers = 0) -> float:
        if len(scores) > _SAMPLES_PER_BLOCK and _complete(problem.holes):
            return self._scores_in_blocks(problem, scores, key, numbers)
        normals, rows = np.empty(scores.shape), numbered(numbers, len(scores))

        def fill(lo: int, hi: int) -> None:
            fill_normals(np.uint64(key), rows[lo:hi], normals[lo:hi])

        self._over_rows(fill, *scores.shape)
        if _complete(problem.holes):
            if scores.size * scores.shape[1] < _SMALL_SCORES:
                return sample_kernels.scores_small(problem, scores, normals)  # type: ignore[no-any-return]
            return scores_complete(problem.projection, shared_root(problem), scores, normals)
        return self._scores_with_holes(problem, scores, normals, key, rows)

    def _scores_in_blocks(self, problem: Projection, scores: Floats, key: int, numbers: Numbers) -> float:
        shared, every = shared_root(problem), numbered(numbers, len(scores))

        def one(lo: int) -> float:
            rows = slice(lo, min(lo + _SAMPLES_PER_BLOCK, len(scores)))
            normals = np.empty(scores[rows].shape)
            fill_normals(np.uint64(key), every[rows], normals)
            return scores_complete(problem.projection[rows], shared, scores[rows], normals)

        return float(sum(self._each(one, range(0, len(scores), _SAMPLES_PER_BLOCK))))

    def _scores_with_holes(self, problem: Projection, scores: Floats, normals: Floats, key: int, numbers: Any) -> float:
        order, first = _samples_of_patterns(problem)
        few = few_missing(problem.holes, scores.shape[1])
        evidence, width = np.empty(len(few)), scores.shape[1] ** 2
        some, rest = np.flatnonzero(few), np.flatnonzero(~few)
        if len(some):
            root, inverse = shared_root(problem)
            b, weighted = problem.projection @ inverse.T, problem.loadings * np.sqrt(problem.noise_precision)[:, None]
            arguments = problem.holes, weighted @ inverse.T, b, normals, np.uint64(key), numbers, evidence

            def one(lo: int, hi: int) -> None:
                sample_kernels.scores_from_shared(some[lo:hi], order, first, *arguments)

            self._over_rows(one, len(some), width)
            evidence[some] -= np.diff(first)[some] * np.log(root.diagonal()).sum()
            scores[:] = normals @ inverse
        if len(rest):

            def other(lo: int, hi: int) -> None:
                sample_kernels.scores_by_pattern(rest[lo:hi], order, first, problem, scores, normals, evidence)

            self._over_rows(other, len(rest), width)
        return float(evidence.sum())

    def score_moments(self, problem: Projection) -> tuple[Floats, Floats, Floats]:
        if _complete(problem.holes):
            return moments_complete(problem)
        shape = problem.projection.shape
        mean, variance, evidence = np.empty(shape), np.empty(shape), np.empty(shape[0])
        order, first = _samples_of_patterns(problem)

        def one(lo: int, hi: int) -> None:
            sample_kernels.moments_by_pattern(lo, hi, order, first, problem, mean, variance, evidence)

        self._over_rows(one, len(first) - 1, shape[1] ** 2)
        return mean, variance, evidence

    def predict(self, problem: Projection, sample: Ints, row: Ints) -> tuple[Floats, Floats]:
        mean, variance = np.empty(len(row)), np.empty(len(row))
        order, first = _samples_of_patterns(problem)
        entry = np.searchsorted(sample, np.arange(len(problem.pattern) + 1))

        def one(lo: int, hi: int) -> None:
            sample_kernels.predict_by_pattern(lo, hi, order, first, problem, entry, row, mean, variance)

        self._over_rows(one, len(first) - 1, len(row) * len(problem.information) // len(first) + 1)
        return mean, variance

    def draw_outliers(
        self,
        problem: Hidden,
        shares: Floats,
        scales: Floats,
        prior: Floats,
        largest: float,
        key: int,
        numbers: Numbers = 0,
    ) -> tuple[Floats, Floats, Floats]:
        weight, precision = np.empty((2, len(problem.seen))), np.empty(len(problem.seen))
        every = numbered(numbers, problem.seen.shape[1])
        rest = shares, scales, _outlier_ceiling(shares, scales), prior, largest, np.uint64(key), every

        def one(lo: int, hi: int) -> Floats:
            return latent_kernels.outlier_rows(lo, hi, problem, *rest, weight, precision)  # type: ignore[no-any-return]

        # whole numbers: their sum does not depend on the ranges
        return sum(self._over_rows(one, *problem.seen.shape)), weight, precision

    def draw_concentrations(
        self, number: Floats, concentration: Floats, shape: Floats, rate: float, key: int
    ) -> Floats:
        counts = np.ascontiguousarray(np.column_stack([number, number.sum(axis=1)]).T)
        return share_kernels.draw_concentrations(counts, concentration, shape, rate, np.uint64(key))  # type: ignore[no-any-return]

    def draw_rates(
        self, problem: Hidden, level: Floats, exposure: Floats, prior: Floats, key: int, numbers: Numbers = 0
    ) -> Floats:
        precision, every = np.empty(len(level)), numbered(numbers, problem.seen.shape[1])

        def one(lo: int, hi: int) -> None:
            rest = level, exposure, prior, np.uint64(key), every, precision
            rate_kernels.rate_rows(lo, hi, problem, *rest)

        self._over_rows(one, *problem.seen.shape)
        return precision

    def carry_intercepts(self, problem: Hidden, level: Floats, exposure: Floats, key: int) -> Floats:
        out = np.empty(len(level))

        def one(lo: int, hi: int) -> None:
            carried_kernels.intercept_rows(lo, hi, problem, level, exposure, np.uint64(key), out)

        self._over_rows(one, *problem.seen.shape)
        return out

    def carry_loadings(self, problem: Hidden, precision: Floats, level: Floats, exposure: Floats, key: int) -> Floats:
        information, out = (problem.scores * np.exp(exposure)) @ problem.scores.T, problem.loadings.copy()

        def one(lo: int, hi: int) -> None:
            rest = level, exposure, information, np.uint64(key), out
            carried_kernels.loading_rows(lo, hi, problem, precision, *rest)

        self._over_rows(one, *problem.seen.shape)
        return out

    def carry_scores(self, problem: Hidden, level: Floats, exposure: Floats, key: int, numbers: Numbers = 0) -> Floats:
        out, every = np.array(problem.scores.T, order="C"), numbered(numbers, problem.seen.shape[1])
        ahead, users = np.empty(out.shape), np.flatnonzero(problem.loadings.any(axis=1))
        fill_normals(np.uint64(key), every, ahead)

        def one(lo: int, hi: int) -> None:
            carried_kernels.score_rows(lo, hi, problem, users, level, exposure, ahead, np.uint64(key), every, out)

        self._over_rows(one, len(out), len(level))
        return out

    def draw_signs(self, problem: Hidden, level: Floats, key: int, numbers: Numbers = 0) -> None:
        every = numbered(numbers, problem.seen.shape[1])

        def one(lo: int, hi: int) -> None:
            latent_kernels.sign_rows(lo, hi, problem, level, np.uint64(key), every)

        self._over_rows(one, *problem.seen.shape)

    def draw_urn(self, problem: Projection, scores: Floats, cluster: Ints, concentration: float, key: int) -> None:
        values, sizes = np.zeros((len(cluster) + 1, scores.shape[1])), np.bincount(cluster, minlength=len(cluster) + 1)
        values[cluster] = scores
        sample_kernels.urn_assign(problem, values, cluster, sizes, concentration, np.uint64(key))
        sample_kernels.urn_values(problem, values, cluster, sizes, np.uint64(key))
        scores[:] = values[cluster]


def _outlier_ceiling(shares: Floats, scales: Floats) -> Floats:
    """Bounds of an outlier's probability for squared errors below 1, 2, …, and 1 for all beyond, for each sample."""
    edge = np.arange(1.0, _CEILINGS)[:, None]
    height = np.exp(0.5 * edge * scales / (1.0 + scales)) / np.sqrt(1.0 + scales) @ shares.T
    # a little above, for rounding
    bound = np.minimum(1.0, 1.0001 * (1.0 - shares[:, 0] / height))
    return np.vstack([bound, np.ones(len(shares))])


def _stored(data: Centred) -> tuple[Any, Any, Any]:
    """A sparse table's entries, their samples, and where each feature's begin."""
    return data.values.data, data.values.indices, data.values.indptr


def _width(data: Centred, factors: Floats, rows: Floats) -> int:
    """What one of the rows of a product costs, in multiplications."""
    return int(data.values.nnz * factors.shape[1] // max(len(rows), 1)) + 1


def _complete(holes: Holes) -> bool:
    return bool(holes.pointer[-1] == 0 and not holes.rebuild.any())


def _room(rows: Rows) -> Floats | None:
    """Work space of a sweep over rows with holes; None where nothing is missing: it is then compiled without them."""
    if _complete(rows.holes):
        return None
    # rounded up to whole vectors
    return np.empty((len(rows.gram) + 1, int(np.diff(rows.holes.pointer).max(initial=0)) + 3))


def _samples_of_patterns(problem: Projection) -> tuple[Ints, Ints]:
    """Samples sorted by missing pattern, and where each pattern's samples begin."""
    order = np.argsort(problem.pattern, kind="stable")
    return order, np.searchsorted(problem.pattern[order], np.arange(len(problem.holes.rebuild) + 1))
