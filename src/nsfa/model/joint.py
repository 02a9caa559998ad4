"""The log joint density by named term: slow, obvious, and the oracle that the moves are tested against."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import betaln

from nsfa.arrays import Floats, Ints, beside
from nsfa.model import priors
from nsfa.model.priors import gamma_log_density, normal_log_density
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.samples import Samples
from nsfa.state import State


def log_likelihood(noise_precision: Floats, count: Floats, residuals: Floats) -> float:
    """Log p(Y | G, X, τ) over observed entries, from residual sums of squares (D,)."""
    per_feature = count * (np.log(noise_precision) - priors.LOG_2PI) - noise_precision * residuals
    return 0.5 * float(per_feature.sum())


class Scored(Protocol):
    """Whatever has scores (N, K) and, where they are clustered, the samples' clusters (N,)."""

    n_samples: int

    @property
    def score_power(self) -> float:
        """Σ x² over all scores."""

    @property
    def scores(self) -> Floats:
        """Factor scores (N, K)."""

    @property
    def cluster(self) -> Ints | None:
        """The cluster of each sample, None where scores are not clustered."""

    @property
    def outlier_number(self) -> Floats | None:
        """How many entries of each sample are of each kind (N, J + 1), with robust noise."""


def log_prior(state: State, samples: Scored, spec: ModelSpec) -> dict[str, float]:
    """Every prior term of the model at a state and its scores."""
    terms = {
        "scores": _scores(state, samples),
        "loadings": _loadings(state),
        "pattern": _pattern(state, spec),
        "loading_precision": float(
            gamma_log_density(state.loading_precision, spec.priors.loading_shape, state.loading_rate).sum()
        ),
        "noise_precision": _noise(state, spec),
    }
    terms.update(_hyperparameters(state, spec))
    if state.outlier_concentration is not None:
        terms["outliers"] = _outliers(state, samples, spec)
    return terms


def log_joint(state: State, samples: Samples, spec: ModelSpec) -> dict[str, float]:
    """All terms, the data's from the residual matrix itself. Cost O(D N K); for tests."""
    data, fit = samples.data, state.loadings @ samples.scores.T
    values = data.values if data.offset is None else data.values.toarray() - data.offset[:, None]
    fit = fit if state.intercept is None else fit + state.intercept[:, None]
    error = values - (fit if data.missing is None else np.where(data.missing, 0.0, fit))
    residuals = (error * error).sum(axis=1)
    terms = {"data": log_likelihood(state.noise_precision, data.count, residuals)}
    if "latent" in samples.can:
        terms["seen"] = samples.log_seen()
    terms.update(log_prior(state, samples, spec))
    return terms


def _scores(state: State, samples: Scored) -> float:
    if samples.cluster is None:
        return -0.5 * (samples.score_power + float(samples.n_samples) * state.n_factors * priors.LOG_2PI)
    scores = samples.scores
    _, first, sizes = np.unique(samples.cluster, return_index=True, return_counts=True)
    partition = priors.urn_log_probability(sizes, state.urn_concentration)
    return float(normal_log_density(scores[first], 1.0).sum()) + partition


def _loadings(state: State) -> float:
    """Σ log N(g; 0, 1/λ), or N(g; 0, 1/(λτ)), over the active loadings."""
    precision, g2 = state.slab_rows, state.loadings**2
    if len(precision) == 1:
        total = beside(state.usage, g2) * (np.log(precision[0]) - priors.LOG_2PI) - precision[0] * g2.sum(axis=0)
        return 0.5 * float(total.sum())
    return float(np.where(state.active, normal_log_density(state.loadings, precision), 0.0).sum())


def _pattern(state: State, spec: ModelSpec) -> float:
    n_features, usage = len(state.noise_precision), state.usage
    known, buffet = state.prior_offset, (state.concentration, state.stickiness)
    offset = 0.0
    if state.known is not None:
        offset = float((beside(known, state.loadings) * state.active[:, : known.shape[1]]).sum())
    if spec.pattern == "ibp":
        return offset + priors.buffet_log_probability(usage, n_features, *buffet, n_known=known.shape[1])
    if spec.pattern == "finite":
        return offset + priors.finite_log_probability(usage, n_features, *buffet)
    if spec.pattern == "two-level" and state.sparsity is not None:
        a, b = priors.sparsity_prior(spec, n_features)
        rho, m = state.sparsity, spec.priors.reliability
        bernoulli = usage * np.log(m * rho) + (n_features - usage) * np.log1p(-m * rho)
        return offset + float((bernoulli + (a - 1) * np.log(rho) + (b - 1) * np.log1p(-rho) - betaln(a, b)).sum())
    return 0.0


def _noise(state: State, spec: ModelSpec) -> float:
    if spec.likelihood == "binary":
        return 0.0
    distinct = state.noise_precision[:1] if spec.noise == "isotropic" else state.noise_precision
    return float(gamma_log_density(distinct, spec.priors.noise.shape, state.noise_rate).sum())


def _outliers(state: State, samples: Scored, spec: ModelSpec) -> float:
    """The shares' parameters, which entries are outliers, and their deviations N(0, v_j ψ_d).

    The samples' shares are integrated out: they are drawn anew from their conditional wherever they change.
    """
    number, concentration, (count, square) = map(
        np.asarray, (samples.outlier_number, state.outlier_concentration, state.outlier_weight)
    )
    deviations = 0.5 * (count * np.log(state.noise_precision) - state.noise_precision * square).sum()
    deviations -= 0.5 * (number[:, 1:] * (np.log(spec.priors.outlier_scales) + priors.LOG_2PI)).sum()
    drawn = gamma_log_density(concentration, np.array(spec.priors.outlier_shares), spec.priors.outlier_rate).sum()
    return float(drawn + priors.kinds_log_probability(number, concentration) + deviations)


def _hyperparameters(state: State, spec: ModelSpec) -> dict[str, float]:
    """Hyperpriors of the hyperparameters that are drawn."""
    terms = {}
    drawn: list[tuple[str, float, object]] = [
        ("loading_rate", state.loading_rate, spec.priors.loading_rate),
        ("noise_rate", state.noise_rate, spec.priors.noise_rate if spec.noise == "shared" else None),
    ]
    if spec.pattern in ("ibp", "finite"):
        drawn.append(("concentration", state.concentration, _inferred(spec.concentration, spec.concentration_prior)))
        drawn.append(("stickiness", state.stickiness, _inferred(spec.stickiness, spec.priors.stickiness)))
    if spec.scores == "dirichlet":
        drawn.append(("urn_concentration", state.urn_concentration, spec.priors.urn))
    for name, value, prior in drawn:
        if isinstance(prior, Gamma):
            terms[name] = float(gamma_log_density(value, prior.shape, prior.rate))
    return terms


def _inferred(setting: float | str, prior: Gamma) -> Gamma | None:
    return prior if setting == "infer" else None
