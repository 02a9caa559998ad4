"""Which factor of one draw is which factor of another: draws differ in number, order and sign of their factors.

Every draw is matched to a pivot by a signed permutation (Hungarian method on |cosine| of the loadings, factors may stay
unmatched), the pivot becomes the mean of what was matched to it, and so on until nothing changes. Factors that recur
without a counterpart found new columns of the pivot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from nsfa.arrays import Bools, Floats, Ints
from nsfa.draw import Draw
from nsfa.model.rotate import varimax
from nsfa.posterior.columns import Columns, Directions, gathered, in_order, loadings_of, mostly_zero

# Two factors are the same from this |cosine| on.
SAME = 0.6
# So are two columns of the pivot, if less than this share of the draws with the rarer one have both.
TWINS = 0.5
# Factors in a smaller share of the draws are not kept in the pivot.
RARE = 0.1
# The pivot is found on at most this many draws, evenly spread, and in large ones on no more than have so many entries
# together, but some at least; then all are matched to it.
PIVOT_DRAWS = 100
PIVOT_ENTRIES = 80_000_000
_LEAST_DRAWS = 40
# Sparse draws of no more active loadings together are unpacked once for that.
KEPT_LOADINGS = 20_000_000
# ... until no column turns further than this cosine from one round to the next.
STABLE = 0.999
_ROUNDS = 6


@dataclass(frozen=True)
class Alignment:
    """Per draw: the column of the pivot each of its factors is (−1: none), its sign, and its rotation (dense models).

    ``pivot`` is (D, M): columns of unit length, on the model's scale.
    """

    pivot: Floats
    factor: tuple[Ints, ...]
    sign: tuple[Floats, ...]
    rotation: tuple[Floats | None, ...]

    def columns(self, i: int, keep: Ints) -> tuple[Ints, Ints, Floats]:
        """For draw i: its factors that are among the pivot's columns ``keep``, their places there, their signs."""
        place = np.full(self.pivot.shape[1], -1)
        place[keep] = np.arange(len(keep))
        own = np.flatnonzero(self.factor[i] >= 0)
        where = place[self.factor[i][own]]
        own, where = own[where >= 0], where[where >= 0]
        return own, where, self.sign[i][own]

    def taken(self, some: Ints) -> Alignment:
        """That of the draws ``some`` alone."""
        factor, sign, rotation = (tuple(part[i] for i in some) for part in (self.factor, self.sign, self.rotation))
        return Alignment(self.pivot, factor, sign, rotation)

    def support(self) -> Bools:
        """Whether draw i contains column m of the pivot, (draws, M)."""
        out = np.zeros((len(self.factor), self.pivot.shape[1] + 1), dtype=np.bool_)
        # those that are none come last
        out[np.repeat(np.arange(len(out)), [len(factor) for factor in self.factor]), np.concatenate(self.factor)] = True
        return out[:, :-1]


