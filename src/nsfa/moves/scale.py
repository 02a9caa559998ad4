"""Scores up, loadings down: the scale of a factor, which the likelihood does not see (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.kernels import Scales
from nsfa.kernels.streams import fresh_key
from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State


def update_scale(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> None:
    """For each factor, x_k → eᵗ x_k and g_k → e⁻ᵗ g_k; t by slice sampling.

    log p(t) = (N − m_k) t − ½ ‖x_k‖² e²ᵗ − (c + m_k/2) log(d + ½ ‖g_k‖² e⁻²ᵗ), the factor's slab precision integrated
    out: it must be drawn before anything conditions on it. A shared precision, or one per loading, is held fixed:
    then the last term is −½ Σ λ g² e⁻²ᵗ. Relative slabs have g √τ for g. Changes the scores, ``loadings`` and, with
    them, the statistics. Cost O((D + N) K).
    """
    if state.n_factors == 0:
        return
    integrated = state.loading_precision.ndim == 1
    square = state.weighted_squares if state.loading_precision.ndim == 2 else state.loading_squares
    if state.loading_precision.ndim == 0:
        square = square * float(state.loading_precision)
    problem = Scales(
        power=samples.gram.diagonal(),
        usage=state.usage,
        square=square,
        n=float(samples.n_samples),
        shape=spec.priors.loading_shape if integrated else 0.0,
        rate=state.loading_rate if integrated else 1.0,
    )
    up, down = samples.kernels.rescale(problem, fresh_key(rng))
    state.turn_loadings(down)
    samples.turn(up)
