"""The matrix products that touch the data, in fixed blocks so that no thread count changes a bit.

Y is features × samples, dense and already centred, or sparse with its centring kept as ``offset`` (D,):
(V − offset 1ᵀ) X = V X − offset (1ᵀX), so that a sparse table is never made dense. Values may be in single precision:
they are multiplied in it, and the products of a few thousand features or samples added up in double.
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
# So many terms of a sum are added in single precision.
_TERMS = 4096

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
    right = scores if data.offset is not None else scores.astype(values.dtype, copy=False)

    def one(rows: slice) -> None:
        if data.offset is None:
            _multiply(values[rows], right, out[rows])
        else:
            out[rows] = values[rows] @ right - np.outer(data.offset[rows], right.sum(axis=0))

    for _ in each(one, blocks(values.shape, scores.shape[1])):
        pass


def project(data: Centred, loadings: Floats, noise_precision: Floats, each: Mapper) -> tuple[Floats, Floats]:
    """Yᵀ diag(τ) G (N, K) and Gᵀ diag(τ) G (K, K).

    Tables with more samples than features go block by block of samples; others, and sparse ones, of features, partial
    sums being added in order.
    """
    n_features, n_samples = data.values.shape
    if data.offset is None and n_samples > n_features:
        weighted = noise_precision[:, None] * loadings
        return _project_samples(data.values, weighted, each), weighted.T @ loadings
    return _project_features(data, loadings, noise_precision, each)


def _project_samples(values: Any, weighted: Floats, each: Mapper) -> Floats:
    out, right = np.empty((values.shape[1], weighted.shape[1])), weighted.astype(values.dtype, copy=False)

    def one(columns: slice) -> None:
        _multiply(values[:, columns].T, right, out[columns])

    for _ in each(one, blocks(values.shape[::-1], weighted.shape[1])):
        pass
    return out


def _project_features(data: Centred, loadings: Floats, noise_precision: Floats, each: Mapper) -> tuple[Floats, Floats]:
    values = data.values

    def one(rows: slice) -> tuple[Any, Floats]:
        weighted = noise_precision[rows, None] * loadings[rows]
        if data.offset is None:
            projection = values[rows].T @ weighted.astype(values.dtype, copy=False)
        else:
            projection = values[rows].T @ weighted - data.offset[rows] @ weighted
        return projection, weighted.T @ loadings[rows]

    parts = iter(each(one, blocks(values.shape, loadings.shape[1])))
    first, information = next(parts)
    projection = first.astype(np.float64, copy=False)
    for more in parts:
        projection += more[0]
        information += more[1]
    return projection, information


def _multiply(left: Any, right: Any, out: Floats) -> None:
    """Write left · right; of single precision, in pieces that are added up in double."""
    if left.dtype == out.dtype:
        np.matmul(left, right, out=out)
        return
    out[:] = 0.0
    for start in range(0, len(right), _TERMS):
        out += left[:, start : start + _TERMS] @ right[start : start + _TERMS]
