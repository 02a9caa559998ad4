"""Compiled draws of the parameters behind samples' shares of outliers (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import jit, normal_at, uniform_pair
from nsfa.kernels.streams import CONCENTRATION_STEPS

# numbers below this are multiplied out
_FEW = 8.0


@jit
def log_rising(x, counts):
    """Σ_n log Γ(x + c_n)/Γ(x) for whole numbers c (N,), many of which are zero or small."""
    base, total = math.lgamma(x), 0.0
    for n in range(counts.shape[0]):
        count = counts[n]
        if count >= _FEW:
            total += math.lgamma(x + count) - base
        elif count > 0.0:
            product = x
            for i in range(1, np.int64(count)):
                product *= x + i
            total += math.log(product)
    return total


@jit
def draw_concentrations(counts, concentration, shape, rate, key):
    """See ``Kernels.draw_concentrations``; ``counts`` is (J + 2, N), the samples' numbers of entries last."""
    kinds = concentration.shape[0]
    now, then = concentration.copy(), concentration.copy()
    own, new = np.empty(kinds), np.empty(kinds)
    for j in range(kinds):
        own[j] = shape[j] * math.log(now[j]) - rate * now[j] + log_rising(now[j], counts[j])
    whole = log_rising(now.sum(), counts[kinds])
    for i in range(CONCENTRATION_STEPS.shape[0]):
        for j in range(kinds + 1):
            first, last = (j, j + 1) if j < kinds else (0, kinds)
            then[:], new[:] = now, own
            factor = math.exp(CONCENTRATION_STEPS[i] * normal_at(key, j, i))
            for k in range(first, last):
                then[k] *= factor
                new[k] = shape[k] * math.log(then[k]) - rate * then[k] + log_rising(then[k], counts[k])
            total = log_rising(then.sum(), counts[kinds])
            if math.log(uniform_pair(key, j, i)[0]) < new.sum() - own.sum() + whole - total:
                now[:], own[:], whole = then, new, total
    return now
