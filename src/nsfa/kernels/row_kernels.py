"""Compiled loops over features: the loadings' conditionals and the residuals (docs/model.md).

Each takes a range of rows, so that a thread pool can share them out; random numbers are keyed by row. Hot inner loops
count with unsigned integers: numba then need not look for negative indices, and they become vector instructions.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import (
    corrected_gram,
    fill_words,
    inline,
    jit,
    normal_at,
    normal_from,
    solve_lower,
    solve_transposed,
    to_unit,
)

_LANES = 16


@jit
def _padded(gram):
    """A copy with zero columns up to a multiple of 16: row updates then run in whole vectors."""
    n_factors = gram.shape[0]
    out = np.zeros((n_factors, (n_factors + _LANES - 1) // _LANES * _LANES))
    # by loops: assigning arrays compiles numba's checks of their shapes
    for i in range(n_factors):
        for j in range(n_factors):
            out[i, j] = gram[i, j]
    return out


@jit
def _gram_of_row(d, rows, ones, shared):
    """XᵀX over the samples observed for feature d, padded: ``shared`` itself, or a corrected copy.

    ``ones`` are the samples' weights, or None where nothing is missing: the rest is then not even compiled.
    """
    if ones is None:
        return shared
    holes = rows.holes
    start, stop = holes.pointer[d], holes.pointer[d + 1]
    if start == stop and not holes.rebuild[d]:
        return shared
    base = np.zeros_like(rows.gram) if holes.rebuild[d] else rows.gram
    return _padded(corrected_gram(base, rows.scores, ones, holes.entry[start:stop], holes.rebuild[d]))


@inline
def _subtract(c, gram, k, change, start):
    """C −= change · S_k from ``start`` on, a multiple of 16."""
    for j in range(np.uint64(start), np.uint64(c.shape[0])):
        c[j] -= change * gram[k, j]


@jit
def _begin_row(d, loadings, active, rows, gram, c):
    """Fill c = T_d − S g_d, touching only the active factors, and return r_d = q_d − g·T_d − g·c."""
    n_factors = gram.shape[0]
    for k in range(n_factors):
        c[k] = rows.cross[d, k]
    for k in range(n_factors):
        if active[d, k]:
            _subtract(c, gram, k, loadings[d, k], 0)
    total = rows.power[d]
    for k in range(n_factors):
        if active[d, k]:
            total -= loadings[d, k] * (rows.cross[d, k] + c[k])
    return total


@jit
def _prepare(tau, lam, gram, key, d, work, first, second):
    """Everything about row d's entries that does not depend on the other loadings, in loops that vectorise.

    Rows of ``work``: 0 the conditional variance 1/ℓ, ℓ = τ S_kk + λ; 1 its root; 2 the threshold that exp(½ℓμ²) × prior
    odds must pass for z = 1, u/(1−u) √(ℓ/λ). ``second`` holds the words that the loadings' normals are made of.
    """
    n_factors = gram.shape[0]
    variance, deviation, threshold = work[0], work[1], work[2]
    fill_words(key, d, first, second)
    for k in range(n_factors):
        variance[k] = 1.0 / (tau * gram[k, k] + lam[k])
    for k in range(n_factors):
        u = to_unit(first[k])
        deviation[k] = math.sqrt(variance[k])
        threshold[k] = u / ((1.0 - u) * math.sqrt(lam[k]) * deviation[k])


@inline
def _exceeds(t, threshold):
    """Whether exp(t) > threshold: decided by bounds where they suffice, by exp itself between them.

    exp(s) ≥ (1 + s/4)⁴ for s ≥ −4, used for s = t (certainly above) and for s = −t (certainly below).
    """
    bound = 1.0 + 0.25 * abs(t)
    bound *= bound
    bound *= bound
    if t > 0.0:
        return bound > threshold or math.exp(min(t, 700.0)) > threshold
    return threshold * bound < 1.0 and math.exp(t) > threshold


@jit
def independent_rows(lo, hi, loadings, active, rows, ones, logit, anchor, key, usage, residual):
    """Gibbs pass over rows lo..hi, some with holes, given prior logits (1 or D, K); ``anchor[k]`` keeps factor k."""
    n_factors = rows.gram.shape[0]
    shared = _padded(rows.gram)
    c, work = np.zeros(shared.shape[1]), np.empty((3, n_factors))
    first, second = np.empty(n_factors, np.uint64), np.empty(n_factors, np.uint64)
    lam_step, logit_step = min(1, rows.loading_precision.shape[0] - 1), min(1, logit.shape[0] - 1)
    for d in range(lo, hi):
        tau, prior = rows.noise_precision[d], logit[d * logit_step]
        gram = _gram_of_row(d, rows, ones, shared)
        total = _begin_row(d, loadings, active, rows, gram, c)
        _prepare(tau, rows.loading_precision[d * lam_step], gram, key, d, work, first, second)
        for k in range(n_factors):
            g = loadings[d, k]
            shift = tau * (c[k] + g * gram[k, k])
            mean = shift * work[0, k]
            new = 0.0
            on = anchor[k] == d or _exceeds(0.5 * shift * mean + prior[k], work[2, k])
            if on:
                new = mean + work[1, k] * normal_from(second[k], key, d, k, 1)
                usage[k] += 1
            if new != g:
                change = new - g
                total += change * (change * gram[k, k] - 2.0 * c[k])
                # entries before k are done with: this row will not look at their covariates again
                _subtract(c, gram, k, change, k // _LANES * _LANES)
                loadings[d, k] = new
            active[d, k] = on
        residual[d] = max(total, 0.0)


@jit
def collapsed_rows(loadings, active, rows, ones, usage, prior_on, prior_off, key, residual):
    """Gibbs pass over all rows in turn, prior odds (m + prior_on)/(prior_off + D − 1 − m), m without the row.

    Where m + prior_on is 0 the factor is the row's own: it stays, and belongs to the birth/death move.
    """
    n_features, n_factors = loadings.shape
    shared = _padded(rows.gram)
    c, work = np.zeros(shared.shape[1]), np.empty((3, n_factors))
    first, second = np.empty(n_factors, np.uint64), np.empty(n_factors, np.uint64)
    lam_step = min(1, rows.loading_precision.shape[0] - 1)
    for d in range(n_features):
        tau = rows.noise_precision[d]
        gram = _gram_of_row(d, rows, ones, shared)
        total = _begin_row(d, loadings, active, rows, gram, c)
        _prepare(tau, rows.loading_precision[d * lam_step], gram, key, d, work, first, second)
        for k in range(n_factors):
            g, on = loadings[d, k], active[d, k]
            others = usage[k] - (1 if on else 0)
            usage[k] = others
            shift = tau * (c[k] + g * gram[k, k])
            mean = shift * work[0, k]
            weight = others + prior_on
            if weight > 0.0:
                on = _exceeds(0.5 * shift * mean, work[2, k] * (prior_off + n_features - 1.0 - others) / weight)
            new = 0.0
            if on:
                new = mean + work[1, k] * normal_from(second[k], key, d, k, 1)
                usage[k] += 1
            if new != g:
                change = new - g
                total += change * (change * gram[k, k] - 2.0 * c[k])
                _subtract(c, gram, k, change, k // _LANES * _LANES)
                loadings[d, k] = new
            active[d, k] = on
        residual[d] = max(total, 0.0)


@jit
def dense_rows(lo, hi, loadings, active, rows, ones, key, residual):
    """g_d ~ N(A⁻¹ τ_d T_d, A⁻¹), A = τ_d S_d + diag(λ_d), for rows lo..hi; ``active`` is all true."""
    n_factors = rows.gram.shape[0]
    shared = _padded(rows.gram)
    c, b = np.zeros(shared.shape[1]), np.empty(n_factors)
    lam, tau = rows.loading_precision, rows.noise_precision
    lam_step = min(1, lam.shape[0] - 1)
    for d in range(lo, hi):
        gram = _gram_of_row(d, rows, ones, shared)
        precision = tau[d] * gram[:, :n_factors]
        for i in range(n_factors):
            b[i] = tau[d] * rows.cross[d, i]
            precision[i, i] += lam[d * lam_step, i]
        root = np.linalg.cholesky(precision)
        solve_lower(root, b)
        for i in range(n_factors):
            b[i] += normal_at(key, d, i)
        solve_transposed(root, b)
        for i in range(n_factors):
            loadings[d, i] = b[i]
        residual[d] = max(_begin_row(d, loadings, active, rows, gram, c), 0.0)


@jit
def residual_rows(loadings, active, rows, which, skip, out):
    """r_d of the features ``which`` over the active factors that are not skipped; at most O(active · K) each."""
    n_factors = rows.gram.shape[0]
    c, kept = np.empty(n_factors), np.empty(n_factors)
    holes = rows.holes
    for i in range(which.shape[0]):
        d = which[i]
        for k in range(n_factors):
            kept[k] = loadings[d, k] if active[d, k] and not skip[k] else 0.0
            c[k] = 2.0 * rows.cross[d, k]
        # g·(2T − S g); a feature seen in few samples has S_d rebuilt from those alone
        if not holes.rebuild[d]:
            for k in range(n_factors):
                if kept[k] != 0.0:
                    _subtract(c, rows.gram, k, kept[k], 0)
        total = rows.power[d]
        for k in range(n_factors):
            total -= kept[k] * c[k]
        sign = 1.0 if holes.rebuild[d] else -1.0
        for position in range(holes.pointer[d], holes.pointer[d + 1]):
            fitted = 0.0
            for k in range(n_factors):
                fitted += kept[k] * rows.scores[holes.entry[position], k]
            total += sign * fitted * fitted
        out[i] = max(total, 0.0)
