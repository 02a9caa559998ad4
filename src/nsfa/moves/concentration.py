"""The buffet's α and β (docs/model.md), and BFRM's usage probabilities ρ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nsfa.model import priors
from nsfa.model.priors import draw_gamma, gamma_log_density
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.samples import Samples
from nsfa.state import State

Generator = np.random.Generator


def update_concentration_buffet(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """α ~ Gamma(e + K, f + H_D(β)), K without factors of which something is known. Changes ``concentration``."""
    prior, (n_features, n_known) = spec.concentration_prior, state.prior_offset.shape
    total = priors.buffet_total(n_features, state.stickiness)
    state.concentration = float(draw_gamma(rng, prior.shape + state.n_factors - n_known, prior.rate + total))


def update_concentration_finite(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """α given the usage of K fixed factors: not conjugate, a slice step on log α. Changes ``concentration``."""
    n_features = len(state.noise_precision)

    def log_likelihood(alpha: float) -> float:
        return priors.finite_log_probability(state.usage, n_features, alpha, state.stickiness)

    state.concentration = slice_positive(state.concentration, log_likelihood, spec.concentration_prior, rng)


def update_stickiness_buffet(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """β given α and the usage under the buffet: a slice step on log β. Changes ``stickiness``."""
    n_features, n_known = state.prior_offset.shape

    def log_likelihood(beta: float) -> float:
        return priors.buffet_log_probability(state.usage, n_features, state.concentration, beta, n_known)

    state.stickiness = slice_positive(state.stickiness, log_likelihood, spec.priors.stickiness, rng)


def update_stickiness_finite(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """β given α and the usage of K fixed factors: a slice step on log β. Changes ``stickiness``."""
    n_features = len(state.noise_precision)

    def log_likelihood(beta: float) -> float:
        return priors.finite_log_probability(state.usage, n_features, state.concentration, beta)

    state.stickiness = slice_positive(state.stickiness, log_likelihood, spec.priors.stickiness, rng)


def update_sparsity(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """ρ_k given how many loadings could be used: the indicator π_dk ≠ 0 is drawn where z = 0, and is 1 where z = 1.

    P(indicator | z = 0) = ρ(1−m)/(1−mρ); then ρ_k ~ Beta(s r + Σ, s(1−r) + D − Σ). Changes ``sparsity`` (K,).
    """
    n_features, m = len(state.noise_precision), spec.priors.reliability
    rho = np.asarray(state.sparsity)
    possible = state.usage + rng.binomial(n_features - state.usage, rho * (1 - m) / (1 - m * rho))
    a, b = priors.sparsity_prior(spec, n_features)
    # kept off 0 and 1, where the odds would not be finite
    state.sparsity = np.clip(rng.beta(a + possible, b + n_features - possible), 1e-300, 1 - 1e-16)


def slice_positive(
    value: float, log_likelihood: Callable[[float], float], prior: Gamma, rng: Generator, width: float = 1.0
) -> float:
    """One slice-sampling step (Neal 2003, stepping out) for a positive number, on its logarithm."""

    def log_target(log_x: float) -> float:
        x = float(np.exp(log_x))
        # + log_x: the Jacobian of working on the logarithm
        return log_likelihood(x) + float(gamma_log_density(x, prior.shape, prior.rate)) + log_x

    start = float(np.log(value))
    level = log_target(start) - rng.standard_exponential()
    left = start - width * rng.random()
    right = left + width
    while log_target(left) > level:
        left -= width
    while log_target(right) > level:
        right += width
    while True:
        proposal = left + (right - left) * rng.random()
        if log_target(proposal) > level:
            return float(np.exp(proposal))
        if proposal < start:
            left = proposal
        else:
            right = proposal
