"""Features by name: new tables may have them in another order, lack some, or have others."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Ints
from nsfa.table import as_float_table, check_features, read_names

# Of features that are missing or too many a warning names so many.
_NAMED = 3


def find_features(X: Any, names: tuple[str, ...] | None) -> Ints | None:
    """Which column of X each feature of a fit is, −1 where X lacks it; None where there are no names to go by.

    Warns of features that X lacks and of columns that the fit does not know.
    """
    here = read_names(X)
    if here is None or names is None:
        return None
    place = {name: column for column, name in enumerate(here)}
    where = np.array([place.get(name, -1) for name in names])
    # numbers that a frame has by default are no names; other numbers, of a part of such a frame, may be
    if _numbered(here) or (_numbered(names) and (where < 0).all()):
        return None
    if (where < 0).all():
        raise ValueError(
            f"X must have features in common with the fit. Got none: {here[0]!r}, ... in X and {names[0]!r}, ... in "
            "the fit; use the same kind of names."
        )
    absent = [name for name, column in zip(names, where, strict=True) if column < 0]
    unknown = sorted(set(here) - set(names), key=place.__getitem__)
    if absent:
        _warn(f"{len(absent)} of the {len(names)} features of the fit are not in X and count as missing", absent)
    if unknown:
        _warn(f"{len(unknown)} of the {len(here)} features of X are unknown to the fit and ignored", unknown)
    return where


def find_or_check(estimator: Any, X: Any, names: tuple[str, ...] | None) -> Ints | None:
    """The same for a fitted scikit-learn estimator; where names do not tell, X must have the features it saw."""
    where = find_features(X, names)
    if where is None:
        check_features(estimator, X)
    return where


def take_features(X: Any, where: Ints) -> Any:
    """The table with a column per feature of the fit, NaN for those that X lacks; X itself if it is that already."""
    if np.array_equal(where, np.arange(X.shape[1])):
        return X
    known = where >= 0
    if sp.issparse(X):
        part = sp.csr_array(X)[:, where[known]]
        if known.all():
            return part
        part = part.toarray()
    else:
        part = as_float_table(X[_labels(X, where)])
    out = np.full((part.shape[0], len(where)), np.nan)
    out[:, known] = part
    return out


def put_features(X: Any, where: Ints | None, values: Any) -> Any:
    """The frame X with its columns that the fit knows replaced by ``values`` (n_samples, n_features of the fit)."""
    where = np.arange(X.shape[1]) if where is None else where
    labels, values = _labels(X, where), values[:, where >= 0]
    if hasattr(X, "with_columns"):
        return X.with_columns(type(X)(dict(zip(labels, values.T, strict=True))).get_columns())
    out = X.copy()
    out[labels] = values
    return out


def _labels(X: Any, where: Ints) -> list[Any]:
    return [X.columns[column] for column in where if column >= 0]


def _numbered(names: tuple[str, ...]) -> bool:
    return names == tuple(map(str, range(len(names))))


def _warn(what: str, names: list[str]) -> None:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    warn_caller(f"{what}: {', '.join(map(repr, names[:_NAMED]))}{rest}.")


def warn_caller(text: str) -> None:
    """Warn, with the line outside this package and scikit-learn from which it was called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("nsfa.", "sklearn.")):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)
