"""Random small problems in every form the kernels meet: complete, with holes, mostly holes; any slab."""

from __future__ import annotations

import numpy as np

from nsfa.data import observe
from nsfa.kernels import get_kernels
from nsfa.model import Gamma, Priors, preset
from nsfa.model.simulate import simulate_data, simulate_state
from nsfa.samples import Samples

HOLES = ("complete", "some", "most", "mixed")


def centred(state, samples):
    """The table (D, N) less the state's intercepts; nonsense where entries are missing."""
    return samples.data.values - (0.0 if state.intercept is None else state.intercept[:, None])


def holes(kind: str, n_features: int, n_samples: int, rng) -> np.ndarray:
    """A (D, N) mask that leaves every row and column something to see."""
    fraction = {"complete": 0.0, "some": 0.2, "most": 0.7, "mixed": 0.4}[kind]
    mask = rng.random((n_features, n_samples)) < fraction
    if kind == "mixed":
        mask[: n_features // 2] = False
    mask[np.arange(n_features), rng.integers(n_samples, size=n_features)] = False
    mask[rng.integers(n_features, size=n_samples), np.arange(n_samples)] = False
    return mask


def case(name="nsfa", kind="complete", n_features=9, n_samples=8, seed=0, backend="reference", **changes):
    """(state, samples, spec): a state and scores from the prior, and data from them with holes."""
    rng = np.random.default_rng(seed)
    if name != "nsfa":
        changes.setdefault("n_components", 4)
    # never an empty pattern: several factors per feature
    changes.setdefault("priors", Priors(concentration=Gamma(40.0, 10.0), noise=Gamma(3, 2), loading_shape=3.0))
    spec = preset(name, **changes)
    state, scores, cluster, *_ = simulate_state(spec, n_features, n_samples, rng)
    if state.intercept is not None:
        state.intercept[:] = rng.standard_normal(n_features)
    mask = holes(kind, n_features, n_samples, rng)
    data = observe(np.where(mask, np.nan, simulate_data(state, scores, rng)).T, scale=None, center=False)
    samples = Samples(data, get_kernels(backend))
    samples.set_scores(scores)
    samples.cluster = cluster
    samples.refresh(state)
    return state, samples, spec
