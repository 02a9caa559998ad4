"""Plain-NumPy draws of whole columns, loadings summed out of odds and slabs: the twin of ``kernels.column_kernels``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, log_expit

from nsfa.kernels.reference_moves import known_of, slice_update
from nsfa.kernels.streams import (
    COLUMN_WIDTH,
    EXTRA,
    LEAST_ODDS,
    MOST_LOG_SLAB,
    MOST_ODDS,
    MOST_SHRINKS,
    normals_at,
    uniform_pairs,
)

if TYPE_CHECKING:
    from nsfa.arrays import Floats, Ints
    from nsfa.kernels import Columns


def draw_columns(problem: Columns, factors: Ints, log_odds: Floats, key: int) -> None:
    """One factor after another: see ``moves.column``."""
    for p, (k, start) in enumerate(zip(factors.tolist(), log_odds.tolist(), strict=True)):
        if LEAST_ODDS <= start <= MOST_ODDS and abs(np.log(problem.loading_precision[k])) <= MOST_LOG_SLAB:
            _draw_column(problem, k, start, p, key)


def _draw_column(problem: Columns, k: int, start: float, p: int, key: int) -> None:
    g, gram, tau = problem.loadings, problem.gram, problem.noise_precision
    shift = tau * (problem.cross[:, k] - g @ gram[:, k] + g[:, k] * gram[k, k])
    unit, power = tau if problem.relative else np.ones_like(tau), tau * gram[k, k]
    known = known_of(problem.known, len(problem.gram))[:, k]

    def log_bayes(slab: float) -> Floats:
        out: Floats = 0.5 * (np.log(slab * unit / (slab * unit + power)) + shift**2 / (slab * unit + power)) + known
        return out

    def log_density(x: float, log_slab: float) -> float:
        if not (LEAST_ODDS <= x <= MOST_ODDS and abs(log_slab) <= MOST_LOG_SLAB):
            return -np.inf
        column = np.logaddexp(0.0, x + log_bayes(np.exp(log_slab))).sum()
        if problem.pseudo == 0:
            # all patterns but the empty one
            column += np.log(-np.expm1(-column))
        prior = problem.pseudo * log_expit(x) + (problem.stickiness + len(tau)) * log_expit(-x)
        return float(column + prior)

    columns = iter(range(MOST_SHRINKS))
    now = float(np.log(problem.loading_precision[k]))
    x = slice_update(
        lambda x: log_density(x, now), start, COLUMN_WIDTH, lambda: uniform_pairs(key, p, next(columns)), math.inf
    )
    if problem.shape > 0:
        columns = iter(range(MOST_SHRINKS, 2 * MOST_SHRINKS))
        now = slice_update(
            lambda y: problem.shape * y - problem.rate * np.exp(y) + log_density(x, y),
            now,
            COLUMN_WIDTH,
            lambda: uniform_pairs(key, p, next(columns)),
            math.inf,
        )
        problem.loading_precision[k] = np.exp(now)
    positions = EXTRA + np.arange(len(tau))
    weight = x + log_bayes(np.exp(now))
    u, chance = uniform_pairs(key, p, positions)[0], expit(weight)
    used = u < chance
    if problem.pseudo == 0:
        # up to the first user, given that there is one among those that are left
        tail = np.logaddexp(0.0, weight)[::-1].cumsum()[::-1]
        first = int(np.flatnonzero(u < chance / -np.expm1(-tail))[0])
        used[:first], used[first] = False, True
    precision = problem.loading_precision[k] * unit + power
    drawn = shift / precision + normals_at(key, p, positions) / np.sqrt(precision)
    problem.loadings[:, k], problem.active[:, k] = np.where(used, drawn, 0.0), used
    problem.usage[k] = used.sum()
