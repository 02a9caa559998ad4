"""Directions in which samples differ most: subspace iteration over a table, never made dense nor complete."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Floats
from nsfa.data import Observed
from nsfa.kernels import Kernels

_POWER_STEPS = 2
_RESIDUAL_STEPS = 6


def widest(data: Observed, kernels: Kernels, scores: Floats) -> Floats:
    """Orthonormal directions (N, K) near those in which samples differ most, beginning from some.

    Two steps of subspace iteration on YᵀY, missing entries at their features' means.
    """
    cross, ones = np.empty((data.shape[0], scores.shape[1])), np.ones(data.shape[0])
    for _ in range(_POWER_STEPS):
        kernels.cross(data, np.ascontiguousarray(scores), cross)
        # before the next ones, which take several times their room
        del scores
        scores = np.linalg.qr(kernels.project(data, cross, ones)[0])[0]
    return scores


def beyond_noise(
    data: Observed, kernels: Kernels, precision: Floats, taken: Floats, holes: Any, begin: Floats, beyond: float
) -> tuple[Floats, Floats] | None:
    """Scores (N, new) in the directions in which samples differ by more than noise, and loadings (D, new); or None.

    At right angles to the orthonormal columns ``taken`` (N, ·), sought from ``begin`` (N, width) on. In units of the
    noise, D × N independent entries have singular values up to √D + √N, and ``beyond`` times the squares of these is
    beyond noise. ``holes`` is what is expected of missing entries, sparse (D, N), or None.
    """
    (n_features, n_samples), tau = data.shape, precision[:, None]
    product = np.empty((n_features, begin.shape[1]))
    holes = sp.csr_array(data.shape) if holes is None else holes
    directions = before = begin
    for _ in range(_RESIDUAL_STEPS):
        directions = np.linalg.qr(directions - taken @ (taken.T @ directions))[0]
        kernels.cross(data, directions, product)
        product += holes @ directions
        before, directions = directions, kernels.project(data, product, precision)[0]
        directions = directions + holes.T @ (tau * product)
    power, axes = np.linalg.eigh(product.T @ (tau * product))
    axes = axes[:, power > beyond * (np.sqrt(n_features) + np.sqrt(n_samples)) ** 2]
    if not axes.shape[1]:
        return None
    return before @ axes * np.sqrt(n_samples), product @ axes / np.sqrt(n_samples)
