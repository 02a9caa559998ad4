"""Reading the numbers: values of a quantity, means over replicates, paired differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.arrays import Floats


def by_replicate(frame: Any, model: str, quantity: str) -> Any:
    """Mean of a quantity in every replicate of a model, as a pandas Series."""
    part = frame[(frame.model == model) & (frame.quantity == quantity)]
    return part.groupby("replicate").value.mean()


def values(frame: Any, model: str, quantity: str) -> Floats:
    """All values of a quantity of a model, in the order of the file."""
    out: Floats = frame[(frame.model == model) & (frame.quantity == quantity)].value.to_numpy(dtype=float)
    return out


def mean(frame: Any, model: str, quantity: str) -> float:
    """Mean over replicates."""
    return float(by_replicate(frame, model, quantity).mean())


def difference(frame: Any, quantity: str, first: str, second: str) -> tuple[float, float]:
    """Mean over replicates of first minus second, and half the width of its 95 % interval (Student's t)."""
    from scipy.stats import t

    gap = (by_replicate(frame, first, quantity) - by_replicate(frame, second, quantity)).dropna()
    if len(gap) < 2:
        return float(gap.mean()), np.inf
    return float(gap.mean()), float(t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / np.sqrt(len(gap)))


def models(frame: Any, quantity: str) -> list[str]:
    """Models that have the quantity, in the order of the plan."""
    return list(dict.fromkeys(frame[frame.quantity == quantity].model))


def best(frame: Any, quantity: str, names: list[str]) -> str:
    """The model with the largest mean."""
    return max(names, key=lambda name: mean(frame, name, quantity))


def sized(frame: Any, quantity: str, family: str) -> list[str]:
    """Models of a family named "family K…" that have the quantity, by K."""
    found = [name for name in models(frame, quantity) if name.split(" K")[0] == family and " K" in name]
    return sorted(found, key=size_of)


def size_of(name: str) -> int:
    """The K of a model called "… K16"."""
    return int(name.split(" K")[1].split()[0])
