"""Sufficient statistics of the data given the scores: what most moves see of the data (docs/model.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nsfa.arrays import Bools, Floats, Ints
from nsfa.data import Observed
from nsfa.kernels import Kernels, Projection, Rows
from nsfa.state import State


class Stats:
    """S = XᵀX (K, K), T = Y X (D, K) and q = Σ y² (D,) of one chain, Y less its intercepts; N_d (D,) are the data's.

    ``refresh`` must be called after the scores or the intercepts change and before anything conditions on them.
    ``residual`` (D,) is Σ_n (y_dn − μ_d − g_d·x_n)² over observed entries; the loadings' moves leave it behind at no
    cost, and it holds until the loadings, the scores or the intercepts change.
    """

    def __init__(self, data: Observed, kernels: Kernels) -> None:
        self.data = data
        self.kernels = kernels
        self.gram: Floats = np.zeros((0, 0))
        self.cross: Floats = np.zeros((data.shape[0], 0))
        self._room: Floats = np.zeros(0)
        self._power = data.power
        self.residual = data.power.copy()
        self.n_observed = float(data.count.sum())
        # clustered scores are never integrated out
        self.log_evidence = math.nan

    @property
    def power(self) -> Floats:
        """q_d = Σ_n (y_dn − μ_d)² over observed entries (D,), of the intercepts at the last refresh."""
        return self._power

    @property
    def count(self) -> Floats:
        """N_d, the number of observed entries (D,)."""
        return self.data.count

    def refresh(self, state: State) -> None:
        """Recompute S, T and q from the current scores and intercepts. Cost O(N K² + D N K)."""
        scores = np.ascontiguousarray(state.scores)
        self.gram = scores.T @ scores
        size = len(self.power) * state.n_factors
        if len(self._room) < size:
            self._room = np.empty(2 * size)
        self.cross = self._room[:size].reshape(len(self.power), state.n_factors)
        if size:
            self.kernels.cross(self.data, scores, self.cross)
        self._power = self.data.power
        if state.intercept is not None:
            mu = state.intercept
            self._power = np.maximum(self.data.power - mu * (2.0 * self.data.total - mu * self.count), 0.0)
            self.cross -= mu[:, None] * self.score_sums(state)

    def score_sums(self, state: State) -> Floats:
        """Σ_n x_n over the samples observed for each feature: (1, K) where nothing is missing, else (D, K)."""
        total: Floats = state.scores.sum(axis=0)[None, :]
        return total if self.data.absent is None else total - self.data.absent @ state.scores

    def fit_of_holes(self, state: State) -> Any:
        """What the factors say of missing entries, g_d·x_n, as a sparse array (D, N); None where none is missing."""
        if self.data.absent is None:
            return None
        holes = self.data.absent.copy()
        row = np.repeat(np.arange(len(self.count)), np.diff(holes.indptr))
        holes.data = np.einsum("ik,ik->i", state.loadings[row], state.scores[holes.indices])
        return holes

    def rows(self, state: State) -> Rows:
        """The loadings' problem, for the row kernels."""
        return Rows(
            self.cross,
            self.gram,
            self.power,
            state.scores,
            self.data.feature_holes,
            state.noise_precision,
            state.precision_rows,
            state.relative,
        )

    def projection(self, state: State) -> Projection:
        """The scores' problem, for the sample kernels. Cost O(D N K + D K²)."""
        return project(self.data, state.loadings, state.noise_precision, state.intercept, self.kernels)

    def residuals(self, state: State, which: Ints | None = None, skip: Bools | None = None) -> Floats:
        """Residual sums of squares of the features ``which`` (all), leaving out the factors in ``skip`` (K,)."""
        which = np.arange(len(self.power)) if which is None else which
        if state.n_factors == 0:
            return self.power[which]
        skip = np.zeros(state.n_factors, dtype=np.bool_) if skip is None else skip
        return self.kernels.residuals(state.loadings, state.active, self.rows(state), which, skip)


def project(
    data: Observed, loadings: Floats, noise_precision: Floats, intercept: Floats | None, kernels: Kernels
) -> Projection:
    """The problem of the samples' scores given all else; ``intercept`` is (D,), or None for zero. Cost O(D N K)."""
    projection, information = kernels.project(data, loadings, noise_precision)
    if intercept is not None:
        weighted = (intercept * noise_precision)[:, None] * loadings
        projection -= weighted.sum(axis=0)
        if data.absent is not None:
            projection += data.absent.T @ weighted
    return Projection(projection, information, loadings, noise_precision, data.pattern, data.pattern_holes)
