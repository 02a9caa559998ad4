"""Compiled draws of the Gaussian values behind a table that only hints at them (docs/model.md).

Entry by entry, feature after feature: each entry's numbers are keyed by its feature and its sample, so that it does not
matter who draws it.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import fill_words, gamma_draw, inline, jit, normal_from, to_unit, word_pair
from nsfa.kernels.streams import (
    EASY_RATE,
    NEWTON_STEPS,
    STRETCH_COLUMN,
    STRETCH_STEP,
    WIDER,
)

# logarithms of small counts
_LOG = np.log(np.maximum(np.arange(64.0), 1.0))


@jit
def _fit(d, problem, out):
    """What the model expects of feature d's values: μ_d + g_d·x_n."""
    n_samples = np.uint64(out.shape[0])
    for n in range(n_samples):
        out[n] = problem.intercept[d]
    for k in range(problem.loadings.shape[1]):
        g = problem.loadings[d, k]
        if g != 0.0:
            for n in range(n_samples):
                out[n] += g * problem.scores[k, n]


@inline
def _missing(problem, d, n):
    return problem.missing.shape[0] > 0 and problem.missing[d, n]


@jit
def outlier_scale(square, shares, scales, u):
    """Which scale an entry's deviation has, 0 for none, by a uniform; ``square`` is that of its error in noise units.

    P(j) ∝ w_j (1 + v_j)^−½ exp(−½ z²/(1 + v_j)), v_0 = 0. Outliers come first, the largest of them at the end.
    """
    total = ordinary = shares[0] * math.exp(-0.5 * square)
    for j in range(1, shares.shape[0]):
        total += shares[j] * math.exp(-0.5 * square / (1.0 + scales[j])) / math.sqrt(1.0 + scales[j])
    if total == 0.0:
        # so far out that none explains it: the widest does best
        return shares.shape[0] - 1
    rest = u * total
    if rest >= total - ordinary:
        return 0
    for j in range(1, shares.shape[0] - 1):
        rest -= shares[j] * math.exp(-0.5 * square / (1.0 + scales[j])) / math.sqrt(1.0 + scales[j])
        if rest < 0.0:
            return j
    return shares.shape[0] - 1


@jit
def _find_outliers(d, problem, fit, shares, scales, ceiling, words, first, kinds):
    """Which scale each entry of feature d has; returns Σ e²/(1 + v_j) and the number of entries.

    ``ceiling`` (B, N) bounds the probability of an outlier whose squared error, in noise units, is in [b, b + 1).
    """
    tau, square, count = problem.noise_precision[d], 0.0, 0.0
    for n in range(fit.shape[0]):
        kinds[n] = 0
        if _missing(problem, d, n):
            continue
        error = problem.seen[d, n] - fit[n]
        size, u = error * error * tau, to_unit(words[0, first + n])
        place = min(size, ceiling.shape[0] - 1.0)
        if u < ceiling[np.int64(place), n]:
            kinds[n] = outlier_scale(size, shares[n], scales, u)
        square += error * error / (1.0 + scales[kinds[n]])
        count += 1.0
    return square, count


@jit
def outlier_rows(lo, hi, problem, shares, scales, ceiling, prior, largest, key, first, weight, precision):
    """Draw outliers, the noise and deviations, which values are then without; see ``Kernels.draw_outliers``."""
    n_samples = problem.seen.shape[1]
    fit, kinds, number = np.empty(n_samples), np.empty(n_samples, np.int64), np.zeros(shares.shape)
    words = np.empty((2, first + n_samples), np.uint64)
    for d in range(lo, hi):
        _fit(d, problem, fit)
        fill_words(key, d, words[0], words[1])
        square, seen = _find_outliers(d, problem, fit, shares, scales, ceiling, words, first, kinds)
        precision[d] = problem.noise_precision[d]
        if prior[0, d] > 0.0:
            shape, rate = prior[0, d] + 0.5 * seen, prior[1, d] + 0.5 * square
            precision[d] = min(gamma_draw(shape, key, d, STRETCH_COLUMN) / rate, largest)
        count, power = 0.0, 0.0
        for n in range(n_samples):
            if _missing(problem, d, n):
                continue
            j, y = kinds[n], problem.seen[d, n]
            number[n, j] += 1.0
            problem.values[d, n] = y
            if j > 0:
                share = scales[j] / (1.0 + scales[j])
                normal = normal_from(words[1, first + n], key, d, first + n, 1)
                deviation = share * (y - fit[n]) + math.sqrt(share / precision[d]) * normal
                problem.values[d, n] = y - deviation
                count += 1.0
                power += deviation * deviation / scales[j]
        weight[0, d], weight[1, d] = count, power
    return number


