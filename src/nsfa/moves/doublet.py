"""Births and deaths of factors that two features share, the noise of both giving way (docs/model.md)."""

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels import Doublets
from nsfa.kernels.streams import fresh_key
from nsfa.model.priors import draw_gamma
from nsfa.model.spec import ModelSpec
from nsfa.moves.marginal import completed
from nsfa.moves.noise import LARGEST
from nsfa.moves.precisions import slab_posterior
from nsfa.state import State
from nsfa.stats import Stats

# Attempts at a time. Never a function of anything that they change, K for one: states that get more of them would be
# left more often.
ATTEMPTS = 40


def update_doublet(state: State, stats: Stats, spec: ModelSpec, rng: np.random.Generator) -> None:
    """Metropolis–Hastings on the factors with two users, their scores integrated out.

    A birth takes a feature at random, another by the correlation of their residuals, and a correlation ρ near that one.
    The features' noise variances give the shares |ρ|^{2v} and |ρ|^{2(1−v)} to the new factor, v uniform, so that each
    feature's variance stays as it was. A death puts one of the n such factors back. The ratio of a birth is
    L · αβ B(2, D − 2 + β)/(n + 1) · t(g, g′) · p(ψ₁)p(ψ₁′)/p(ψ)p(ψ′) · ½ √(ψψ′) |log ρ²| (1 − ρ²) / q, L the ratio of
    normal densities with and without ρ, t the slab with its precision integrated out, q the proposal's density.
    Missing entries are drawn first and forgotten afterwards. Changes ``loadings``, ``active``, ``usage``,
    ``scores``, ``loading_precision``, ``noise_precision``, K; the statistics are brought up to date. Cost O(D N K).
    """
    n_features = len(state.noise_precision)
    if n_features < 2:
        return
    factors = np.flatnonzero(state.usage == 2)
    feature = np.ascontiguousarray(np.nonzero(state.active[:, factors].T)[1].reshape(-1, 2))
    shared = state.loading_precision.ndim == 0
    problem = Doublets(
        residual=completed(state, stats, rng) - state.loadings @ state.scores.T,
        noise_variance=1.0 / state.noise_precision,
        least=1.0 / LARGEST,
        feature=feature,
        loading=state.loadings[feature, factors[:, None]],
        scores=np.ascontiguousarray(state.scores[:, factors].T),
        log_rate=log_pair_rate(state, n_features),
        noise_prior=(spec.priors.noise.shape, state.noise_rate),
        slab=(0.0, float(state.loading_precision)) if shared else (spec.priors.loading_shape, state.loading_rate),
    )
    found = stats.kernels.draw_doublets(problem, ATTEMPTS, fresh_key(rng))
    if not found.kept.all() or len(found.feature):
        state.noise_precision = 1.0 / problem.noise_variance
        state.drop(factors[~found.kept])
        precision = None
        if not shared:
            shape, rate = slab_posterior(*problem.slab, 2, (found.loading**2).sum(axis=1))
            precision = draw_gamma(rng, shape, rate, len(found.feature))
        state.add(found.feature, found.loading, found.scores, precision)
        stats.refresh(state)


def log_pair_rate(state: State, n_features: int) -> float:
    """Log αβ B(2, D − 2 + β): the prior rate of factors on two given features and no others."""
    last = state.stickiness + n_features - 2
    return math.log(state.concentration * state.stickiness / (last * (last + 1)))
