"""Scores and annotations of the samples for the page."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.kernels import Floats, Ints
from nsfa.posterior.align import evenly
from nsfa.posterior.consensus import Consensus
from nsfa.reading import MOST_GROUPS, group_codes
from nsfa.report import pack

# Samples in the page at most; of more, evenly spaced ones are shown.
MOST_SAMPLES = 5000
# whole numbers with so few different values are labels (stage, grade), not measurements
MOST_GRADES = 10


def check_annotations(annotations: Any, n_samples: int) -> Any:
    """The annotations as a DataFrame with a row per sample, in the order of the fitted table."""
    import pandas as pd

    frame = pd.DataFrame(annotations) if annotations is not None else pd.DataFrame(index=range(n_samples))
    if len(frame) != n_samples:
        raise ValueError(
            f"annotations must have one row per sample, {n_samples}, in the fitted table's order. Got {len(frame)}."
        )
    return frame


def scores(consensus: Consensus, frame: Any) -> dict[str, Any]:
    """Scores, sample names and annotations, of all samples or of as many as keep the page small."""
    import pandas as pd

    n_samples = len(consensus.scores)
    shown = evenly(n_samples, MOST_SAMPLES)
    values = consensus.scores[shown]
    step = [pack.step_of(column) for column in values.T]
    unnamed = frame.index.equals(pd.RangeIndex(n_samples))
    names = [f"sample {name}" if unnamed else str(name) for name in frame.index[shown]]
    kept, left_out = _columns(frame)
    return {
        "n": len(shown),
        "of": n_samples,
        "names": names,
        "scores": pack.array(pack.steps(values, np.array(step)).T, "int16"),
        "step": step,
        "annotations": [_annotation(name, column.iloc[shown]) for name, column in kept],
        "explained": [_explained(column, consensus.scores).tolist() for _, column in kept],
        "left_out": left_out,
    }


def _columns(frame: Any) -> tuple[list[tuple[str, Any]], list[str]]:
    """Columns that can colour samples, and the names of those that cannot: all alike, or all different labels."""
    kept, left_out = [], []
    for i, name in enumerate(frame.columns):
        column = frame.iloc[:, i]
        different = column.nunique()
        useful = different > 1 and (is_number(column) or different < max(column.count(), MOST_GROUPS))
        (kept.append((str(name), column)) if useful else left_out.append(str(name)))
    return kept, left_out


def is_number(column: Any) -> bool:
    """Whether a column holds measurements rather than labels."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not is_numeric_dtype(column) or is_bool_dtype(column):
        return False
    values = column.dropna()
    return not (values.nunique() <= MOST_GRADES and bool((values == values.round()).all()))


def _annotation(name: str, column: Any) -> dict[str, Any]:
    if is_number(column):
        return {"name": name, "values": pack.array(_numbers(column), "float64")}
    levels, codes = group_codes(column.to_numpy(dtype=object, na_value=None), len(column))
    return {"name": name, "levels": levels, "codes": pack.array(codes, "uint8")}


def _numbers(column: Any) -> Floats:
    values: Floats = column.to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def _explained(column: Any, values: Floats) -> Floats:
    """Share of each factor's score variance that an annotation explains (K,), less what chance would: adjusted R²."""
    if is_number(column):
        numbers = _numbers(column)
        there = np.isfinite(numbers)
        design = np.column_stack([np.ones(there.sum()), numbers[there] - numbers[there].mean()])
        fitted = design @ np.linalg.lstsq(design, values[there], rcond=None)[0]
        return _adjusted(values[there], fitted, 2)
    codes, levels = column.factorize()
    there = codes >= 0
    return _adjusted(values[there], _level_means(codes[there], values[there], len(levels)), len(levels))


def _level_means(codes: Ints, values: Floats, n_levels: int) -> Floats:
    """Each sample's scores replaced by the mean of its level."""
    total = np.zeros((n_levels, values.shape[1]))
    np.add.at(total, codes, values)
    means: Floats = total / np.maximum(np.bincount(codes, minlength=n_levels), 1)[:, None]
    return means[codes]


def _adjusted(values: Floats, fitted: Floats, parameters: int) -> Floats:
    total = ((values - values.mean(axis=0)) ** 2).sum(axis=0)
    residual = ((values - fitted) ** 2).sum(axis=0)
    free = len(values) - parameters
    if free < 1:
        return np.zeros(values.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 1.0 - (residual / free) / (total / (len(values) - 1))
    out: Floats = np.clip(np.nan_to_num(share), 0.0, 1.0)
    return out