@jit
def rate_proposal(y, mean, tau, level):
    """Centre and precision of a normal near the conditional of a log rate, whatever its present value.

    f(l) = y l − exp(l + level) − ½ τ (l − mean)²: Newton steps from between what prior and count say.
    """
    if y > 0.0:
        log = _LOG[np.int64(y)] if y < _LOG.shape[0] else math.log(y)
        at = (tau * mean + y * (log - level)) / (tau + y)
    else:
        # where the slope of the prior is about that of the rate
        at = min(mean, math.log(1.0 + tau * max(mean + level, 0.0)) - level)
    bend = tau
    for _ in range(NEWTON_STEPS):
        rate = math.exp(min(at + level, 700.0))
        bend = tau + rate
        at += (y - rate - tau * (at - mean)) / bend
    return at, WIDER * bend


@inline
def _accepts(u, log_ratio):
    """Whether u < e^ratio; 1 + ratio is below that, and seldom too far."""
    return u < 1.0 + log_ratio or u < math.exp(log_ratio)


@jit
def draw_rate(y, mean, tau, level, now, rate, u, normal):
    """A log rate given a count, by Metropolis–Hastings from near its mode; ``rate`` is that of its present value."""
    centre, precision = rate_proposal(y, mean, tau, level)
    new = centre + normal / math.sqrt(precision)
    ratio = y * (new - now) - math.exp(min(new + level, 700.0)) + rate
    ratio += 0.5 * (
        precision * ((new - centre) ** 2 - (now - centre) ** 2) - tau * ((new - mean) ** 2 - (now - mean) ** 2)
    )
    return new if _accepts(u, ratio) else now


@jit
def _rates(values, base, out):
    """exp(values + base), in a loop that vectorises."""
    for n in range(np.uint64(out.shape[0])):
        out[n] = math.exp(min(values[n] + base[n], 700.0))


@jit
def noise_stretch(d, problem, base, fit, work, prior, key, column):
    """Metropolis step of log ψ_d, values keeping their distances from ``fit`` in units of the noise; one time in four.

    p(ψ | ·) ∝ ψ^−a e^(−b/ψ) Π_n Poisson(y; exp(fit + √ψ z + base)) on the log scale. What few counts say of the noise
    is far less than what the values say, given which it moves by small steps only.
    """
    tau, (first, second) = problem.noise_precision[d], word_pair(key, d, column, 0, 0)
    if to_unit(word_pair(key, d, column + 1, 0, 0)[0]) < 0.75:
        return tau
    step = STRETCH_STEP * normal_from(second, key, d, column, 1)
    by = math.exp(0.5 * step)
    values, new, before, after = problem.values[d], work[0], work[1], work[2]
    for n in range(fit.shape[0]):
        new[n] = fit[n] + by * (values[n] - fit[n])
    _rates(values, base, before)
    _rates(new, base, after)
    ratio = -prior[0, d] * step - prior[1, d] * tau * (math.exp(-step) - 1.0)
    for n in range(fit.shape[0]):
        if not _missing(problem, d, n):
            ratio += problem.seen[d, n] * (new[n] - values[n]) + before[n] - after[n]
    if not _accepts(to_unit(first), ratio):
        return tau
    for n in range(fit.shape[0]):
        if not _missing(problem, d, n):
            values[n] = new[n]
    return tau * math.exp(-step)


