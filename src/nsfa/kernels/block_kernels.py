"""Compiled Gibbs pass over features that share one Gram matrix, a block of them at a time (docs/model.md).

Within a row the loadings must be drawn one after another, each waiting for the one before. Rows are independent, so
every step is taken for a whole block of rows at once: block arrays are (factors, rows of the block) and all inner loops
run along the rows as vector instructions. Those count with unsigned integers: no look for negative indices.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import fast_normal, jit, normal_from, to_unit, word_pair

WIDTH = 64
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
_HALF_LOG_2 = 0.5 * math.log(2.0)
# A double's upper 32 bits over 2²⁰ are its exponent plus mantissa: log₂ within ±0.0431 after moving by 0.0430.
_MIDDLE, _ROUGH = 1023.0 - 0.0430, 0.0431 * _HALF_LOG_2

# Planes of a block's work space.
_CROSS, _LOADING, _VARIANCE, _NOISE, _THRESHOLD, _BAR = range(6)


@jit
def _load(d0, width, loadings, cross, work):
    """Copy the block's loadings and cross products, rows becoming columns."""
    g, c = work[_LOADING], work[_CROSS]
    for r in range(width):
        for k in range(np.uint64(loadings.shape[1])):
            g[k, r], c[k, r] = loadings[d0 + r, k], cross[d0 + r, k]


@jit
def _store(d0, width, work, loadings, active, residual):
    """Copy the block's loadings back, say which are in use, and see that no residual is negative."""
    g = work[_LOADING]
    for r in range(width):
        residual[d0 + r] = max(residual[d0 + r], 0.0)
        for k in range(np.uint64(loadings.shape[1])):
            loadings[d0 + r, k], active[d0 + r, k] = g[k, r], g[k, r] != 0.0


@jit
def _prepare(k, d0, width, tau, gram, slab, key, work, words):
    """Everything about the block's loadings on factor k that does not depend on the other factors.

    Conditional variance 1/ℓ, ℓ = τ S_kk + λ; √(1/ℓ) times a standard normal; and the square of the threshold that
    exp(½ℓμ²) × prior odds must pass for z = 1, u/(1−u) √(ℓ/λ).
    """
    variance, noise, threshold = work[_VARIANCE, k], work[_NOISE, k], work[_THRESHOLD, k]
    first, second = words[0], words[1]
    power = gram[k, k]
    for r in range(width):
        first[r], second[r] = word_pair(key, d0 + r, k, 0, 0)
    for r in range(width):
        precision, u = tau[r] * power + slab[r], to_unit(first[r])
        variance[r] = 1.0 / precision
        threshold[r] = u * u * precision / ((1.0 - u) * (1.0 - u) * slab[r])
    slow = 0
    for r in range(width):
        normal, fine = fast_normal(second[r])
        noise[r] = math.sqrt(variance[r]) * normal if fine else np.nan
        slow += 0 if fine else 1
    if slow > 0:
        for r in range(width):
            if math.isnan(noise[r]):
                noise[r] = math.sqrt(variance[r]) * normal_from(second[r], key, d0 + r, k, 1)


@jit
def _add_products(out, k, start, stop, gram, g, width):
    """Add Σ_j S_kj g_j over factors start ≤ j < stop, four at a time."""
    fours = start + (stop - start) // _FOUR * _FOUR
    for j in range(start, fours, _FOUR):
        a, b, c, d = gram[k, j], gram[k, j + _ONE], gram[k, j + _TWO], gram[k, j + _THREE]
        for r in range(width):
            out[r] += a * g[j, r] + b * g[j + _ONE, r] + c * g[j + _TWO, r] + d * g[j + _THREE, r]
    for j in range(fours, stop):
        for r in range(width):
            out[r] += gram[k, j] * g[j, r]


@jit
def _draw(k, width, tau, logit, work, below, above):
    """Draw (z, g) of every row of the block for factor k, given Σ_j S_kj g_j ``below`` and ``above`` it.

    Decisions come from a rough logarithm of the squared threshold, and from exp itself where that is too near to tell.
    ``above`` returns what each loading is if it is in use.
    """
    variance, noise, threshold, bar = work[_VARIANCE, k], work[_NOISE, k], work[_THRESHOLD, k], work[_BAR, k]
    cross, g = work[_CROSS, k], work[_LOADING, k]
    bits = threshold.view(np.int64)
    for r in range(width):
        bar[r] = (np.float64(np.int32(bits[r] >> 32)) * 2.0**-20 - _MIDDLE) * _HALF_LOG_2 - logit[r]
    near = 0
    for r in range(width):
        shift = tau[r] * (cross[r] - below[r] - above[r])
        mean = shift * variance[r]
        gap = 0.5 * shift * mean - bar[r]
        near += 1 if abs(gap) < _ROUGH else 0
        above[r] = mean + noise[r]
        g[r] = above[r] if gap > 0.0 else 0.0
        bar[r] = gap + bar[r] + logit[r] if abs(gap) < _ROUGH else np.inf
    if near > 0:
        for r in range(width):
            if bar[r] < np.inf:
                g[r] = above[r] if math.exp(2.0 * bar[r]) > threshold[r] else 0.0


@jit
def _fill(out, table, d0, k, step, width):
    """Column k of a (1, K) or (D, K) table over the block's rows."""
    for r in range(width):
        out[r] = table[(d0 + r) * step, k]


@jit
def block_rows(lo, hi, loadings, active, rows, logit, anchor, key, usage, residual):
    """Gibbs pass over rows lo..hi given prior logits (1 or D, K), nothing missing; row ``anchor[k]`` keeps factor k."""
    gram, n_factors = rows.gram, np.uint64(rows.gram.shape[0])
    work, vectors = np.empty((6, rows.gram.shape[0], WIDTH)), np.empty((4, WIDTH))
    words = np.empty((2, WIDTH), np.uint64)
    below, above, slab, odds = vectors[0], vectors[1], vectors[2], vectors[3]
    slab_step = np.uint64(min(1, rows.loading_precision.shape[0] - 1))
    odds_step = np.uint64(min(1, logit.shape[0] - 1))
    for at in range(lo, hi, WIDTH):
        stop = min(at + WIDTH, hi)
        d0, width = np.uint64(at), np.uint64(stop - at)
        tau, total = rows.noise_precision[at:stop], residual[at:stop]
        _load(d0, width, loadings, rows.cross, work)
        for r in range(width):
            total[r] = rows.power[d0 + r]
        for k in range(n_factors):
            _fill(slab, rows.loading_precision, d0, k, slab_step, width)
            if rows.relative:
                for r in range(width):
                    slab[r] *= tau[r]
            _fill(odds, logit, d0, k, odds_step, width)
            _prepare(k, d0, width, tau, gram, slab, key, work, words)
            for r in range(width):
                below[r], above[r] = 0.0, 0.0
            g, cross = work[_LOADING], work[_CROSS, k]
            _add_products(below, k, np.uint64(0), k, gram, g, width)
            _add_products(above, k, k + _ONE, n_factors, gram, g, width)
            _draw(k, width, tau, odds, work, below, above)
            if at <= anchor[k] < stop:
                g[k, anchor[k] - at] = above[anchor[k] - at]
            # r = q + Σ_k g_k (g_k S_kk + 2 Σ_{j<k} S_kj g_j − 2 T_k)
            used, power = 0, gram[k, k]
            for r in range(width):
                value = g[k, r]
                total[r] += value * (value * power + 2.0 * (below[r] - cross[r]))
                used += 1 if value != 0.0 else 0
            usage[k] += used
        _store(d0, width, work, loadings, active, residual)
