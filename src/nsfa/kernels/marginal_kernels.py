"""Compiled sweep over features with the scores integrated out (docs/model.md).

For each feature the others define V = (I + Σ g gᵀ/ψ)⁻¹, c = V A y and C = V A Aᵀ V, A = Σ g yᵀ/ψ; then
log p(y_d | g, ψ, others) = −(N/2) log v − R/(2v), v = ψ + gᵀVg, R = yᵀy − 2cᵀg + gᵀCg. Taking a feature out and putting
it back are rank-one corrections, so nothing of size D × D or D × N × K is formed.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import inline, jit, normal_from, to_unit, uniform_pair, word_pair
from nsfa.kernels.streams import ACCEPT, LEAST_VARIANCE, MOST_SHRINKS, MOST_STEPS, NOISE, NOISE_WIDTH


@inline
def row_log_likelihood(v, residual, n):
    """−(N/2) log v − R/(2v)."""
    return -0.5 * n * math.log(v) - 0.5 * residual / v


@jit
def entry_proposal(n, v0, a1, vkk, r0, s, ckk, lam):
    """Centre ĝ, precision H and f(ĝ) of a normal near the conditional of one loading, whatever its present value.

    f(g) = −(N/2) log v − R/(2v) − ½λg², v = v₀ + 2a₁g + V_kk g², R = r₀ − 2sg + C_kk g²: two Newton steps, held back.
    """
    floor = 0.1 * (ckk / v0 + lam)
    g = s / (ckk + v0 * lam)
    bend = 0.0
    for step in range(3):
        v, dv = v0 + g * (2.0 * a1 + g * vkk), 2.0 * (a1 + g * vkk)
        r, dr = r0 + g * (g * ckk - 2.0 * s), 2.0 * (g * ckk - s)
        slope = -0.5 * (n * dv + dr) / v + 0.5 * r * dv / (v * v) - lam * g
        bend = -n * (vkk / v - 0.5 * dv * dv / (v * v)) - ckk / v + dr * dv / (v * v)
        bend += r * vkk / (v * v) - r * dv * dv / (v * v * v) - lam
        bend = max(-bend, floor)
        if step < 2:
            most = 3.0 / math.sqrt(floor)
            g += min(max(slope / bend, -most), most)
    height = row_log_likelihood(v, r, n) - 0.5 * lam * g * g
    return g, 0.9 * bend, height


@inline
def log_weight(v, residual, n, g, centre, precision, lam):
    """Log of the slab's target over the proposal at g: √(λ/2π) e^f(g) / N(g; ĝ, 1/H)."""
    height = row_log_likelihood(v, residual, n) - 0.5 * lam * g * g
    return height + 0.5 * math.log(lam / precision) + 0.5 * precision * (g - centre) ** 2


@inline
def _noise_log_density(x, extra, residual, n, shape, rate):
    """−a x − b e⁻ˣ − (N/2) log(eˣ + q) − R/(2(eˣ + q)): log density of x = log ψ; none below ``LEAST_VARIANCE``."""
    psi = math.exp(x)
    if psi < LEAST_VARIANCE:
        return -np.inf
    return -shape * x - rate / psi + row_log_likelihood(psi + extra, residual, n)


@jit
def _noise_slice(psi, extra, residual, n, shape, rate, key, d):
    """One slice-sampling update of ψ on its log scale."""
    start = math.log(psi)
    u, w = uniform_pair(key, d, NOISE)
    level = _noise_log_density(start, extra, residual, n, shape, rate) + math.log(u)
    low = start - NOISE_WIDTH * w
    high = low + NOISE_WIDTH
    for _ in range(MOST_STEPS):
        if _noise_log_density(low, extra, residual, n, shape, rate) <= level:
            break
        low -= NOISE_WIDTH
    for _ in range(MOST_STEPS):
        if _noise_log_density(high, extra, residual, n, shape, rate) <= level:
            break
        high += NOISE_WIDTH
    for column in range(1, MOST_SHRINKS):
        x = low + (high - low) * uniform_pair(key, d, NOISE + column)[0]
        if _noise_log_density(x, extra, residual, n, shape, rate) > level:
            return math.exp(x)
        if x < start:
            low = x
        else:
            high = x
    return psi


@jit
def _correct(P, C, w, u, scale, power):
    """P += s wwᵀ, C += s² power wwᵀ − s (uwᵀ + wuᵀ): takes a feature out (s = 1/δ) or puts it back (−1/δ)."""
    for i in range(w.shape[0]):
        wi, ui, both = scale * w[i], scale * u[i], scale * scale * power * w[i]
        for j in range(np.uint64(w.shape[0])):
            P[i, j] += wi * w[j]
            C[i, j] += both * w[j] - ui * w[j] - wi * u[j]


