"""Reading and checking what the user hands in: a samples × features table, or one sentence about why it is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Bools, Floats


def check_features(estimator: Any, X: Any) -> None:
    """Raise ValueError unless X is a table with the features that a fitted scikit-learn estimator saw."""
    from sklearn.utils.validation import validate_data

    if len(getattr(X, "shape", (0, 0))) != 2:
        as_float_table(X)
    read_names(X)
    validate_data(estimator, X, reset=False, skip_check_array=True)


def read_names(X: Any) -> tuple[str, ...] | None:
    """The names of a frame's columns, or None; ValueError if two are the same."""
    columns = getattr(X, "columns", None)
    if columns is None:
        return None
    names = tuple(str(c) for c in columns)
    if len(set(names)) < len(names):
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"Features must have different names. Got {twin!r} {names.count(twin)} times; rename them.")
    return names


def read_sample_names(X: Any) -> tuple[str, ...] | None:
    """The labels of a frame's rows, or None where these are only numbered."""
    index = getattr(X, "index", None)
    # of a list, this is a method
    if index is None or callable(index) or type(index).__name__ == "RangeIndex":
        return None
    return tuple(str(name) for name in index)


def as_float_table(X: Any) -> Floats:
    """A fresh float64 array of the table, masked entries as NaN, or one sentence about why there is none."""
    # C order of the transpose is what the engine stores
    return np.array(as_table(X), dtype=np.float64, order="F")


def as_table(X: Any) -> Any:
    """The table as an array of numbers, the caller's own where it is one: not to be written to. Else as above."""
    if hasattr(X, "obs_names") and hasattr(X, "layers"):
        raise ValueError("X must be a table. Got an AnnData object; fit it with nsfa.tl.nsfa, or pass its X.")
    if sp.issparse(X):
        raise ValueError("X must be dense here: a sparse table has no missing entries. Got a sparse one.")
    try:
        array = _frame_values(X) if hasattr(X, "columns") else np.ma.asanyarray(X) if np.ma.isMA(X) else np.asarray(X)
    except ValueError:
        raise ValueError(
            "X must be a table whose rows have equal lengths. Got rows that differ; pad with NaN."
        ) from None
    if array.ndim != 2:
        given = f"an array of shape {array.shape}" if array.ndim else f"a {type(X).__name__}"
        raise ValueError(
            f"X must be a 2-D table, samples × features. Got {given}. Reshape your data, or pass an array or frame "
            "with at least 2 rows and 2 columns."
        )
    if array.dtype.kind in "cmM":
        raise ValueError(
            f"X must hold real numbers. Complex data not supported, nor are dates. Got dtype {array.dtype}; convert it."
        )
    if np.ma.isMA(array):
        return np.ma.filled(array.astype(np.float64), np.nan)
    return array if array.dtype.kind in "buif" else _numbers(array)


def _numbers(array: Any) -> Floats:
    """Objects or texts as numbers, where they are some."""
    try:
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        # scikit-learn wants a TypeError, with Python's own words, for what could never be a number
        words = f" ({error})" if isinstance(error, TypeError) else ""
        raise type(error)(
            f"X must hold numbers, with NaN for missing entries. Got {_first_text(array)}{words}; "
            "remove such columns or convert them to numbers."
        ) from None


def _frame_values(frame: Any) -> Any:
    """A frame's values; pandas' nullable columns give NaN for NA."""
    plain = frame.to_numpy()
    if plain.dtype.kind != "O":
        return plain
    try:
        return frame.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError):
        return plain


def _first_text(array: Any) -> str:
    for (row, column), value in np.ndenumerate(array):
        try:
            float(value)
        except (TypeError, ValueError):
            return f"{value!r} at row {row}, column {column}"
    return f"dtype {array.dtype}"


def label(names: tuple[str, ...] | None, index: int) -> str:
    """A feature in words: by its name, or its number."""
    return f"feature {index}" if names is None else f"feature {names[index]!r}"


def check_shape(n_samples: int, n_features: int) -> None:
    """Raise ValueError unless there are two samples and two features at least."""
    if n_samples < 2 or n_features < 2:
        raise ValueError(
            f"X must have at least 2 samples and 2 features. Got {n_samples} sample(s) and {n_features} feature(s) "
            f"(shape=({n_samples}, {n_features})) while a minimum of 2 is required; rows are samples."
        )


def check_table(table: Floats, missing: Bools, names: tuple[str, ...] | None) -> None:
    """Raise ValueError unless the table is finite and every row and column has an observed value."""
    check_shape(*table.shape)
    check_finite(table, names)
    check_observed(missing, names)


def check_observed(missing: Bools, names: tuple[str, ...] | None) -> None:
    """Raise ValueError unless every row and column of a mask (samples, features) has an entry that is not missing."""
    empty = np.flatnonzero(missing.all(axis=0))
    if len(empty):
        raise ValueError(
            f"Every feature must have an observed value. Got only NaN in {label(names, empty[0])} "
            f"({len(empty)} such feature(s)); drop it."
        )
    empty = np.flatnonzero(missing.all(axis=1))
    if len(empty):
        raise ValueError(
            f"Every sample must have an observed value. Got only NaN in sample {empty[0]} "
            f"({len(empty)} such sample(s)); drop it."
        )


def check_finite(table: Floats, names: tuple[str, ...] | None) -> None:
    """Raise ValueError if an entry is infinite."""
    infinite = np.argwhere(np.isinf(table))
    if len(infinite):
        row, column = infinite[0]
        raise ValueError(
            f"X must be finite or NaN (missing). Got {table[row, column]} at sample {row}, {label(names, column)} "
            f"({len(infinite)} in all); replace infinities by NaN or by numbers."
        )


def check_size(size: Floats) -> None:
    """Raise ValueError if values are too large to be squared."""
    if size.max() > 1e140:
        raise ValueError(
            f"X must be smaller than 1e140 in size: variances would overflow. Got {size.max():.3g}; use other units."
        )


def check_power(power: Floats) -> None:
    """Without scaling, extreme units leave the range in which sums of squares and their logs can be taken."""
    if not ((power < 1e100) & ((power > 1e-100) | (power == 0))).all():
        raise ValueError(
            "X must be within about 1e±50 of unit size when it is not scaled. "
            "Got larger or smaller values; use scale='feature' or 'global', or other units."
        )
