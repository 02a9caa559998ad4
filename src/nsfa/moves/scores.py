"""Gaussian scores, all factors of a sample jointly (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.kernels.streams import fresh_key
from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State


def update_scores(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> None:
    """x_n ~ N(Λ_n⁻¹ Gᵀ diag(τ) y_n, Λ_n⁻¹), Λ_n = I + Σ_{d observed} τ_d g_d g_dᵀ.

    Changes the scores, after which the statistics must be refreshed; leaves log p(Y | G, τ, μ), the scores integrated
    out, in ``samples.log_evidence``. Cost O(D N K), and for each pattern of m missing features O(m² K), or one K×K
    factorisation if they are many.
    """
    gain = samples.draw_scores(state, fresh_key(rng) if state.n_factors else 0)
    if not np.isfinite(gain):
        raise np.linalg.LinAlgError("The evidence of the scores is not finite.")
    samples.note_evidence(state.noise_precision, gain)
