"""Pattern, loadings and noise of every feature with the scores integrated out (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Floats
from nsfa.kernels import Marginal
from nsfa.kernels.streams import LEAST_SHARE, fresh_key
from nsfa.model.spec import ModelSpec
from nsfa.moves.loadings import finite_pseudo_count
from nsfa.state import State
from nsfa.stats import Stats


def update_marginal(state: State, stats: Stats, spec: ModelSpec, rng: np.random.Generator) -> None:
    """Row after row, (z_dk, g_dk) and ψ_d given the other rows, scores integrated out; Metropolis–Hastings, about 97 %
    accepted.

    Leaves features alone whose noise is less than ``LEAST_SHARE`` of their variance, and does not go there.
    Missing entries are drawn first, given the scores, and forgotten afterwards. Changes ``loadings``, ``active``,
    ``usage``, ``noise_precision``; the scores must be drawn before anything conditions on them. Cost O(D (N K + K²)).
    """
    if state.n_factors == 0:
        return
    prior = (finite_pseudo_count(state) if spec.pattern == "finite" else 0.0, state.stickiness)
    hold = spec.noise == "isotropic"
    problem = Marginal(
        values=completed(state, stats, rng),
        loadings=np.ascontiguousarray(state.loadings),
        active=state.active,
        usage=state.usage,
        noise_variance=1.0 / state.noise_precision,
        least=LEAST_SHARE * stats.power / stats.count,
        loading_precision=state.slab_rows,
        prior=prior,
        noise_prior=(0.0 if hold else spec.priors.noise.shape, state.noise_rate),
        relative=state.relative,
    )
    stats.kernels.sweep_marginal(problem, fresh_key(rng))
    state.loadings[:] = problem.loadings
    state.noise_precision = 1.0 / problem.noise_variance


def completed(state: State, stats: Stats, rng: np.random.Generator) -> Floats:
    """The table (D, N) less the features' intercepts, with its missing entries drawn from N(g_d·x_n, ψ_d)."""
    values: Floats = stats.data.values
    if state.intercept is None and stats.data.missing is None:
        return values
    out: Floats = values.copy() if state.intercept is None else values - state.intercept[:, None]
    if stats.data.missing is None:
        return out
    rows, columns = np.nonzero(stats.data.missing)
    noise = rng.standard_normal(len(rows)) / np.sqrt(state.noise_precision[rows])
    out[rows, columns] = np.einsum("ik,ik->i", state.loadings[rows], state.scores[columns]) + noise
    return out