@jit
def rate_rows(lo, hi, problem, level, exposure, prior, key, first, precision):
    """Draw the log rates behind counts, and noise precisions with them; see ``Kernels.draw_rates``.

    Where a count is zero and hardly one was expected, what the model expects is proposed, in loops that vectorise.
    """
    n_samples = problem.seen.shape[1]
    fit, base, work = np.empty(n_samples), np.empty(n_samples), np.empty((3, n_samples))
    words = np.empty((2, first + n_samples), np.uint64)
    new, before, after = work[0], work[1], work[2]
    for d in range(lo, hi):
        _fit(d, problem, fit)
        fill_words(key, d, words[0], words[1])
        tau, spread, values = problem.noise_precision[d], problem.noise_precision[d] ** -0.5, problem.values[d]
        easy = EASY_RATE - 0.5 / tau
        for n in range(n_samples):
            base[n] = level[d] + exposure[n]
            new[n] = fit[n] + spread * normal_from(words[1, first + n], key, d, first + n, 1)
        _rates(values, base, before)
        _rates(new, base, after)
        for n in range(n_samples):
            if _missing(problem, d, n):
                continue
            y, u = np.float64(problem.seen[d, n]), to_unit(words[0, first + n])
            if y == 0.0 and fit[n] + base[n] < easy:
                if _accepts(u, before[n] - after[n]):
                    values[n] = new[n]
            else:
                normal = (new[n] - fit[n]) / spread
                values[n] = draw_rate(y, fit[n], tau, base[n], np.float64(values[n]), before[n], u, normal)
        precision[d] = tau
        if prior[0, d] > 0.0:
            precision[d] = noise_stretch(d, problem, base, fit, work, prior, key, np.uint64(STRETCH_COLUMN))


@jit
def _beyond_near(least, key, d, n):
    """A standard normal above ``least``, which is not far out, by rejection of normals; tries after the first."""
    attempt = 0
    while True:
        attempt += 1
        normal = normal_from(word_pair(key, d, n, attempt, 0)[1], key, d, n, attempt + 1)
        if normal > least:
            return normal


@jit
def _beyond_far(least, key, d, n):
    """A standard normal above ``least``, which is far out, by rejection of exponentials (Robert 1995)."""
    rate, attempt = 0.5 * (least + math.sqrt(least * least + 4.0)), 0
    while True:
        attempt += 1
        first, second = word_pair(key, d, n, attempt, 0)
        normal = least - math.log(to_unit(first)) / rate
        if math.log(to_unit(second)) < -0.5 * (normal - rate) ** 2:
            return normal


@jit
def sign_rows(lo, hi, problem, level, key, first):
    """Draw the normal values whose signs are seen as 0 or 1; see ``Kernels.draw_signs``."""
    n_samples = problem.seen.shape[1]
    fit, words = np.empty(n_samples), np.empty((2, first + n_samples), np.uint64)
    for d in range(lo, hi):
        _fit(d, problem, fit)
        fill_words(key, d, words[0], words[1])
        spread = 1.0 / math.sqrt(problem.noise_precision[d])
        for n in range(n_samples):
            if _missing(problem, d, n):
                continue
            side = 1.0 if problem.seen[d, n] > 0.5 else -1.0
            least = -side * (fit[n] + level[d]) / spread
            beyond = normal_from(words[1, first + n], key, d, first + n, 1)
            if beyond <= least:
                beyond = normal_from(words[0, first + n], key, d, first + n, 0)
            if least >= 0.5:
                beyond = _beyond_far(least, key, np.uint64(d), np.uint64(first + n))
            elif beyond <= least:
                beyond = _beyond_near(least, key, np.uint64(d), np.uint64(first + n))
            problem.values[d, n] = fit[n] + side * spread * beyond
