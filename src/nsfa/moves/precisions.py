"""Slab precisions of the loadings and their common rate (docs/model.md). Where slabs are relative, g is g √τ_d here."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.kernels.streams import fresh_key
from nsfa.model.priors import draw_gamma
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.samples import Samples
from nsfa.state import State

Generator = np.random.Generator


def update_precision_shared(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """λ ~ Gamma(c + Σm/2, rate + ½ ΣΣ g²). Changes ``loading_precision`` (0-d). Cost O(D K)."""
    total = state.loading_squares.sum()
    shape, rate = slab_posterior(spec.priors.loading_shape, state.loading_rate, state.usage.sum(), total)
    state.loading_precision = np.asarray(draw_gamma(rng, shape, rate))


def update_precision_factor(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """λ_k ~ Gamma(c + m_k/2, rate + ½ Σ_d g_dk²). Changes ``loading_precision`` (K,). Cost O(D K)."""
    shape, rate = slab_posterior(spec.priors.loading_shape, state.loading_rate, state.usage, state.loading_squares)
    state.loading_precision = samples.kernels.draw_gammas(shape, rate, fresh_key(rng))


def update_precision_element(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """λ_dk ~ Gamma(c + z_dk/2, rate + ½ g_dk²). Changes ``loading_precision`` (D, K). Cost O(D K)."""
    active, square = state.active.ravel(), state.noise_units(np.square(state.loadings), 2).ravel()
    shape, rate = slab_posterior(spec.priors.loading_shape, state.loading_rate, active, square)
    state.loading_precision = samples.kernels.draw_gammas(shape, rate, fresh_key(rng)).reshape(state.loadings.shape)


def slab_posterior(shape: float, rate: float, count: Any, square: Any) -> tuple[Any, Any]:
    """Shape and rate of a slab precision given ``count`` active loadings with sum of squares ``square``."""
    return shape + 0.5 * count, rate + 0.5 * square


def update_loading_rate(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """Rate ~ Gamma(c₀ + c·#λ, d₀ + Σλ), the power shared among factors. Changes ``loading_rate``."""
    prior = spec.priors.loading_rate
    if isinstance(prior, Gamma):
        precision = state.loading_precision
        shape = prior.shape + spec.priors.loading_shape * precision.size
        state.loading_rate = float(draw_gamma(rng, shape, prior.rate + precision.sum()))
