"""Scores up, loadings down: the scale of a factor, which the likelihood does not see (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.kernels.streams import fresh_key
from nsfa.model.spec import ModelSpec
from nsfa.state import State
from nsfa.stats import Stats


def update_scale(state: State, stats: Stats, spec: ModelSpec, rng: np.random.Generator) -> None:
    """For each factor, x_k → eᵗ x_k and g_k → e⁻ᵗ g_k; t by slice sampling.

    log p(t) = (N − m_k) t − ½ ‖x_k‖² e²ᵗ − (c + m_k/2) log(d + ½ ‖g_k‖² e⁻²ᵗ), the factor's slab precision integrated
    out: it must be drawn before anything conditions on it. A shared precision, or one per loading, is held fixed:
    then the last term is −½ Σ λ g² e⁻²ᵗ. Changes ``scores``, ``loadings`` and, with them,
    the statistics. Cost O((D + N) K).
    """
    if state.n_factors == 0:
        return
    shape, rate, square = scale_terms(state, spec)
    t = stats.kernels.draw_log_scales(
        float(len(state.scores)), stats.gram.diagonal(), square, state.usage, shape, rate, fresh_key(rng)
    )
    up = np.exp(t)
    state.scores[:] *= up
    state.loadings[:] /= up
    stats.gram *= up[:, None] * up
    stats.cross *= up


def scale_terms(state: State, spec: ModelSpec) -> tuple[float, float, np.ndarray]:
    """Shape and rate of the slab precision to integrate out (shape 0: none), and Σ g² or Σ λ g² per factor."""
    square = state.loadings**2
    if state.loading_precision.ndim == 1:
        return spec.priors.loading_shape, state.loading_rate, square.sum(axis=0)
    return 0.0, 1.0, (square * state.loading_precision).sum(axis=0)
