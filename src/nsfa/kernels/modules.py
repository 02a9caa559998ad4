"""Births and deaths of factors that many features use (docs/model.md): one program for all CPU backends, whose kernel
``climb`` finds where to look. Residuals and loadings are in units of the features' noise, directions have length one.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import expit, gammaln, log_expit, logit

if TYPE_CHECKING:
    from nsfa.arrays import Floats, Ints
    from nsfa.kernels import Kernels

# Share of births among the attempts.
BIRTHS = 0.75
# Only factors of so many users, whose scores rest on so many samples, come and go here: of single ones' outliers there
# is one to be found for every sample.
LEAST_USERS, LEAST_SPREAD = 5, 10.0
# Climbs start in the space of so many principal axes of the residual, and take so many steps.
AXES, STEPS = 8, 40
# Least precision of a proposal, and the variances of its logs beside those of a Gamma and a Beta distribution.
FLOOR, SLAB_WIDTH, SHARE_WIDTH = 0.3, 4.0, 2.5


class Modules(NamedTuple):
    """What such births and deaths need to know: ``log_rate`` is log αβ, ``stickiness`` β, ``slab`` shape and rate of λ.

    ``loadings`` (D, K), ``usage`` (K,) beyond D where a factor may not go, ``precision`` (K,) of the slabs; ``root``
    (D,) are the square roots of the noise precisions.
    """

    log_rate: float
    stickiness: float
    slab: tuple[float, float]
    loadings: Floats
    usage: Ints
    precision: Floats
    root: Floats


class Tried(NamedTuple):
    """Which factor died, if any; or users, their loadings, slab precision and scores (N,) of a new one."""

    dead: int | None = None
    feature: Any = None
    loading: Any = None
    precision: float = 0.0
    scores: Any = None


class Aim:
    """A proposal around a mode: a direction, normal in the tangent plane, and the logs of slab precision and odds."""

    def __init__(self, residual: Floats, centre: Floats, kappa: float, share: float) -> None:
        n_features, n = residual.shape
        self.centre, self.log_kappa, self.odds = centre, math.log(kappa), float(logit(share))
        h, v = residual @ centre * math.sqrt(n), 1.0 / (kappa + n)
        used = expit(self.odds + log_bayes(h * h, kappa, n))
        users = max(float(used.sum()), 2.0)
        self.slab_variance = SLAB_WIDTH / (users + 2.0)
        self.share_variance = SHARE_WIDTH * (1.0 / users + 1.0 / max(n_features - users, 1.0))
        pull = n + float((used * h * h).sum()) * v
        weight = n * (used * v + used * (1.0 - used) * (v * h) ** 2)
        bend = pull * np.eye(n) - (residual.T * weight) @ residual
        flat = np.eye(n) - np.outer(centre, centre)
        # across the plane the curvature is ``pull``, for its determinant to be taken out
        precision, self._axes = np.linalg.eigh(flat @ bend @ flat + pull * np.outer(centre, centre))
        self._precision = np.maximum(precision, FLOOR * n)
        self._log_root = 0.5 * float(np.log(self._precision).sum() - math.log(pull) - (n - 1) * math.log(2 * math.pi))

    def draw(self, rng: np.random.Generator) -> tuple[Floats, float, float]:
        """A direction, log slab precision and log odds."""
        step = self._axes @ (rng.standard_normal(len(self.centre)) / np.sqrt(self._precision))
        u = self.centre + step - self.centre * (self.centre @ step)
        u *= (1.0 if rng.random() < 0.5 else -1.0) / np.linalg.norm(u)
        slab, share = rng.standard_normal(2) * np.sqrt([self.slab_variance, self.share_variance])
        return u, self.log_kappa + float(slab), self.odds + float(share)

    def log_density(self, u: Floats, log_kappa: float, odds: float) -> float:
        """Log density of a proposal: over the sphere, both ends of an axis alike, and over the two logs."""
        along = float(u @ self.centre)
        step = u / along - self.centre
        z = self._axes.T @ step
        plane = self._log_root - 0.5 * float(self._precision @ (z * z)) + 0.5 * len(u) * math.log1p(float(step @ step))
        return (
            plane
            - math.log(2.0)
            + _log_normal(log_kappa - self.log_kappa, self.slab_variance)
            + _log_normal(odds - self.odds, self.share_variance)
        )


def log_bayes(square: Floats, kappa: float, n: int) -> Floats:
    """Log Bayes factors (D,) of features' using scores of length √N: ½ log κ/(κ + N) + ½ h²/(κ + N)."""
    out: Floats = 0.5 * (math.log(kappa / (kappa + n)) + square / (kappa + n))
    return out


