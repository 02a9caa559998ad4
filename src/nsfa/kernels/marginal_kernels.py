"""Compiled sweep over features with the scores integrated out (docs/model.md).

For each feature the others define V = (I + Σ g gᵀ/ψ)⁻¹, c = V A y and C = V A Aᵀ V, A = Σ g yᵀ/ψ; then
log p(y_d | g, ψ, others) = −(N/2) log v − R/(2v), v = ψ + gᵀVg, R = yᵀy − 2cᵀg + gᵀCg. Taking a feature out and putting
it back are rank-one corrections, so nothing of size D × D or D × N × K is formed.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import fill_words, inline, jit, normal_from, to_unit, uniform_pair
from nsfa.kernels.streams import ACCEPT, MOST_SHRINKS, MOST_STEPS, NOISE, NOISE_WIDTH

# Rows of a feature's work space: loadings before; t = P A y; w = P g and u = t − C g; c, V g, C⁻g and the diagonals of
# V and C⁻ without the feature; c − C⁻g with its new loadings.
_OLD, _T, _W, _U, _C, _VG, _CG, _V_DIAGONAL, _C_DIAGONAL, _BACK, _ROWS = range(11)


@inline
def row_log_likelihood(v, residual, n):
    """−(N/2) log v − R/(2v)."""
    return -0.5 * n * math.log(v) - 0.5 * residual / v


@jit
def entry_proposal(n, v0, a1, vkk, r0, s, ckk, lam):
    """Centre ĝ, precision H and f(ĝ) − f(0) of a normal near the conditional of a loading, whatever its present value.

    f(g) = −(N/2) log v − R/(2v) − ½λg², v = v₀ + 2a₁g + V_kk g², R = r₀ − 2sg + C_kk g²: two Newton steps, held back.
    """
    floor = 0.1 * (ckk / v0 + lam)
    g = s / (ckk + v0 * lam)
    bend = 0.0
    for step in range(3):
        v = v0 + g * (2.0 * a1 + g * vkk)
        r, dr = r0 + g * (g * ckk - 2.0 * s), 2.0 * (g * ckk - s)
        # everything over v, with one division: w = v'/v, x = v''/2v, e = r/v
        over = 1.0 / v
        w, x, e = 2.0 * (a1 + g * vkk) * over, vkk * over, r * over
        slope = 0.5 * w * (e - n) - 0.5 * dr * over - lam * g
        bend = (e - n) * x + (0.5 * n - e) * w * w + (dr * w - ckk) * over - lam
        bend = max(-bend, floor)
        if step < 2:
            most = 3.0 / math.sqrt(floor)
            g += min(max(slope / bend, -most), most)
    gain = 0.5 * (n * math.log(v0 / v) - r / v + r0 / v0 - lam * g * g)
    return g, 0.9 * bend, gain


@inline
def log_weight(v, residual, n, g, centre, precision, lam):
    """Log of the slab's target over the proposal at g: √(λ/2π) e^f(g) / N(g; ĝ, 1/H)."""
    height = row_log_likelihood(v, residual, n) - 0.5 * lam * g * g
    return height + 0.5 * math.log(lam / precision) + 0.5 * precision * (g - centre) ** 2


@inline
def _noise_log_density(x, extra, residual, n, shape, rate, least):
    """−a x − b e⁻ˣ − (N/2) log(eˣ + q) − R/(2(eˣ + q)): log density of x = log ψ; none below ``least``."""
    psi = math.exp(x)
    if psi < least:
        return -np.inf
    return -shape * x - rate / psi + row_log_likelihood(psi + extra, residual, n)


@jit
def _noise_slice(psi, extra, residual, n, shape, rate, least, key, d):
    """One slice-sampling update of ψ on its log scale."""
    start = math.log(psi)
    u, w = uniform_pair(key, d, NOISE)
    level = _noise_log_density(start, extra, residual, n, shape, rate, least) + math.log(u)
    low = start - NOISE_WIDTH * w
    high = low + NOISE_WIDTH
    for _ in range(MOST_STEPS):
        if _noise_log_density(low, extra, residual, n, shape, rate, least) <= level:
            break
        low -= NOISE_WIDTH
    for _ in range(MOST_STEPS):
        if _noise_log_density(high, extra, residual, n, shape, rate, least) <= level:
            break
        high += NOISE_WIDTH
    for column in range(1, MOST_SHRINKS):
        x = low + (high - low) * uniform_pair(key, d, NOISE + column)[0]
        if _noise_log_density(x, extra, residual, n, shape, rate, least) > level:
            return math.exp(x)
        if x < start:
            low = x
        else:
            high = x
    return psi


