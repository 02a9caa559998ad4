"""Varimax: the rotation that makes dense loadings as simple as they can be."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Floats

_MOST_STEPS = 200
_TOLERANCE = 1e-6


def varimax(loadings: Floats, start: Floats | None = None) -> Floats:
    """The orthogonal R (K, K) that maximises the variance of the squared loadings of G R (Kaiser 1958).

    By repeated projection on the orthogonal matrices (Procrustes); ``start`` saves steps when a good R is known.
    """
    n_features, n_factors = loadings.shape
    rotation = np.eye(n_factors) if start is None else start
    if n_factors < 2:
        return rotation
    before = 0.0
    for _ in range(_MOST_STEPS):
        turned = loadings @ rotation
        square = (turned**2).sum(axis=0) / n_features
        u, size, v = np.linalg.svd(loadings.T @ (turned**3 - turned * square))
        rotation = u @ v
        if size.sum() <= before * (1 + _TOLERANCE):
            break
        before = size.sum()
    return rotation
