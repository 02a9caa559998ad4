"""Loops over features on a device, behind the verbs of ``Kernels`` that a chain with its state there needs.

Arrays per feature are on the device, those per factor here; what has neither axis stays with the compiled backend.
Nothing may be missing, and loadings in use are those that are not zero: ``active`` is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nsfa.arrays import contiguous
from nsfa.kernels import Born, Own, Split, get_kernels
from nsfa.kernels.compiled import gamma_draw, normal_at, uniform_pair
from nsfa.kernels.streams import STRETCH

if TYPE_CHECKING:
    from nsfa.arrays import Floats, Ints
    from nsfa.kernels import Births, Kernels, Pairs, Rows, Splits

_THREADS = 256
_WARPS = 4
_TOGETHER = 128
_SEARCHERS = 1024
# Rows of the pairs' work space, and sums that they take at once (cuda/pairs.cu).
_WORK_ROWS, _MOST_SUMS = 11, 24
# Blocks that add up columns of the loadings.
_SUMMING = 128
# Entries of the matrices that dense loadings are drawn from at once.
_MATRICES = 50_000_000


class GpuKernels:
    """The kernels of one device; several chains may use them, one at a time."""

    def __init__(self, device: Any, threads: int = 1) -> None:
        self.device = device
        self.host: Kernels = get_kernels("numba", threads)
        self.rescale, self.draw_shears = self.host.rescale, self.host.draw_shears
        # the user of each factor that has one alone, from a sweep over the loadings to the next scores; else not known
        self._owner: Ints | None = None

    def rows(self, name: str, n: int, *arguments: Any) -> None:
        """Launch a kernel with a thread for each of ``n``."""
        if n:
            self.device.launch(name, -(-n // _THREADS), _THREADS, *arguments)

    def sweep_independent(
        self, loadings: Any, active: Any, rows: Rows, logit: Floats, anchor: Ints, key: int
    ) -> tuple[Ints, Any]:
        """One Gibbs pass over (z, g) with prior logits, rows independent: see ``Kernels``."""
        device, (n_features, n_factors) = self.device, rows.cross.shape
        known, n_known = self._known(rows.known)
        # the kernel adds what is known of each feature
        common = logit[0] - np.pad(rows.known[0], (0, n_factors - n_known))
        counts, residual = device.zeros(2 * n_factors, np.uint64), device.empty(n_features)
        # five numbers a factor for each warp, and a count; where there are very many factors, one warp a block
        warps = _WARPS if 56 * _WARPS * n_factors <= device.most_shared else 1
        own = 8 * warps * 5 * n_factors + 16 * n_factors
        whole = own + 8 * n_factors**2
        fits = whole <= device.most_shared // 2
        blocks = min(-(-n_features // warps), 16 * device.multiprocessors)
        gram, slab, logits = device.put_all(rows.gram, rows.loading_precision[0], common)
        device.launch(
            "sweep_rows", blocks, 32 * warps, np.int64(n_features), np.int32(n_factors), _width(loadings), loadings,
            rows.cross, gram, rows.power, rows.noise_precision, slab, np.int32(rows.relative), logits, known,
            np.int32(n_known), device.put(anchor), np.uint64(key), np.int32(fits), counts, residual,
            shared=whole if fits else own,
        )  # fmt: skip
        usage, self._owner = device.get(counts).reshape(2, n_factors).astype(np.int64)
        return usage.copy(), residual

    def _known(self, known: Floats) -> tuple[Any, int]:
        """What is known of the first factors (D, K₀), and of how many; None where nothing is."""
        n_known = known.shape[1]
        return self.device.put(known) if n_known else None, n_known

    def draw_dense(self, loadings: Any, rows: Rows, key: int) -> Any:
        """Loadings of every feature from their K-variate normal: see ``Kernels``. Cost O(D K³)."""
        device, (n_features, n_factors) = self.device, rows.cross.shape
        noise = device.empty((n_features, n_factors))
        self.rows("fill_normals", noise.size, np.int64(n_features), np.int64(n_factors), np.uint64(key), noise)
        gram, slab = device.put_all(rows.gram, rows.loading_precision[0])
        step = max(1, _MATRICES // n_factors**2)
        for first in range(0, n_features, step):
            some = slice(first, first + step)
            tau = rows.noise_precision[some, None]
            matrix = tau[:, :, None] * gram
            at = np.arange(n_factors)
            matrix[:, at, at] += slab * tau if rows.relative else slab
            root = np.linalg.cholesky(matrix)
            half = np.linalg.solve(root, (tau * rows.cross[some])[:, :, None])
            drawn = np.linalg.solve(root.transpose(0, 2, 1), half + noise[some, :, None])
            loadings[some] = drawn[:, :, 0]
        return self.residuals(loadings, None, rows, None, None)

    def residuals(self, loadings: Any, active: Any, rows: Rows, which: Any, skip: Any) -> Any:
        """Residual sums of squares of all features (D,), all factors counted."""
        fit = loadings @ self.device.put(rows.gram)
        return np.maximum(rows.power - ((2.0 * rows.cross - fit) * loadings).sum(axis=1), 0.0)

    def column_squares(self, loadings: Any, weight: Any) -> Floats:
        """Σ_d w_d g_dk² of every factor (K,); ``weight`` (D,) is None for ones."""
        n_features, n_factors = loadings.shape
        blocks = min(_SUMMING, n_features)
        out = self.device.empty((blocks, n_factors))
        size = np.int64(n_features), np.int32(n_factors), _width(loadings)
        self.device.launch("column_squares", blocks, 64, *size, loadings, weight, out)
        total: Floats = self.device.get(out).sum(axis=0)
        return total

    def slab_weight(self, loadings: Any, slab: Floats) -> Any:
        """Each feature's loadings in use and their Σ λ g² (2, D)."""
        n_features, n_factors = loadings.shape
        out = self.device.empty((2, n_features))
        size = np.int64(n_features), np.int32(n_factors), _width(loadings)
        self.rows("slab_weight", 32 * n_features, *size, loadings, self.device.put(slab), out)
        return out

    def draw_gammas(self, shape: Any, rate: Any, key: int) -> Any:
        """Gamma(shape, rate) draws: of few, here; of a number for each feature, there."""
        if not hasattr(shape, "get"):
            return self.host.draw_gammas(shape, rate, key)
        out = self.device.empty(len(shape))
        self.rows("fill_gammas", len(shape), np.int64(len(shape)), shape, rate, np.float64(np.inf), np.uint64(key), out)
        return out

    def draw_noise(self, count: Any, residual: Any, weight: Any, prior: tuple[float, float, float], key: int) -> Any:
        """Noise precisions (D,); ``prior`` is their shape, rate and largest value, ``weight`` that of the loadings."""
        out = self.device.empty(len(count))
        settings = (*map(np.float64, prior), np.uint64(key))
        self.rows("fill_noise", len(count), np.int64(len(count)), count, residual, weight, *settings, out)
        return out

    def products(self, loadings: Any, weight: Any) -> tuple[Floats, Floats]:
        """Gᵀ diag(w) G (K, K), and how many features use every two factors; ``weight`` (D,) is None for ones."""
        device, (n, k) = self.device, loadings.shape
        dense, weighted, pattern = (device.room(name, (n, k)) for name in ("dense", "weighted", "pattern"))
        out = device.empty((2, k, k))
        size = np.int64(n), np.int32(k), _width(loadings)
        self.rows("spread_loadings", n * k, *size, loadings, weight, dense, weighted, pattern)
        np.matmul(dense.T, weighted, out=out[0])
        np.matmul(pattern.T, pattern, out=out[1])
        inner, together = device.get(out)
        return inner, together

    def turn_columns(self, array: Any, by: Floats) -> None:
        """(D, K) → (D, K) · ``by``, (K, K) or (K,) for a diagonal one, in place."""
        n, k = array.shape
        size = np.int64(n), np.int32(k), _width(array)
        if by.ndim == 1:
            self.rows("scale_columns", n * k, *size, self.device.put(by), array)
        else:
            self.rows("put_loadings", n * k, *size, contiguous(array) @ self.device.put(by), array)

    def set_entries(self, loadings: Any, features: Ints, factors: Ints, values: Floats) -> None:
        """Set single loadings (n,)."""
        if n := len(features):
            places, value = self.device.put(np.concatenate([features, factors])), self.device.put(values)
            size = np.int32(n), _width(loadings)
            self.rows("set_entries", n, *size, places, places[n:], value, loadings)
            if self._owner is not None:
                self._owner = np.pad(self._owner, (0, max(0, loadings.shape[1] - len(self._owner))))
                self._owner[factors] = features

    def move_columns(self, buffer: Any, to: Ints, source: Ints) -> None:
        """Columns ``source`` (n,) of a buffer take the places ``to``."""
        if n := len(to):
            places = self.device.put(np.concatenate([to, source]))
            size = np.int64(len(buffer)), np.int32(n), _width(buffer)
            self.rows("move_columns", len(buffer), *size, places, places[n:], buffer)
            if self._owner is not None:
                self._owner[to] = self._owner[source]

    def centre_cross(
        self, cross: Any, moments: tuple[Any, Any, Any], shifted: tuple[Floats, Floats], old: Any, now: Any
    ) -> Any:
        """Bring T (D, K), in place, to scores that were shifted and to intercepts ``now``; returns Σ (y − now)² (D,).

        ``moments`` are the features' sums, counts and sums of squares; ``shifted`` is what was added to the scores, and
        their sums since then; T is reduced by the intercepts ``old``, or None.
        """
        n, k = cross.shape
        total, count, square = moments
        if not k:
            return np.maximum(square - now * (2.0 * total - now * count), 0.0)
        power, (shift, sums) = self.device.empty(n), self.device.put_all(*shifted)
        size = np.int64(n), np.int32(k)
        self.rows("centre_cross", n * k, *size, total, count, square, shift, sums, old, now, cross, power)
        return power

    def draw_means(self, loadings: Any, sums: Floats, total: Any, count: Any, noise: Any, key: int) -> Any:
        """Features' means (D,) given scores with the sums ``sums`` (K,) and noise precisions."""
        n, k = loadings.shape
        out, size = self.device.empty(n), (np.int64(n), np.int32(k), _width(loadings))
        by = self.device.put(sums) if k else None
        self.rows("draw_means", 32 * n, *size, loadings, by, total, count, noise, np.uint64(key), out)
        return out

    def nth_users(self, loadings: Any, factors: Ints, ranks: Ints) -> Ints:
        """Of the features that use each of the ``factors``, number ``ranks`` (from 0)."""
        if not len(factors):
            return np.zeros(0, np.int64)
        device, lists = self.device, self.device.put(np.concatenate([factors, ranks]).astype(np.int64))
        out = device.empty(len(factors), np.int64)
        size = np.int64(loadings.shape[0]), _width(loadings)
        arguments = *size, lists, lists[len(factors) :], loadings, out
        device.launch("nth_users", len(factors), _SEARCHERS, *arguments, shared=4 * _SEARCHERS // 32)
        found: Ints = device.get(out)
        return found

    def forget_owners(self) -> None:
        """Loadings are no longer changed by single entries alone."""
        self._owner = None

    def _owners(self, loadings: Any, factors: Ints) -> Ints:
        """The only users (n,) of factors (n,) that have one alone."""
        if self._owner is None:
            return self.nth_users(loadings, factors, np.zeros_like(factors))
        return self._owner[factors]

    def own_factors(self, loadings: Any, active: Any, rows: Rows, usage: Ints, residual: Any) -> Own:
        """The factors used by one feature alone: see ``Kernels``. Arrays per feature are on the device."""
        device, (n_features, n_factors) = self.device, rows.cross.shape
        single = usage == 1
        factor = np.flatnonzero(single)
        owner = self._owners(loadings, factor)
        number, square, left = device.zeros(n_features, np.int32), device.zeros(n_features), residual.copy()
        if len(factor):
            gram = device.put(rows.gram)
            self.rows(
                "own_rows", 32 * len(factor), np.int32(len(factor)), np.int32(n_factors), _width(loadings),
                device.put(owner), device.put(single.astype(np.uint8)), loadings, rows.cross, gram, rows.power, number,
                square, left,
            )  # fmt: skip
        return Own(factor, owner, number, square, left)

    def draw_births(self, problem: Births, key: int) -> Born:
        """Births and deaths: see ``Kernels``. What is listed of the born is here, whoever has accepted too."""
        device, n = self.device, len(problem.residual)
        listed, wanted = device.room("listed", n, np.int64), device.room("wanted", n, np.int64)
        found = device.zeros(1, np.int32)
        cumulative, weight = device.put_all(problem.cumulative, problem.weight)
        self.rows(
            "birth_rows", n, np.int64(n), problem.residual, problem.noise_precision, problem.n_observed,
            problem.own_count, problem.own_square, np.int32(len(problem.cumulative)), cumulative, weight,
            np.float64(problem.slab_shape), np.float64(problem.slab_rate), np.uint64(key), found, listed, wanted,
        )  # fmt: skip
        row, count = self._listed(found, listed, wanted)
        accepted = np.zeros(n, dtype=np.bool_)
        accepted[row] = True
        born, place = np.repeat(row, count), _places(count)
        column = (place + 1) * STRETCH
        at = list(zip(born.tolist(), column.tolist(), strict=True))
        precision = np.full(len(born), problem.slab_rate)
        if problem.slab_shape > 0:
            precision = np.array([gamma_draw(problem.slab_shape, np.uint64(key), d, c + 1) for d, c in at])
            precision = precision / problem.slab_rate
        loading = np.array([normal_at(np.uint64(key), d, c) for d, c in at]) / np.sqrt(precision)
        return Born(accepted, born, loading, precision)

    def _listed(self, found: Any, listed: Any, values: Any) -> tuple[Ints, Any]:
        """Features that a kernel has listed in any order, and a value of each, by feature."""
        device = self.device
        number = int(device.get(found)[0])
        if not number:
            return np.zeros(0, np.int64), np.zeros(0, values.dtype)
        row, value = device.get(listed[:number]), device.get(values[:number])
        order = np.argsort(row)
        return row[order], value[order]

    def draw_splits(self, problem: Splits, key: int) -> Split:
        """Splits of the noise: see ``Kernels``. The noise precisions are on the device, the lists here."""
        device, (n, width) = self.device, problem.loadings.shape
        factor = np.flatnonzero(problem.usage == 1)
        owner = self._owners(problem.loadings, factor)
        number, chosen = _choose(owner, factor, n, key)
        rows = np.array(sorted(number), dtype=np.int64)
        number_of, chosen_of = device.zeros(n, np.int32), device.zeros(n, np.int32)
        if len(rows):
            lists = [device.put(np.array([table[d] for d in rows.tolist()], np.int32)) for table in (number, chosen)]
            self.rows("scatter_own", len(rows), np.int32(len(rows)), device.put(rows), *lists, number_of, chosen_of)
        noise, found = problem.noise_precision.copy(), device.zeros(1, np.int32)
        listed, loading = device.room("listed", n, np.int64), device.room("loading", n)
        settings = (*problem.slab, *problem.noise_prior, problem.rate, problem.largest)
        self.rows(
            "split_rows", n, np.int64(n), np.int32(width), problem.loadings, problem.weight,
            device.put(problem.loading_precision[0]), number_of, chosen_of, *map(np.float64, settings),
            np.int32(problem.relative), np.uint64(key), noise, found, listed, loading,
        )  # fmt: skip
        row, value = self._listed(found, listed, loading)
        died = np.isnan(value)
        factors = np.array([chosen[d] for d in row[died].tolist()], dtype=np.int64)
        return Split(noise, row[~died], value[~died], (row[died], factors))

    def tilt(self, problem: Pairs, pairs: Ints, key: int) -> int:
        """Tilt pairs of factors: see ``Kernels``."""
        return self._pairs("tilt_pairs", 1, problem, pairs, key)

    def rotate(self, problem: Pairs, pairs: Ints, key: int) -> int:
        """Rotate pairs of factors, likewise."""
        return self._pairs("rotate_pairs", 2, problem, pairs, key)

    def _pairs(self, name: str, n_rows: int, problem: Pairs, pairs: Ints, key: int) -> int:
        device, (n_features, n_factors) = self.device, problem.excess.shape
        blocks = min(-(-n_features // _TOGETHER), device.multiprocessors)
        changes = device.zeros(n_factors + 1, np.int32)
        partial, barrier = device.empty((2, _MOST_SUMS, blocks)), device.zeros(1, np.uint32)
        gram, turn, logit = device.put_all(problem.gram, problem.turn, problem.logit)
        places = device.put(np.concatenate([problem.anchor, pairs.ravel()]).astype(np.int64))
        slabs, (known, n_known) = problem.loading_precision, self._known(problem.known)
        device.launch(
            name, blocks, _TOGETHER, np.int64(n_features), np.int32(n_factors), _width(problem.loadings),
            np.int32(len(slabs) > 1), np.int32(n_known), np.int32(len(pairs)), problem.loadings, problem.excess, gram,
            turn, changes, problem.noise_precision, slabs, logit, known, places, places[n_factors:],
            device.empty((_WORK_ROWS, n_features)), partial, barrier, changes[n_factors:], np.uint64(key),
            shared=8 * (_MOST_SUMS * (_TOGETHER // 32 + 1) + n_rows * n_factors),
        )  # fmt: skip
        changed = device.get(changes)
        problem.gram[:], problem.turn[:] = device.get(gram), device.get(turn)
        problem.usage[:] += changed[:-1]
        return int(changed[-1])


def _width(loadings: Any) -> np.int32:
    """How far apart the rows of (a part of) a buffer are."""
    return np.int32(loadings.strides[0] // loadings.itemsize)


def _places(count: Ints) -> Ints:
    """0, 1, … within each run of so many."""
    out: Ints = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return out


def _choose(owner: Ints, factor: Ints, n_features: int, key: int) -> tuple[dict[int, int], dict[int, int]]:
    """Each owner's number of own factors, and one of these, all with the same probability."""
    number: dict[int, int] = {}
    chosen: dict[int, int] = {}
    for d, k in zip(owner.tolist(), factor.tolist(), strict=True):
        number[d] = number.get(d, 0) + 1
        if uniform_pair(np.uint64(key), n_features + k, 0)[0] * number[d] < 1.0:
            chosen[d] = k
    return number, chosen