@jit
def _times(matrix, vector, out):
    """Set ``out`` to matrix · vector for a symmetric matrix, by the rows of what is not zero."""
    size = np.uint64(vector.shape[0])
    for j in range(size):
        out[j] = 0.0
    for i in range(size):
        x = vector[i]
        if x != 0.0:
            for j in range(size):
                out[j] += x * matrix[i, j]


@jit
def _inner(a, b):
    total = 0.0
    for k in range(np.uint64(a.shape[0])):
        total += a[k] * b[k]
    return total


@jit
def _take_out(P, C, work, scale, power, g):
    """Of the moments without the feature whose Pg, P A y − Cg are w, u: V g and C⁻g, the diagonals of V and C⁻.

    V = P + s wwᵀ and C⁻ = C + s² power wwᵀ − s (uwᵀ + wuᵀ), s = ``scale``; neither matrix is formed.
    """
    w, u, Vg, Cg = work[_W], work[_U], work[_VG], work[_CG]
    wg, ug = scale * _inner(w, g), scale * _inner(u, g)
    for k in range(np.uint64(w.shape[0])):
        Vg[k] = w[k] * (1.0 + wg)
        Cg[k] += w[k] * (scale * power * wg - ug) - u[k] * wg
        work[_V_DIAGONAL, k] = P[k, k] + scale * w[k] * w[k]
        work[_C_DIAGONAL, k] = C[k, k] + scale * w[k] * (scale * power * w[k] - 2.0 * u[k])


@jit
def _add_column(P, C, work, scale, power, k, change):
    """Vg and C⁻g after loading k has changed."""
    w, u, Vg, Cg = work[_W], work[_U], work[_VG], work[_CG]
    a = scale * w[k]
    b = scale * (power * a - u[k])
    for j in range(np.uint64(w.shape[0])):
        Vg[j] += change * (P[k, j] + a * w[j])
        Cg[j] += change * (C[k, j] + b * w[j] - a * u[j])


@jit
def _replace(P, C, work, out, back):
    """Take a feature out of P and C and put it back changed, in one pass; ``out`` and ``back`` are (scale, power)."""
    w, u, w2, u2 = work[_W], work[_U], work[_VG], work[_BACK]
    size = np.uint64(w.shape[0])
    for i in range(size):
        a, a2 = out[0] * w[i], back[0] * w2[i]
        b, b2 = out[0] * (out[1] * a - u[i]), back[0] * (back[1] * a2 - u2[i])
        for j in range(size):
            P[i, j] += a * w[j] + a2 * w2[j]
            C[i, j] += b * w[j] + b2 * w2[j] - a * u[j] - a2 * u2[j]


