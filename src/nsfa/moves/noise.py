"""Noise precisions of the features and their common rate (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.kernels.streams import fresh_key
from nsfa.model.priors import draw_gamma
from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples, noise_posterior
from nsfa.state import State

Generator = np.random.Generator

# Features that are copies of each other leave no residual at all: with a learned rate their precisions would grow
# without end. Ten orders of magnitude above the data's own scale is exact enough.
LARGEST = 1e10


def update_noise_diagonal(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """τ_d ~ Gamma(a + N_d/2, b + ½ r_d), N_d counting observed entries. Changes ``noise_precision`` (D,).

    Relative slabs count as observations too: N_d + m_d of them, with r_d + Σ_k λ_k g_dk². So do outliers' deviations.
    """
    state.noise_precision = samples.draw_noise(state, spec.priors.noise.shape, LARGEST, fresh_key(rng))


def update_noise_isotropic(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """τ ~ Gamma(a + ΣN_d/2, b + ½ Σr_d), one for all features, slabs as above. Changes ``noise_precision`` (D,)."""
    count, residual = samples.noise_evidence(state)
    total = float(count.sum()), float(residual.sum())
    shape, rate = noise_posterior(spec.priors.noise.shape, state.noise_rate, *total)
    state.noise_precision = np.full_like(state.noise_precision, min(draw_gamma(rng, shape, rate), LARGEST))


def update_noise_rate(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """B ~ Gamma(a₀ + aD, b₀ + Σ τ_d), the power shared among features. Changes ``noise_rate``."""
    prior, tau = spec.priors.noise_rate, state.noise_precision
    shape = prior.shape + spec.priors.noise.shape * len(tau)
    state.noise_rate = float(draw_gamma(rng, shape, prior.rate + tau.sum()))
