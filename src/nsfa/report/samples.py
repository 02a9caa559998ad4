"""Scores and annotations of the samples for the page."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import false_discovery_control

from nsfa.annotations import as_numbers, associate, is_measurement, sort_columns
from nsfa.arrays import Floats, Ints
from nsfa.display import group_codes
from nsfa.posterior.align import evenly
from nsfa.posterior.consensus import Consensus
from nsfa.report import pack

# Samples in the page at most; of more, evenly spaced ones are shown.
MOST_SAMPLES = 5000


def check_annotations(annotations: Any, n_samples: int, names: tuple[str, ...] | None = None) -> Any:
    """The annotations as a DataFrame with a row per sample, in the order of the fitted table; or its ``names``."""
    import pandas as pd

    frame = pd.DataFrame(annotations) if annotations is not None else pd.DataFrame(index=names or range(n_samples))
    if len(frame) != n_samples:
        raise ValueError(
            f"annotations must have one row per sample, {n_samples}, in the fitted table's order. Got {len(frame)}."
        )
    return frame


def names_of(frame: Any) -> list[str]:
    """What the samples are called: by the labels of their annotations, or their numbers."""
    import pandas as pd

    unnamed = frame.index.equals(pd.RangeIndex(len(frame)))
    return [f"sample {name}" if unnamed else str(name) for name in frame.index]


def scores(consensus: Consensus, frame: Any) -> dict[str, Any]:
    """Scores, sample names and annotations, of all samples or of as many as keep the page small."""
    n_samples = len(consensus.scores)
    shown = evenly(n_samples, MOST_SAMPLES)
    values = consensus.scores[shown]
    step = [pack.step_of(column) for column in values.T]
    names = names_of(frame)
    kept, left_out = sort_columns(frame)
    return {
        "n": len(shown),
        "of": n_samples,
        "names": [names[n] for n in shown],
        "scores": pack.array(pack.steps(values, np.array(step)).T, "int16"),
        "step": step,
        "annotations": [_annotation(name, column, shown) for name, column in kept],
        **_associations([column for _, column in kept], consensus.scores),
        "left_out": left_out,
    }


def _annotation(name: str, column: Any, shown: Ints) -> dict[str, Any]:
    if is_measurement(column):
        return {"name": name, "values": pack.array(as_numbers(column)[shown], "float64")}
    levels, codes = group_codes(_labels(column)[shown], len(shown))
    return {"name": name, "levels": levels, "codes": pack.array(codes, "uint8")}


def _labels(column: Any) -> Any:
    """Labels as they are called and ordered: holes make fractions of whole numbers, categories have an order."""
    from pandas.api.types import is_float_dtype

    if hasattr(column, "cat"):
        return column.array
    whole = column.where(np.isfinite(column)).astype("Int64") if is_float_dtype(column) else column
    return whole.to_numpy(dtype=object, na_value=None)


def _associations(columns: list[Any], values: Floats) -> dict[str, Any]:
    """Adjusted R² and FDR of every annotation and factor; Benjamini–Hochberg over all of them."""
    found = [associate(column, values) for column in columns]
    p = np.array([each.p for each in found]).reshape(len(found), values.shape[1])
    fdr = false_discovery_control(p.ravel()).reshape(p.shape) if p.size else p
    return {"explained": [each.share.tolist() for each in found], "fdr": fdr.tolist()}