@jit
def _draw_entries(d, problem, n, moments, out, v, residual, key, words):
    """Metropolis–Hastings on every (z, g) of feature d; ``moments`` is (P, C, work). Returns the new v and R."""
    P, C, work = moments
    c, Vg, Cg = work[_C], work[_VG], work[_CG]
    active, usage, prior = problem.active, problem.usage, problem.prior
    n_features, n_known = problem.loadings.shape[0], problem.known.shape[1]
    g, lam = problem.loadings[d], problem.loading_precision[d * min(1, problem.loading_precision.shape[0] - 1)]
    for k in range(g.shape[0]):
        on, gk, slab = active[d, k], g[k], lam[k]
        others = usage[k] - (1 if on else 0)
        vkk, ckk = work[_V_DIAGONAL, k], work[_C_DIAGONAL, k]
        a1, s = Vg[k] - vkk * gk, c[k] - Cg[k] + ckk * gk
        v0, r0 = v - gk * (2.0 * a1 + gk * vkk), residual - gk * (gk * ckk - 2.0 * s)
        centre, precision, gain = entry_proposal(n, v0, a1, vkk, r0, s, ckk, slab)
        # a factor that is this feature's own stays: births and deaths decide about it
        forced = others + prior[0] <= 0.0
        odds = 1.0 if forced else (others + prior[0]) / (prior[1] + n_features - 1.0 - others)
        if k < n_known and not forced:
            odds *= math.exp(problem.known[d, k])
        u = to_unit(words[0, k])
        propose = forced or u < (1.0 - u) * odds * math.sqrt(slab / precision) * math.exp(min(gain, 700.0))
        if not propose and not on:
            # zero stays zero: accepted whatever the ratio
            usage[k] = others
            continue
        empty, log_prior = row_log_likelihood(v0, r0, n), math.log(odds)
        log_odds = min(max(log_prior + 0.5 * math.log(slab / precision) + gain, -700.0), 700.0)
        new = centre + normal_from(words[1, k], key, d, k, 1) / math.sqrt(precision) if propose else 0.0
        new_v, new_r = v0 + new * (2.0 * a1 + new * vkk), r0 + new * (new * ckk - 2.0 * s)
        # target over proposal of the new state and of the old one; the proposal's P(z = 1) is σ(log_odds)
        log_on = 0.0 if forced else -math.log1p(math.exp(-log_odds))
        log_off = -math.log1p(math.exp(log_odds))
        ratio = (
            log_weight(new_v, new_r, n, new, centre, precision, slab) + log_prior - log_on
            if propose
            else empty - log_off
        )
        ratio -= log_weight(v, residual, n, gk, centre, precision, slab) + log_prior - log_on if on else empty - log_off
        if math.log(uniform_pair(key, d, ACCEPT + k)[0]) < ratio:
            _add_column(P, C, work, out[0], out[1], k, new - gk)
            v, residual, g[k], on = new_v, new_r, new, propose
        active[d, k] = on
        usage[k] = others + (1 if on else 0)
    return v, residual


@inline
def _with_slabs(d, problem, before):
    """Shape and rate of feature d's noise precision given its loadings; relative slabs were those of ``before``."""
    shape, rate = problem.noise_prior[0, d], problem.noise_prior[1, d]
    if problem.relative:
        square = 0.0
        for k in range(problem.loadings.shape[1]):
            square += problem.loading_precision[d, k] * problem.loadings[d, k] ** 2
            shape += 0.5 if problem.active[d, k] else 0.0
        rate += 0.5 * before * square
    return shape, rate


@jit
def marginal_rows(problem, values, power_of, A, P, C, key):
    """One pass over the features: pattern, loadings and noise variance of each, scores integrated out.

    ``values`` is (D, N), nothing missing; ``power_of`` Σ y² (D,); A = Gᵀ Ψ⁻¹ Y (K, N), P = (I + Gᵀ Ψ⁻¹ G)⁻¹ and
    C = P A Aᵀ P are kept up to date.
    """
    loadings, psi, noise_prior = problem.loadings, problem.noise_variance, problem.noise_prior
    n_features, n_samples = values.shape
    n_factors, n, least = loadings.shape[1], float(n_samples), problem.least
    work, words = np.empty((_ROWS, n_factors)), np.empty((2, n_factors), np.uint64)
    old, t, w, c, Vg, Cg = work[_OLD], work[_T], work[_W], work[_C], work[_VG], work[_CG]
    for d in range(n_features):
        y, g, before, power = values[d], loadings[d], psi[d], power_of[d]
        if before < least[d]:
            continue
        _times(P, np.dot(A, y), t)
        _times(P, g, w)
        _times(C, g, Cg)
        gt, delta = _inner(g, t), before - _inner(g, w)
        for k in range(n_factors):
            old[k], work[_U, k], c[k] = g[k], t[k] - Cg[k], t[k] - w[k] * ((power - gt) / delta)
        out = 1.0 / delta, power - 2.0 * gt + _inner(g, Cg)
        _take_out(P, C, work, out[0], out[1], g)
        v, residual = before + _inner(g, Vg), power - 2.0 * _inner(c, g) + _inner(g, Cg)
        fill_words(key, d, words[0], words[1])
        v, residual = _draw_entries(d, problem, n, (P, C, work), out, v, residual, key, words)
        if noise_prior[0, d] > 0.0:
            shape, rate = _with_slabs(d, problem, before)
            psi[d] = _noise_slice(before, v - before, residual, n, shape, rate, least[d], key, d)
        for k in range(n_factors):
            work[_BACK, k] = c[k] - Cg[k]
        _replace(P, C, work, out, (-1.0 / (psi[d] + v - before), residual))
        for k in range(n_factors):
            part = g[k] / psi[d] - old[k] / before
            if part != 0.0:
                for j in range(np.uint64(n_samples)):
                    A[k, j] += part * y[j]
