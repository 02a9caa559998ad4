"""Sufficient statistics of the data given the scores: the only way the moves see the data (MODEL section 3)."""

from __future__ import annotations

import numpy as np

from nsfa.data import Observed
from nsfa.kernels import Bools, Floats, Kernels, Projection, Rows
from nsfa.state import State


class Stats:
    """S = XᵀX (K, K) and T = Y X (D, K) of one chain, kept in buffers; q (D,) and N_d (D,) come with the data.

    ``refresh`` must be called after the scores change and before anything conditions on them.
    """

    def __init__(self, data: Observed, kernels: Kernels) -> None:
        self.data = data
        self.kernels = kernels
        self.gram: Floats = np.zeros((0, 0))
        self._cross: Floats = np.zeros((data.shape[0], 8))
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
        scores, n_factors = state.scores, state.n_factors
        self.gram = scores.T @ scores
        if self._cross.shape[1] <= n_factors:
            self._cross = np.zeros((self._cross.shape[0], n_factors + 8))
        if n_factors:
            self.kernels.cross(self.data, scores, self._cross[:, :n_factors])

    def rows(self, state: State) -> Rows:
        """The loadings' problem, for the row kernels."""
        cross = self._cross[:, : state.n_factors]
        return Rows(
            cross, self.gram, state.scores, self.data.feature_holes, state.noise_precision, state.precision_rows
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

    def residuals(self, state: State, skip: Bools | None = None) -> Floats:
        """r_d = Σ_n (y_dn − g_d·x_n)² over observed entries (D,), leaving out the factors in ``skip`` (K,)."""
        if state.n_factors == 0:
            return self.power.copy()
        skip = np.zeros(state.n_factors, dtype=np.bool_) if skip is None else skip
        return self.kernels.residuals(state.loadings, state.active, self.rows(state), self.power, skip)
