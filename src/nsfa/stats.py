"""Sufficient statistics of the data given the scores: what most moves see of the data (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.data import Observed
from nsfa.kernels import Bools, Floats, Ints, Kernels, Projection, Rows
from nsfa.state import State


class Stats:
    """S = XᵀX (K, K) and T = Y X (D, K) of one chain; q (D,) and N_d (D,) come with the data.

    ``refresh`` must be called after the scores change and before anything conditions on them. ``residual`` (D,) is
    Σ_n (y_dn − g_d·x_n)² over observed entries; the loadings' moves leave it behind at no cost, and it holds until the
    loadings or the scores change.
    """

    def __init__(self, data: Observed, kernels: Kernels) -> None:
        self.data = data
        self.kernels = kernels
        self.gram: Floats = np.zeros((0, 0))
        self.cross: Floats = np.zeros((data.shape[0], 0))
        self._room: Floats = np.zeros(0)
        self.residual = data.power.copy()
        self.n_observed = float(data.count.sum())
        self.log_evidence = 0.0

    @property
    def power(self) -> Floats:
        """q_d = Σ_n y_dn² over observed entries (D,)."""
        return self.data.power

    @property
    def count(self) -> Floats:
        """N_d, the number of observed entries (D,)."""
        return self.data.count

    def refresh(self, state: State) -> None:
        """Recompute S and T from the current scores. Cost O(N K² + D N K)."""
        scores = np.ascontiguousarray(state.scores)
        self.gram = scores.T @ scores
        size = len(self.power) * state.n_factors
        if len(self._room) < size:
            self._room = np.empty(2 * size)
        self.cross = self._room[:size].reshape(len(self.power), state.n_factors)
        if size:
            self.kernels.cross(self.data, scores, self.cross)

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
        )

    def projection(self, state: State) -> Projection:
        """The scores' problem, for the sample kernels. Cost O(D N K + D K²)."""
        projection, information = self.kernels.project(self.data, state.loadings, state.noise_precision)
        return Projection(
            projection,
            information,
            state.loadings,
            state.noise_precision,
            self.data.pattern,
            self.data.pattern_holes,
        )

    def residuals(self, state: State, which: Ints | None = None, skip: Bools | None = None) -> Floats:
        """Residual sums of squares of the features ``which`` (all), leaving out the factors in ``skip`` (K,)."""
        which = np.arange(len(self.power)) if which is None else which
        if state.n_factors == 0:
            return self.power[which]
        skip = np.zeros(state.n_factors, dtype=np.bool_) if skip is None else skip
        return self.kernels.residuals(state.loadings, state.active, self.rows(state), which, skip)
