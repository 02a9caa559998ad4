"""Compiled draws of the log rates behind counts (docs/model.md).

A feature's entries go together through loops that vectorise: every one is given a proposal, whatever its count, and
the few that the loops have no formula for are mended in between.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import fast_exp, fill_words_at, jit, normal_from, sum_of, to_unit, word_pair
from nsfa.kernels.latent_kernels import fit_row, is_missing
from nsfa.kernels.streams import EASY_RATE, NEWTON_STEPS, STRETCH_COLUMN, STRETCH_STEP, WIDE_SHARE, WIDER

# Logarithms of small counts.
_SMALL = 64
_LOG = np.log(np.maximum(np.arange(float(_SMALL)), 1.0))


@jit
def _numbers(words, key, d, numbers, normals, uniforms):
    """A normal and a uniform for every entry of feature d."""
    n_samples = np.uint64(normals.shape[0])
    fill_words_at(key, d, numbers, words[0], words[1])
    for n in range(n_samples):
        uniforms[n] = to_unit(words[0, n])
    for n in range(n_samples):
        normals[n] = normal_from(words[1, n], key, d, numbers[n], 1)


@jit
def _starts(counts, mean, tau, easy, out):
    """From where to seek the modes, between what prior and count say, whatever the present log rates.

    f(l) = y l − exp(l) − ½ τ (l − mean)². Of easy zeros, whose prior is proposed, the prior's mean.
    """
    n_samples = np.uint64(out.shape[0])
    for n in range(n_samples):
        y = np.float64(counts[n])
        out[n] = (tau * mean[n] + y * _LOG[np.uint64(min(y, _SMALL - 1.0))]) / (tau + y)
    for n in range(n_samples):
        y = np.float64(counts[n])
        if y >= _SMALL:
            out[n] = (tau * mean[n] + y * math.log(y)) / (tau + y)
        elif y == 0.0 and mean[n] >= easy:
            # where the slope of the prior is about that of the rate
            out[n] = min(mean[n], math.log(1.0 + tau * max(mean[n], 0.0)))


@jit
def _modes(counts, mean, tau, easy, centre, precision):
    """Newton steps towards the modes from ``centre`` on, where they end, and the precisions of proposals there.

    Where a count is zero and hardly one was expected, mean and precision of the prior.
    """
    for n in range(np.uint64(mean.shape[0])):
        y, at, bend = np.float64(counts[n]), centre[n], tau
        for _ in range(NEWTON_STEPS):
            rate = fast_exp(at)
            bend = tau + rate
            at += (y - rate - tau * (at - mean[n])) / bend
        of_prior = (y == 0.0) & (mean[n] < easy)
        centre[n] = mean[n] if of_prior else at
        precision[n] = tau if of_prior else WIDER * bend


@jit
def _widen(tau, uniforms, precision):
    """Some proposals are as wide as the prior; those entries' uniforms, and the others', are uniform again."""
    for n in range(np.uint64(uniforms.shape[0])):
        u = uniforms[n]
        wide = u < WIDE_SHARE
        precision[n] = tau if wide else precision[n]
        uniforms[n] = u / WIDE_SHARE if wide else (u - WIDE_SHARE) / (1.0 - WIDE_SHARE)


@jit
def _propose(now, centre, precision, numbers):
    """Normals (in ``numbers``) become proposals, ``precision`` what is gained by their densities: log q(now)/q(new)."""
    for n in range(np.uint64(now.shape[0])):
        normal, off = numbers[n], now[n] - centre[n]
        numbers[n] = centre[n] + normal / math.sqrt(precision[n])
        precision[n] = 0.5 * (normal * normal - precision[n] * (off * off))


@jit
def _chances(counts, mean, tau, now, new, gain):
    """Chances to take the proposals, in place of what is gained by their densities."""
    for n in range(np.uint64(now.shape[0])):
        to, at = new[n], now[n]
        ratio = gain[n] + np.float64(counts[n]) * (to - at) - fast_exp(to) + fast_exp(at)
        ratio -= 0.5 * tau * ((to - mean[n]) ** 2 - (at - mean[n]) ** 2)
        gain[n] = fast_exp(0.0 if ratio > 0.0 else ratio)


@jit
def _rates(values, base, out):
    """exp(values + base)."""
    for n in range(np.uint64(out.shape[0])):
        out[n] = fast_exp(values[n] + base[n])


@jit
def noise_stretch(d, problem, base, fit, work, prior, key, column):
    """Metropolis step of log ψ_d, values keeping their distances from ``fit`` in units of the noise.

    p(ψ | ·) ∝ ψ^−a e^(−b/ψ) Π_n Poisson(y; exp(fit + √ψ z + base)) on the log scale. What few counts say of the noise
    is far less than what the values say, given which it moves by small steps only.
    """
    tau, (first, second) = problem.noise_precision[d], word_pair(key, d, column, 0, 0)
    step = STRETCH_STEP * normal_from(second, key, d, column, 1)
    by = math.exp(0.5 * step)
    values, new, before, after = problem.values[d], work[0], work[1], work[2]
    for n in range(fit.shape[0]):
        new[n] = fit[n] + by * (values[n] - fit[n])
    _rates(values, base, before)
    _rates(new, base, after)
    counts = problem.seen[d]
    for n in range(np.uint64(fit.shape[0])):
        after[n] = np.float64(counts[n]) * (new[n] - values[n]) + before[n] - after[n]
    if problem.missing.shape[0] > 0:
        for n in range(fit.shape[0]):
            if problem.missing[d, n]:
                after[n] = 0.0
    ratio = sum_of(after) - prior[0, d] * step - prior[1, d] * tau * (math.exp(-step) - 1.0)
    if not to_unit(first) < math.exp(min(ratio, 0.0)):
        return tau
    for n in range(fit.shape[0]):
        if not is_missing(problem, d, n):
            values[n] = new[n]
    return tau * math.exp(-step)


@jit
def rate_rows(lo, hi, problem, level, exposure, prior, key, numbers, precision):
    """Draw the log rates behind counts, and noise precisions with them; see ``Kernels.draw_rates``."""
    n_samples = problem.seen.shape[1]
    fit, base, work = np.empty(n_samples), np.empty(n_samples), np.empty((6, n_samples))
    words = np.empty((2, n_samples), np.uint64)
    mean, now, centre, new, chance, uniforms = work[0], work[1], work[2], work[3], work[4], work[5]
    for d in range(lo, hi):
        fit_row(d, problem, fit)
        _numbers(words, key, d, numbers, new, uniforms)
        tau, counts, values = problem.noise_precision[d], problem.seen[d], problem.values[d]
        easy = EASY_RATE - 0.5 / tau
        for n in range(np.uint64(n_samples)):
            base[n] = level[d] + exposure[n]
            mean[n] = fit[n] + base[n]
            now[n] = values[n] + base[n]
        _starts(counts, mean, tau, easy, centre)
        _modes(counts, mean, tau, easy, centre, chance)
        _widen(tau, uniforms, chance)
        _propose(now, centre, chance, new)
        _chances(counts, mean, tau, now, new, chance)
        for n in range(np.uint64(n_samples)):
            if uniforms[n] < chance[n] and not is_missing(problem, d, n):
                values[n] = new[n] - base[n]
        precision[d] = tau
        if prior[0, d] > 0.0:
            precision[d] = noise_stretch(d, problem, base, fit, work, prior, key, np.uint64(STRETCH_COLUMN))
