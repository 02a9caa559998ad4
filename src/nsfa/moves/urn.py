"""Dirichlet-process scores: a Pólya urn over samples, with cluster values (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.kernels.streams import fresh_key
from nsfa.model.priors import draw_gamma
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.samples import Samples
from nsfa.state import State

Generator = np.random.Generator


def update_urn(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """Each sample joins cluster c with probability ∝ n_c N(y_n; G x_c, Ψ), or a new one ∝ α₀ N(y_n; 0, GGᵀ + Ψ).

    Then each cluster's value is drawn given its members. Changes clusters and scores, after which the statistics must
    be refreshed. Cost O(D N K + N C K²) with C clusters.
    """
    samples.draw_clusters(state, fresh_key(rng))


def update_urn_concentration(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """α₀ given the number of clusters, with an auxiliary Beta variable (Escobar & West 1995).

    η ~ Beta(α₀ + 1, N); α₀ ~ a mixture of Gamma(e + C, f − log η) and Gamma(e + C − 1, f − log η) with odds
    (e + C − 1) : N (f − log η). Changes ``urn_concentration``.
    """
    prior = spec.priors.urn
    if not isinstance(prior, Gamma):
        return
    n_samples, n_clusters = samples.n_samples, samples.n_clusters
    rate = prior.rate - np.log(rng.beta(state.urn_concentration + 1, n_samples))
    odds = (prior.shape + n_clusters - 1) / (n_samples * rate)
    shape = prior.shape + n_clusters - (0 if rng.random() < odds / (1 + odds) else 1)
    state.urn_concentration = float(draw_gamma(rng, shape, rate))
