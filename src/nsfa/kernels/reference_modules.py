"""The climb to a direction that many features share, in plain NumPy: the twin of ``kernels.module_kernels``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from nsfa.kernels.streams import CLIMBED, LARGEST_SLAB, LEAST_SLAB, LEAST_USED, MOST_USED, START_SLAB, START_USED

if TYPE_CHECKING:
    from nsfa.arrays import Floats


def climb(
    residual: Floats, start: Floats, slab: tuple[float, float], stickiness: float, steps: int
) -> tuple[Floats, float, float]:
    """EM steps from a direction to the one that scores of a new factor have most likely: see ``Kernels.climb``."""
    (n_features, n), (shape, rate) = residual.shape, slab
    u, kappa, share = start, START_SLAB, min(START_USED / n_features, 0.3)
    for _ in range(steps):
        h, v = np.sqrt(n) * (residual @ u), 1.0 / (kappa + n)
        used = expit(np.log(share / (1 - share)) + 0.5 * np.log(kappa * v) + 0.5 * v * h * h)
        users, square = used.sum(), (used * ((v * h) ** 2 + v)).sum()
        kappa = min(max((shape + 0.5 * users) / (rate + 0.5 * square), LEAST_SLAB), LARGEST_SLAB * np.sqrt(n))
        share = min(max(users / (n_features + stickiness), LEAST_USED / n_features), MOST_USED)
        new = residual.T @ (used * h)
        length = np.sqrt(new @ new)
        if length == 0:
            break
        before, u = u, new / length
        if 1 - abs(before @ u) < CLIMBED:
            break
    return u, float(kappa), float(share)
