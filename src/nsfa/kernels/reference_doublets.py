"""Plain-NumPy births and deaths of factors that two features share: the twin of ``kernels.doublet_kernels``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats as distributions

from nsfa.kernels import Doubled
from nsfa.kernels.reference_moves import gamma_draw
from nsfa.kernels.streams import (
    DOUBLET_SPREAD,
    FEATURES,
    LARGEST_CORRELATION,
    SLAB,
    normals_at,
    uniform_pairs,
)

if TYPE_CHECKING:
    from nsfa.arrays import Floats
    from nsfa.kernels import Doublets


@dataclass
class _Factor:
    """A factor of two features: they, loadings (2,), scores (N,), slab precision, its place in its list."""

    feature: tuple[int, int]
    loading: Floats
    scores: Floats
    precision: float
    place: int = -1

    def count_slabs(self, sign: int, problem: Doublets) -> None:
        """Add its relative slabs, or take them away, where they bear on its features' noise."""
        if problem.relative:
            weight = np.array([[1, 1], self.precision * self.loading**2])
            problem.noise_prior[:, list(self.feature)] += 0.5 * sign * weight


def doublets(problem: Doublets, residual: Floats, scores: Floats, attempts: int, key: int) -> tuple[Doubled, Floats]:
    """One attempt after another: see ``moves.doublet``."""
    alive = [
        _Factor((int(d), int(e)), g, x, float(lam), i)
        for i, ((d, e), g, x, lam) in enumerate(
            zip(problem.feature, problem.loading, scores, problem.precision, strict=True)
        )
    ]
    accepted = 0
    for attempt in range(attempts):
        if float(uniform_pairs(key, attempt, 0)[0]) < 0.5:
            accepted += _birth(problem, residual, alive, attempt, key)
        elif alive:
            accepted += _death(problem, residual, alive, attempt, key)
    kept = np.zeros(len(problem.feature), dtype=np.bool_)
    kept[[factor.place for factor in alive if factor.place >= 0]] = True
    # by age, not by the places that deaths left them
    new = sorted((factor for factor in alive if factor.place < 0), key=lambda factor: -factor.place)
    found = Doubled(
        kept,
        np.array([factor.feature for factor in new], dtype=np.int64).reshape(-1, 2),
        np.array([factor.loading for factor in new]).reshape(-1, 2),
        np.array([factor.precision for factor in new]),
        accepted,
    )
    return found, np.array([factor.scores for factor in new]).reshape(-1, residual.shape[1])


def _birth(problem: Doublets, residual: Floats, alive: list[_Factor], attempt: int, key: int) -> bool:
    n = residual.shape[1]
    u = float(uniform_pairs(key, attempt, 0)[1])
    chosen, split = (float(x) for x in uniform_pairs(key, attempt, 1))
    side, accept = (float(x) for x in uniform_pairs(key, attempt, 2))
    d = int(u * len(residual))
    e = int(np.searchsorted(np.cumsum(_partners(residual, d)), chosen))
    variance = problem.noise_variance[[d, e]]
    spread = DOUBLET_SPREAD / np.sqrt(n)
    rho = float(np.tanh(np.arctanh(_correlation(residual, d, e)) + spread * float(normals_at(key, attempt, FEATURES))))
    share = (rho**2) ** np.array([split, 1 - split])
    after = variance * (1 - share)
    ratio = log_birth_ratio(problem, residual, (d, e), variance, rho, split) - np.log(len(alive) + 1)
    if (after <= problem.least).any() or np.log(accept) >= ratio:
        return False
    g = np.sqrt(share * variance) * (1 if side < 0.5 else -1) * np.array([1, np.sign(rho)])
    problem.noise_variance[[d, e]] = after
    precision = 1 + (g**2 / after).sum()
    noise = normals_at(key, attempt, FEATURES + 1 + np.arange(n))
    scores = (g / after) @ residual[[d, e]] / precision + noise / np.sqrt(precision)
    residual[[d, e]] -= np.outer(g, scores)
    shape, rate = problem.slab
    if shape:
        square = (g**2 / (after if problem.relative else 1.0)).sum()
        rate = gamma_draw(shape + 1, key, attempt, SLAB) / (rate + 0.5 * square)
    factor = _Factor((d, e), g, scores, float(rate), -1 - attempt)
    factor.count_slabs(1, problem)
    alive.append(factor)
    return True


