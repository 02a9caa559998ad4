"""Prior draws and log densities. Every Gamma is Gamma(shape, rate)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betaln, digamma, gammaln

from nsfa.arrays import Bools, Floats, Ints
from nsfa.model.spec import Gamma, ModelSpec, Priors

Generator = np.random.Generator
LOG_2PI = float(np.log(2 * np.pi))
_TINY = float(np.finfo(float).tiny)


def outlier_scales(priors: Priors) -> Floats:
    """The scales of outliers' deviations (J + 1,), that of ordinary entries, zero, first."""
    return np.array([0.0, *priors.outlier_scales])


def gamma_log_density(x: Any, shape: Any, rate: Any) -> Any:
    """Log Gamma(x; shape, rate)."""
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(x) - rate * x


def normal_log_density(x: Any, precision: Any) -> Any:
    """Log N(x; 0, 1/precision)."""
    return 0.5 * (np.log(precision) - LOG_2PI - precision * x * x)


def draw_gamma(rng: Generator, shape: Any, rate: Any, size: Any = None) -> Any:
    """Gamma(shape, rate) draws; NumPy's own parameter is the scale. Floored at the smallest normal number."""
    return np.maximum(rng.standard_gamma(shape, size), _TINY) / rate


def draw_value(rng: Generator, prior: float | Gamma | str, gamma: Gamma | None = None) -> float:
    """A number stays, a Gamma is drawn from; "infer" draws from ``gamma``."""
    if prior == "infer":
        prior = gamma  # type: ignore[assignment]
    return float(draw_gamma(rng, prior.shape, prior.rate)) if isinstance(prior, Gamma) else float(prior)


def draw_shares(rng: Generator, weight: Any) -> Any:
    """Shares (..., J) from the Dirichlet distribution with parameters ``weight`` (..., J); none is zero."""
    return shares_of(draw_gamma(rng, weight, 1.0))


def shares_of(drawn: Any) -> Any:
    """Gamma variables (..., J) over their sums, which are Dirichlet variables; none is zero."""
    return np.maximum(drawn / drawn.sum(axis=-1, keepdims=True), _TINY)


def kinds_log_probability(number: Any, concentration: Any) -> float:
    """Log probability of entries' kinds, ``number`` (N, J) of each sample, whose shares are integrated out.

    Σ_n log Γ(A)/Γ(A + n_n) + Σ_j log Γ(a_j + n_nj)/Γ(a_j), A = Σ a_j: a Dirichlet mixture for each sample.
    """
    each = gammaln(concentration + number) - gammaln(concentration)
    whole, total = concentration.sum(), number.sum(axis=1)
    return float(each.sum() - (gammaln(whole + total) - gammaln(whole)).sum())


def buffet_total(n_features: int, stickiness: float) -> float:
    """H_D(β) = Σ_{j=1..D} β/(β + j − 1): the expected number of factors per unit of α."""
    return float(stickiness * (digamma(stickiness + n_features) - digamma(stickiness)))


def buffet_log_probability(
    usage: Ints, n_features: int, concentration: float, stickiness: float, n_known: int = 0
) -> float:
    """Log P(Z) of the two-parameter buffet, for columns in an arbitrary order.

    (αβ)^K e^{−α H_D(β)} / K! · Π_k B(m_k, D − m_k + β). The 1/K! (not 1/Π K_h!) because our columns are told apart by
    their loadings and scores, and every order of them is as likely as any other, but for the first ``n_known``,
    which are there whatever α is: K counts the others.
    """
    n_factors = len(usage)
    return float(
        (n_factors - n_known) * np.log(concentration * stickiness)
        - concentration * buffet_total(n_features, stickiness)
        - gammaln(n_factors - n_known + 1)
        + betaln(usage, n_features - usage + stickiness).sum()
    )


def finite_log_probability(usage: Ints, n_features: int, concentration: float, stickiness: float) -> float:
    """Log P(Z) of K columns with probabilities Beta(αβ/K, β), integrated out."""
    a = concentration * stickiness / len(usage)
    return float((betaln(usage + a, n_features - usage + stickiness) - betaln(a, stickiness)).sum())


def draw_buffet(rng: Generator, n_features: int, concentration: float, stickiness: float = 1.0) -> Bools:
    """A pattern (D, K) from the two-parameter Indian Buffet Process; K is random."""
    usage = np.zeros(0)
    rows: list[Ints] = []
    for d in range(n_features):
        taken = np.flatnonzero(rng.random(len(usage)) < usage / (stickiness + d))
        n_new = rng.poisson(concentration * stickiness / (stickiness + d))
        usage[taken] += 1
        rows.append(np.concatenate([taken, np.arange(len(usage), len(usage) + n_new)]))
        usage = np.concatenate([usage, np.ones(n_new)])
    active = np.zeros((n_features, len(usage)), dtype=np.bool_)
    for d, columns in enumerate(rows):
        active[d, columns] = True
    return active


def draw_finite(
    rng: Generator, n_features: int, n_components: int, concentration: float, stickiness: float = 1.0
) -> Bools:
    """A pattern (D, K) with column probabilities Beta(αβ/K, β)."""
    probability = rng.beta(concentration * stickiness / n_components, stickiness, size=n_components)
    return np.asarray(rng.random((n_features, n_components)) < probability)


def sparsity_prior(spec: ModelSpec, n_features: int) -> tuple[float, float]:
    """The two Beta parameters of BFRM's ρ_k: (s r, s (1 − r)), by default s = D, r = 5/D (at most ½)."""
    s, r = spec.priors.sparsity or (float(n_features), min(5.0 / n_features, 0.5))
    return s * r, s * (1 - r)


def urn_log_probability(sizes: Ints, concentration: float) -> float:
    """Log probability of a partition under the Chinese restaurant process."""
    n = sizes.sum()
    return float(
        len(sizes) * np.log(concentration) + gammaln(sizes).sum() + gammaln(concentration) - gammaln(concentration + n)
    )