@jit
def _draw_entries(d, problem, moments, v, residual, key):
    """Metropolis–Hastings on every (z, g) of feature d; ``moments`` is (V, C, c, Vg, Cg). Returns the new v and R."""
    P, C, c, Vg, Cg = moments
    active, usage, prior = problem.active, problem.usage, problem.prior
    n_features, n = problem.values.shape[0], float(problem.values.shape[1])
    g, lam = problem.loadings[d], problem.loading_precision[d * min(1, problem.loading_precision.shape[0] - 1)]
    for k in range(g.shape[0]):
        on, gk, slab = active[d, k], g[k], lam[k]
        others = usage[k] - (1 if on else 0)
        a1, s = Vg[k] - P[k, k] * gk, c[k] - Cg[k] + C[k, k] * gk
        v0, r0 = v - gk * (2.0 * a1 + gk * P[k, k]), residual - gk * (gk * C[k, k] - 2.0 * s)
        centre, precision, height = entry_proposal(n, v0, a1, P[k, k], r0, s, C[k, k], slab)
        empty = row_log_likelihood(v0, r0, n)
        # a factor that is this feature's own stays: births and deaths decide about it
        forced = others + prior[0] <= 0.0
        log_prior = 0.0 if forced else math.log((others + prior[0]) / (prior[1] + n_features - 1.0 - others))
        odds = min(max(log_prior + 0.5 * math.log(slab / precision) + height - empty, -700.0), 700.0)
        first, second = word_pair(key, d, k, 0, 0)
        u = to_unit(first)
        propose = forced or math.log(u) - math.log(1.0 - u) < odds
        new = centre + normal_from(second, key, d, k, 1) / math.sqrt(precision) if propose else 0.0
        new_v, new_r = v0 + new * (2.0 * a1 + new * P[k, k]), r0 + new * (new * C[k, k] - 2.0 * s)
        # target over proposal of the new state and of the old one; the proposal's P(z = 1) is σ(odds)
        log_on = 0.0 if forced else -math.log1p(math.exp(-odds))
        log_off = -math.log1p(math.exp(odds))
        ratio = (
            log_weight(new_v, new_r, n, new, centre, precision, slab) + log_prior - log_on
            if propose
            else empty - log_off
        )
        ratio -= log_weight(v, residual, n, gk, centre, precision, slab) + log_prior - log_on if on else empty - log_off
        if math.log(uniform_pair(key, d, ACCEPT + k)[0]) < ratio:
            change = new - gk
            for j in range(np.uint64(g.shape[0])):
                Vg[j] += change * P[k, j]
                Cg[j] += change * C[k, j]
            v, residual, g[k], on = new_v, new_r, new, propose
        active[d, k] = on
        usage[k] = others + (1 if on else 0)
    return v, residual


@jit
def marginal_rows(problem, A, P, C, key):
    """One pass over the features: pattern, loadings and noise variance of each, scores integrated out.

    A = Gᵀ Ψ⁻¹ Y (K, N), P = (I + Gᵀ Ψ⁻¹ G)⁻¹ and C = P A Aᵀ P are kept up to date.
    """
    values, loadings, psi, noise_prior = problem.values, problem.loadings, problem.noise_variance, problem.noise_prior
    n_features, n_samples = values.shape
    n_factors, n = loadings.shape[1], float(n_samples)
    for d in range(n_features):
        y, g, before = values[d], loadings[d], psi[d]
        old, power = g.copy(), np.dot(y, y)
        t, w, Cg = np.dot(P, np.dot(A, y)), np.dot(P, g), np.dot(C, g)
        gt = np.dot(g, t)
        delta = before - np.dot(g, w)
        _correct(P, C, w, t - Cg, 1.0 / delta, power - 2.0 * gt + np.dot(g, Cg))
        # from here on P is V and C is C⁻, without this feature
        c = t - w * ((power - gt) / delta)
        Vg, Cg = np.dot(P, g), np.dot(C, g)
        v, residual = before + np.dot(g, Vg), power - 2.0 * np.dot(c, g) + np.dot(g, Cg)
        v, residual = _draw_entries(d, problem, (P, C, c, Vg, Cg), v, residual, key)
        if noise_prior[0] > 0.0:
            psi[d] = _noise_slice(before, v - before, residual, n, noise_prior[0], noise_prior[1], key, d)
        _correct(P, C, Vg, c - Cg, -1.0 / (psi[d] + v - before), residual)
        for k in range(n_factors):
            part = g[k] / psi[d] - old[k] / before
            if part != 0.0:
                for j in range(np.uint64(n_samples)):
                    A[k, j] += part * y[j]