def _death(problem: Doublets, residual: Floats, alive: list[_Factor], attempt: int, key: int) -> bool:
    at = int(float(uniform_pairs(key, attempt, 0)[1]) * len(alive))
    accept = float(uniform_pairs(key, attempt, 2)[1])
    factor = alive[at]
    both, fit = list(factor.feature), np.outer(factor.loading, factor.scores)
    residual[both] += fit
    factor.count_slabs(-1, problem)
    variance = problem.noise_variance[both] + factor.loading**2
    rho = float(factor.loading.prod() / np.sqrt(variance.prod()))
    split = float(np.log(factor.loading[0] ** 2 / variance[0]) / np.log(rho**2))
    possible = 0 < rho**2 < 1 and (problem.noise_variance[both] > problem.least).all()
    ratio = log_birth_ratio(problem, residual, factor.feature, variance, rho, split) - np.log(len(alive))
    if possible and np.log(accept) < -ratio:
        problem.noise_variance[both] = variance
        last = alive.pop()
        if at < len(alive):
            alive[at] = last
        return True
    residual[both] -= fit
    factor.count_slabs(1, problem)
    return False


def log_birth_ratio(
    problem: Doublets, residual: Floats, pair: tuple[int, int], variance: Floats, rho: float, split: float
) -> float:
    """Log acceptance ratio of a new factor on a pair of features, but for the number of those there are.

    ``variance`` (2,) are their noise variances without it, ``rho`` the correlation it brings, to which they give the
    shares |ρ|^{2v} and |ρ|^{2(1−v)}, v = ``split``.
    """
    (d, e), n = pair, residual.shape[1]
    share = (rho**2) ** np.array([split, 1 - split])
    g = np.sqrt(share * variance) * np.array([1, np.sign(rho)])
    apart = np.diag(variance)
    together = np.outer(g, g) + np.diag(variance * (1 - share))
    values = residual[[d, e]].T
    likelihood = (
        distributions.multivariate_normal(cov=together).logpdf(values)
        - distributions.multivariate_normal(cov=apart).logpdf(values)
    ).sum()
    c, rate = problem.slab
    unit = np.diag(variance * (1 - share)) if problem.relative else np.eye(2)
    # two normals whose common precision is Gamma(c, d) are Student's t with 2c degrees of freedom
    slab = (
        distributions.multivariate_t(shape=rate / c * unit, df=2 * c)
        if c
        else distributions.multivariate_normal(cov=unit / rate)
    )
    noise = distributions.invgamma(problem.noise_prior[0, [d, e]], scale=problem.noise_prior[1, [d, e]])
    prior = problem.log_rate + slab.logpdf(g)
    prior += (noise.logpdf(variance * (1 - share)) - noise.logpdf(variance)).sum()
    choice = (_partners(residual, d)[e] + _partners(residual, e)[d]) / len(residual)
    place = distributions.norm(np.arctanh(_correlation(residual, d, e)), DOUBLET_SPREAD / np.sqrt(n))
    jacobian = 0.5 * np.sqrt(variance.prod()) * abs(np.log(rho**2)) * (1 - rho**2)
    # either sign of the first loading is proposed as often
    proposal = np.log(choice) + place.logpdf(np.arctanh(rho)) + np.log(0.5)
    return float(likelihood + prior + np.log(jacobian) - proposal)


def _partners(residual: Floats, d: int) -> Floats:
    """Probabilities (D,) of the features to be tried beside feature d."""
    power = (residual**2).sum(axis=1)
    weight = (1 + 0.25 * residual.shape[1] * (residual @ residual[d]) ** 2 / (power * power[d])) ** 4
    weight[d] = 0.0
    out: Floats = weight / weight.sum()
    return out


def _correlation(residual: Floats, d: int, e: int) -> float:
    rho = residual[d] @ residual[e] / np.sqrt((residual[d] ** 2).sum() * (residual[e] ** 2).sum())
    return float(np.clip(rho, -LARGEST_CORRELATION, LARGEST_CORRELATION))
