"""Compiled births and deaths of factors that two features share (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math
from typing import NamedTuple

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


class _Book(NamedTuple):
    """The factors of two features, those that died included, and room to work: see ``_open_book``."""

    feature: np.ndarray
    loading: np.ndarray
    scores: np.ndarray
    precision: np.ndarray
    power: np.ndarray
    weight: np.ndarray
    weight_back: np.ndarray


@jit
def _open_book(problem, residual, scores, attempts):
    """Features and loadings (n, 2), scores (n, N) and slab precisions (n,), with room for one more per attempt.

    Beside them the residuals' sums of squares (D,), and the features' weights as partners, from either side.
    """
    (n_features, n), had = residual.shape, problem.feature.shape[0]
    size = had + attempts
    power = np.empty(n_features)
    for d in range(n_features):
        power[d] = np.dot(residual[d], residual[d])
    book = _Book(
        np.empty((size, 2), np.int64),
        np.empty((size, 2)),
        np.empty((size, n)),
        np.empty(size),
        power,
        np.empty(n_features),
        np.empty(n_features),
    )
    book.feature[:had], book.loading[:had], book.scores[:had] = problem.feature, problem.loading, scores
    book.precision[:had] = problem.precision
    return book


@jit
def _log_choice(d, e, whole, residual, book):
    """Log probability that a birth takes the features d and e; the weights of d's partners are in the book."""
    whole_back = partner_weights(residual, book.power, e, book.weight_back)
    return math.log((book.weight[e] / whole + book.weight_back[d] / whole_back) / residual.shape[0])


@inline
def _log_place(place, centre, spread):
    """Log density of the proposed place of a correlation, on the scale of its hyperbolic arc tangent."""
    return -0.5 * LOG_2PI - math.log(spread) - 0.5 * ((place - centre) / spread) ** 2


@jit
def _take_part(sign, i, problem, residual, book):
    """Let factor i of the book explain its part of the residuals (−1), or give it back (1)."""
    add_fit(sign, book.feature[i], book.loading[i], book.scores[i], residual, book.power)
    count_slabs(-sign, book.feature[i], book.loading[i], book.precision[i], problem)


@jit
def _birth(attempt, number, last, problem, residual, book, key):
    """Try a new factor beside ``number`` others, as entry ``last`` of the book; returns whether it is there."""
    (n_features, n), variance = residual.shape, problem.noise_variance
    chosen, split = uniform_pair(key, attempt, 1)
    side, accept = uniform_pair(key, attempt, 2)
    d = min(int(uniform_pair(key, attempt, 0)[1] * n_features), n_features - 1)
    whole = partner_weights(residual, book.power, d, book.weight)
    e = pick(book.weight, chosen * whole)
    ends, spread = (variance[d], variance[e]), DOUBLET_SPREAD / math.sqrt(n)
    log_choice, centre = _log_choice(d, e, whole, residual, book), math.atanh(correlation(residual, book.power, d, e))
    place = centre + spread * normal_at(key, attempt, FEATURES)
    rho = math.tanh(place)
    if rho == 0.0 or rho * rho >= 1.0:
        return False
    log_proposal = _log_place(place, centre, spread)
    ratio = log_birth_ratio(residual, d, e, ends, rho, split, log_choice, log_proposal, problem)
    log_square = math.log(rho * rho)
    first, second = math.exp(split * log_square), math.exp((1.0 - split) * log_square)
    new = ends[0] * (1.0 - first), ends[1] * (1.0 - second)
    if min(new) <= problem.least or not math.log(accept) < ratio - math.log(number + 1.0):
        return False
    sign = 1.0 if side < 0.5 else -1.0
    book.feature[last, 0], book.feature[last, 1] = d, e
    book.loading[last, 0] = sign * math.sqrt(first * ends[0])
    book.loading[last, 1] = sign * math.copysign(math.sqrt(second * ends[1]), rho)
    variance[d], variance[e] = new
    scores_of_two(residual, book.feature[last], book.loading[last], new, key, attempt, book.scores[last])
    book.precision[last] = slab_of_two(book.loading[last], new, problem, key, attempt)
    _take_part(-1.0, last, problem, residual, book)
    return True


@jit
def _death(attempt, number, old, problem, residual, book, key):
    """Try to take entry ``old`` of the book, one of ``number``, out; returns whether it is gone."""
    variance, g = problem.noise_variance, book.loading[old]
    d, e = book.feature[old, 0], book.feature[old, 1]
    _take_part(1.0, old, problem, residual, book)
    whole = partner_weights(residual, book.power, d, book.weight)
    ends, spread = (variance[d] + g[0] ** 2, variance[e] + g[1] ** 2), DOUBLET_SPREAD / math.sqrt(residual.shape[1])
    log_choice, centre = _log_choice(d, e, whole, residual, book), math.atanh(correlation(residual, book.power, d, e))
    rho = g[0] * g[1] / math.sqrt(ends[0] * ends[1])
    # what no birth could have made does not die
    if rho != 0.0 and rho * rho < 1.0 and min(variance[d], variance[e]) > problem.least:
        split, log_proposal = (
            math.log(g[0] ** 2 / ends[0]) / math.log(rho * rho),
            _log_place(math.atanh(rho), centre, spread),
        )
        ratio = log_birth_ratio(residual, d, e, ends, rho, split, log_choice, log_proposal, problem)
        if math.log(uniform_pair(key, attempt, 2)[1]) < math.log(number) - ratio:
            variance[d], variance[e] = ends
            return True
    _take_part(-1.0, old, problem, residual, book)
    return False


@jit
def try_doublets(problem, residual, scores, attempts, key):
    """Births and deaths in turn; see ``Kernels.draw_doublets``."""
    had = problem.feature.shape[0]
    book = _open_book(problem, residual, scores, attempts)
    alive, number, last, accepted = np.arange(had + attempts), had, had, 0
    for attempt in range(attempts):
        coin, u = uniform_pair(key, attempt, 0)
        if coin < 0.5:
            if _birth(attempt, number, last, problem, residual, book, key):
                alive[number] = last
                number, last, accepted = number + 1, last + 1, accepted + 1
        elif number:
            at = min(int(u * number), number - 1)
            if _death(attempt, number, alive[at], problem, residual, book, key):
                number, accepted = number - 1, accepted + 1
                alive[at] = alive[number]
    lives = np.zeros(last, np.bool_)
    for i in range(number):
        lives[alive[i]] = True
    new = had + np.flatnonzero(lives[had:])
    return lives[:had], book.feature[new], book.loading[new], book.precision[new], accepted, book.scores[new]
