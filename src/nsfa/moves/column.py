"""Whole columns of the pattern, their loadings summed out of the odds and the slab precision of the factor."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import contiguous
from nsfa.kernels import Columns
from nsfa.kernels.streams import fresh_key
from nsfa.model.spec import ModelSpec
from nsfa.moves.loadings import draw_log_odds, finite_pseudo_count
from nsfa.samples import Samples
from nsfa.state import State

# Random factors whose columns are drawn at a time.
FACTORS = 20


def update_column(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> None:
    """For random factors: probability π and slab precision λ, z and g of the whole column summed out, then these.

    Given the column π ~ Beta(m + c, D − m + β), c = αβ/K with K fixed and 0 under the buffet; ω = π/(1 − π). Without it
    p(π, λ) ∝ p(λ) π^{c−1} (1 − π)^{D+β−1} [Π_d (1 + ω BF_d(λ)) − 1], BF_d the Bayes factor of a loading: under the
    buffet some feature uses the factor, and with K fixed there is no −1. ω and λ each take a slice step; then z, at
    least one of them 1 under the buffet, and g are drawn. Entry by entry the number of users and the odds follow each
    other in steps of 1/√m, so that a weak factor of 50 features among thousands would take hundreds of sweeps to become
    one of two. A shared slab precision is held.

    Missing entries are drawn first and forgotten afterwards. Changes ``loadings``, ``active``, ``usage``,
    ``loading_precision``. Cost O(D K) a factor.
    """
    if state.n_factors == 0:
        return
    pseudo = finite_pseudo_count(state) if spec.pattern == "finite" else 0.0
    factors = rng.permutation(state.n_factors)[:FACTORS]
    log_odds, own = draw_log_odds(state, state.usage[factors], pseudo, rng), state.loading_precision.ndim == 1
    problem = Columns(
        loadings=contiguous(state.loadings),
        active=contiguous(state.active),
        usage=state.usage,
        loading_precision=np.array(np.broadcast_to(state.loading_precision, state.n_factors)),
        cross=samples.complete_cross(state, rng),
        gram=samples.gram,
        noise_precision=state.noise_precision,
        relative=state.relative,
        known=state.prior_offset,
        pseudo=pseudo,
        stickiness=state.stickiness,
        shape=spec.priors.loading_shape if own else 0.0,
        rate=state.loading_rate,
    )
    samples.kernels.draw_columns(problem, factors, log_odds, fresh_key(rng))
    state.loadings[:], state.active[:] = problem.loadings, problem.active
    if own:
        state.loading_precision = problem.loading_precision
