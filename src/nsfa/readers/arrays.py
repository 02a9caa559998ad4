"""NumPy's .npy and .npz, and scipy's sparse .npz. Pickled objects are never loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.readers.sheet import Sheet, readable, show_some


def read_npy(path: Path) -> Sheet:
    """One array without names."""
    with readable(path, ".npy"):
        # mapped first: a damaged header may ask for more memory than the file has values
        array = np.load(path, allow_pickle=False, mmap_mode="r")
    return Sheet(_table(array, path), None, None)


def read_npz(path: Path) -> Sheet:
    """One array, or a sparse matrix as ``scipy.sparse.save_npz`` writes it."""
    with readable(path, ".npz"), np.load(path, allow_pickle=False) as file:
        names = file.files
        sparse = {"format", "data", "shape"} <= set(names)
        array = file[names[0]] if len(names) == 1 else None
    if sparse:
        with readable(path, "sparse .npz"):
            matrix = sp.csr_array(sp.load_npz(path))
            matrix.check_format(full_check=True)
        return Sheet(_table(matrix, path), None, None)
    if array is None:
        raise ValueError(f"{path.name} must hold one array. Got {len(names)} ({show_some(names)}); save one alone.")
    return Sheet(_table(array, path), None, None)


def _table(array: Any, path: Path) -> Any:
    """The array in float64, if it is a table of real numbers."""
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{path.name} must hold a 2-D table with values. Got an array of shape {array.shape}.")
    if array.dtype.kind not in "buif":
        raise ValueError(f"{path.name} must hold real numbers. Got dtype {array.dtype}; convert it.")
    return array.astype(np.float64) if sp.issparse(array) else np.array(array, dtype=np.float64)
