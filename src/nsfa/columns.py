"""A table's features, a few at a time: their means and spreads, and their values in the engine's layout.

The engine's table is features × samples; the user's is its transpose. Whatever is needed on the way from one to the
other is made for a block of features and thrown away, so that beside the user's table there is the engine's and no
third one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Bools, Floats
from nsfa.table import check_finite

# Entries of a block, and the fewest features in one: a line of memory of the user's table holds eight of them.
_BLOCK, _LEAST = 2**21, 8
# Samples that are transposed at a time.
_PIECE = 512
SPARSE_NOT_FINITE = (
    "A sparse X must be finite: its empty places are zeros, so it cannot hold missing entries. "
    "Got NaN or infinity; pass a dense array with NaN for missing entries."
)


class Columns(NamedTuple):
    """What is known of each feature (n_features,): observed entries, largest size, and moments in units of that size.

    ``missing`` is (n_features, n_samples), None where nothing is.
    """

    observed: Floats
    size: Floats
    mean: Floats
    variance: Floats
    missing: Bools | None = None

    @property
    def unit(self) -> Floats:
        """The largest size, or 1: squares of 1e200 overflow, variances in units of it do not."""
        out: Floats = np.where(self.size > 0, self.size, 1.0)
        return out


def _blocks(table: Any) -> Iterator[tuple[slice, Floats]]:
    """Blocks of features of a dense table, as fresh float64 arrays (features, samples)."""
    n_samples, n_features = table.shape
    step = max(_LEAST, _BLOCK // n_samples)
    for start in range(0, n_features, step):
        rows = slice(start, min(start + step, n_features))
        part = np.empty((rows.stop - start, n_samples))
        # transposed by pieces that fit into a cache: the rows of the user's table are far apart
        for first in range(0, n_samples, _PIECE):
            part[:, first : first + _PIECE] = table[first : first + _PIECE, rows].T
        yield rows, part


def dense_columns(table: Any, names: tuple[str, ...] | None) -> Columns:
    """The features of a dense table (samples, features); ValueError if an entry is infinite."""
    n_samples, n_features = table.shape
    observed, size, mean, variance = np.empty((4, n_features))
    missing: Bools | None = None
    for rows, part in _blocks(table):
        observed[rows], gone = n_samples, None
        if not np.isfinite(part).all():
            if np.isinf(part).any():
                check_finite(np.asarray(table, dtype=np.float64), names)
            gone = np.isnan(part)
            if missing is None:
                missing = np.zeros((n_features, n_samples), dtype=np.bool_)
            missing[rows] = gone
            observed[rows] -= gone.sum(axis=1)
            part[gone] = 0.0
        size[rows] = np.maximum(part.max(axis=1), -part.min(axis=1))
        part /= np.where(size[rows] > 0, size[rows], 1.0)[:, None]
        # a feature without an entry is the caller's to refuse
        seen = np.maximum(observed[rows], 1.0)
        mean[rows] = part.sum(axis=1) / seen
        part -= mean[rows, None]
        if gone is not None:
            part[gone] = 0.0
        variance[rows] = np.einsum("dn,dn->d", part, part) / seen
    return Columns(observed, size, mean, variance, missing)


def dense_values(table: Any, columns: Columns, center: Floats, factor: Floats, kept: Any, dtype: Any) -> Any:
    """(values / unit − center) · factor of the features ``kept`` (D, N), zero where missing, in the given precision."""
    out, place = np.empty((len(kept), table.shape[0]), dtype=dtype), np.full(table.shape[1], -1)
    place[kept] = np.arange(len(kept))
    for rows, part in _blocks(table):
        gone = None if columns.missing is None else columns.missing[rows]
        if gone is not None:
            part[gone] = 0.0
        part /= columns.unit[rows, None]
        part -= center[rows, None]
        if gone is not None:
            part[gone] = 0.0
        part *= factor[rows, None]
        here = place[rows] >= 0
        out[place[rows][here]] = part if here.all() else part[here]
    return out


def sparse_rows(X: Any) -> Any:
    """A sparse table (samples, features) by features: a fresh csr array (features, samples), its entries in order."""
    by_feature = sp.csc_array(X, copy=X.format == "csc")
    by_feature.sum_duplicates()
    return by_feature.T


def sparse_columns(rows: Any) -> Columns:
    """The features of a sparse table given by ``sparse_rows``; ValueError if an entry is not finite."""
    n_features, n_samples = rows.shape
    size, mean, variance = np.zeros((3, n_features))
    for d, part in each_feature(rows):
        if not np.isfinite(part).all():
            raise ValueError(SPARSE_NOT_FINITE)
        size[d] = np.abs(part).max(initial=0.0)
        part /= size[d] or 1.0
        mean[d] = part.sum() / n_samples
        part -= mean[d]
        # stored entries one by one, the zeros all alike
        variance[d] = (part @ part + (n_samples - len(part)) * mean[d] ** 2) / n_samples
    return Columns(np.full(n_features, float(n_samples)), size, mean, variance)


def sparse_values(rows: Any, factor: Floats, kept: Any, dtype: Any) -> Any:
    """The features ``kept`` of a sparse table times ``factor``, in the given precision; overwrites ``rows``."""
    same = rows.data.dtype == dtype
    data = rows.data if same else np.empty(rows.nnz, dtype=dtype)
    for d, part in each_feature(rows):
        part *= factor[d]
        data[rows.indptr[d] : rows.indptr[d + 1]] = part
    out = sp.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
    if len(kept) == len(rows.indptr) - 1:
        return out
    stored = np.diff(rows.indptr)
    if stored[kept].sum() < rows.nnz:
        return out[kept]
    # features without an entry, as unseen genes are, can go without a copy
    pointer = np.append(rows.indptr[kept], rows.indptr[-1])
    return sp.csr_array((data, rows.indices, pointer), shape=(len(kept), rows.shape[1]))


def each_feature(rows: Any) -> Iterator[tuple[int, Floats]]:
    """The number of each row of a csr array, and its stored entries as a fresh float64 array."""
    for d, (first, last) in enumerate(zip(rows.indptr[:-1], rows.indptr[1:], strict=True)):
        yield d, rows.data[first:last].astype(np.float64)


def power_of(values: Any, offset: Floats | None) -> Floats:
    """Σ_n (v_dn − offset_d)² over the samples (D,) in double precision; a sparse table's offset is any centre."""
    if offset is None:
        out: Floats = np.einsum("dn,dn->d", values, values, dtype=np.float64)
        return out
    square, total = np.empty((2, len(offset)))
    for d, part in each_feature(values):
        square[d], total[d] = part @ part, part.sum()
    out = square - 2.0 * offset * total + values.shape[1] * offset**2
    return out
