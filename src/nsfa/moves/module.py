"""Births and deaths of factors that many features use (docs/model.md)."""

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.modules import Modules
from nsfa.model.spec import ModelSpec
from nsfa.moves.info import Info
from nsfa.samples import Samples
from nsfa.state import State

# Attempts at a time: never a function of anything that they change.
ATTEMPTS = 2


def update_module(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> Info:
    """Metropolis–Hastings on whether there is one factor more, its users and loadings summed out.

    A birth climbs in what the other factors leave, from a random start among its leading directions, to a mode of the
    scores' direction u, and proposes u, κ = λN/‖x‖² and the odds of the users' probability π near that mode. A death
    climbs in what the others than the dying factor leave. The ratio of a birth is
    αβ/(n + 1) · p(u) p(κ) π⁻¹(1 − π)^{β−1} Π_d [1 − π + π BF_d(u, κ)] / q(u, κ, π), n the number of such factors so
    far, BF_d = √(κ/(κ + N)) exp(½ N (r_d·u)²/(κ + N)), r_d what is left of feature d in units of its noise.
    Missing entries are drawn first and forgotten afterwards. Changes the scores, ``loadings``, ``active``, ``usage``,
    ``loading_precision``, K; the statistics are brought up to date. Cost O(D N (K + N)).
    """
    return Info(sum(_attempt(state, samples, spec, rng) for _ in range(ATTEMPTS)), ATTEMPTS)


def _attempt(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> bool:
    """One birth or death; whether it was accepted."""
    problem = Modules(
        log_rate=log_rate(state),
        stickiness=state.stickiness,
        slab=(spec.priors.loading_shape, state.loading_rate),
        loadings=state.loadings,
        usage=state.free_usage,
        precision=state.loading_precision,
        root=np.sqrt(state.noise_precision),
    )
    found = samples.try_module(state, problem, rng)
    if found is None:
        return False
    if found.dead is not None:
        state.drop(np.array([found.dead]))
    else:
        state.add(found.feature[None, :], found.loading[None, :], np.array([found.precision]))
    samples.refresh(state)
    return True


def log_rate(state: State) -> float:
    """Log αβ: what a factor costs beside B(m, D − m + β) for its m users."""
    return math.log(state.concentration * state.stickiness)
