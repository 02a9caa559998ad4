"""Births and deaths of factors used by one feature alone (docs/model.md).

For each feature d the set of its own factors, κ_d of them with loadings g, is replaced by a proposed one; their scores
are integrated out, so only the feature's residual sum of squares without them is needed. Features are independent.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from nsfa.arrays import Floats, Ints
from nsfa.kernels import Births
from nsfa.kernels.streams import fresh_key
from nsfa.model.priors import draw_gamma
from nsfa.model.spec import ModelSpec
from nsfa.moves.info import Info
from nsfa.samples import Samples
from nsfa.state import State

Generator = np.random.Generator


def update_births(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> Info:
    """Metropolis–Hastings on (κ_d, g, λ) of every feature's own factors.

    Propose κ* ~ J, λ* and g* from their priors; accept with L(g*) Po(κ*; γ) J(κ) / [L(g) Po(κ; γ) J(κ*)], where
    log L(g) = −(N_d/2) log(1 + τΣg²) + ½ τ r (1 − 1/(1 + τΣg²)). The scores of new factors are not set: the scores
    must be drawn, all factors jointly, before anything conditions on them.
    Changes ``loadings``, ``active``, ``usage``, ``loading_precision``, the number of factors. Cost O(D · active²).
    """
    n_features = len(state.noise_precision)
    own = samples.kernels.own_factors(
        state.loadings, state.pattern, samples.rows(state), state.free_usage, samples.residual
    )
    cumulative, weight = proposal_tables(
        birth_rate(state, n_features), spec.birth_scale, spec.spike, int(np.bincount(own.owner).max(initial=0))
    )
    # a shared slab precision is the state's; others are drawn with the new factors
    shared = state.loading_precision.ndim == 0
    problem = Births(
        own=own,
        noise_precision=state.noise_precision,
        relative=state.relative,
        n_observed=samples.count,
        cumulative=cumulative,
        weight=weight,
        slab_shape=0.0 if shared else spec.priors.loading_shape,
        slab_rate=float(state.loading_precision) if shared else state.loading_rate,
    )
    born = samples.kernels.draw_births(problem, fresh_key(rng))
    gone = born.accepted[own.owner]
    if gone.any() or len(born.row):
        precisions = None if shared else born.precision
        if state.loading_precision.ndim == 2:
            precisions = with_others(state, spec, born.row, born.precision, rng)
        state.replace_singletons((own.owner[gone], own.factor[gone]), born.row, born.loading, precisions)
    return Info(int(np.count_nonzero(born.accepted)), n_features)


def birth_rate(state: State, n_features: int) -> float:
    """γ = αβ/(β + D − 1): the prior mean of a feature's number of own factors."""
    return state.concentration * state.stickiness / (state.stickiness + n_features - 1)


@lru_cache
def proposal_tables(rate: float, scale: float, spike: float, at_least: int) -> tuple[Floats, Floats]:
    """Distribution function of J and log Po(κ; γ) − log J(κ), for κ = 0, 1, … until J has no mass left to speak of.

    J(κ) = (1 − π) Poisson(κ; sγ) + π 1(κ = 1): the whole proposal, spike included, stands in the ratio.
    """
    cumulative, weight = [], []
    log_rate, log_scale = math.log(rate), math.log(scale)
    # log Poisson(κ; γ), and log (1 − π) Poisson(κ; sγ), one κ after another
    prior, plain = -rate, math.log1p(-spike) - scale * rate
    total, kappa, proposal = 0.0, 0, 0.0
    # past the mode, terms fall faster than geometrically: below 1e-18 the rest cannot be drawn
    least = max(at_least, 1, scale * rate)
    while kappa <= least or proposal > -42.0:
        proposal = plain if kappa != 1 or spike == 0 else math.log(math.exp(plain) + spike)
        total += math.exp(proposal)
        cumulative.append(total)
        weight.append(prior - proposal)
        kappa += 1
        step = log_rate - math.log(kappa)
        prior += step
        plain += step + log_scale
    return np.array(cumulative), np.array(weight)


def with_others(state: State, spec: ModelSpec, rows: Ints, own: Floats, rng: Generator) -> Floats:
    """Slab precisions (D, new) of new factors: the features that do not use them draw from the prior."""
    shape = (len(state.noise_precision), len(rows))
    precision: Floats = draw_gamma(rng, spec.priors.loading_shape, state.loading_rate, shape)
    precision[rows, np.arange(len(rows))] = own
    return precision
