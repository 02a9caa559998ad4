"""Plain-NumPy draws that take the log rates behind counts along, their errors held: the specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nsfa.kernels.reference_latent import observed
from nsfa.kernels.reference_moves import gamma_draw
from nsfa.kernels.streams import (
    ACCEPT,
    CARRIED_WIDTH,
    MOST_SHRINKS,
    Numbers,
    normals,
    numbered,
    uniform_pairs,
)

if TYPE_CHECKING:
    from nsfa.arrays import Floats
    from nsfa.kernels import Hidden

Gain = Callable[[float], float]


def _rates(problem: Hidden, level: Floats, exposure: Floats) -> Floats:
    """What is expected of every count (D, N), zero where nothing was seen."""
    out: Floats = np.where(observed(problem), np.exp(problem.values + level[:, None] + exposure), 0.0)
    return out


def carry_intercepts(problem: Hidden, level: Floats, exposure: Floats, key: int) -> Floats:
    """e^t ~ Gamma(Σ y, Σ r): means and log rates of a feature that go up by t, under a flat prior."""
    total, rate = np.where(observed(problem), problem.seen, 0.0).sum(axis=1), _rates(problem, level, exposure)
    by = np.zeros(len(level))
    for d in np.flatnonzero(total):
        by[d] = np.log(gamma_draw(total[d], key, int(d), 0) / rate[d].sum())
    _add(problem, np.repeat(by[:, None], problem.seen.shape[1], axis=1))
    out: Floats = problem.intercept + by
    return out


def carry_loadings(problem: Hidden, precision: Floats, level: Floats, exposure: Floats, key: int) -> Floats:
    """Each feature's loadings along a random line, by slice sampling, log rates with them."""
    rate, seen = _rates(problem, level, exposure), np.where(observed(problem), problem.seen, 0.0)
    information = (problem.scores * np.exp(exposure)) @ problem.scores.T
    out, active = problem.loadings.copy(), problem.loadings != 0.0
    for d in np.flatnonzero(active.any(axis=1)):
        own = np.flatnonzero(active[d])
        p, g = precision[d, own], problem.loadings[d, own]
        root = np.linalg.cholesky(np.exp(level[d]) * information[np.ix_(own, own)] + np.diag(p))
        normal = normals(key, 1, len(own), np.array([d]))[0]
        direction = np.linalg.solve(root.T, normal)
        line = direction @ problem.scores[own]

        def gain(t: float) -> float:
            prior = t * (p * direction) @ g + 0.5 * t * t * p @ direction**2  # noqa: B023
            return float(t * seen[d] @ line + rate[d].sum() - rate[d] @ np.exp(t * line) - prior)  # noqa: B023

        out[d, own] = g + _slice(gain, CARRIED_WIDTH / np.sqrt(normal @ normal), key, int(d)) * direction
    _add(problem, (out - problem.loadings) @ problem.scores)
    return out


def carry_scores(problem: Hidden, level: Floats, exposure: Floats, key: int, numbers: Numbers = 0) -> Floats:
    """Each sample's scores by elliptical slice sampling (Murray, Adams & MacKay 2010), log rates with them."""
    rate, seen = _rates(problem, level, exposure), np.where(observed(problem), problem.seen, 0.0)
    scores, rows = problem.scores.T, numbered(numbers, problem.seen.shape[1])
    ahead = normals(key, len(scores), scores.shape[1], numbers)
    angles = np.zeros(len(scores))
    for n in range(len(scores)):
        here, there = problem.loadings @ scores[n], problem.loadings @ ahead[n]

        def gain(angle: float) -> float:
            by = (np.cos(angle) - 1.0) * here + np.sin(angle) * there  # noqa: B023
            return float(seen[:, n] @ by + rate[:, n].sum() - rate[:, n] @ np.exp(by))  # noqa: B023

        # the same wherever on the ellipse the scores are
        curve = np.exp(level + exposure[n]) @ (here**2 + there**2)
        width = min(CARRIED_WIDTH / np.sqrt(0.5 * curve), 2.0 * np.pi) if curve > 0 else 2.0 * np.pi
        angles[n] = _slice(gain, width, key, int(rows[n]))
    out: Floats = np.cos(angles)[:, None] * scores + np.sin(angles)[:, None] * ahead
    _add(problem, problem.loadings @ (out - scores).T)
    return out


def _add(problem: Hidden, by: Floats) -> None:
    problem.values[:] += np.where(observed(problem), by, 0.0)


def _slice(gain: Gain, width: float, key: int, row: int) -> float:
    """A slice step (Neal 2003) from 0 within an interval of this width, placed at random."""

    def uniforms(column: int) -> tuple[float, float]:
        first, second = uniform_pairs(key, np.array([row]), np.array([ACCEPT + column]))
        return float(first[0]), float(second[0])

    u, v = uniforms(0)
    low, high = -width * v, width * (1.0 - v)
    for column in range(1, MOST_SHRINKS):
        t = low + (high - low) * uniforms(column)[0]
        if gain(t) > np.log(u):
            return t
        low, high = (t, high) if t < 0 else (low, t)
    return 0.0
