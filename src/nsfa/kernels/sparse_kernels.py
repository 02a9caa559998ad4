"""Compiled products of a sparse table, features × samples by features, with a dense matrix (docs/scaling.md).

A feature's entries lie far apart among the samples, so that going through one feature after another would fetch every
row of scores from main memory. All features are therefore taken through one block of samples, whose scores stay in the
cache, before the next. Entries are in order, so that a feature goes on where it was. The order of every sum depends on
the table and the number of factors alone.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from nsfa.kernels.compiled import jit

# Scores of a block of samples: half of a small second-level cache, in doubles.
_CACHED = 2**15


def block_size(n_factors: int) -> int:
    """Samples per block."""
    return max(_CACHED // max(n_factors, 1), 64)


@jit
def cross_rows(lo, hi, data, index, pointer, scores, size, out):
    """Write V X (features lo to hi, K): four entries at a time, since a row of sums is read and written for each."""
    n_samples, n_factors = scores.shape
    at = pointer[lo:hi].copy()
    out[lo:hi] = 0.0
    for stop in range(size, n_samples + size, size):
        for d in range(lo, hi):
            p, end, row = at[d - lo], pointer[d + 1], out[d]
            while p + 3 < end and index[p + 3] < stop:
                a, b, c, e = data[p], data[p + 1], data[p + 2], data[p + 3]
                first, second = scores[index[p]], scores[index[p + 1]]
                third, fourth = scores[index[p + 2]], scores[index[p + 3]]
                for k in range(n_factors):
                    row[k] += a * first[k] + b * second[k] + c * third[k] + e * fourth[k]
                p += 4
            while p < end and index[p] < stop:
                a, first = data[p], scores[index[p]]
                for k in range(n_factors):
                    row[k] += a * first[k]
                p += 1
            at[d - lo] = p


@jit
def project_rows(lo, hi, data, index, pointer, weighted, size, out):
    """Write Vᵀ W (samples lo to hi, K)."""
    n_features, n_factors = weighted.shape
    at = np.empty(n_features, dtype=np.int64)
    for d in range(n_features):
        at[d] = _first_from(lo, index, pointer[d], pointer[d + 1])
    for start in range(lo, hi, size):
        stop = min(start + size, hi)
        out[start:stop] = 0.0
        for d in range(n_features):
            p, end, weight = at[d], pointer[d + 1], weighted[d]
            while p < end and index[p] < stop:
                value, row = data[p], out[index[p]]
                for k in range(n_factors):
                    row[k] += value * weight[k]
                p += 1
            at[d] = p


@jit
def _first_from(sample, index, first, last):
    """The first of a feature's entries that is of ``sample`` or a later one."""
    while first < last:
        middle = (first + last) // 2
        if index[middle] < sample:
            first = middle + 1
        else:
            last = middle
    return first
