"""Where a chain starts."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Floats
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.state import State

# Chains that infer the number of factors start apart, with these shares in turn of the most factors a table can tell
# apart, the second one empty; agreement between them then says something.
SHARES = (0.25, 0.0, 0.5, 0.125)
MOST_AT_START = 100
MOST_LOADINGS = 1_000_000


def starting_factors(spec: ModelSpec, shape: tuple[int, int], chain: int) -> int:
    """With how many factors chain number ``chain`` starts, 0 where the model says: a function of its arguments only."""
    share = SHARES[chain % len(SHARES)]
    if spec.n_components is not None or spec.moves == "plain" or share == 0:
        return 0
    most = min(*shape, MOST_LOADINGS // shape[0])
    return min(MOST_AT_START, max(1, round(share * most)))


def initial_state(shape: tuple[int, int], spec: ModelSpec, n_factors: int = 0) -> State:
    """A state for a table of ``shape``, with ``n_factors`` factors where their number is inferred, else K; dense.

    Sparse models shed dense loadings as they go; an empty pattern would have to be filled entry by entry. The loadings
    are still to be drawn. Rates start at their priors' means, other parameters at plain values.
    """
    n_features, n_samples = shape
    n_factors = int(spec.n_components or n_factors)
    hyper = spec.priors
    slabs = {"shared": (), "factor": (n_factors,), "element": (n_features, n_factors)}[spec.precision]
    return State.from_arrays(
        np.zeros((n_features, n_factors)),
        np.ones((n_features, n_factors), dtype=np.bool_),
        noise_precision=np.ones(n_features),
        loading_precision=np.ones(slabs),
        concentration=1.0 if spec.concentration == "infer" else float(spec.concentration),
        stickiness=1.0 if spec.stickiness == "infer" else float(spec.stickiness),
        noise_rate=hyper.noise.rate,
        loading_rate=_value(hyper.slab_rate(n_samples)),
        sparsity=np.full(n_factors, 0.5) if spec.pattern == "two-level" else None,
        urn_concentration=_value(hyper.urn),
        relative=hyper.relative,
        intercept=np.zeros(n_features) if hyper.intercept else None,
        **no_outliers(spec, n_features),
    )


def no_outliers(spec: ModelSpec, n_features: int) -> dict[str, Floats]:
    """What robust noise adds to a state of which no entry is known to be an outlier; nothing otherwise."""
    if spec.noise != "robust":
        return {}
    mean = np.array(spec.priors.outlier_shares) / spec.priors.outlier_rate
    return {"outlier_concentration": mean, "outlier_weight": np.zeros((2, n_features))}


def _value(prior: float | Gamma) -> float:
    return prior.shape / prior.rate if isinstance(prior, Gamma) else float(prior)
