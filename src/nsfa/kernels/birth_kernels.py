"""Compiled loop over features for births and deaths of their own factors (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import inline, jit, normal_at, uniform_pair
from nsfa.kernels.streams import STRETCH


@inline
def log_marginal(square, residual, tau, count):
    """Log likelihood of a feature with its own factors' scores integrated out, relative to having none."""
    gain = tau * square
    return -0.5 * count * math.log1p(gain) + 0.5 * tau * residual * gain / (1.0 + gain)


@jit
def gamma_draw(shape, key, row, column):
    """Gamma(shape, 1) by Marsaglia & Tsang (2000), from the pairs at (row, column), (row, column + 1), ..."""
    boosted = shape if shape >= 1.0 else shape + 1.0
    d = boosted - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    attempt = column
    while True:
        u, x = uniform_pair(key, row, attempt)[0], normal_at(key, row, attempt)
        attempt += 1
        cube = (1.0 + c * x) ** 3
        if cube > 0.0 and math.log(u) < 0.5 * x * x + d - d * cube + d * math.log(cube):
            break
    value = d * cube
    if shape < 1.0:
        value *= uniform_pair(key, row, attempt)[0] ** (1.0 / shape)
    return max(value, 2.2250738585072014e-308)


@jit
def birth_rows(lo, hi, problem, key):
    """Propose and decide for features lo..hi. Returns accepted (hi − lo,), and row, loading, precision of the born."""
    accepted = np.zeros(hi - lo, dtype=np.bool_)
    rows, loadings, precisions = np.empty(8, np.int64), np.empty(8), np.empty(8)
    n_born = 0
    largest = problem.cumulative.shape[0] - 1
    for d in range(lo, hi):
        u, v = uniform_pair(key, d, 0)
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
