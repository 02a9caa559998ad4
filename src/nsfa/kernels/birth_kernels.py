"""Compiled loop over features for births and deaths of their own factors (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import gamma_draw, inline, jit, normal_at, to_unit, uniform_pair, words_of_rows
from nsfa.kernels.row_kernels import residual_rows
from nsfa.kernels.streams import STRETCH

LOG_2PI = math.log(2.0 * math.pi)


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
    n_born, own = 0, problem.own
    largest = problem.cumulative.shape[0] - 1
    for d in range(lo, hi):
        u, v = to_unit(first[d - lo]), to_unit(second[d - lo])
        wanted = 0
        while wanted < largest and u > problem.cumulative[wanted]:
            wanted += 1
        have = own.number[d]
        if wanted == 0 and have == 0:
            continue
        if n_born + wanted > rows.shape[0]:
            grow = np.empty(rows.shape[0] + wanted)
            rows = np.concatenate((rows, grow.astype(np.int64)))
            loadings, precisions = np.concatenate((loadings, grow)), np.concatenate((precisions, grow))
        # where slabs are relative, all is in units of the feature's noise
        noise, square = problem.noise_precision[d], 0.0
        unit, tau = (noise, 1.0) if problem.relative else (1.0, noise)
        for j in range(wanted):
            precision = problem.slab_rate
            if problem.slab_shape > 0.0:
                precision = gamma_draw(problem.slab_shape, key, d, (j + 1) * STRETCH + 1) / problem.slab_rate
            g = normal_at(key, d, (j + 1) * STRETCH) / math.sqrt(precision)
            rows[n_born + j], loadings[n_born + j], precisions[n_born + j] = d, g / math.sqrt(unit), precision
            square += g * g
        r, n = own.residual[d] * unit, problem.n_observed[d]
        log_ratio = log_marginal(square, r, tau, n) - log_marginal(own.square[d] * unit, r, tau, n)
        log_ratio += problem.weight[wanted] - problem.weight[have]
        if math.log(v) < log_ratio:
            accepted[d - lo] = True
            n_born += wanted
    return accepted, rows[:n_born], loadings[:n_born], precisions[:n_born]


@inline
def log_split_ratio(g, variance, number, others, square, problem):
    """Log acceptance ratio of splitting g² off a noise variance of ``variance`` + g², beside ``number`` own factors.

    ``others`` and ``square`` are number and Σ λ g² of the feature's other loadings, where slabs are relative.
    """
    slab, whole = problem.slab, variance + g * g
    unit = variance if problem.relative else 1.0
    size = g * g / unit
    if slab[0] == 0.0:
        density = 0.5 * (math.log(slab[1] / unit) - LOG_2PI - slab[1] * size)
    else:
        density = math.lgamma(slab[0] + 0.5) - math.lgamma(slab[0]) + slab[0] * math.log(slab[1])
        density -= 0.5 * (LOG_2PI + math.log(unit)) + (slab[0] + 0.5) * math.log(slab[1] + 0.5 * size)
    shape, scale = problem.noise_prior[0] + 0.5 * others, problem.noise_prior[1] + 0.5 * square
    noise = (shape + 1.0) * math.log(whole / variance) - scale * (1.0 / variance - 1.0 / whole)
    return math.log(problem.rate / (number + 1.0)) + density + noise + math.log(whole / abs(g))


@jit
def split_rows(problem, key):
    """Every feature tries to split its noise or to put an own factor back; see ``Kernels.draw_splits``."""
    usage, precision = problem.usage, problem.noise_precision.copy()
    n_features, n_factors = problem.loadings.shape[0], usage.shape[0]
    number, chosen = np.zeros(n_features, np.int64), np.zeros(n_features, np.int64)
    for k in range(n_factors):
        if usage[k] == 1:
            d = 0
            while not problem.active[d, k]:
                d += 1
            number[d] += 1
            # each of a feature's own factors is chosen with the same probability
            if uniform_pair(key, n_features + k, 0)[0] * number[d] < 1.0:
                chosen[d] = k
    born, died = np.zeros(n_features, np.bool_), np.zeros(n_features, np.bool_)
    loading = np.zeros(n_features)
    for d in range(n_features):
        coin, u = uniform_pair(key, d, 0)
        side, v = uniform_pair(key, d, 1)
        variance = 1.0 / precision[d]
        if coin < 0.5:
            g = math.sqrt(u * variance) * (1.0 if side < 0.5 else -1.0)
            rest = variance * (1.0 - u)
            if rest * problem.largest < 1.0:
                continue
            ratio = log_split_ratio(g, rest, number[d], problem.weight[0, d], problem.weight[1, d], problem)
            if math.log(v) < ratio:
                born[d], loading[d], precision[d] = True, g, 1.0 / rest
        elif number[d] > 0:
            g, others, square = problem.loadings[d, chosen[d]], problem.weight[0, d], problem.weight[1, d]
            if problem.relative:
                lam = problem.loading_precision[d * min(1, problem.loading_precision.shape[0] - 1), chosen[d]]
                others, square = others - 1.0, square - lam * g * g
            ratio = log_split_ratio(g, variance, number[d] - 1, others, square, problem)
            if math.log(v) < -ratio:
                died[d], precision[d] = True, 1.0 / (variance + g * g)
    return precision, np.flatnonzero(born), loading[born], np.flatnonzero(died), chosen[died]
