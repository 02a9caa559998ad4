"""Dirichlet-process scores: a Pólya urn over samples, with cluster values (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.kernels.streams import fresh_key
from nsfa.model.priors import draw_gamma
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.state import State
from nsfa.stats import Stats

Generator = np.random.Generator


def update_urn(state: State, stats: Stats, spec: ModelSpec, rng: Generator) -> None:
    """Each sample joins cluster c with probability ∝ n_c N(y_n; G x_c, Ψ), or a new one ∝ α₀ N(y_n; 0, GGᵀ + Ψ).

    Then each cluster's value is drawn given its members. Changes ``scores``, after which the statistics must be
    refreshed, and ``cluster``. Cost O(D N K + N C K²) with C clusters.
    """
    cluster = np.asarray(state.cluster)
    stats.kernels.draw_urn(stats.projection(state), state.scores, cluster, state.urn_concentration, fresh_key(rng))


def update_urn_concentration(state: State, stats: Stats, spec: ModelSpec, rng: Generator) -> None:
    """α₀ given the number of clusters, with an auxiliary Beta variable (Escobar & West 1995).

    η ~ Beta(α₀ + 1, N); α₀ ~ a mixture of Gamma(e + C, f − log η) and Gamma(e + C − 1, f − log η) with odds
    (e + C − 1) : N (f − log η). Changes ``urn_concentration``.
    """
    prior = spec.priors.urn
    if not isinstance(prior, Gamma):
        return
    n_samples, n_clusters = len(state.scores), len(np.unique(np.asarray(state.cluster)))
    rate = prior.rate - np.log(rng.beta(state.urn_concentration + 1, n_samples))
    odds = (prior.shape + n_clusters - 1) / (n_samples * rate)
    shape = prior.shape + n_clusters - (0 if rng.random() < odds / (1 + odds) else 1)
    state.urn_concentration = float(draw_gamma(rng, shape, rate))
