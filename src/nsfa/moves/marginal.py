"""Pattern, loadings and noise of every feature with the scores integrated out (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Floats
from nsfa.kernels import Marginal
from nsfa.kernels.streams import LEAST_SHARE
from nsfa.model.spec import ModelSpec
from nsfa.moves.loadings import finite_pseudo_count
from nsfa.samples import Samples
from nsfa.state import State


def update_marginal(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> None:
    """Row after row, (z_dk, g_dk) and ψ_d given the other rows, scores integrated out; Metropolis–Hastings, about 97 %
    accepted.

    Leaves features alone whose noise is less than ``LEAST_SHARE`` of their variance, and does not go there.
    Missing entries are drawn first, given the scores, and forgotten afterwards. Changes ``loadings``, ``active``,
    ``usage``, ``noise_precision``; the scores must be drawn before anything conditions on them. Cost O(D (N K + K²)).
    """
    if state.n_factors == 0:
        return
    prior = (finite_pseudo_count(state) if spec.pattern == "finite" else 0.0, state.stickiness)
    problem = Marginal(
        loadings=np.ascontiguousarray(state.loadings),
        active=state.active,
        usage=state.usage,
        noise_variance=1.0 / state.noise_precision,
        least=LEAST_SHARE * samples.power / samples.count,
        loading_precision=state.slab_rows,
        prior=prior,
        noise_prior=noise_prior(state, spec),
        relative=state.relative,
        known=state.prior_offset,
    )
    samples.sweep_marginal(state, problem, rng)
    state.loadings[:] = problem.loadings
    state.noise_precision = 1.0 / problem.noise_variance


def noise_prior(state: State, spec: ModelSpec) -> Floats:
    """Shape and rate (2, D) of each feature's noise precision, what its outliers say included; 0 where it is held."""
    shape = spec.priors.noise.shape if spec.noise_of_features else 0.0
    prior = np.tile([[float(shape)], [state.noise_rate]], len(state.noise_precision))
    return prior if state.outlier_weight is None else prior + 0.5 * state.outlier_weight
