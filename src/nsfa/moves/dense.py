"""Loadings of the dense models, a feature at a time (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.kernels.streams import fresh_key
from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State


def update_dense(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> None:
    """g_d ~ N(A⁻¹ τ_d T_d, A⁻¹) with A = τ_d S_d + diag(λ_d), given the scores.

    Changes ``loadings`` and leaves the residuals in ``samples.residual``. Cost O(D K³).
    """
    samples.residual = samples.kernels.draw_dense(state.loadings, samples.rows(state), fresh_key(rng))
