"""Births and deaths of factors that two features share, the noise of both giving way (docs/model.md)."""

from __future__ import annotations

import math

import numpy as np

from nsfa.arrays import Floats
from nsfa.kernels import Doublets
from nsfa.model.spec import ModelSpec
from nsfa.moves.info import Info
from nsfa.moves.noise import LARGEST
from nsfa.samples import Samples
from nsfa.state import State

# Attempts at a time. Never a function of anything that they change, K for one: states that get more of them would be
# left more often.
ATTEMPTS = 40


def update_doublet(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> Info:
    """Metropolis–Hastings on the factors with two users, their scores integrated out.

    A birth takes a feature at random, another by the correlation of their residuals, and a correlation ρ near that one.
    The features' noise variances give the shares |ρ|^{2v} and |ρ|^{2(1−v)} to the new factor, v uniform, so that each
    feature's variance stays as it was. A death puts one of the n such factors back. The ratio of a birth is
    L · αβ B(2, D − 2 + β)/(n + 1) · t(g, g′) · p(ψ₁)p(ψ₁′)/p(ψ)p(ψ′) · ½ √(ψψ′) |log ρ²| (1 − ρ²) / q, L the ratio of
    normal densities with and without ρ, t the slab with its precision integrated out, q the proposal's density. Where
    slabs are relative, t is that of loadings over the roots of ψ₁ and ψ₁′, and p includes the features' other loadings.
    Missing entries are drawn first and forgotten afterwards. Changes the scores, ``loadings``, ``active``, ``usage``,
    ``loading_precision``, ``noise_precision``, K; the statistics are brought up to date. Cost O(D N K).
    """
    n_features = len(state.noise_precision)
    if n_features < 2:
        return Info(0, 0)
    factors = np.flatnonzero(state.free_usage == 2)
    feature = np.ascontiguousarray(np.nonzero(state.active[:, factors].T)[1].reshape(-1, 2))
    shared = state.loading_precision.ndim == 0
    problem = Doublets(
        noise_variance=1.0 / state.noise_precision,
        least=1.0 / LARGEST,
        feature=feature,
        loading=state.loadings[feature, factors[:, None]],
        log_rate=log_pair_rate(state, n_features),
        noise_prior=noise_prior(state, spec),
        slab=(0.0, float(state.loading_precision)) if shared else (spec.priors.loading_shape, state.loading_rate),
        relative=state.relative,
        precision=state.precision_rows[0, factors],
    )
    found = samples.draw_doublets(state, problem, factors, ATTEMPTS, rng)
    if not found.kept.all() or len(found.feature):
        state.noise_precision = 1.0 / problem.noise_variance
        state.drop(factors[~found.kept])
        state.add(found.feature, found.loading, None if shared else found.precision)
        samples.refresh(state)
    return Info(found.accepted, ATTEMPTS)


def noise_prior(state: State, spec: ModelSpec) -> Floats:
    """Shape and rate (2, D) of the Gamma that each feature's noise precision has given its loadings, but no data."""
    prior = np.tile([[float(spec.priors.noise.shape)], [state.noise_rate]], len(state.noise_precision))
    return prior + 0.5 * state.noise_weight


def log_pair_rate(state: State, n_features: int) -> float:
    """Log αβ B(2, D − 2 + β): the prior rate of factors on two given features and no others."""
    last = state.stickiness + n_features - 2
    return math.log(state.concentration * state.stickiness / (last * (last + 1)))
