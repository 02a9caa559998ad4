"""Compiled births and deaths of factors that two features share (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import gamma_draw, inline, jit, normal_at, uniform_pair
from nsfa.kernels.streams import DOUBLET_SPREAD, FEATURES, LARGEST_CORRELATION, SLAB

LOG_2PI = math.log(2.0 * math.pi)


@jit
def partner_weights(residual, power, d, out):
    """Write the features' weights as partners of feature d, by their residuals' correlation; returns the sum."""
    product = np.dot(residual, residual[d])
    n, total = residual.shape[1], 0.0
    for e in range(out.shape[0]):
        square = product[e] * product[e] / max(power[d] * power[e], 1e-300)
        weight = 1.0 + 0.25 * n * square
        weight *= weight
        out[e] = weight * weight
        total += out[e]
    total -= out[d]
    out[d] = 0.0
    return total


@inline
def log_slab(first, second, slab):
    """Log density of two loadings of one factor, on its scale, its precision integrated out unless slab[0] is 0."""
    square = first * first + second * second
    if slab[0] == 0.0:
        return math.log(slab[1]) - LOG_2PI - 0.5 * slab[1] * square
    # Γ(c + 1)/Γ(c) = c
    return (
        math.log(slab[0]) - LOG_2PI + slab[0] * math.log(slab[1]) - (slab[0] + 1.0) * math.log(slab[1] + 0.5 * square)
    )


@inline
def log_noise_ratio(variance, share, shape, rate):
    """Log p(ψ (1 − u)) − log p(ψ) of a noise variance that gives the share u away."""
    return -(shape + 1.0) * math.log1p(-share) - rate / variance * share / (1.0 - share)


@inline
def log_birth_ratio(residual, d, e, variance, rho, split, log_choice, log_proposal, problem):
    """Log acceptance ratio of a new factor on features d and e, but for the number of those there are.

    ``variance`` are their noise variances without it, ``rho`` the correlation it brings, to which they give the shares
    |ρ|^{2v} and |ρ|^{2(1−v)}, v = ``split``.
    """
    n, a, b, c = residual.shape[1], 0.0, 0.0, 0.0
    for i in range(n):
        a += residual[d, i] * residual[d, i]
        b += residual[e, i] * residual[e, i]
        c += residual[d, i] * residual[e, i]
    both = math.sqrt(variance[0] * variance[1])
    a, b, c = a / variance[0], b / variance[1], c / both
    left = 1.0 - rho * rho
    likelihood = -0.5 * n * math.log(left) + 0.5 * (a + b) - 0.5 * (a + b - 2.0 * rho * c) / left
    log_square = math.log(rho * rho)
    first, second = math.exp(split * log_square), math.exp((1.0 - split) * log_square)
    shape, rate = problem.noise_prior
    unit = 1.0, 1.0
    if problem.relative:
        unit = variance[0] * (1.0 - first), variance[1] * (1.0 - second)
    sizes = math.sqrt(first * variance[0] / unit[0]), math.sqrt(second * variance[1] / unit[1])
    prior = log_slab(sizes[0], sizes[1], problem.slab) - 0.5 * math.log(unit[0] * unit[1]) + problem.log_rate
    prior += log_noise_ratio(variance[0], first, shape[d], rate[d])
    prior += log_noise_ratio(variance[1], second, shape[e], rate[e])
    # (v, atanh ρ, ψ, ψ) → (g, g, ψ′, ψ′); the sign of the first loading is even
    jacobian = math.log(-log_square * both * left)
    return likelihood + prior + jacobian - log_choice - log_proposal


@inline
def correlation(residual, power, d, e):
    """The residuals' correlation, away from ±1."""
    rho = np.dot(residual[d], residual[e]) / math.sqrt(max(power[d] * power[e], 1e-300))
    return min(max(rho, -LARGEST_CORRELATION), LARGEST_CORRELATION)


@jit
def add_fit(sign, feature, loading, scores, residual, power):
    """Add ``sign`` times a factor's fit to the residuals of its two features, and bring their ``power`` up to date."""
    for end in range(2):
        d = feature[end]
        for i in range(scores.shape[0]):
            residual[d, i] += sign * loading[end] * scores[i]
        power[d] = np.dot(residual[d], residual[d])


@jit
def count_slabs(sign, feature, loading, precision, problem):
    """Add a factor's relative slabs, or take them away, where they bear on its two features' noise."""
    if problem.relative:
        for end in range(2):
            problem.noise_prior[0, feature[end]] += 0.5 * sign
            problem.noise_prior[1, feature[end]] += 0.5 * sign * precision * loading[end] * loading[end]


@jit
def slab_of_two(loading, variance, problem, key, attempt):
    """Draw the slab precision of a new factor given its two loadings and its features' noise variances with it."""
    shape, rate = problem.slab
    if shape == 0.0:
        return rate
    square = 0.0
    for end in range(2):
        square += loading[end] * loading[end] / (variance[end] if problem.relative else 1.0)
    return gamma_draw(shape + 1.0, key, attempt, SLAB) / (rate + 0.5 * square)


@jit
def pick(weight, target):
    """The first position at which the running sum of weights passes ``target``, the last positive one at most."""
    at = 0
    for e in range(weight.shape[0]):
        if weight[e] > 0.0:
            at = e
            if target <= weight[e]:
                break
            target -= weight[e]
    return at


