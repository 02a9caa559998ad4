"""The matrix products that touch the data, in fixed blocks so that no thread count changes a bit.

Y is features × samples, dense and already centred, or sparse with its centring kept as ``offset`` (D,):
(V − offset 1ᵀ) X = V X − offset (1ᵀX), so that a sparse table is never made dense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nsfa.arrays import Floats
    from nsfa.kernels import Centred

_WORK_PER_BLOCK = 5_000_000
_MOST_BLOCKS = 16

Mapper = Callable[[Callable[[slice], Any], Iterable[slice]], Iterable[Any]]


def blocks(shape: tuple[int, int], n_factors: int) -> list[slice]:
    """Cut the rows of a table for a product with ``n_factors`` columns: by size alone, whatever the threads."""
    n_rows, n_columns = shape
    wanted = min(n_rows * n_columns * n_factors // _WORK_PER_BLOCK, _MOST_BLOCKS, n_rows)
    size = -(-n_rows // max(wanted, 1))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def cross(data: Centred, scores: Floats, out: Floats, each: Mapper) -> None:
    """Write Y X (D, K), block by block of features."""
    values = data.values

    def one(rows: slice) -> None:
        if data.offset is None:
            np.matmul(values[rows], scores, out=out[rows])
        else:
            out[rows] = values[rows] @ scores - np.outer(data.offset[rows], scores.sum(axis=0))

    for _ in each(one, blocks(values.shape, scores.shape[1])):
        pass


def project(data: Centred, loadings: Floats, noise_precision: Floats, each: Mapper) -> tuple[Floats, Floats]:
    """Yᵀ diag(τ) G (N, K) and Gᵀ diag(τ) G (K, K): partial sums over blocks of features, added in order."""
    values = data.values

    def one(rows: slice) -> tuple[Floats, Floats]:
        weighted = noise_precision[rows, None] * loadings[rows]
        projection = values[rows].T @ weighted
        if data.offset is not None:
            projection -= data.offset[rows] @ weighted
        return projection, weighted.T @ loadings[rows]

    parts = iter(each(one, blocks(values.shape, loadings.shape[1])))
    projection, information = next(parts)
    for more in parts:
        projection += more[0]
        information += more[1]
    return projection, information