def align(draws: Sequence[Draw], dense: bool) -> Alignment:
    """Match the factors of all draws. ``dense`` models are rotated first (varimax): their own axes are arbitrary."""
    rotation = _rotations(draws) if dense else [None] * len(draws)

    size = max(int(np.mean([draw.shape[0] * draw.shape[1] for draw in draws])), 1)
    some = evenly(len(draws), min(PIVOT_DRAWS, max(PIVOT_ENTRIES // size, _LEAST_DRAWS)))
    # single precision is as much as cosines need, and half the work
    start = _start(draws)
    first = loadings_of([draws[start]], [rotation[start]], np.float32)
    pivot = _find_pivot(_some_draws(draws, some, rotation), len(some), _unit(first.array()))
    single = Directions(pivot.astype(np.float32))

    def matched(block: Ints, g: Columns) -> tuple[list[Ints], list[Floats]]:
        return _match_draws(_cosines(single, g), [draws[i].n_factors for i in block])

    parts = list(gathered(matched, draws, np.arange(len(draws)), rotation, np.float32))
    factor = tuple(own for part in parts for own in part[0])
    sign = tuple(own for part in parts for own in part[1])
    return Alignment(pivot, factor, sign, tuple(rotation))


def evenly(n: int, at_most: int) -> Ints:
    """At most ``at_most`` of 0, …, n − 1, evenly spread, the last one included."""
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).astype(np.int64))


def _start(draws: Sequence[Draw]) -> int:
    """The draw to begin with: of median size, and among those the most probable."""
    sizes = np.array([draw.n_factors for draw in draws])
    typical = np.flatnonzero(sizes == np.sort(sizes)[len(sizes) // 2])
    return max((int(i) for i in typical), key=lambda i: draws[i].scalars["log_joint"])


def _rotations(draws: Sequence[Draw]) -> list[Floats | None]:
    """Varimax of every draw, each begun where its predecessor's rotated loadings say it should end."""
    out: list[Floats | None] = []
    before: Floats | None = None
    for draw in draws:
        loadings = draw.loadings()
        start = None
        if before is not None and before.shape == loadings.shape:
            u, _, v = np.linalg.svd(loadings.T @ before)
            start = u @ v
        rotation = varimax(loadings, start)
        before = loadings @ rotation
        out.append(rotation)
    return out


def _some_draws(
    draws: Sequence[Draw], which: Ints, rotation: Sequence[Floats | None]
) -> Callable[[], Iterable[Columns]]:
    """Gives the loadings of the draws ``which``, one by one, as often as they are asked for."""

    def one(i: int) -> Columns:
        return loadings_of([draws[i]], [rotation[i]], np.float32)

    # sparse ones are kept: they are small, and what was made of them for products is kept with them
    sparse = all(mostly_zero(draws[i]) and rotation[i] is None for i in which)
    if sparse and sum(draws[i].n_active for i in which) <= KEPT_LOADINGS:
        kept = [one(i) for i in which]
        return lambda: kept
    return lambda: map(one, which)


def _find_pivot(draws: Callable[[], Iterable[Columns]], n_draws: int, pivot: Floats) -> Floats:
    """Iterate matching and averaging over the draws until the pivot is stable."""
    for _ in range(_ROUNDS):
        n_features, n_columns = pivot.shape
        total, there = np.zeros((n_features, n_columns)), np.zeros((n_draws, n_columns))
        rest, single = _Newcomers(n_features), Directions(pivot.astype(np.float32))

        def matched(g: Columns, single: Directions = single) -> tuple[Columns, Ints, Floats]:
            return g, *_match(_cosines(single, g))

        every = draws()
        for n, (g, factor, sign) in enumerate(in_order(matched, every, isinstance(every, list))):
            found = np.flatnonzero(factor >= 0)
            g.add_to(total, found, factor[found], sign[found])
            there[n, factor[found]] = 1
            rest.add(g.take(np.flatnonzero(factor < 0)))
        least = max(RARE * n_draws, 2 if n_draws > 1 else 1)
        kept = _without_twins(total, there.T @ there, least)
        new = _unit(np.hstack([total[:, kept], rest.common(least)]))
        stable = len(kept) == new.shape[1] == n_columns and np.all(np.einsum("dm,dm->m", pivot, new) > STABLE)
        pivot = new
        if stable:
            break
    return pivot


def _without_twins(total: Floats, together: Floats, least: float) -> Ints:
    """Columns that are common enough, less those that another, more common one stands for."""
    count = together.diagonal()
    unit = _unit(total)
    twins = (np.abs(unit.T @ unit) > SAME) & (together < TWINS * count[:, None])
    kept: list[int] = []
    for m in np.argsort(-count, kind="stable"):
        if count[m] >= least and not twins[m, kept].any():
            kept.append(int(m))
    return np.array(sorted(kept), dtype=np.int64)


class _Newcomers:
    """Factors without a counterpart in the pivot, gathered into groups of the same one; one per draw and group."""

    _MOST = 200

    def __init__(self, n_features: int) -> None:
        # columns beyond the groups are zero, so that nothing is like them
        self._total = np.zeros((n_features, 0))
        self._square = np.zeros(0)
        self._count = np.zeros(0)

    def add(self, g: Columns) -> None:
        """Take in one draw's unmatched factors (D, any number)."""
        square = g.norms() ** 2
        product = g.products(self._total)
        length = np.sqrt(np.outer(self._square, square))
        factor, sign = _match(product / np.where(length > 0, length, 1.0))
        found, new = np.flatnonzero(factor >= 0), np.flatnonzero(factor < 0)
        place = factor[found]
        g.add_to(self._total, found, place, sign[found])
        self._square[place] += square[found] + 2 * np.abs(product[place, found])
        self._count[place] += 1
        first, last = len(self._count), len(self._count) + len(new)
        self._widen(last)
        g.add_to(self._total, new, np.arange(first, last), np.ones(len(new)))
        self._square[first:last] = square[new]
        self._count = np.append(self._count, np.ones(len(new)))
        if last > self._MOST:
            self._keep(np.argsort(-self._count, kind="stable")[: self._MOST // 2])

    def common(self, least: float) -> Floats:
        """The groups with at least ``least`` members, as sums of loadings."""
        return self._total[:, np.flatnonzero(self._count >= least)]

    def _widen(self, n_groups: int) -> None:
        if self._total.shape[1] < n_groups:
            self._copy(np.arange(len(self._count)), 2 * n_groups)

    def _keep(self, groups: Ints) -> None:
        self._copy(groups, 2 * len(groups))
        self._count = self._count[groups]

    def _copy(self, groups: Ints, width: int) -> None:
        """Some groups in new arrays with room for ``width``."""
        total, square = np.zeros((len(self._total), width)), np.zeros(width)
        total[:, : len(groups)], square[: len(groups)] = self._total[:, groups], self._square[groups]
        self._total, self._square = total, square


def _unit(columns: Floats) -> Floats:
    norm = np.linalg.norm(columns, axis=0)
    out: Floats = columns / np.where(norm > 0, norm, 1.0)
    return out


def _cosines(pivot: Directions, g: Columns) -> Floats:
    """Cosines (M, columns) of the pivot's columns, of unit length, with those of g."""
    norm = g.norms()
    out: Floats = pivot.products(g) / np.where(norm > 0, norm, 1.0)
    return out


def _match(cosine: Floats) -> tuple[Ints, Floats]:
    """Row of the cosines, a column of the pivot, (−1: none) and sign of every column, a factor of one draw."""
    factor, sign = _match_draws(cosine, [cosine.shape[1]])
    return factor[0], sign[0]


def _match_draws(cosine: Floats, widths: Sequence[int]) -> tuple[list[Ints], list[Floats]]:
    """The same for draws side by side, of ``widths`` columns each."""
    n_columns, edges = cosine.shape[1], np.cumsum([0, *widths])
    factor, sign = np.full(n_columns, -1), np.ones(n_columns)
    if cosine.size:
        # below SAME a pair is worth nothing, so that it cannot displace a true one
        worth = np.abs(cosine)
        worth[worth < SAME] = 0.0
        best = worth.argmax(axis=0)
        found = worth[best, np.arange(len(best))] > 0
        factor[found] = best[found]
        for i in np.flatnonzero(_ambiguous(worth > 0, widths)):
            own = slice(edges[i], edges[i + 1])
            rows, columns = linear_sum_assignment(-worth[:, own])
            factor[own] = -1
            factor[own][columns] = np.where(worth[:, own][rows, columns] > 0, rows, -1)
        found = factor >= 0
        sign[found] = np.sign(cosine[factor[found], found])
    return np.split(factor, edges[1:-1]), np.split(sign, edges[1:-1])


def _ambiguous(similar: Bools, widths: Sequence[int]) -> Bools:
    """Which of the draws side by side have a row or a column with two candidates (rows, sum of widths)."""
    draw = np.repeat(np.arange(len(widths)), widths)
    out = np.zeros(len(widths), dtype=np.bool_)
    out[draw[np.count_nonzero(similar, axis=0) > 1]] = True
    row, column = np.nonzero(similar)
    count = np.bincount(draw[column] * len(similar) + row, minlength=len(widths) * len(similar))
    return out | (count.reshape(len(widths), len(similar)) > 1).any(axis=1)