@jit
def scores_of_two(residual, feature, loading, variance, key, attempt, out):
    """Draw the scores of a new factor, given its two features' residuals without it and noise variances with it."""
    d, e = feature[0], feature[1]
    pull = loading[0] / variance[0], loading[1] / variance[1]
    precision = 1.0 + pull[0] * loading[0] + pull[1] * loading[1]
    for i in range(out.shape[0]):
        mean = (pull[0] * residual[d, i] + pull[1] * residual[e, i]) / precision
        out[i] = mean + normal_at(key, attempt, FEATURES + 1 + i) / math.sqrt(precision)


@jit
def try_doublets(problem, attempts, key):
    """Births and deaths in turn; see ``Kernels.draw_doublets``."""
    residual, variance = problem.residual, problem.noise_variance
    n_features, n = residual.shape
    had = problem.feature.shape[0]
    feature, loading = np.empty((had + attempts, 2), np.int64), np.empty((had + attempts, 2))
    scores, alive = np.empty((had + attempts, n)), np.empty(had + attempts, np.int64)
    feature[:had], loading[:had], scores[:had] = problem.feature, problem.loading, problem.scores
    precision = np.empty(had + attempts)
    precision[:had] = problem.precision
    number, total = had, had
    for i in range(had):
        alive[i] = i
    power = np.empty(n_features)
    for d in range(n_features):
        power[d] = np.dot(residual[d], residual[d])
    weight, weight_back = np.empty(n_features), np.empty(n_features)
    spread = DOUBLET_SPREAD / math.sqrt(n)
    ends = np.empty(2)
    for attempt in range(attempts):
        coin, u = uniform_pair(key, attempt, 0)
        chosen, split = uniform_pair(key, attempt, 1)
        side, accept = uniform_pair(key, attempt, 2)
        born = coin < 0.5
        if not born and number == 0:
            continue
        at, old = 0, 0
        if born:
            d = min(int(u * n_features), n_features - 1)
            whole = partner_weights(residual, power, d, weight)
            e = pick(weight, chosen * whole)
            ends[0], ends[1] = variance[d], variance[e]
        else:
            at = min(int(u * number), number - 1)
            old = alive[at]
            d, e = feature[old, 0], feature[old, 1]
            add_fit(1.0, feature[old], loading[old], scores[old], residual, power)
            count_slabs(-1.0, feature[old], loading[old], precision[old], problem)
            whole = partner_weights(residual, power, d, weight)
            ends[0], ends[1] = variance[d] + loading[old, 0] ** 2, variance[e] + loading[old, 1] ** 2
        whole_back = partner_weights(residual, power, e, weight_back)
        log_choice = math.log((weight[e] / whole + weight_back[d] / whole_back) / n_features)
        centre = math.atanh(correlation(residual, power, d, e))
        if born:
            place = centre + spread * normal_at(key, attempt, FEATURES)
            rho = math.tanh(place)
        else:
            rho = loading[old, 0] * loading[old, 1] / math.sqrt(ends[0] * ends[1])
            place = math.atanh(rho)
            split = math.log(loading[old, 0] ** 2 / ends[0]) / math.log(rho * rho)
        log_proposal = -0.5 * LOG_2PI - math.log(spread) - 0.5 * ((place - centre) / spread) ** 2
        ratio, possible = -math.inf, rho != 0.0 and rho * rho < 1.0
        if not born:
            # what no birth could have made does not die
            possible = possible and min(variance[d], variance[e]) > problem.least
        if possible:
            ratio = log_birth_ratio(residual, d, e, ends, rho, split, log_choice, log_proposal, problem)
        if born:
            log_square = math.log(rho * rho) if rho != 0.0 else -math.inf
            first, second = math.exp(split * log_square), math.exp((1.0 - split) * log_square)
            new = ends[0] * (1.0 - first), ends[1] * (1.0 - second)
            if min(new) <= problem.least or not math.log(accept) < ratio - math.log(number + 1.0):
                continue
            sign = 1.0 if side < 0.5 else -1.0
            loading[total, 0] = sign * math.sqrt(first * ends[0])
            loading[total, 1] = sign * math.copysign(math.sqrt(second * ends[1]), rho)
            feature[total, 0], feature[total, 1] = d, e
            variance[d], variance[e] = new
            scores_of_two(residual, feature[total], loading[total], new, key, attempt, scores[total])
            precision[total] = slab_of_two(loading[total], new, problem, key, attempt)
            alive[number] = total
            number, total, at = number + 1, total + 1, number
        elif possible and math.log(accept) < math.log(number) - ratio:
            variance[d], variance[e] = ends[0], ends[1]
            number -= 1
            alive[at] = alive[number]
            continue
        old = alive[at]
        add_fit(-1.0, feature[old], loading[old], scores[old], residual, power)
        count_slabs(1.0, feature[old], loading[old], precision[old], problem)
    lives = np.zeros(total, np.bool_)
    for i in range(number):
        lives[alive[i]] = True
    new_ones = had + np.flatnonzero(lives[had:])
    return lives[:had], feature[new_ones], loading[new_ones], scores[new_ones], precision[new_ones]
