"""Compiled draws that take the log rates behind counts along, their errors held (docs/model.md).

Every step costs exponentials of a feature's or a sample's entries, in loops that vectorise.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import (
    fast_exp,
    fill_words,
    gamma_draw,
    inline,
    jit,
    normal_from,
    solve_transposed,
    sum_of,
    uniform_pair,
)
from nsfa.kernels.latent_kernels import is_missing
from nsfa.kernels.streams import ACCEPT, CARRIED_WIDTH, MOST_SHRINKS

# Samples whose entries are brought next to each other at a time.
_LANES = 16


@jit
def _nothing_where_missing(problem, d, out):
    if problem.missing.shape[0] > 0:
        for n in range(out.shape[0]):
            if problem.missing[d, n]:
                out[n] = 0.0


@jit
def _rates_of_feature(problem, d, level, exposure, out):
    """What is expected of feature d's counts, zero where nothing was seen; returns its sum."""
    values = problem.values[d]
    for n in range(np.uint64(out.shape[0])):
        out[n] = fast_exp(values[n] + (level[d] + exposure[n]))
    _nothing_where_missing(problem, d, out)
    return sum_of(out)


@jit
def _add_to_feature(problem, d, by):
    """Values of feature d go up, where something was seen; overwrites ``by``."""
    _nothing_where_missing(problem, d, by)
    values = problem.values[d]
    for n in range(np.uint64(by.shape[0])):
        values[n] += by[n]


@jit
def intercept_rows(lo, hi, problem, level, exposure, key, out):
    """Draw features' means and move their log rates with them; see ``Kernels.carry_intercepts``."""
    rate = np.empty(problem.seen.shape[1])
    for d in range(lo, hi):
        expected = _rates_of_feature(problem, d, level, exposure, rate)
        rate[:] = problem.seen[d]
        _nothing_where_missing(problem, d, rate)
        total = sum_of(rate)
        by = math.log(gamma_draw(total, key, d, 0) / expected) if total > 0.0 else 0.0
        out[d] = problem.intercept[d] + by
        rate[:] = by
        _add_to_feature(problem, d, rate)


@inline
def _expected(by, rate, scale, work):
    """Σ r e^(scale · by)."""
    for i in range(np.uint64(by.shape[0])):
        work[i] = rate[i] * fast_exp(scale * by[i])
    return sum_of(work)


@jit
def _root(matrix, size):
    """Overwrite the lower half of a positive definite matrix's first rows and columns with its Cholesky root."""
    for i in range(size):
        for j in range(i + 1):
            value = matrix[i, j]
            for k in range(j):
                value -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = math.sqrt(value) if i == j else value / matrix[j, j]


@jit
def _on_line(line, rate, work, slope, curve, expected, width, key, d):
    """The slice step of ``reference_carried._slice`` along a feature's line."""
    u, v = uniform_pair(key, d, ACCEPT)
    least, low, high = math.log(u) - expected, -width * v, width * (1.0 - v)
    for column in range(1, MOST_SHRINKS):
        t = low + (high - low) * uniform_pair(key, d, ACCEPT + column)[0]
        if t * slope - 0.5 * t * t * curve - _expected(line, rate, t, work) > least:
            return t
        if t < 0.0:
            low = t
        else:
            high = t
    return 0.0


