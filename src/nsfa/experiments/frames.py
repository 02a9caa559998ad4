"""Reading the numbers: a quantity by model and replicate, means over replicates, paired differences."""

from __future__ import annotations

from typing import Any

import numpy as np


def part(frame: Any, model: str, quantity: str) -> Any:
    """The rows of a quantity of a model, in the order of the file."""
    return frame[(frame.model == model) & (frame.quantity == quantity)]


def by_replicate(frame: Any, quantity: str) -> Any:
    """Mean of a quantity in every replicate (a column each) of the models that have it, in the order of the plan."""
    rows = frame[frame.quantity == quantity]
    return rows.groupby(["model", "replicate"]).value.mean().unstack().reindex(rows.model.unique())


def means(frame: Any, quantity: str) -> Any:
    """Mean over replicates of the models that have the quantity."""
    return by_replicate(frame, quantity).mean(axis=1)


def difference(frame: Any, quantity: str, first: str, second: str) -> tuple[float, float]:
    """Mean over replicates of first minus second, and half the width of its 95 % interval (Student's t)."""
    from scipy.stats import t

    found = by_replicate(frame, quantity)
    gap = (found.loc[first] - found.loc[second]).dropna()
    if len(gap) < 2:
        return float(gap.mean()), np.inf
    return float(gap.mean()), float(t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / np.sqrt(len(gap)))


def sized(found: Any, family: str) -> Any:
    """Of means by model, those of the models called "family K…"."""
    return found.filter(regex=rf"^{family} K\d+$")


def size_of(name: str) -> int:
    """The K of a model called "… K16"."""
    return int(name.split(" K")[1])


def late_factors(frame: Any, model: str) -> Any:
    """K in the second half of every run."""
    rows = part(frame, model, "K")
    return rows[rows["at"] > rows["at"].max() / 2].value
