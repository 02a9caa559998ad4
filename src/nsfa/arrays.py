"""Names of the array types that everything here passes around, and arrays that lie on a device.

Arrays per feature may lie on a device; those per factor never do. NumPy's functions work on either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def to_host(array: Any) -> Any:
    """An array in this process's memory; one that is there stays as it is."""
    return array.get() if hasattr(array, "get") else array


def beside(array: Any, other: Any) -> Any:
    """An array where ``other`` lies; one that is there stays as it is."""
    if hasattr(array, "get") or not hasattr(other, "get"):
        return array
    out = np.empty_like(other, dtype=array.dtype, shape=array.shape)
    out.set(np.ascontiguousarray(array))
    return out


def contiguous(array: Any) -> Any:
    """An array in C order where it lies; one that is in it stays as it is."""
    if not hasattr(array, "get"):
        return np.ascontiguousarray(array)
    return array if array.flags.c_contiguous else array.copy(order="C")
