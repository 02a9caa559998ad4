"""What is known about the samples: which annotations are labels, which numbers, and how each goes with the factors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import f as f_distribution

from nsfa.arrays import Floats, Ints

# whole numbers with so few different values are labels (stage, grade), not measurements ...
MOST_GRADES = 10
# ... as are any that count up from 0 or 1 (clusters), with so many samples each
SAMPLES_PER_CLUSTER = 5
# labels with fewer samples each are ids: they would explain anything
SAMPLES_PER_LABEL = 2


def is_measurement(column: Any) -> bool:
    """Whether a column (a pandas Series) holds measurements rather than labels."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not is_numeric_dtype(column) or is_bool_dtype(column):
        return False
    values = as_numbers(column)
    values = values[np.isfinite(values)]
    different = np.unique(values)
    if not len(different) or (different != np.rint(different)).any():
        return True
    if len(different) <= MOST_GRADES and SAMPLES_PER_LABEL * len(different) <= len(values):
        return False
    counting = different[0] in (0, 1) and different[-1] - different[0] == len(different) - 1
    return not (counting and SAMPLES_PER_CLUSTER * len(different) <= len(values))


def sort_columns(frame: Any) -> tuple[list[tuple[str, Any]], list[str]]:
    """Columns that can be compared with the factors, by name, and what the others are, in words."""
    kept, left_out = [], []
    for i, name in enumerate(frame.columns):
        column = frame.iloc[:, i]
        reason = _useless(column)
        (kept.append((str(name), column)) if reason is None else left_out.append(f"{name} ({reason})"))
    return kept, left_out


def _useless(column: Any) -> str | None:
    """Why a column cannot be compared with anything; None if it can."""
    try:
        different, there = column.nunique(), column.count()
    except TypeError:
        # lists and the like, which cannot be told apart as labels are
        return "neither numbers nor labels"
    if different < 2:
        return "all samples alike" if there else "no values"
    if not is_measurement(column) and SAMPLES_PER_LABEL * different > there:
        return f"{different} different labels in {there} samples"
    return None


def left_out_note(frame: Any) -> str | None:
    """A sentence about annotations that are not compared with the factors; None if all of them are."""
    left_out = sort_columns(frame)[1]
    if not left_out:
        return None
    more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
    return f"{len(left_out)} annotation(s) are not compared with the factors: {', '.join(left_out[:5])}{more}."


class Association(NamedTuple):
    """How an annotation goes with each factor: adjusted R² of the scores (K,), and p of the F test (K,)."""

    share: Floats
    p: Floats


def associate(column: Any, scores: Floats) -> Association:
    """How a column goes with the factors, from the samples (n_samples, K) that have a value.

    Least squares of the scores on the number, or their means by label. With m parameters, adjusted R² = 1 − (1 − R²)
    (n − 1)/(n − m) takes off what m − 1 labels explain by chance, and F = (R²/(m − 1)) / ((1 − R²)/(n − m)) has p.
    """
    if is_measurement(column):
        numbers = as_numbers(column)
        there = np.isfinite(numbers)
        centred = numbers[there] - numbers[there].mean()
        # of very small or large units least squares would take a column for noise
        design = np.column_stack([np.ones(len(centred)), centred / (np.abs(centred).max(initial=0.0) or 1.0)])
        fitted = design @ np.linalg.lstsq(design, scores[there], rcond=None)[0]
        return _test(scores[there], fitted, 2)
    codes, levels = column.factorize()
    there = codes >= 0
    return _test(scores[there], _level_means(codes[there], scores[there], len(levels)), len(levels))


def as_numbers(column: Any) -> Floats:
    """The values of a column, NaN where there is no finite one."""
    values: Floats = column.to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def _level_means(codes: Ints, values: Floats, n_levels: int) -> Floats:
    """Each sample's scores replaced by the mean of its level."""
    total = np.zeros((n_levels, values.shape[1]))
    np.add.at(total, codes, values)
    means: Floats = total / np.maximum(np.bincount(codes, minlength=n_levels), 1)[:, None]
    return means[codes]


def _test(values: Floats, fitted: Floats, parameters: int) -> Association:
    total = ((values - values.mean(axis=0)) ** 2).sum(axis=0)
    residual = ((values - fitted) ** 2).sum(axis=0)
    free = len(values) - parameters
    if free < 1:
        return Association(np.zeros(values.shape[1]), np.ones(values.shape[1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 1.0 - (residual / free) / (total / (len(values) - 1))
        ratio = (np.maximum(total - residual, 0.0) / (parameters - 1)) / (residual / free)
    p = f_distribution.sf(np.nan_to_num(ratio, nan=0.0), parameters - 1, free)
    return Association(np.clip(np.nan_to_num(share), 0.0, 1.0), p)
