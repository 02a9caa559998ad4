"""Compiled loop over features for births and deaths of their own factors (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import gamma_draw, inline, jit, normal_at, to_unit, words_of_rows
from nsfa.kernels.row_kernels import residual_rows
from nsfa.kernels.streams import STRETCH


@inline
def log_marginal(square, residual, tau, count):
    """Log likelihood of a feature with its own factors' scores integrated out, relative to having none."""
    gain = tau * square
    return -0.5 * count * math.log1p(gain) + 0.5 * tau * residual * gain / (1.0 + gain)


@jit
def own_factors(loadings, active, rows, usage, residual):
    """The factors with one user: (factor, owner), and per feature their number, Σg² and the residual without them."""
    n_features = loadings.shape[0]
    single = usage == 1
    factor = np.flatnonzero(single)
    owner = np.empty(factor.shape[0], np.int64)
    count, square, left = np.zeros(n_features, np.int64), np.zeros(n_features), residual.copy()
    for i in range(factor.shape[0]):
        k, d = factor[i], 0
        while not active[d, k]:
            d += 1
        owner[i] = d
        count[d] += 1
        square[d] += loadings[d, k] ** 2
    without = np.empty(factor.shape[0])
    residual_rows(loadings, active, rows, owner, single, without)
    for i in range(factor.shape[0]):
        left[owner[i]] = without[i]
    return factor, owner, count, square, left


@jit
def birth_rows(lo, hi, problem, key):
    """Propose and decide for features lo..hi. Returns accepted (hi − lo,), and row, loading, precision of the born."""
    accepted = np.zeros(hi - lo, dtype=np.bool_)
    rows, loadings, precisions = np.empty(8, np.int64), np.empty(8), np.empty(8)
    first, second = words_of_rows(key, lo, hi - lo)
    n_born = 0
    largest = problem.cumulative.shape[0] - 1
    for d in range(lo, hi):
        u, v = to_unit(first[d - lo]), to_unit(second[d - lo])
        wanted = 0
        while wanted < largest and u > problem.cumulative[wanted]:
            wanted += 1
        have = problem.own_count[d]
        if wanted == 0 and have == 0:
            continue
        if n_born + wanted > rows.shape[0]:
            grow = np.empty(rows.shape[0] + wanted)
            rows = np.concatenate((rows, grow.astype(np.int64)))
            loadings, precisions = np.concatenate((loadings, grow)), np.concatenate((precisions, grow))
        square = 0.0
        for j in range(wanted):
            precision = problem.slab_rate
            if problem.slab_shape > 0.0:
                precision = gamma_draw(problem.slab_shape, key, d, (j + 1) * STRETCH + 1) / problem.slab_rate
            g = normal_at(key, d, (j + 1) * STRETCH) / math.sqrt(precision)
            rows[n_born + j], loadings[n_born + j], precisions[n_born + j] = d, g, precision
            square += g * g
        tau, r, n = problem.noise_precision[d], problem.residual[d], problem.n_observed[d]
        log_ratio = log_marginal(square, r, tau, n) - log_marginal(problem.own_square[d], r, tau, n)
        log_ratio += problem.weight[wanted] - problem.weight[have]
        if math.log(v) < log_ratio:
            accepted[d - lo] = True
            n_born += wanted
    return accepted, rows[:n_born], loadings[:n_born], precisions[:n_born]
