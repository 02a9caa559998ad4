"""Compiled draws of outliers, and of the normals behind zeros and ones (docs/model.md).

Entry by entry, feature after feature: each entry's numbers are keyed by its feature and its sample, so that it does not
matter who draws it.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import fill_words_at, gamma_draw, inline, jit, normal_from, to_unit, word_pair
from nsfa.kernels.streams import FAR, STRETCH_COLUMN


@jit
def fit_row(d, problem, out):
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
def is_missing(problem, d, n):
    """Whether there is nothing to see of a value."""
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
def _errors(d, problem, fit, ceiling, words, size, doubt):
    """Squared errors of feature d in noise units, and by how much each one's uniform is below what bounds it.

    ``ceiling`` (B, N) bounds the probability of an outlier whose squared error, in noise units, is in [b, b + 1). Zero
    and negative where an entry is missing; returns the number of the others.
    """
    tau, seen, last = problem.noise_precision[d], problem.seen[d], ceiling.shape[0] - 1.0
    n_samples = np.uint64(fit.shape[0])
    for n in range(n_samples):
        error = np.float64(seen[n]) - fit[n]
        size[n] = error * error * tau
    for n in range(n_samples):
        doubt[n] = ceiling[np.uint64(min(size[n], last)), n] - to_unit(words[n])
    count = fit.shape[0]
    if problem.missing.shape[0] > 0:
        for n in range(n_samples):
            if problem.missing[d, n]:
                size[n], doubt[n] = 0.0, -1.0
                count -= 1
    return count


@jit
def _find_outliers(size, doubt, shares, scales, words, kinds, which):
    """Which entries of a feature are outliers and of which kind; returns how many, and Σ size/(1 + v_j) of all.

    Sizes of outliers are set to zero.
    """
    found, square = 0, 0.0
    for n in range(np.uint64(size.shape[0])):
        if doubt[n] > 0.0:
            j = outlier_scale(size[n], shares[n], scales, to_unit(words[n]))
            if j > 0:
                kinds[found], which[found] = j, n
                found += 1
                square += size[n] / (1.0 + scales[j])
                size[n] = 0.0
    # four sums at a time: one would wait for itself
    sums, whole = (0.0, 0.0, 0.0, 0.0), size.shape[0] // 4 * 4
    for n in range(0, whole, 4):
        sums = sums[0] + size[n], sums[1] + size[n + 1], sums[2] + size[n + 2], sums[3] + size[n + 3]
    for n in range(whole, size.shape[0]):
        square += size[n]
    return found, square + (sums[0] + sums[1]) + (sums[2] + sums[3])


@jit
def outlier_rows(lo, hi, problem, shares, scales, ceiling, prior, largest, key, numbers, weight, precision):
    """Draw outliers, the noise and deviations, which values are then without; see ``Kernels.draw_outliers``."""
    n_samples = problem.seen.shape[1]
    fit, size, doubt = np.empty(n_samples), np.empty(n_samples), np.empty(n_samples)
    kinds, which = np.empty(n_samples, np.int64), np.empty(n_samples, np.int64)
    words, number = np.empty((2, n_samples), np.uint64), np.zeros(shares.shape)
    for d in range(lo, hi):
        fit_row(d, problem, fit)
        fill_words_at(key, d, numbers, words[0], words[1])
        count = _errors(d, problem, fit, ceiling, words[0], size, doubt)
        found, square = _find_outliers(size, doubt, shares, scales, words[0], kinds, which)
        precision[d] = problem.noise_precision[d]
        if prior[0, d] > 0.0:
            shape, rate = prior[0, d] + 0.5 * count, prior[1, d] + 0.5 * square / problem.noise_precision[d]
            precision[d] = min(gamma_draw(shape, key, d, STRETCH_COLUMN) / rate, largest)
        problem.values[d] = problem.seen[d]
        power = 0.0
        for i in range(found):
            j, n = kinds[i], which[i]
            share, y = scales[j] / (1.0 + scales[j]), np.float64(problem.seen[d, n])
            normal = normal_from(words[1, n], key, d, numbers[n], 1)
            deviation = share * (y - fit[n]) + math.sqrt(share / precision[d]) * normal
            problem.values[d, n] = y - deviation
            number[n, j] += 1.0
            power += deviation * deviation / scales[j]
        weight[0, d], weight[1, d] = found, power
    _count_ordinary(lo, hi, problem, number)
    return number


@jit
def _count_ordinary(lo, hi, problem, number):
    """Write how many entries of each sample are not outliers, in features lo to hi, beside the numbers of outliers."""
    for n in range(number.shape[0]):
        number[n, 0] = hi - lo - number[n, 1:].sum()
    if problem.missing.shape[0] > 0:
        for d in range(lo, hi):
            for n in range(number.shape[0]):
                number[n, 0] -= problem.missing[d, n]


@jit
def _beyond_near(least, first, second, key, d, n):
    """A standard normal above ``least``, which is not far out, by rejection of normals; above 0 their sign is free."""
    attempt = 0
    while True:
        for half in range(2):
            normal = normal_from(second if half == 0 else first, key, d, n, 2 * attempt + 1 + half)
            normal = normal if least < 0.0 else abs(normal)
            if normal > least:
                return normal
        attempt += 1
        first, second = word_pair(key, d, n, attempt, 0)


@jit
def _beyond_far(least, first, second, key, d, n):
    """A standard normal above ``least``, which is far out, by rejection of exponentials (Robert 1995)."""
    rate, attempt = 0.5 * (least + math.sqrt(least * least + 4.0)), 0
    while True:
        normal = least - math.log(to_unit(first)) / rate
        if math.log(to_unit(second)) < -0.5 * (normal - rate) ** 2:
            return normal
        attempt += 1
        first, second = word_pair(key, d, n, attempt, 0)


@jit
def sign_rows(lo, hi, problem, level, key, numbers):
    """Draw the normal values whose signs are seen as 0 or 1; see ``Kernels.draw_signs``."""
    n_samples = problem.seen.shape[1]
    fit, words = np.empty(n_samples), np.empty((2, n_samples), np.uint64)
    for d in range(lo, hi):
        fit_row(d, problem, fit)
        fill_words_at(key, d, numbers, words[0], words[1])
        spread = 1.0 / math.sqrt(problem.noise_precision[d])
        for n in range(n_samples):
            if is_missing(problem, d, n):
                continue
            side = 1.0 if problem.seen[d, n] > 0.5 else -1.0
            least = -side * (fit[n] + level[d]) / spread
            # what the first word pair gives at once, for most; the sign is free above 0
            beyond = normal_from(words[1, n], key, d, numbers[n], 1)
            beyond = beyond if least < 0.0 else abs(beyond)
            if least >= FAR or beyond <= least:
                at = words[0, n], words[1, n], key, np.uint64(d), numbers[n]
                beyond = _beyond_far(least, *at) if least >= FAR else _beyond_near(least, *at)
            problem.values[d, n] = fit[n] + side * spread * beyond
