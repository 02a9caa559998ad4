"""Part of a feature's noise split off as a factor of its own, and put back (docs/model.md)."""

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels import Floats, Ints
from nsfa.model.priors import LOG_2PI, draw_gamma
from nsfa.model.spec import ModelSpec
from nsfa.moves.births import birth_rate, own_by_feature, with_others
from nsfa.moves.noise import LARGEST
from nsfa.moves.precisions import slab_posterior
from nsfa.state import State
from nsfa.stats import Stats

Generator = np.random.Generator


def update_split(state: State, stats: Stats, spec: ModelSpec, rng: Generator) -> None:
    """Metropolis–Hastings between noise variance and factors used by one feature alone, their scores integrated out.

    Each feature tries, with probability ½ each, a birth, g² = uψ with u uniform and an even sign, ψ′ = ψ − g²; or the
    death of one of its n own factors, ψ′ = ψ + g². Neither changes the likelihood, so the ratio of a birth is
    γ/(n+1) · t(g) · p(ψ′)/p(ψ) · ψ/|g|, t the slab with its precision integrated out. The scores of new factors are
    not set: the scores must be drawn before anything conditions on them.
    Changes ``loadings``, ``active``, ``usage``, ``loading_precision``, ``noise_precision``, K. Cost O(D).
    """
    n_features, variance = len(state.noise_precision), 1.0 / state.noise_precision
    factor, owner, number = own_by_feature(state)
    born = rng.random(n_features) < 0.5
    g = np.sqrt(rng.random(n_features) * variance) * np.where(rng.random(n_features) < 0.5, -1.0, 1.0)
    # one of the feature's own factors, each as likely as the others: the last of its in a random order
    chosen = np.full(n_features, -1)
    order = rng.permutation(len(factor))
    chosen[owner[order]] = factor[order]
    dying = ~born & (chosen >= 0)
    g[dying] = state.loadings[dying, chosen[dying]]
    smaller = np.where(born, variance - g**2, variance)
    ratio = log_split_ratio(g, smaller, number - dying, state, spec)
    accept = np.log(rng.random(n_features)) < np.where(born, ratio, -ratio)
    accept &= np.where(born, smaller * LARGEST >= 1.0, dying)
    if not accept.any():
        return
    new, dead = np.flatnonzero(accept & born), np.flatnonzero(accept & dying)
    state.noise_precision = 1.0 / np.where(accept, np.where(born, smaller, variance + g**2), variance)
    precisions = slab_of_new(state, spec, new, g[new], rng)
    state.replace_singletons((dead, chosen[dead]), new, g[new], precisions)


def log_split_ratio(g: Floats, variance: Floats, number: Ints, state: State, spec: ModelSpec) -> Floats:
    """Log acceptance ratio of splitting g² off the noise variance ``variance`` + g², beside ``number`` own factors."""
    whole, prior = variance + g**2, spec.priors.noise
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = (prior.shape + 1.0) * np.log(whole / variance) - state.noise_rate * (1.0 / variance - 1.0 / whole)
        jacobian = np.log(whole) - np.log(np.abs(g))
    rate = birth_rate(state, len(variance))
    out: Floats = math.log(rate) - np.log(number + 1.0) + log_slab(g, state, spec) + noise + jacobian
    return out


def log_slab(g: Floats, state: State, spec: ModelSpec) -> Floats:
    """Log density of a new factor's loading: a shared precision is the state's, others are integrated out."""
    if state.loading_precision.ndim == 0:
        precision = float(state.loading_precision)
        return 0.5 * (math.log(precision) - LOG_2PI - precision * g**2)
    shape, rate = spec.priors.loading_shape, state.loading_rate
    constant = math.lgamma(shape + 0.5) - math.lgamma(shape) + shape * math.log(rate) - 0.5 * LOG_2PI
    out: Floats = constant - (shape + 0.5) * np.log(rate + 0.5 * g**2)
    return out


def slab_of_new(state: State, spec: ModelSpec, rows: Ints, g: Floats, rng: Generator) -> Floats | None:
    """Slab precisions of new factors given their loadings; per element, features without them draw from the prior."""
    if state.loading_precision.ndim == 0:
        return None
    shape, rate = slab_posterior(spec.priors.loading_shape, state.loading_rate, 1, g**2)
    own: Floats = draw_gamma(rng, shape, rate, len(rows))
    return own if state.loading_precision.ndim == 1 else with_others(state, spec, rows, own, rng)
