"""Where a chain starts."""

from __future__ import annotations

import numpy as np

from nsfa.data import Observed
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.state import State


def initial_state(data: Observed, spec: ModelSpec, rng: np.random.Generator, start: int = 0) -> State:
    """Where a chain starts: ``start`` factors where their number is inferred, else K; dense, with random scores.

    Dense starts are shed by the sparse models as they go; an empty pattern would have to be filled entry by entry. The
    loadings are still to be drawn. Rates start at their priors' means, other parameters at plain values.
    """
    n_features, n_samples = data.shape
    n_factors = int(spec.n_components or start)
    hyper = spec.priors
    shape = {"shared": (), "factor": (n_factors,), "element": (n_features, n_factors)}[spec.precision]
    return State.from_arrays(
        np.zeros((n_features, n_factors)),
        np.ones((n_features, n_factors), dtype=np.bool_),
        rng.standard_normal((n_samples, n_factors)),
        noise_precision=np.ones(n_features),
        loading_precision=np.ones(shape),
        concentration=1.0 if spec.concentration == "infer" else float(spec.concentration),
        stickiness=1.0 if spec.stickiness == "infer" else float(spec.stickiness),
        noise_rate=hyper.noise.rate,
        loading_rate=_value(hyper.loading_rate),
        sparsity=np.full(n_factors, 0.5) if spec.pattern == "two-level" else None,
        cluster=np.arange(n_samples) if spec.scores == "dirichlet" else None,
        urn_concentration=_value(hyper.urn),
    )


def _value(prior: float | Gamma) -> float:
    return prior.shape / prior.rate if isinstance(prior, Gamma) else float(prior)
