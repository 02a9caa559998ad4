"""The compiled climb to a direction that many features share (docs/model.md): the table is read once a step."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import jit
from nsfa.kernels.streams import CLIMBED, LARGEST_SLAB, LEAST_SLAB, LEAST_USED, MOST_USED, START_SLAB, START_USED


@jit
def climb(residual, start, slab, stickiness, steps):
    """As ``reference_modules.climb``."""
    n_features, n = residual.shape
    u, kappa, share = start.copy(), START_SLAB, min(START_USED / n_features, 0.3)
    new = np.empty(n)
    for _ in range(steps):
        v = 1.0 / (kappa + n)
        odds = math.log(share / (1.0 - share)) + 0.5 * math.log(kappa * v)
        users, square = 0.0, 0.0
        new[:] = 0.0
        for d in range(n_features):
            row = residual[d]
            h = math.sqrt(n) * np.dot(row, u)
            used = 1.0 / (1.0 + math.exp(-min(max(odds + 0.5 * v * h * h, -700.0), 700.0)))
            users += used
            square += used * (v * v * h * h + v)
            weight = used * h
            for i in range(n):
                new[i] += weight * row[i]
        kappa = (slab[0] + 0.5 * users) / (slab[1] + 0.5 * square)
        kappa = min(max(kappa, LEAST_SLAB), LARGEST_SLAB * math.sqrt(n))
        share = min(max(users / (n_features + stickiness), LEAST_USED / n_features), MOST_USED)
        length = math.sqrt(np.dot(new, new))
        if length == 0.0:
            break
        cosine = abs(np.dot(u, new)) / length
        u[:] = new / length
        if 1.0 - cosine < CLIMBED:
            break
    return u, kappa, share
