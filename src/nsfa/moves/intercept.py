"""The features' means, and the mean of the scores that they can take over (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State

Generator = np.random.Generator


def update_mean_scores(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """x_n → x_n + δ for all samples and μ_d → μ_d − g_d·δ, which no entry sees: the scores' mean from its prior.

    With a flat prior of μ the new mean is N(0, I/N), whatever it was. Changes the scores, after which the statistics
    must be refreshed, and ``intercept``. Cost O((D + N) K).
    """
    if state.intercept is None or not state.n_factors:
        return
    shift = rng.standard_normal(state.n_factors) / np.sqrt(samples.n_samples) - samples.mean_scores()
    samples.shift(shift)
    state.lower_intercept(shift)


def update_intercept(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """μ_d ~ N(mean of y_dn − g_d·x_n over observed entries, ψ_d/N_d). Changes ``intercept`` (D,). Cost O(D K)."""
    if state.intercept is None:
        return
    state.intercept = samples.draw_intercept(state, rng)
    samples.valid = False
