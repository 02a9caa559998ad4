"""Where a chain starts."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Floats
from nsfa.data import Observed
from nsfa.kernels import Kernels
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.state import State

# Chains that infer the number of factors start apart, with these shares in turn of the most factors a table can tell
# apart, the second one empty; agreement between them then says something.
SHARES = (0.25, 0.0, 0.5, 0.125)
MOST_AT_START = 100
MOST_LOADINGS = 1_000_000
_POWER_STEPS = 2


def starting_factors(spec: ModelSpec, shape: tuple[int, int], chain: int) -> int:
    """With how many factors chain number ``chain`` starts, 0 where the model says: a function of its arguments only."""
    share = SHARES[chain % len(SHARES)]
    if spec.n_components is not None or spec.moves == "plain" or share == 0:
        return 0
    most = min(*shape, MOST_LOADINGS // shape[0])
    return min(MOST_AT_START, max(1, round(share * most)))


def initial_state(data: Observed, spec: ModelSpec, rng: np.random.Generator, n_factors: int = 0) -> State:
    """A state with ``n_factors`` factors where their number is inferred, else K; dense, with random scores.

    Sparse models shed dense loadings as they go; an empty pattern would have to be filled entry by entry. The loadings
    are still to be drawn. Rates start at their priors' means, other parameters at plain values.
    """
    n_features, n_samples = data.shape
    n_factors = int(spec.n_components or n_factors)
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
        loading_rate=_value(hyper.slab_rate(n_samples)),
        sparsity=np.full(n_factors, 0.5) if spec.pattern == "two-level" else None,
        cluster=np.arange(n_samples) if spec.scores == "dirichlet" else None,
        urn_concentration=_value(hyper.urn),
        relative=hyper.relative,
        intercept=np.zeros(n_features) if hyper.intercept else None,
    )


def towards_data(scores: Floats, data: Observed, kernels: Kernels, rng: np.random.Generator) -> Floats:
    """Turn random scores (N, K) towards the directions in which the samples differ most, rotated at random.

    Two steps of subspace iteration on YᵀY, missing entries at their features' means. Cost O(D N K).
    """
    width = scores.shape[1]
    cross, ones = np.empty((data.shape[0], width)), np.ones(data.shape[0])
    for _ in range(_POWER_STEPS):
        kernels.cross(data, np.ascontiguousarray(scores), cross)
        scores = np.linalg.qr(kernels.project(data, cross, ones)[0])[0]
    rotation = np.linalg.qr(rng.standard_normal((width, width)))[0]
    out: Floats = scores @ rotation * np.sqrt(len(scores))
    return out


def _value(prior: float | Gamma) -> float:
    return prior.shape / prior.rate if isinstance(prior, Gamma) else float(prior)
