"""Missing entries: listed for each row, and which patterns of them there are."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Bools, Ints
from nsfa.kernels import Holes


def no_holes(n_rows: int) -> Holes:
    """The holes of rows that have none."""
    return Holes(np.zeros(n_rows + 1, np.int64), np.zeros(0, np.int32), np.zeros(n_rows, np.bool_))


def list_holes(missing: Bools) -> Holes:
    """List each row's missing entries, or its observed ones where those are fewer."""
    if not missing.any():
        return no_holes(len(missing))
    rebuild = 2 * missing.sum(axis=1) > missing.shape[1]
    listed = missing ^ rebuild[:, None]
    pointer = np.concatenate([[0], np.cumsum(listed.sum(axis=1))]).astype(np.int64)
    return Holes(pointer, np.nonzero(listed)[1].astype(np.int32), rebuild)


def distinct_patterns(missing: Bools) -> tuple[Bools, Ints]:
    """Distinct columns of a (D, N) missing mask, as rows, and which of them each column is."""
    packed = np.packbits(missing, axis=0).T
    _, first, pattern = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return missing[:, first].T, np.asarray(pattern, dtype=np.int64).ravel()
