"""Compiled loops over features: the loadings' conditionals and the residuals (MODEL section 4).

Each takes a range of rows, so that a thread pool can share them out; random numbers are keyed by row.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import (
    corrected_gram,
    fill_uniform_pairs,
    inline,
    jit,
    normal_quantile,
    solve_lower,
    solve_transposed,
)


@jit
def _gram_of_row(d, rows, ones, zero):
    """XᵀX over the samples observed for feature d: the shared matrix, or a corrected copy."""
    holes = rows.holes
    start, stop = holes.pointer[d], holes.pointer[d + 1]
    if start == stop and not holes.rebuild[d]:
        return rows.gram
    base = zero if holes.rebuild[d] else rows.gram
    return corrected_gram(base, rows.scores, ones, holes.index[start:stop], holes.rebuild[d])


@jit
def _covariate(d, loadings, active, rows, gram, c):
    """c = T_d − S g_d, touching only the active factors."""
    n_factors = c.shape[0]
    for k in range(n_factors):
        c[k] = rows.cross[d, k]
    for k in range(n_factors):
        if active[d, k]:
            g = loadings[d, k]
            for j in range(n_factors):
                c[j] -= g * gram[k, j]


@inline
def _likelihood_odds(c_k, g, s, tau, lam, log_prior):
    """Precision and mean of g's conditional, and the odds of z = 1 (times exp(log_prior))."""
    ell = tau * s + lam
    shift = tau * (c_k + g * s)
    half = log_prior + 0.5 * shift * shift / ell
    return ell, shift / ell, math.sqrt(lam / ell) * math.exp(min(half, 700.0))


@inline
def _move_covariate(c, gram, k, change):
    for j in range(c.shape[0]):
        c[j] -= change * gram[k, j]


@jit
def independent_rows(lo, hi, loadings, active, rows, logit, anchor, key, usage):
    """Gibbs pass over rows lo..hi given prior logits (1 or D, K); row ``anchor[k]`` keeps factor k."""
    n_factors = rows.gram.shape[0]
    c, u, v = np.empty(n_factors), np.empty(n_factors), np.empty(n_factors)
    zero = np.zeros((n_factors, n_factors))
    ones = np.ones(rows.scores.shape[0])
    lam, tau = rows.loading_precision, rows.noise_precision
    lam_step, logit_step = min(1, lam.shape[0] - 1), min(1, logit.shape[0] - 1)
    for d in range(lo, hi):
        gram = _gram_of_row(d, rows, ones, zero)
        _covariate(d, loadings, active, rows, gram, c)
        fill_uniform_pairs(key, d, u, v)
        for k in range(n_factors):
            g = loadings[d, k]
            ell, mean, odds = _likelihood_odds(
                c[k], g, gram[k, k], tau[d], lam[d * lam_step, k], logit[d * logit_step, k]
            )
            new = 0.0
            on = anchor[k] == d or u[k] < (1.0 - u[k]) * odds
            if on:
                new = mean + normal_quantile(v[k]) / math.sqrt(ell)
                usage[k] += 1
            if new != g:
                _move_covariate(c, gram, k, new - g)
                loadings[d, k] = new
            active[d, k] = on


@jit
def collapsed_rows(loadings, active, rows, usage, prior_on, prior_off, key):
    """Gibbs pass over all rows in turn, prior odds (m + prior_on)/(prior_off + D − 1 − m), m without the row.

    Where m + prior_on is 0 the factor is the row's own: it stays, and belongs to the birth/death move.
    """
    n_features, n_factors = loadings.shape
    c, u, v = np.empty(n_factors), np.empty(n_factors), np.empty(n_factors)
    zero = np.zeros((n_factors, n_factors))
    ones = np.ones(rows.scores.shape[0])
    lam, tau = rows.loading_precision, rows.noise_precision
    lam_step = min(1, lam.shape[0] - 1)
    for d in range(n_features):
        gram = _gram_of_row(d, rows, ones, zero)
        _covariate(d, loadings, active, rows, gram, c)
        fill_uniform_pairs(key, d, u, v)
        for k in range(n_factors):
            g, was = loadings[d, k], active[d, k]
            others = usage[k] - (1 if was else 0)
            ell, mean, odds = _likelihood_odds(c[k], g, gram[k, k], tau[d], lam[d * lam_step, k], 0.0)
            weight = others + prior_on
            if weight > 0.0:
                on = u[k] < (1.0 - u[k]) * odds * weight / (prior_off + n_features - 1.0 - others)
            else:
                on = was
            new = mean + normal_quantile(v[k]) / math.sqrt(ell) if on else 0.0
            if new != g:
                _move_covariate(c, gram, k, new - g)
                loadings[d, k] = new
            if on != was:
                active[d, k] = on
                usage[k] += 1 if on else -1


@jit
def dense_rows(lo, hi, loadings, rows, key):
    """g_d ~ N(A⁻¹ τ_d T_d, A⁻¹), A = τ_d S_d + diag(λ_d), for rows lo..hi."""
    n_factors = rows.gram.shape[0]
    b, u, v = np.empty(n_factors), np.empty(n_factors), np.empty(n_factors)
    zero = np.zeros((n_factors, n_factors))
    precision = np.empty((n_factors, n_factors))
    ones = np.ones(rows.scores.shape[0])
    lam, tau = rows.loading_precision, rows.noise_precision
    lam_step = min(1, lam.shape[0] - 1)
    for d in range(lo, hi):
        gram = _gram_of_row(d, rows, ones, zero)
        for i in range(n_factors):
            b[i] = tau[d] * rows.cross[d, i]
            for j in range(n_factors):
                precision[i, j] = tau[d] * gram[i, j]
            precision[i, i] += lam[d * lam_step, i]
        root = np.linalg.cholesky(precision)
        solve_lower(root, b)
        fill_uniform_pairs(key, d, u, v)
        for i in range(n_factors):
            b[i] += normal_quantile(v[i])
        solve_transposed(root, b)
        for i in range(n_factors):
            loadings[d, i] = b[i]


@jit
def residual_rows(lo, hi, loadings, active, rows, power, skip, out):
    """r_d = q_d − 2 g·T_d + gᵀ S_d g over the active factors that are not skipped."""
    n_factors = rows.gram.shape[0]
    used = np.empty(n_factors, dtype=np.int64)
    holes = rows.holes
    for d in range(lo, hi):
        n_used = 0
        for k in range(n_factors):
            if active[d, k] and not skip[k]:
                used[n_used] = k
                n_used += 1
        total = power[d]
        for i in range(n_used):
            total -= 2.0 * loadings[d, used[i]] * rows.cross[d, used[i]]
        if not holes.rebuild[d]:
            for i in range(n_used):
                partial = 0.0
                for j in range(n_used):
                    partial += rows.gram[used[i], used[j]] * loadings[d, used[j]]
                total += loadings[d, used[i]] * partial
        sign = 1.0 if holes.rebuild[d] else -1.0
        for position in range(holes.pointer[d], holes.pointer[d + 1]):
            fitted = 0.0
            for i in range(n_used):
                fitted += loadings[d, used[i]] * rows.scores[holes.index[position], used[i]]
            total += sign * fitted * fitted
        out[d] = max(total, 0.0)
