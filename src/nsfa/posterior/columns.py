"""Loadings of draws, as the columns of a matrix: dense and side by side, or one large draw's active ones alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nsfa.arrays import Floats, Ints
from nsfa.counts import core_count
from nsfa.draw import Draw

# Draws are gone through side by side, as many as have together so many entries.
_BLOCK = 1_000_000
# A draw that fills more than half of that is kept sparse, if no larger share of its loadings is active.
_SPARSE = 0.25
# Columns with more than this share of active entries are quicker to multiply as arrays.
_BROAD = 0.05
# More threads than this would wait for memory.
_MOST_THREADS = 4

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Dense:
    """Columns as an array (D, columns)."""

    values: Floats

    def array(self) -> Floats:
        """The columns as a dense array."""
        return self.values

    def norms(self) -> Floats:
        """Length of every column."""
        out: Floats = np.sqrt(np.einsum("dk,dk->k", self.values, self.values))
        return out

    def products(self, directions: Floats) -> Floats:
        """Inner products (M, columns) with the columns of ``directions`` (D, M)."""
        # BLAS kernels that read past small matrices flag invalid values though all of ours are finite
        with np.errstate(invalid="ignore"):
            out: Floats = directions.T @ self.values
        return out

    def add_to(self, total: Floats, own: Ints, place: Ints, sign: Floats) -> None:
        """Add the columns ``own``, with these signs, to the columns ``place`` of ``total``, all of them different."""
        total[:, place] += self.values[:, own] * sign

    def take(self, own: Ints) -> Dense:
        """Some of the columns."""
        return Dense(self.values[:, own])


@dataclass(frozen=True)
class Active:
    """Columns whose entries are mostly zero: the others, row by row, with their columns."""

    shape: tuple[int, int]
    row: Ints
    # 32-bit integers: what sparse products take
    column: NDArray[Any]
    values: Floats

    @cached_property
    def matrix(self) -> Any:
        """The same as a sparse array (D, columns)."""
        pointer = np.searchsorted(self.row, np.arange(self.shape[0] + 1)).astype(np.int32)
        return sp.csr_array((self.values, self.column, pointer), shape=self.shape)

    def array(self) -> Floats:
        """The columns as a dense array."""
        out = np.zeros(self.shape, self.values.dtype)
        out.reshape(-1)[self.row * self.shape[1] + self.column] = self.values
        return out

    def norms(self) -> Floats:
        """Length of every column."""
        square = self.values.astype(np.float64) ** 2
        return np.sqrt(np.bincount(self.column, square, self.shape[1]))

    @cached_property
    def parts(self) -> Parts:
        """The same in two parts."""
        often = np.bincount(self.column, minlength=self.shape[1]) > _BROAD * self.shape[0]
        broad, narrow = np.flatnonzero(often), np.flatnonzero(~often)
        place = np.full(self.shape[1], len(broad))
        place[broad] = np.arange(len(broad))
        # all others go to one more column: quicker than to pick them out
        array = np.zeros((self.shape[0], len(broad) + 1), self.values.dtype)
        array.reshape(-1)[self.row * (len(broad) + 1) + place[self.column]] = self.values
        return Parts(broad, narrow, np.ascontiguousarray(array[:, :-1]), self.take(narrow).matrix)

    def products(self, directions: Floats) -> Floats:
        """Inner products (M, columns) with the columns of ``directions`` (D, M)."""
        out: Floats = (self.matrix.T @ directions).T
        return out

    def add_to(self, total: Floats, own: Ints, place: Ints, sign: Floats) -> None:
        """Add the columns ``own``, with these signs, to the columns ``place`` of ``total``, all of them different."""
        where, turn = np.full(self.shape[1], -1), np.zeros(self.shape[1], self.values.dtype)
        where[own], turn[own] = place, sign
        row, column, values = self.placed(where, turn)
        add_at(total, row * total.shape[1] + column, values)

    def take(self, own: Ints) -> Active:
        """Some of the columns."""
        where = np.full(self.shape[1], -1, dtype=np.int32)
        where[own] = np.arange(len(own))
        row, column, values = self.placed(where, np.ones(self.shape[1], self.values.dtype))
        return Active((self.shape[0], len(own)), row, column, values)

    def placed(self, place: NDArray[Any], sign: Floats) -> tuple[Ints, NDArray[Any], Floats]:
        """Row, new column and value of the entries whose columns go somewhere, to ``place`` times ``sign``."""
        there = (place >= 0)[self.column]
        if there.all():
            row, column, values = self.row, self.column, self.values
        else:
            row, column, values = self.row[there], self.column[there], self.values[there]
        return row, place[column], values * sign[column]


class Parts(NamedTuple):
    """Columns in two parts: those of many entries (D, broad) as an array, the others sparse, and which are which."""

    broad: Ints
    narrow: Ints
    array: Floats
    matrix: Any

    def weighted(self, weight: Floats) -> Parts:
        """The same with every row times a weight (D,)."""
        matrix = self.matrix.copy()
        matrix.data *= np.repeat(weight, np.diff(matrix.indptr))
        return self._replace(array=self.array * weight[:, None], matrix=matrix)

    def products(self, other: Parts) -> Floats:
        """Inner products (columns, columns of the other)."""
        shape = len(self.broad) + len(self.narrow), len(other.broad) + len(other.narrow)
        out = np.empty(shape, self.array.dtype)
        out[np.ix_(self.broad, other.broad)] = self.array.T @ other.array
        out[np.ix_(self.narrow, other.broad)] = self.matrix.T @ other.array
        out[np.ix_(self.broad, other.narrow)] = (other.matrix.T @ self.array).T
        out[np.ix_(self.narrow, other.narrow)] = (self.matrix.T @ other.matrix).toarray()
        return out


Columns = Dense | Active


@dataclass(frozen=True)
class Directions:
    """Columns (D, M) with which many draws are multiplied."""

    values: Floats

    @cached_property
    def _parts(self) -> Parts:
        row, column = np.nonzero(self.values)
        return Active(self.values.shape, row, column.astype(np.int32), self.values[row, column]).parts

    def products(self, g: Columns) -> Floats:
        """Inner products (M, columns) with the columns of g."""
        return g.products(self.values) if isinstance(g, Dense) else self._parts.products(g.parts)


def add_at(out: NDArray[Any], position: Ints, values: Any) -> None:
    """Add to entries of ``out``, all of them different, given by their positions in the flattened array."""
    if not out.flags.c_contiguous:
        raise ValueError("out must be contiguous row by row: of another array reshape would make a copy.")
    # one index is faster than two
    out.reshape(-1)[position] += values


def gathered(
    function: Callable[[Ints, Columns], T],
    draws: Sequence[Draw],
    which: Ints,
    rotation: Sequence[Floats | None],
    dtype: Any = np.float64,
    least: int = 1,
) -> Iterator[T]:
    """What ``function`` makes of each block of the draws ``which`` and its loadings, rotated; see ``blocks``."""

    def one(block: Ints) -> T:
        return function(block, loadings_of([draws[i] for i in block], [rotation[i] for i in block], dtype))

    return in_order(one, blocks(draws, which, least), any(mostly_zero(draws[i]) for i in which))


def loadings_of(draws: Sequence[Draw], rotation: Sequence[Floats | None], dtype: Any = np.float64) -> Columns:
    """Loadings of some draws, after their rotations: sparse for one that is large and mostly zero."""
    if len(draws) == 1 and rotation[0] is None and mostly_zero(draws[0]):
        return active_loadings(draws[0], dtype)
    return Dense(_side_by_side(draws, rotation, dtype))


def in_order(function: Callable[[S], T], items: Iterable[S], threads: bool) -> Iterator[T]:
    """The function of every item, in their order; with ``threads`` a few at a time, as many as there are cores."""
    if not threads:
        yield from map(function, items)
        return
    n_threads = min(core_count(), _MOST_THREADS)
    with ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[Future[T]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


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


def mostly_zero(draw: Draw) -> bool:
    """Whether a draw is so large, and so few of its loadings are active, that it is better kept sparse."""
    size = draw.shape[0] * draw.shape[1]
    return size > _BLOCK // 2 and draw.n_active <= _SPARSE * size


def active_loadings(draw: Draw, dtype: Any = np.float64) -> Active:
    """The active loadings of a draw."""
    n_features, n_factors = draw.shape
    small: Any = np.int32 if n_features * n_factors < np.iinfo(np.int32).max else np.int64
    # bytes without a bit are left out first: that is most of the work in a sparse pattern
    byte = np.flatnonzero(draw.pattern != 0).astype(small)
    bit = np.flatnonzero(np.unpackbits(draw.pattern[byte]).view(np.bool_)).astype(small)
    flat = (byte << 3)[bit >> 3] + (bit & 7)
    edges = np.searchsorted(flat, np.arange(0, n_features * n_factors + 1, n_factors, dtype=small))
    row = np.repeat(np.arange(n_features), np.diff(edges))
    column = (flat - np.repeat(np.arange(n_features, dtype=small) * n_factors, np.diff(edges))).astype(np.int32)
    values = draw.value.astype(dtype)
    if draw.step is not None:
        values *= draw.step.astype(dtype)[column]
    return Active(draw.shape, row, column, values)


def _side_by_side(draws: Sequence[Draw], rotation: Sequence[Floats | None], dtype: Any) -> Floats:
    """Loadings (D, sum of K) of draws, after their rotations."""
    out = np.zeros((draws[0].shape[0], sum(draw.n_factors for draw in draws)), dtype)
    first = 0
    for draw, turn in zip(draws, rotation, strict=True):
        loadings = draw.loadings(dtype)
        out[:, first : first + draw.n_factors] = loadings if turn is None else loadings @ turn.astype(dtype)
        first += draw.n_factors
    return out
