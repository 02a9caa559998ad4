"""The features' means, and the mean of the scores that they can take over (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Floats, beside
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
    state.intercept -= state.loadings @ beside(shift, state.loadings)


def update_intercept(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """μ_d ~ N(mean of y_dn − g_d·x_n over observed entries, ψ_d/N_d). Changes ``intercept`` (D,). Cost O(D K)."""
    if state.intercept is None:
        return
    sums = samples.score_sums()
    fitted = state.loadings @ sums[0] if len(sums) == 1 else np.einsum("dk,dk->d", state.loadings, sums)
    error = beside(rng.standard_normal(len(fitted)), fitted) * spread(state, samples)
    state.intercept = (samples.total - fitted) / samples.count + error
    samples.valid = False


def spread(state: State, samples: Samples) -> Floats:
    """Standard deviation of each feature's mean given all else (D,): √(ψ_d/N_d)."""
    return 1.0 / np.sqrt(state.noise_precision * samples.count)
