"""Samples in units of a fixed number, and sums over them that do not depend on who has which.

Sums of floating-point numbers depend on their order, so the order is the table's alone. Units begin at multiples of
their size; sums over units are added up along the one binary tree over their numbers, node i of level l being the sum
of nodes 2i and 2i + 1 below it. Whoever has some units has the nodes that lie whole within them, and whoever has two
neighbours adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from nsfa.columns import Columns, dense_columns, sparse_columns, sparse_rows
from nsfa.table import as_table

# Samples of a unit, of tables with at least so many features and of narrower ones.
_WIDE, _UNIT, _UNIT_OF_NARROW = 1024, 1024, 4096
_NEEDS_COMPLETE = (
    "A table in blocks must have no missing entries. Got NaN; fill them, drop their samples, or fit a table in memory."
)

Add = Callable[[Any, Any], Any]


class Node(NamedTuple):
    """The sum over units ``first`` to ``first + size``: ``size`` is a power of two, and ``first`` a multiple of it."""

    first: int
    size: int
    value: Any


def joined(nodes: Iterable[Node], add: Add) -> list[Node]:
    """Nodes in the order of their units, each with its neighbour added where the two make up a node."""
    out: list[Node] = []
    for node in nodes:
        while out and _are_siblings(out[-1], node):
            left = out.pop()
            node = Node(left.first, 2 * node.size, add(left.value, node.value))
        out.append(node)
    return out


def _are_siblings(left: Node, right: Node) -> bool:
    return left.size == right.size and left.first % (2 * left.size) == 0 and right.first == left.first + left.size


def join(parts: Sequence[list[Node]], add: Add) -> list[Node]:
    """The nodes of several parts."""
    return joined(sorted((node for part in parts for node in part), key=_first), add)


def _first(node: Node) -> int:
    return node.first


def finish(parts: Sequence[list[Node]], add: Add) -> Any:
    """The sum over all units: of the nodes that are left, from the first on."""
    first, *rest = join(parts, add)
    total = first.value
    for node in rest:
        total = add(total, node.value)
    return total


def add_all(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sums of two tuples, entry by entry."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def join_sums(parts: Sequence[list[Node]]) -> list[Node]:
    """``join`` of sums of arrays."""
    return join(parts, add_all)


def finish_sums(parts: Sequence[list[Node]]) -> tuple[Any, ...]:
    """``finish`` of sums of arrays."""
    out: tuple[Any, ...] = finish(parts, add_all)
    return out


class Cut(NamedTuple):
    """Samples of whole units: the first unit's number, a unit's size, and from which rows of which chunks they come."""

    first: int
    unit: int
    rows: tuple[tuple[int, int], ...]


def unit_size(n_features: int) -> int:
    """Samples of a unit of a table with so many features."""
    return _UNIT if n_features >= _WIDE else _UNIT_OF_NARROW


def cuts(lengths: Sequence[int], unit: int) -> list[tuple[Cut, list[int]]]:
    """Chunks of these lengths cut anew where units begin, with the numbers of the chunks that each cut takes from.

    As long as the longest chunk or somewhat shorter: a power of two of units, so that each is one node of the tree.
    """
    edges = np.concatenate([[0], np.cumsum(lengths)])
    step = unit * 2 ** int(np.log2(max(max(lengths) // unit, 1)))
    out = []
    for start in range(0, int(edges[-1]), step):
        stop = min(start + step, int(edges[-1]))
        some = range(int(np.searchsorted(edges, start, "right")) - 1, int(np.searchsorted(edges, stop, "left")))
        rows = tuple((max(start - int(edges[i]), 0), min(stop, int(edges[i + 1])) - int(edges[i])) for i in some)
        out.append((Cut(start // unit, unit, rows), list(some)))
    return out


def units_of(cut: Cut, chunks: list[Any]) -> Iterator[Any]:
    """The units of a cut, one after another, as tables (samples, features): arrays, or sparse."""
    chunks = [chunk if sp.issparse(chunk) else as_table(chunk) for chunk in chunks]
    edges = np.concatenate([[0], np.cumsum([stop - start for start, stop in cut.rows])])
    for start in range(0, int(edges[-1]), cut.unit):
        stop = min(start + cut.unit, int(edges[-1]))
        parts = [
            chunk[low + max(start - at, 0) : low + min(stop, end) - at]
            for chunk, (low, _), (at, end) in zip(chunks, cut.rows, pairwise(edges.tolist()), strict=True)
            if at < stop and end > start
        ]
        if len(parts) == 1:
            yield parts[0]
        else:
            yield sp.vstack(parts, format="csr") if any(map(sp.issparse, parts)) else np.concatenate(parts)


class Described(NamedTuple):
    """The features' moments over some samples, the bytes of the values in double precision; or why there are none."""

    columns: Columns | None
    nbytes: int
    problem: str | None = None


def describe(cut: Cut, chunks: list[Any]) -> list[Node]:
    """``Described`` of the samples of a cut."""
    try:
        tables = enumerate(units_of(cut, chunks), cut.first)
        return joined((Node(number, 1, _described(table)) for number, table in tables), add_described)
    except ValueError as error:
        # returned, not raised: workers would try again, and log it
        units = -(-sum(stop - start for start, stop in cut.rows) // cut.unit)
        return [Node(cut.first + i, 1, Described(None, 0, str(error))) for i in range(units)]


def _described(table: Any) -> Described:
    if sp.issparse(table):
        return Described(sparse_columns(sparse_rows(table)), 12 * table.nnz)
    columns = dense_columns(table, None)
    if columns.missing is not None:
        raise ValueError(_NEEDS_COMPLETE)
    return Described(columns, 8 * table.size)


def add_described(a: Described, b: Described) -> Described:
    """That of the samples of both."""
    if a.columns is None or b.columns is None:
        return a if a.columns is None else b
    return Described(add_columns(a.columns, b.columns), a.nbytes + b.nbytes)


def join_described(parts: Sequence[list[Node]]) -> list[Node]:
    """``join`` of what ``describe`` returns."""
    return join(parts, add_described)


def finish_described(parts: Sequence[list[Node]]) -> Described:
    """``finish`` of what ``describe`` returns."""
    out: Described = finish(parts, add_described)
    return out


def add_columns(a: Columns, b: Columns) -> Columns:
    """The moments of the samples of both: Σ (y − ȳ)² = Σ_a + Σ_b + n_a n_b / n (ȳ_a − ȳ_b)², in units of the larger."""
    size = np.maximum(a.size, b.size)
    unit, observed = np.where(size > 0, size, 1.0), a.observed + b.observed
    share_a, share_b = a.observed / observed, b.observed / observed
    mean_a, mean_b = a.mean * (a.unit / unit), b.mean * (b.unit / unit)
    variance = share_a * a.variance * (a.unit / unit) ** 2 + share_b * b.variance * (b.unit / unit) ** 2
    return Columns(
        observed,
        size,
        share_a * mean_a + share_b * mean_b,
        variance + share_a * share_b * (mean_a - mean_b) ** 2,
    )