@jit
def _direction(d, own, size, precision, information, scale, key, root, words, out):
    """A direction for feature d's loadings of the factors ``own``, and the length of its normals."""
    for i in range(size):
        for j in range(i + 1):
            root[i, j] = scale * information[own[i], own[j]]
        root[i, i] += precision[d, own[i]]
    _root(root, size)
    pairs = (size + 1) // 2
    fill_words(key, np.uint64(d), words[0, :pairs], words[1, :pairs])
    length = 0.0
    for i in range(size):
        out[i] = normal_from(words[i % 2, i // 2], key, d, i // 2, i % 2)
        length += out[i] * out[i]
    solve_transposed(root[:size, :size], out[:size])
    return math.sqrt(length)


@jit
def loading_rows(lo, hi, problem, precision, level, exposure, information, key, out):
    """Draw features' loadings along a line and move their log rates with them; see ``Kernels.carry_loadings``."""
    n_factors, n_samples = problem.scores.shape
    own, direction, root = np.empty(n_factors, np.int64), np.empty(n_factors), np.empty((n_factors, n_factors))
    words = np.empty((2, n_factors // 2 + 1), np.uint64)
    rate, line, work = np.empty(n_samples), np.empty(n_samples), np.empty(n_samples)
    for d in range(lo, hi):
        size = 0
        for k in range(n_factors):
            if out[d, k] != 0.0:
                own[size] = k
                size += 1
        if size == 0:
            continue
        scale = math.exp(level[d])
        length = _direction(d, own, size, precision, information, scale, key, root, words, direction)
        line[:] = 0.0
        slope = curve = 0.0
        for i in range(size):
            v, p, scores = direction[i], precision[d, own[i]], problem.scores[own[i]]
            slope -= p * v * out[d, own[i]]
            curve += p * v * v
            for n in range(np.uint64(n_samples)):
                line[n] += v * scores[n]
        expected = _rates_of_feature(problem, d, level, exposure, rate)
        counts = problem.seen[d]
        for n in range(np.uint64(n_samples)):
            work[n] = counts[n] * line[n]
        _nothing_where_missing(problem, d, work)
        slope += sum_of(work)
        t = _on_line(line, rate, work, slope, curve, expected, CARRIED_WIDTH / length, key, d)
        for i in range(size):
            out[d, own[i]] += t * direction[i]
        for n in range(np.uint64(n_samples)):
            line[n] *= t
        _add_to_feature(problem, d, line)


@inline
def _by(angle, here, there, out):
    """By how much log rates go up at an angle of the ellipse."""
    c, s = math.cos(angle) - 1.0, math.sin(angle)
    for i in range(np.uint64(out.shape[0])):
        out[i] = c * here[i] + s * there[i]


@jit
def _gain_on_ellipse(angle, here, there, rate, work, slopes):
    """Log likelihood at an angle less that at 0, but for the sum of the rates at 0."""
    _by(angle, here, there, work)
    gain = (math.cos(angle) - 1.0) * slopes[0] + math.sin(angle) * slopes[1]
    return gain - _expected(work, rate, 1.0, work)


@jit
def _on_ellipse(here, there, rate, work, slopes, expected, width, key, row):
    """The same along a sample's ellipse: an angle."""
    u, v = uniform_pair(key, row, ACCEPT)
    least, low, high = math.log(u) - expected, -width * v, width * (1.0 - v)
    for column in range(1, MOST_SHRINKS):
        t = low + (high - low) * uniform_pair(key, row, ACCEPT + column)[0]
        if _gain_on_ellipse(t, here, there, rate, work, slopes) > least:
            return t
        if t < 0.0:
            low = t
        else:
            high = t
    return 0.0


@jit
def _gather(problem, users, first, level, exposure, rates, counts):
    """Rates and counts of the features ``users``, for the samples from ``first`` on (lanes, users)."""
    lanes = min(rates.shape[0], problem.seen.shape[1] - first)
    for i in range(users.shape[0]):
        d = users[i]
        for b in range(lanes):
            n = first + b
            rates[b, i] = problem.values[d, n] + (level[d] + exposure[n])
            counts[b, i] = problem.seen[d, n]
    for b in range(lanes):
        rate = rates[b]
        for i in range(np.uint64(users.shape[0])):
            rate[i] = fast_exp(rate[i])
    if problem.missing.shape[0] > 0:
        for i in range(users.shape[0]):
            for b in range(lanes):
                if problem.missing[users[i], first + b]:
                    rates[b, i], counts[b, i] = 0.0, 0.0
    return lanes


@jit
def _fits(users, loadings, x, ahead, here, there):
    """What loadings make of a sample's scores, and of the point that spans the ellipse with them."""
    for i in range(users.shape[0]):
        a = b = 0.0
        for k in range(x.shape[0]):
            g = loadings[users[i], k]
            if g != 0.0:
                a += g * x[k]
                b += g * ahead[k]
        here[i], there[i] = a, b


@jit
def _slopes(counts, here, there):
    """Products of the counts with both."""
    a = b = 0.0
    for i in range(counts.shape[0]):
        a += counts[i] * here[i]
        b += counts[i] * there[i]
    return a, b


@jit
def _width(usual, share, here, there):
    """How wide a slice of angles is where rates are ``share`` times usual ones; the same all along the ellipse."""
    curve = 0.0
    for i in range(usual.shape[0]):
        curve += usual[i] * (here[i] * here[i] + there[i] * there[i])
    return min(CARRIED_WIDTH / math.sqrt(0.5 * share * curve), 2.0 * math.pi)


@jit
def score_rows(lo, hi, problem, users, level, exposure, ahead, key, numbers, out):
    """Draw samples' scores (N, K) and move their log rates with them; see ``Kernels.carry_scores``."""
    size = users.shape[0]
    rates, counts, moved = np.empty((_LANES, size)), np.empty((_LANES, size)), np.empty((_LANES, size))
    here, there, work, usual = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for i in range(size):
        usual[i] = math.exp(level[users[i]])
    for first in range(lo, hi, _LANES):
        lanes = min(_gather(problem, users, first, level, exposure, rates, counts), hi - first)
        for b in range(lanes):
            n, rate = first + b, rates[b]
            x = out[n]
            _fits(users, problem.loadings, x, ahead[n], here, there)
            slopes = _slopes(counts[b], here, there)
            width = _width(usual, math.exp(exposure[n]), here, there)
            angle = _on_ellipse(here, there, rate, work, slopes, sum_of(rate), width, key, numbers[n])
            _by(angle, here, there, moved[b])
            c, s = math.cos(angle), math.sin(angle)
            for k in range(x.shape[0]):
                x[k] = c * x[k] + s * ahead[n, k]
        for i in range(size):
            for b in range(lanes):
                if not is_missing(problem, users[i], first + b):
                    problem.values[users[i], first + b] += moved[b, i]
