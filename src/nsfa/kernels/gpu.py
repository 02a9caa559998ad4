"""Loops over features on a device, behind the verbs of ``Kernels`` that a chain with its state there needs.

Arrays per feature are on the device, those per factor here; what has neither axis stays with the compiled backend.
Nothing may be missing, and loadings in use are those that are not zero: ``active`` is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nsfa.kernels import Born, Split, get_kernels
from nsfa.kernels.compiled import gamma_draw, normal_at, uniform_pair
from nsfa.kernels.streams import STRETCH

if TYPE_CHECKING:
    from nsfa.arrays import Floats, Ints
    from nsfa.kernels import Births, Kernels, Pairs, Rows, Splits

_THREADS = 256
_WARPS = 4
_SEARCHERS = 1024
# Blocks for pairs of factors: their threads, and features that are worth one; rows of their lists, sums that they take
# at once, and numbers they have room for beside rows of S and the list (cuda/pairs.cu).
_TOGETHER, _TO_EACH = 640, 128
_WORK_ROWS, _MOST_SUMS, _ROOM = 11, 33, 256
# Blocks that add up columns of the loadings.
_SUMMING = 128
# Numbers of a report that are fetched at once; there are seldom more.
_OFTEN = 1 + 3 * 64
# Entries of the matrices that dense loadings are drawn from at once.
_MATRICES = 50_000_000


class OwnThere(NamedTuple):
    """What a device knows of factors used by one feature alone: see ``Own``.

    residual (D,) is of all factors. ``listed`` begins with the owners, and ``found`` (3, n) has for each of them the
    number of its own factors, their Σg², and the residual without them; None where there is no such factor.
    """

    factor: Ints
    owner: Ints
    residual: Any
    listed: Any
    found: Any


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
        common = logit[0].copy()
        # the kernel adds what is known of each feature
        common[:n_known] -= rows.known[0]
        residual = device.empty(n_features)
        # five numbers a factor for each warp, and a count; where there are very many factors, one warp a block
        warps = _WARPS if 56 * _WARPS * n_factors <= device.most_shared else 1
        own = 8 * warps * 5 * n_factors + 16 * n_factors
        whole = own + 8 * n_factors**2
        fits = whole <= device.most_shared // 2
        blocks = min(-(-n_features // warps), 16 * device.multiprocessors)
        small = rows.gram, rows.loading_precision[0], common, np.zeros(2 * n_factors)
        gram, slab, logits, nothing = device.put_all(*small)
        counts = nothing.view(np.uint64)
        device.launch(
            "sweep_rows", blocks, 32 * warps, np.int64(n_features), np.int32(n_factors), _width(loadings), loadings,
            rows.cross, gram, rows.power, rows.noise_precision, slab, np.int32(rows.relative), logits, known,
            np.int32(n_known), self._there(anchor), np.uint64(key), np.int32(fits), counts, residual,
            shared=whole if fits else own,
        )  # fmt: skip
        usage, self._owner = device.get(counts).reshape(2, n_factors).astype(np.int64)
        return usage.copy(), residual

    def _there(self, array: Any) -> Any:
        """An array on the device; one that is there stays as it is."""
        return array if hasattr(array, "get") else self.device.put(array)

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

    def draw_noise(
        self, count: Any, residual: Any, loadings: Any, slab: Floats | None, prior: tuple[float, float, float], key: int
    ) -> Any:
        """Noise precisions (D,) with a prior of a shape, a rate and a largest value; ``slab`` (K,) if relative."""
        n, k = loadings.shape
        out, by = self.device.empty(n), None if slab is None else self.device.put(slab)
        size, settings = (np.int64(n), np.int32(k), _width(loadings)), (*map(np.float64, prior), np.uint64(key))
        self.rows("fill_noise", 32 * n, *size, loadings, by, count, residual, *settings, out)
        return out

    def products(self, loadings: Any, weight: Any) -> tuple[Floats, Floats]:
        """Gᵀ diag(w) G (K, K), and how many features use every two factors; ``weight`` (D,) is None for ones."""
        device, (n, k) = self.device, loadings.shape
        weighted, pattern, out = (
            device.room("weighted", (n, k)),
            device.room("pattern", (n, k)),
            device.empty((2, k, k)),
        )
        size = np.int64(n), np.int32(k), _width(loadings)
        self.rows("spread_loadings", n * k, *size, loadings, weight, weighted, pattern)
        device.multiply(loadings, weighted, transposed=True, out=out[0])
        device.multiply(pattern, pattern, transposed=True, out=out[1])
        inner, together = device.get(out)
        return inner, together

    def turn_columns(self, array: Any, by: Floats) -> None:
        """(D, K) → (D, K) · ``by``, (K, K) or (K,) for a diagonal one, in place."""
        n, k = array.shape
        size = np.int64(n), np.int32(k), _width(array)
        if by.ndim == 1:
            self.rows("scale_columns", n * k, *size, self.device.put(by), array)
        else:
            turned = self.device.multiply(array, self.device.put(by), out=self.device.room("turned", (n, k)))
            self.rows("put_loadings", n * k, *size, turned, array)

    def set_entries(self, loadings: Any, features: Ints, factors: Ints, values: Floats) -> None:
        """Set single loadings (n,); of several values for one the last counts."""
        if n := len(features):
            # in one transfer, the values as they are
            lists = self.device.put(np.concatenate([features, factors, values.view(np.int64)]))
            size = np.int32(n), _width(loadings)
            self.rows("set_entries", n, *size, lists, lists[n:], lists[2 * n :].view(np.float64), loadings)
            if self._owner is not None:
                more = max(0, loadings.shape[1] - len(self._owner))
                self._owner = np.concatenate([self._owner, np.zeros(more, np.int64)])
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

    def draw_means(
        self, loadings: Any, cross: Any, moments: tuple[Any, Any, Any], noise: Any, shifted: tuple[Floats, Floats],
        old: Any, key: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Features' means (D,) given all else, and Σ (y − mean)² (D,); T is brought to them as by ``centre_cross``."""
        n, k = loadings.shape
        (out, power), (shift, sums) = self.device.empty((2, n)), self.device.put_all(*shifted) if k else (None, None)
        size = np.int64(n), np.int32(k), _width(loadings)
        self.rows(
            "draw_means", 32 * n, *size, loadings, *moments, noise, shift, sums, old, np.uint64(key), cross, power, out
        )
        return out, power

    def lower_means(self, mean: Any, loadings: Any, by: Floats) -> None:
        """Subtract the fit of scores ``by`` (K,) from features' means (D,), in place."""
        n, k = loadings.shape
        size = np.int64(n), np.int32(k), _width(loadings)
        self.rows("lower_means", 32 * n, *size, loadings, self.device.put(by), mean)

    def nth_users(self, loadings: Any, factors: Ints, ranks: Ints) -> Any:
        """Of the features that use each of the ``factors``, number ``ranks`` (from 0), on the device."""
        device, out = self.device, self.device.empty(len(factors), np.int64)
        if not len(factors):
            return out
        lists = device.put(np.concatenate([factors, ranks]).astype(np.int64))
        size = np.int64(loadings.shape[0]), _width(loadings)
        arguments = *size, lists, lists[len(factors) :], loadings, out
        device.launch("nth_users", len(factors), _SEARCHERS, *arguments, shared=4 * _SEARCHERS // 32)
        return out

    def forget_owners(self) -> None:
        """Loadings are no longer changed by single entries alone."""
        self._owner = None

    def _owners(self, loadings: Any, factors: Ints) -> Ints:
        """The only users (n,) of factors (n,) that have one alone."""
        if self._owner is not None:
            return self._owner[factors]
        found: Ints = self.device.get(self.nth_users(loadings, factors, np.zeros_like(factors)))
        return found

    def own_factors(self, loadings: Any, active: Any, rows: Rows, usage: Ints, residual: Any) -> OwnThere:
        """The factors used by one feature alone."""
        device, n_factors = self.device, rows.cross.shape[1]
        factor = np.flatnonzero(usage == 1)
        n_own = len(factor)
        if not n_own:
            return OwnThere(factor, factor, residual, None, None)
        owner = self._owners(loadings, factor)
        # in one transfer, the products as they are
        lists = device.put(np.concatenate([owner, usage, rows.gram.ravel().view(np.int64)]))
        out = device.empty((3, n_own))
        self.rows(
            "own_rows", 32 * n_own, np.int32(n_own), np.int32(n_factors), _width(loadings), lists, lists[n_own:],
            loadings, rows.cross, lists[n_own + n_factors :].view(np.float64), rows.power, out,
        )  # fmt: skip
        return OwnThere(factor, owner, residual, lists, out)

    def draw_births(self, problem: Births, key: int) -> Born:
        """Births and deaths: see ``Kernels``. What is listed of the born is here, whoever has accepted too."""
        own, n, most = problem.own, len(problem.noise_precision), len(problem.cumulative)
        small, report = self._new_report(n, problem.cumulative, problem.weight)
        self.rows(
            "birth_rows", n, np.int64(n), own.residual, problem.noise_precision, np.int32(problem.relative),
            problem.n_observed, np.int32(len(own.factor)), own.listed, own.found, np.int32(most), small, small[most:],
            np.float64(problem.slab_shape), np.float64(problem.slab_rate), np.uint64(key), report,
        )  # fmt: skip
        row, wanted, noise = self._reported(report)
        accepted, count = np.zeros(n, dtype=np.bool_), wanted.astype(np.int64)
        accepted[row] = True
        born, column = np.repeat(row, count), (_places(count) + 1) * STRETCH
        at = list(zip(born.tolist(), column.tolist(), strict=True))
        precision = np.full(len(born), problem.slab_rate)
        if problem.slab_shape > 0:
            precision = np.array([gamma_draw(problem.slab_shape, np.uint64(key), d, c + 1) for d, c in at])
            precision = precision / problem.slab_rate
        loading = np.array([normal_at(np.uint64(key), d, c) for d, c in at]) / np.sqrt(precision)
        if problem.relative:
            loading = loading / np.sqrt(np.repeat(noise, count))
        return Born(accepted, born, loading, precision)

    def _new_report(self, n: int, *small: Any) -> tuple[Any, Any]:
        """Small arrays in a row, and room behind them for what a kernel has to say of some of ``n`` features."""
        # in one transfer, integers as they are, and that there is nothing to say so far
        values = np.concatenate([*(array.ravel().view(np.float64) for array in small), np.zeros(1)])
        room = self.device.empty(len(values) + 3 * n)
        room[: len(values)].set(values)
        return room, room[len(values) - 1 :]

    def _reported(self, report: Any) -> tuple[Ints, Floats, Floats]:
        """The features that are in a report, in their order, and two numbers of each."""
        found = self.device.get(report[:_OFTEN])
        number = int(found[:1].view(np.int32)[0])
        if 1 + 3 * number > len(found):
            found = self.device.get(report[: 1 + 3 * number])
        rows = found[1 : 1 + 3 * number].reshape(number, 3)
        row, one, two = rows[np.argsort(rows[:, 0])].T
        return row.astype(np.int64), one, two

    def draw_splits(self, problem: Splits, key: int) -> Split:
        """Splits of the noise: see ``Kernels``. The noise precisions are on the device, the lists here."""
        n, width, slab = *problem.loadings.shape, problem.loading_precision[0]
        factor = np.flatnonzero(problem.usage == 1)
        number, chosen = _choose(self._owners(problem.loadings, factor), factor, n, key)
        own = np.array([list(number), list(number.values()), [chosen[d] for d in number]], dtype=np.int64)
        noise, (small, report) = self.device.empty(n), self._new_report(n, slab, own)
        settings = (*problem.slab, *problem.noise_prior, problem.rate, problem.largest)
        self.rows(
            "split_rows", 32 * n, np.int64(n), np.int32(len(slab)), np.int32(width), problem.loadings, small,
            np.int32(len(number)), small[len(slab) :].view(np.int64), *map(np.float64, settings),
            np.int32(problem.relative), np.uint64(key), problem.noise_precision, noise, report,
        )  # fmt: skip
        row, value, after = self._reported(report)
        died = np.isnan(value)
        factors = np.array([chosen[d] for d in row[died].tolist()], dtype=np.int64)
        return Split(noise, row[~died], after[~died], value[~died], (row[died], factors))

    def tilt(self, problem: Pairs, pairs: Ints, key: int) -> int:
        """Tilt pairs of factors: see ``Kernels``."""
        return self._pairs("tilt_pairs", problem, pairs, key)

    def rotate(self, problem: Pairs, pairs: Ints, key: int) -> int:
        """Rotate pairs of factors, likewise."""
        return self._pairs("rotate_pairs", problem, pairs, key)

    def _pairs(self, name: str, problem: Pairs, pairs: Ints, key: int) -> int:
        if not len(pairs):
            return 0
        device, (n_features, n_factors) = self.device, problem.excess.shape
        each = max(_TO_EACH, -(-n_features // device.multiprocessors))
        blocks = -(-n_features // each)
        shared, lists = 8 * (_ROOM + 4 * n_factors), _WORK_ROWS * each
        # lists that are too long for shared memory
        work = device.empty(blocks * lists) if shared + 8 * lists > device.most_shared else None
        # all that comes back together: S, the map of the scores, changes of the usage, how many were accepted
        square, ints = n_factors**2, n_factors // 2 + 2
        parts = problem.gram, problem.turn, np.zeros(ints), problem.logit
        both = device.put(np.concatenate([np.ravel(part) for part in parts]))
        changes, logit = both[2 * square :].view(np.int32), both[2 * square + ints :]
        slabs, (known, n_known) = problem.loading_precision, self._known(problem.known)
        device.launch(
            name, blocks, _TOGETHER, np.int64(n_features), np.int32(n_factors), _width(problem.loadings),
            np.int32(len(slabs) > 1), np.int32(n_known), np.int32(len(pairs)), problem.loadings, problem.excess, both,
            both[square:], changes, problem.noise_precision, slabs, logit, known, self._there(problem.anchor),
            device.put(pairs), work, device.empty((2, _MOST_SUMS, blocks)), changes[n_factors + 1 :].view(np.uint32),
            changes[n_factors:], np.uint64(key), shared=shared + (0 if work is not None else 8 * lists),
        )  # fmt: skip
        back = device.get(both[: 2 * square + ints])
        problem.gram[:], problem.turn[:] = back[: 2 * square].reshape(2, n_factors, n_factors)
        changed = back[2 * square :].view(np.int32)
        problem.usage[:] += changed[:n_factors]
        return int(changed[n_factors])


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
