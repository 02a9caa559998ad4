"""Which factor of one draw is which factor of another: draws differ in number, order and sign of their factors.

Every draw is matched to a pivot by a signed permutation (Hungarian method on |cosine| of the loadings, factors may stay
unmatched), the pivot becomes the mean of what was matched to it, and so on until nothing changes. Factors that recur
without a counterpart found new columns of the pivot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from nsfa.arrays import Bools, Floats, Ints
from nsfa.draw import Draw
from nsfa.model.rotate import varimax

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
# ... until no column turns further than this cosine from one round to the next.
STABLE = 0.999
_ROUNDS = 6
# Draws are gone through side by side, as many as have together so many entries.
_BLOCK = 1_000_000


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

    def support(self) -> Bools:
        """Whether draw i contains column m of the pivot, (draws, M)."""
        out = np.zeros((len(self.factor), self.pivot.shape[1] + 1), dtype=np.bool_)
        # those that are none come last
        out[np.repeat(np.arange(len(out)), [len(factor) for factor in self.factor]), np.concatenate(self.factor)] = True
        return out[:, :-1]


def align(draws: Sequence[Draw], dense: bool) -> Alignment:
    """Match the factors of all draws. ``dense`` models are rotated first (varimax): their own axes are arbitrary."""
    rotation = _rotations(draws) if dense else [None] * len(draws)

    def loadings(i: int) -> Floats:
        # single precision is as much as cosines need, and half the work
        return side_by_side(draws[i : i + 1], rotation[i : i + 1], np.float32)

    size = max(int(np.mean([draw.shape[0] * draw.shape[1] for draw in draws])), 1)
    some = evenly(len(draws), min(PIVOT_DRAWS, max(PIVOT_ENTRIES // size, _LEAST_DRAWS)))
    pivot = _find_pivot(loadings, some, _start(draws))
    factor: list[Ints] = []
    sign: list[Floats] = []
    single: Any = pivot.astype(np.float32)
    for block in blocks(draws, np.arange(len(draws))):
        own, turned = [draws[i] for i in block], [rotation[i] for i in block]
        matched = _match_draws(single, side_by_side(own, turned, np.float32), [draw.n_factors for draw in own])
        factor += matched[0]
        sign += matched[1]
    return Alignment(pivot, tuple(factor), tuple(sign), tuple(rotation))


def evenly(n: int, at_most: int) -> Ints:
    """At most ``at_most`` of 0, …, n − 1, evenly spread, the last one included."""
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).astype(np.int64))


def blocks(draws: Sequence[Draw], which: Ints, least: int = 1) -> Iterator[Ints]:
    """``which`` in pieces, each of at least one draw and of no more entries together than are handled at once.

    Draws of fewer than ``least`` factors count as if they had so many.
    """
    size = np.cumsum([draws[i].shape[0] * max(draws[i].n_factors, least) for i in which])
    first = 0
    while first < len(which):
        before = size[first - 1] if first else 0
        last = max(int(np.searchsorted(size, before + _BLOCK, side="right")), first + 1)
        yield which[first:last]
        first = last


def side_by_side(draws: Sequence[Draw], rotation: Sequence[Floats | None], dtype: Any = np.float64) -> Floats:
    """Loadings (D, sum of K) of draws, after their rotations."""
    out = np.zeros((draws[0].shape[0], sum(draw.n_factors for draw in draws)), dtype)
    first = 0
    for draw, turn in zip(draws, rotation, strict=True):
        loadings = draw.loadings(dtype)
        out[:, first : first + draw.n_factors] = loadings if turn is None else loadings @ turn.astype(dtype)
        first += draw.n_factors
    return out


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


def _find_pivot(loadings: Callable[[int], Floats], which: Ints, start: int) -> Floats:
    """Iterate matching and averaging over the draws ``which`` until the pivot is stable."""
    pivot = _unit(loadings(start))
    for _ in range(_ROUNDS):
        n_features, n_columns = pivot.shape
        total, together = np.zeros((n_features, n_columns)), np.zeros((n_columns, n_columns))
        rest = _Newcomers(n_features)
        for i in which:
            g = loadings(i)
            factor, sign = _match(pivot, g)
            found = np.flatnonzero(factor >= 0)
            total[:, factor[found]] += g[:, found] * sign[found]
            together[np.ix_(factor[found], factor[found])] += 1
            rest.add(g[:, factor < 0])
        least = max(RARE * len(which), 2 if len(which) > 1 else 1)
        kept = _without_twins(total, together, least)
        new = _unit(np.hstack([total[:, kept], rest.common(least)]))
        stable = len(kept) == new.shape[1] == n_columns and np.all((pivot * new).sum(axis=0) > STABLE)
        pivot = new
        if stable:
            break
    return pivot


def _without_twins(total: Floats, together: Floats, least: float) -> Ints:
    """Columns that are common enough, less those that another, more common one stands for."""
    count = together.diagonal()
    cosine = np.abs(_unit(total).T @ _unit(total))
    kept: list[int] = []
    for m in np.argsort(-count, kind="stable"):
        twin = any(cosine[m, k] > SAME and together[m, k] < TWINS * count[m] for k in kept)
        if count[m] >= least and not twin:
            kept.append(int(m))
    return np.array(sorted(kept), dtype=np.int64)


class _Newcomers:
    """Factors without a counterpart in the pivot, gathered into groups of the same one; one per draw and group."""

    _MOST = 200

    def __init__(self, n_features: int) -> None:
        self._total = np.zeros((n_features, 0))
        self._count = np.zeros(0)

    def add(self, g: Floats) -> None:
        """Take in one draw's unmatched factors (D, any number)."""
        factor, sign = _match(_unit(self._total), g)
        found = np.flatnonzero(factor >= 0)
        self._total[:, factor[found]] += g[:, found] * sign[found]
        self._count[factor[found]] += 1
        new = g[:, factor < 0]
        self._total = np.hstack([self._total, new])
        self._count = np.append(self._count, np.ones(new.shape[1]))
        if len(self._count) > self._MOST:
            top = np.argsort(-self._count, kind="stable")[: self._MOST // 2]
            self._total, self._count = self._total[:, top], self._count[top]

    def common(self, least: float) -> Floats:
        """The groups with at least ``least`` members, as sums of loadings."""
        return self._total[:, self._count >= least]


def _unit(columns: Floats) -> Floats:
    norm = np.linalg.norm(columns, axis=0)
    out: Floats = columns / np.where(norm > 0, norm, 1.0)
    return out


def _match(pivot: Floats, g: Floats) -> tuple[Ints, Floats]:
    """Column of the pivot, whose columns have unit length, (−1: none) and sign of every column of g, of one draw."""
    factor, sign = _match_draws(pivot, g, [g.shape[1]])
    return factor[0], sign[0]


def _match_draws(pivot: Floats, g: Floats, widths: Sequence[int]) -> tuple[list[Ints], list[Floats]]:
    """The same for draws side by side, of ``widths`` columns each."""
    factor, sign, edges = np.full(g.shape[1], -1), np.ones(g.shape[1]), np.cumsum([0, *widths])
    if pivot.shape[1] and g.shape[1]:
        norm = np.sqrt(np.einsum("dk,dk->k", g, g))
        norm[norm == 0] = 1.0
        # BLAS kernels that read past small matrices flag invalid values though all of ours are finite
        with np.errstate(invalid="ignore"):
            cosine = pivot.astype(g.dtype, copy=False).T @ g / norm
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