def log_birth_ratio(
    problem: Modules, residual: Floats, aim: Aim, new: tuple[Floats, float, float], n_old: int
) -> float:
    """Log acceptance ratio of a factor with a direction, log slab precision and log odds, beside ``n_old`` others.

    What it leaves, ``residual`` (D, N), is without it. Its users, loadings and the length of its scores are drawn from
    their conditionals, which cancel.
    """
    u, log_kappa, odds = new
    n = len(u)
    bayes = log_bayes((residual @ u) ** 2 * n, math.exp(log_kappa), n)
    off = float(log_expit(-odds))
    columns = float(np.logaddexp(off, log_expit(odds) + bayes).sum()) + problem.stickiness * off
    area = math.log(2.0) + 0.5 * n * math.log(math.pi) - float(gammaln(0.5 * n))
    prior = problem.log_rate - math.log(n_old + 1) + log_slab(log_kappa, n, problem.slab) - area
    return prior + columns - aim.log_density(*new) + math.log((1.0 - BIRTHS) / BIRTHS)


def log_slab(log_kappa: float, n: int, slab: tuple[float, float]) -> float:
    """Log density of log κ, κ = λ N/‖x‖², λ ~ Gamma(c, d) and x standard normal."""
    (shape, rate), half = slab, 0.5 * n
    ratio = rate * math.exp(log_kappa)
    lengths = float(gammaln(half + shape) - gammaln(half)) - shape * math.log(half)
    spread = (half + shape) * math.log1p(ratio / half)
    return shape * math.log(ratio) - float(gammaln(shape)) + lengths - spread


def try_module(
    kernels: Kernels, problem: Modules, residual: Floats, scores: Floats, rng: np.random.Generator
) -> Tried | None:
    """One attempt at a birth or a death; None if it is refused. ``residual`` (D, N) is what all factors leave."""
    residual *= problem.root[:, None]
    old = np.flatnonzero(
        (problem.usage >= LEAST_USERS) & (problem.usage <= len(residual)) & (spread(scores) >= LEAST_SPREAD)
    )
    if rng.random() < BIRTHS:
        return _birth(kernels, problem, residual, len(old), rng)
    return _death(kernels, problem, residual, scores, old, rng) if len(old) else None


def spread(scores: Floats) -> Any:
    """On how many samples each factor's scores (N, K) rest: (Σ x²)²/Σ x⁴."""
    square = scores * scores
    return square.sum(axis=0) ** 2 / np.maximum((square * square).sum(axis=0), np.finfo(float).tiny)


def _aim(kernels: Kernels, problem: Modules, residual: Floats, rng: np.random.Generator) -> Aim:
    axes = np.linalg.eigh(residual.T @ residual)[1][:, -AXES:]
    start = axes @ rng.standard_normal(axes.shape[1])
    found = kernels.climb(residual, start / np.linalg.norm(start), problem.slab, problem.stickiness, STEPS)
    return Aim(residual, *found)


def _birth(kernels: Kernels, problem: Modules, residual: Floats, n_old: int, rng: np.random.Generator) -> Tried | None:
    n = residual.shape[1]
    aim = _aim(kernels, problem, residual, rng)
    new = aim.draw(rng)
    u, kappa = new[0], math.exp(new[1])
    h = residual @ u * math.sqrt(n)
    users = np.flatnonzero(rng.random(len(h)) < expit(new[2] + log_bayes(h * h, kappa, n)))
    ratio = log_birth_ratio(problem, residual, aim, new, n_old)
    if len(users) < LEAST_USERS or spread(u[:, None])[0] < LEAST_SPREAD or not math.log(rng.random()) < ratio:
        return None
    shape, rate = problem.slab
    length = math.sqrt(rng.gamma(0.5 * n + shape) / (0.5 + rate * kappa / n))
    g = h[users] / (kappa + n) + rng.standard_normal(len(users)) / math.sqrt(kappa + n)
    loading = g * math.sqrt(n) / length / problem.root[users]
    return Tried(None, users, loading, kappa * length**2 / n, length * u)


def _death(
    kernels: Kernels, problem: Modules, residual: Floats, scores: Floats, old: Ints, rng: np.random.Generator
) -> Tried | None:
    n_features, n = residual.shape
    k = int(rng.choice(old))
    x, m = scores[:, k], int(problem.usage[k])
    power = float(x @ x)
    residual += np.outer(problem.root * problem.loadings[:, k], x)
    # given its users, their probability has a Beta distribution
    on, off = rng.standard_gamma(m), rng.standard_gamma(n_features - m + problem.stickiness)
    log_odds = math.log(on) - math.log(max(off, sys.float_info.min))
    new = x / math.sqrt(power), math.log(problem.precision[k] * n / power), log_odds
    ratio = log_birth_ratio(problem, residual, _aim(kernels, problem, residual, rng), new, len(old) - 1)
    return Tried(dead=k) if math.log(rng.random()) < -ratio else None


def _log_normal(x: float, variance: float) -> float:
    return -0.5 * (math.log(2 * math.pi * variance) + x * x / variance)
