"""Pattern and loadings of the sparse models, entry by entry (docs/model.md).

All of them draw z_dk and g_dk given the scores, with g_dk integrated out of the odds of z_dk, and leave the residual
sums of squares in ``samples.residual``; they differ in the prior odds, and in whether the factors' probabilities are
integrated out (rows one after another) or drawn (rows independent).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.arrays import Floats, Ints
from nsfa.kernels.streams import fresh_key
from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State

Generator = np.random.Generator

# Up to so many entries of the pattern, listing all that are in use is quicker than looking factor by factor.
_LIST_ALL = 50_000


def update_buffet_collapsed(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """Row after row under the buffet: prior odds m/(β + D − 1 − m), m counting the other rows.

    A factor used by this row alone keeps z = 1 (births and deaths decide about it); its loading is drawn.
    Changes ``loadings``, ``active``, ``usage``. Cost O(D K + active · K), holes O(K) each.
    """
    _collapsed(state, samples, 0.0, state.stickiness, rng)


def update_finite_collapsed(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """Row after row with K fixed: prior odds (m + αβ/K)/(β + D − 1 − m).

    Changes ``loadings``, ``active``, ``usage``. Cost O(D K + active · K), holes O(K) each.
    """
    _collapsed(state, samples, finite_pseudo_count(state), state.stickiness, rng)


def update_buffet_parallel(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """Rows independent under the buffet, still exact: each factor draws an anchor row, π_k and u_k.

    With a_k uniform among the rows using k, π_k ~ Beta(m, D − m + β) and u_k ~ Beta(m, 1), the joint of
    (Z_k, π, a, u) is ∝ (πu)^{m−1} (1−π)^{D−m+β−1}: every other row has prior odds πu/(1−π), and the anchor keeps the
    factor, so none can die here. Changes ``loadings``, ``active``, ``usage``. Cost O(D K²), holes O(K) each.
    """
    anchor, logit = draw_anchors(state, rng)
    _independent(state, samples, logit, anchor, rng)


def update_finite_parallel(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """Rows independent with K fixed: π_k ~ Beta(m + αβ/K, D − m + β), prior odds π/(1−π).

    Changes ``loadings``, ``active``, ``usage``. Cost O(D K²), holes O(K) each.
    """
    _independent(state, samples, draw_logits(state, rng), None, rng)


def update_two_level(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """Rows independent under BFRM's prior: odds mρ_k/(1 − mρ_k), the loadings' own probabilities integrated out.

    Changes ``loadings``, ``active``, ``usage``. Cost O(D K²), holes O(K) each.
    """
    probability = spec.priors.reliability * np.asarray(state.sparsity)
    _independent(state, samples, (np.log(probability) - np.log1p(-probability))[None, :], None, rng)


def finite_pseudo_count(state: State) -> float:
    """αβ/K: what the prior adds to a factor's usage when K is fixed."""
    return state.concentration * state.stickiness / state.n_factors


def draw_anchors(state: State, rng: Generator) -> tuple[Ints, Floats]:
    """Anchor rows (K,) and prior logits (1, K) of the parallel buffet sweep."""
    anchor = _any_users(state, rng)
    log_odds = draw_log_odds(state, state.usage, 0.0, rng)
    # Beta(m, 1) is a uniform to the power 1/m
    log_u = -rng.standard_exponential(state.n_factors) / state.usage
    return anchor, (log_odds + log_u)[None, :]


def without_anchors(state: State, rng: Generator) -> tuple[Ints, Floats]:
    """The same with K fixed: no feature is an anchor."""
    return np.full(state.n_factors, -1, dtype=np.int64), draw_logits(state, rng)


def _any_users(state: State, rng: Generator) -> Ints:
    """For each factor (K,) one of the features that use it, each with the same probability."""
    n_features, usage = len(state.noise_precision), state.usage
    if state.lists_users or n_features * state.n_factors < _LIST_ALL:
        return state.nth_users(np.arange(state.n_factors), rng.integers(0, usage))
    # a uniform feature that uses k will do; only where it does not are the users listed
    user = rng.integers(0, n_features, state.n_factors)
    missed = np.flatnonzero(~state.uses(user))
    user[missed] = state.nth_users(missed, rng.integers(0, usage[missed]))
    return user


def draw_logits(state: State, rng: Generator) -> Floats:
    """Prior logits (1, K) of the parallel sweep with K fixed."""
    return draw_log_odds(state, state.usage, finite_pseudo_count(state), rng)[None, :]


def draw_log_odds(state: State, usage: Ints, pseudo: float, rng: Generator) -> Floats:
    """Log odds of probabilities Beta(m + ``pseudo``, D − m + β), for factors with ``usage`` m.

    A Beta(m, b) variable has the odds Gamma(m)/Gamma(b).
    """
    on = draw_log_gamma(rng, usage + pseudo)
    return on - draw_log_gamma(rng, len(state.noise_precision) - usage + state.stickiness)


def draw_log_gamma(rng: Generator, shape: Any) -> Floats:
    """Log of Gamma(shape, 1) draws, without underflow for tiny shapes: G(a) = G(a+1) U^{1/a}."""
    out: Floats = np.log(rng.standard_gamma(np.asarray(shape) + 1.0)) - rng.standard_exponential(len(shape)) / shape
    return out


def _collapsed(state: State, samples: Samples, prior_on: float, prior_off: float, rng: Generator) -> None:
    samples.residual = samples.power
    if state.n_factors:
        samples.residual = samples.kernels.sweep_collapsed(
            state.loadings, state.active, samples.rows(state), state.usage, (prior_on, prior_off), fresh_key(rng)
        )


def _independent(state: State, samples: Samples, logit: Floats, anchor: Ints | None, rng: Generator) -> None:
    samples.residual = samples.power
    if state.n_factors:
        anchor = np.full(state.n_factors, -1, dtype=np.int64) if anchor is None else anchor
        if state.known is not None:
            logit = np.repeat(logit, len(state.loadings), axis=0)
            logit[:, : state.known.shape[1]] += state.known
        state.usage, samples.residual = samples.kernels.sweep_independent(
            state.loadings, state.pattern, samples.rows(state), logit, anchor, fresh_key(rng)
        )
