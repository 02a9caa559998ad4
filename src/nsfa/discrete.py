"""Counts and zeros and ones: what they must be, how much of each sample was counted, and each feature's usual level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from nsfa.arrays import Bools, Floats
from nsfa.table import as_float_table, check_finite, label, read_sample_names

# A sample in which nothing was counted counts as one with half a count, and so does a feature.
_HALF = 0.5
NO_COUNTS = "no counts at all"
# So many of them are named.
_NAMED = 3
# Standard deviation of log size factors about those that the totals suggest: a few features may dominate these.
EXPOSURE_SPREAD = 0.3


def as_discrete(X: Any, likelihood: str, names: tuple[str, ...] | None) -> Floats:
    """A dense float64 table (n_samples, n_features) of counts or of zeros and ones, NaN where missing; else ValueError.

    A sparse table is made dense: the Gaussian values behind its zeros are not zero.
    """
    table = np.asarray(X.toarray(), dtype=np.float64) if sp.issparse(X) else as_float_table(X)
    check_finite(table, names)
    seen = np.nan_to_num(table)
    if likelihood == "binary":
        wrong, wanted = (seen != 0) & (seen != 1), "zeros and ones"
    else:
        wrong, wanted = (seen < 0) | (seen != np.rint(seen)), "whole numbers from 0 on"
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        value, samples = table[row, column], read_sample_names(X)
        raise ValueError(
            f"likelihood={likelihood!r} needs a table of {wanted}, NaN where missing. Got {value:g} at "
            f"sample {row if samples is None else repr(samples[row])}, {label(names, column)}; "
            f"{_instead(likelihood, value)}."
        )
    return table


def _instead(likelihood: str, value: float) -> str:
    """What to do about a value that is no count, or neither zero nor one."""
    if likelihood == "binary":
        if value > 0 and value == np.rint(value):
            return "use likelihood='counts' for counts, or 'gaussian' for other values"
        return "use likelihood='gaussian' for measurements, or make zeros and ones of them"
    if value < 0:
        return "use likelihood='gaussian' for values that may be negative, such as logarithms of normalised counts"
    return "use likelihood='gaussian' for values that are no whole numbers, such as normalised counts"


def empty_words(kind: str, total: Floats, names: Sequence[str] | None) -> str | None:
    """Which samples or features have a ``total`` of no counts at all, in words; None if none has."""
    empty = np.flatnonzero(total == 0)
    if not len(empty):
        return None
    some = ", ".join(str(i) if names is None else repr(names[i]) for i in empty[:_NAMED])
    more = f" and {len(empty) - _NAMED} more" if len(empty) > _NAMED else ""
    return f"{len(empty)} {kind}(s) have {NO_COUNTS} ({some}{more})"


def log_exposure(table: Floats, missing: Bools, expected: Floats) -> Floats:
    """How much of each sample was counted (n_samples,), as logarithms about zero.

    Its observed counts in all over what is ``expected`` (n_features,) of these features.
    """
    total, usual = np.where(missing, 0.0, table).sum(axis=1), (~missing) @ expected
    out: Floats = np.log(np.maximum(total, _HALF)) - np.log(np.maximum(usual, _HALF))
    return out


def given_exposure(size_factors: Any, n_samples: int) -> Floats:
    """Logarithms of size factors given by the user (n_samples,), about zero; ValueError if they are none."""
    factors = _numbers(size_factors)
    if factors is None or factors.shape != (n_samples,) or not (np.isfinite(factors) & (factors > 0)).all():
        raise ValueError(
            f"size_factors must be 'total', None, or a positive number for each of {n_samples} samples. "
            f"Got {_given(size_factors, n_samples)}."
        )
    logs = np.log(factors)
    out: Floats = logs - logs.mean()
    return out


def _numbers(given: Any) -> Floats | None:
    """An array of numbers, or None where there is none to be had."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _given(size_factors: Any, n_samples: int) -> str:
    """What was given in place of size factors, in words."""
    try:
        shape = np.shape(size_factors)
    except ValueError:
        return f"a {type(size_factors).__name__} of other things"
    if shape == ():
        return repr(size_factors)
    return f"an array of shape {shape}{' with other values' if shape == (n_samples,) else ''}"


def check_likelihood_settings(likelihood: str, scale: Any, size_factors: Any) -> None:
    """Raise ValueError about settings of one likelihood that were given with another, unless they are the defaults."""
    if likelihood != "counts" and not (isinstance(size_factors, str) and size_factors == "total"):
        scalar = size_factors is None or isinstance(size_factors, (str, int, float))
        raise ValueError(
            f"size_factors is for likelihood='counts'. Got {repr(size_factors) if scalar else 'an array'} with "
            f"likelihood={likelihood!r}; leave it out."
        )
    if likelihood != "gaussian" and scale == "global":
        # None is what is done
        raise ValueError(f"scale='global' is for likelihood='gaussian'. Got it with {likelihood=}; leave it out.")


def usual_level(table: Floats, missing: Bools, likelihood: str, exposure: Floats) -> Floats:
    """What a feature's values are about (n_features,): its log rate per unit of exposure, or its normal quantile."""
    total = np.where(missing, 0.0, table).sum(axis=0)
    if likelihood == "counts":
        return np.asarray(np.log(np.maximum(total, _HALF)) - np.log(np.exp(exposure) @ ~missing))
    number = (~missing).sum(axis=0)
    return np.asarray(ndtri((total + _HALF) / (number + 2 * _HALF)))
