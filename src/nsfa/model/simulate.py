"""Draw a state from the prior and data from a state: the other half of every calibration test."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsfa.arrays import Bools, Floats, Ints
from nsfa.model import priors
from nsfa.model.priors import draw_gamma, draw_shares, draw_value, outlier_scales
from nsfa.model.spec import ModelSpec
from nsfa.model.start import no_outliers
from nsfa.state import State

Generator = np.random.Generator


class Simulated(NamedTuple):
    """A state, the samples' scores (N, K), and their clusters (N,) where scores are clustered.

    With robust noise also their shares of ordinary entries and outliers, and, once these are drawn, how many there are
    of each (N, J + 1).
    """

    state: State
    scores: Floats
    cluster: Ints | None
    outlier_share: Floats | None = None
    outlier_number: Floats | None = None

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return len(self.scores)

    @property
    def score_power(self) -> float:
        """Σ x² over all scores."""
        return float(np.vdot(self.scores, self.scores))


def simulate_state(spec: ModelSpec, n_features: int, n_samples: int, rng: Generator) -> Simulated:
    """A state and scores from the model's prior; intercepts, whose prior is flat, are zero."""
    hyper = spec.priors
    concentration = stickiness = urn = 1.0
    if spec.pattern in ("ibp", "finite"):
        concentration = draw_value(rng, spec.concentration, spec.concentration_prior)
        stickiness = draw_value(rng, spec.stickiness, hyper.stickiness)
    if spec.scores == "dirichlet":
        urn = draw_value(rng, hyper.urn)
    loading_rate = draw_value(rng, hyper.slab_rate(n_samples))
    noise_rate = draw_value(rng, "infer", hyper.noise_rate) if spec.noise == "shared" else hyper.noise.rate
    sparsity, active = _draw_pattern(spec, n_features, concentration, stickiness, rng)
    n_factors = active.shape[1]
    shape = {"shared": (), "factor": (n_factors,), "element": (n_features, n_factors)}[spec.precision]
    precision = np.asarray(draw_gamma(rng, hyper.loading_shape, loading_rate, shape))
    n_noise = 1 if spec.noise == "isotropic" else n_features
    noise = (
        np.ones(n_features)
        if spec.likelihood == "binary"
        else np.broadcast_to(draw_gamma(rng, hyper.noise.shape, noise_rate, n_noise), n_features).copy()
    )
    slab = precision * noise[:, None] if hyper.relative else precision
    loadings = np.where(active, rng.standard_normal(active.shape) / np.sqrt(slab), 0.0)
    scores = rng.standard_normal((n_samples, n_factors))
    cluster = None
    if spec.scores == "dirichlet":
        cluster = _draw_partition(n_samples, urn, rng)
        scores = scores[cluster]
    state = State.from_arrays(
        loadings,
        active,
        noise_precision=noise,
        loading_precision=precision,
        concentration=concentration,
        stickiness=stickiness,
        noise_rate=noise_rate,
        loading_rate=loading_rate,
        sparsity=sparsity,
        urn_concentration=urn,
        relative=hyper.relative,
        intercept=np.zeros(n_features) if hyper.intercept else None,
        **no_outliers(spec, n_features),
    )
    if state.outlier_concentration is None:
        return Simulated(state, scores, cluster)
    drawn = draw_gamma(rng, np.array(hyper.outlier_shares), hyper.outlier_rate)
    state.outlier_concentration = drawn
    return Simulated(state, scores, cluster, draw_shares(rng, np.tile(drawn, (n_samples, 1))))


def simulate_data(state: State, scores: Floats, rng: Generator) -> Floats:
    """Values (D, N) given the state and the scores (N, K)."""
    noise = rng.standard_normal((len(state.noise_precision), len(scores)))
    out: Floats = state.loadings @ scores.T + noise / np.sqrt(state.noise_precision)[:, None]
    return out if state.intercept is None else out + state.intercept[:, None]


def simulate_outliers(
    state: State, share: Floats, spec: ModelSpec, seen: Bools, rng: Generator
) -> tuple[Floats, Floats]:
    """Deviations (D, N) of outliers among the entries that are ``seen``, zero elsewhere; the state weighs them.

    ``share`` (N, J + 1) are the samples' shares of ordinary entries and of outliers of each scale. Also returns how
    many there are of each (N, J + 1).
    """
    scales = outlier_scales(spec.priors)
    kind = np.array([rng.choice(len(scales), size=len(seen), p=own) for own in share]).T
    deviation = np.sqrt(scales[kind] / state.noise_precision[:, None]) * rng.standard_normal(seen.shape)
    own = (kind > 0) & seen
    square = np.where(own, deviation**2 / np.where(own, scales[kind], 1.0), 0.0)
    state.outlier_weight = np.array([own.sum(axis=1), square.sum(axis=1)])
    number = np.stack([((kind == j) & seen).sum(axis=0) for j in range(len(scales))], axis=1)
    return np.where(own, deviation, 0.0), number.astype(float)


def simulate_seen(values: Floats, spec: ModelSpec, level: Floats, rng: Generator) -> Floats:
    """What is seen (D, N) of Gaussian values raised by ``level`` (D, N): counts, or zeros and ones, or themselves."""
    if spec.likelihood == "counts":
        return np.asarray(rng.poisson(np.exp(values + level)), dtype=np.float64)
    if spec.likelihood == "binary":
        return np.asarray(values + level > 0, dtype=np.float64)
    return values


def _draw_pattern(
    spec: ModelSpec, n_features: int, concentration: float, stickiness: float, rng: Generator
) -> tuple[Floats | None, Bools]:
    if spec.pattern == "ibp":
        return None, priors.draw_buffet(rng, n_features, concentration, stickiness)
    n_components = int(spec.n_components)  # type: ignore[arg-type]
    if spec.pattern == "finite":
        return None, priors.draw_finite(rng, n_features, n_components, concentration, stickiness)
    if spec.pattern == "two-level":
        sparsity = rng.beta(*priors.sparsity_prior(spec, n_features), size=n_components)
        return sparsity, rng.random((n_features, n_components)) < spec.priors.reliability * sparsity
    return None, np.ones((n_features, n_components), dtype=np.bool_)


def _draw_partition(n_samples: int, concentration: float, rng: Generator) -> np.ndarray:
    """Cluster of each sample from the Chinese restaurant process."""
    cluster = np.zeros(n_samples, dtype=np.int64)
    sizes: list[float] = []
    for n in range(n_samples):
        weight = np.array([*sizes, concentration])
        cluster[n] = rng.choice(len(weight), p=weight / weight.sum())
        if cluster[n] == len(sizes):
            sizes.append(0.0)
        sizes[cluster[n]] += 1
    return cluster
