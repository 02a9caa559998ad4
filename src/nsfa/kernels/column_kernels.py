"""Compiled draws of whole columns, loadings summed out of the factor's odds and slab precision (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import fast_exp, inline, jit, normal_at, uniform_pair
from nsfa.kernels.streams import (
    COLUMN_WIDTH,
    EXTRA,
    FEW_ODDS,
    LEAST_ODDS,
    LOG_SUM,
    MOST_BAYES,
    MOST_LOG_SLAB,
    MOST_ODDS,
    MOST_SHRINKS,
)

# Rows of the work space, a column per feature: its product with the scores, half the square of that, the slab's unit,
# what the scores add to its precision, and the Bayes factor of its using the factor.
_SHIFT, _FIT, _UNIT, _POWER, _BAYES, _ROWS = range(6)
_LARGE = math.exp(LOG_SUM)


@jit
def _gather(k, problem, work):
    """What the other factors leave for factor k, feature by feature."""
    gram = problem.gram[k]
    power = gram[k]
    for d in range(work.shape[1]):
        left, tau = problem.cross[d, k] + problem.loadings[d, k] * power, problem.noise_precision[d]
        for j in range(np.uint64(gram.shape[0])):
            left -= problem.loadings[d, j] * gram[j]
        work[_SHIFT, d] = tau * left
        work[_FIT, d] = 0.5 * work[_SHIFT, d] * work[_SHIFT, d]
        work[_UNIT, d] = tau if problem.relative else 1.0
        work[_POWER, d] = tau * power


@jit
def _weigh(k, slab, problem, work):
    """Fill in the Bayes factors; returns the logs of what is cut off those beyond e to ``MOST_BAYES``, summed."""
    known = problem.known[:, k] if k < problem.known.shape[1] else problem.known[:0, 0]
    cut = 0.0
    for d in range(work.shape[1]):
        scaled = slab * work[_UNIT, d]
        variance = 1.0 / (scaled + work[_POWER, d])
        size = work[_FIT, d] * variance + (known[d] if known.shape[0] > 0 else 0.0)
        if size > MOST_BAYES:
            # the square root may be tiny
            size += 0.5 * math.log(scaled * variance)
            cut += max(size - MOST_BAYES, 0.0)
            work[_BAYES, d] = fast_exp(min(size, MOST_BAYES))
        else:
            work[_BAYES, d] = math.sqrt(scaled * variance) * fast_exp(size)
    return cut


@jit
def _log_column(log_odds, cut, pseudo, stickiness, bayes):
    """Log density of the log odds, all loadings summed out; where ``pseudo`` is 0 some feature uses the factor.

    Without ``cut``, which is the same whatever the odds and may be large.
    """
    if not LEAST_ODDS <= log_odds <= MOST_ODDS:
        return -np.inf
    on, off = 1.0 / (1.0 + math.exp(-log_odds)), 1.0 / (1.0 + math.exp(log_odds))
    total, product, number = 0.0, 1.0, 0.0
    for d in range(bayes.shape[0]):
        product *= off + on * bayes[d]
        number += bayes[d]
        if product > _LARGE or product < 1.0 / _LARGE:
            total, product = total + math.log(product), 1.0
    total += math.log(product)
    if pseudo == 0.0:
        # all patterns but the empty one; where that has nearly all, of its complement rounding leaves nothing
        some = cut + total - bayes.shape[0] * math.log(off)
        some = some if some > FEW_ODDS else number * on / off
        total += math.log(-math.expm1(-some))
    return total + pseudo * math.log(on) + stickiness * math.log(off)


@inline
def _log_density(x, of_slab, k, now, problem, work):
    """Log density of the log slab precision, or of the log odds; ``now`` has both, and what ``_weigh`` cut off."""
    if not of_slab:
        return _log_column(x, now[2], problem.pseudo, problem.stickiness, work[_BAYES])
    if abs(x) > MOST_LOG_SLAB:
        return -np.inf
    slab = math.exp(x)
    cut = _weigh(k, slab, problem, work)
    column = _log_column(now[1], cut, problem.pseudo, problem.stickiness, work[_BAYES])
    return problem.shape * x - problem.rate * slab + column + cut


@jit
def _slice(of_slab, p, k, now, problem, work, key):
    """The slice step of ``reference_moves.slice_update``, its ends moved out as far as it takes."""
    first, start = (MOST_SHRINKS, now[0]) if of_slab else (0, now[1])
    u, v = uniform_pair(key, p, first)
    level = _log_density(start, of_slab, k, now, problem, work) + math.log(u)
    low = start - COLUMN_WIDTH * v
    high = low + COLUMN_WIDTH
    while _log_density(low, of_slab, k, now, problem, work) > level:
        low -= COLUMN_WIDTH
    while _log_density(high, of_slab, k, now, problem, work) > level:
        high += COLUMN_WIDTH
    for column in range(1, MOST_SHRINKS):
        x = low + (high - low) * uniform_pair(key, p, first + column)[0]
        if _log_density(x, of_slab, k, now, problem, work) > level:
            return x
        if x < start:
            low = x
        else:
            high = x
    return start


@jit
def _draw(p, k, now, problem, work, key):
    """Pattern and loadings of factor k given its odds and slab precision."""
    odds, slab, m = math.exp(now[1]), math.exp(now[0]), 0
    tail = 0.0
    if problem.pseudo == 0.0:
        for d in range(work.shape[1]):
            tail += math.log1p(odds * work[_BAYES, d])
    for d in range(work.shape[1]):
        weight = odds * work[_BAYES, d]
        chance = weight / (1.0 + weight)
        if problem.pseudo == 0.0 and m == 0:
            # one of those that are left uses it, whatever rounding has left of their weights
            chance = chance / -math.expm1(-tail) if tail > 0.0 and d + 1 < work.shape[1] else 1.0
            tail -= math.log1p(weight)
        used = uniform_pair(key, p, EXTRA + d)[0] < chance
        problem.active[d, k], problem.loadings[d, k] = used, 0.0
        if used:
            m += 1
            precision = slab * work[_UNIT, d] + work[_POWER, d]
            noise = normal_at(key, p, EXTRA + d) / math.sqrt(precision)
            problem.loadings[d, k] = work[_SHIFT, d] / precision + noise
    problem.usage[k] = m


@jit
def draw_columns(problem, factors, log_odds, key):
    """Draw the columns of ``factors`` one after another; see ``Kernels.draw_columns``."""
    work, now = np.empty((_ROWS, problem.loadings.shape[0])), np.empty(3)
    for p in range(factors.shape[0]):
        k = factors[p]
        now[0], now[1] = math.log(problem.loading_precision[k]), log_odds[p]
        # beyond, where nothing can be told apart, the column stays: so the density is that within
        if not (LEAST_ODDS <= now[1] <= MOST_ODDS and abs(now[0]) <= MOST_LOG_SLAB):
            continue
        _gather(k, problem, work)
        now[2] = _weigh(k, problem.loading_precision[k], problem, work)
        now[1] = _slice(False, p, k, now, problem, work, key)
        if problem.shape > 0.0:
            now[0] = _slice(True, p, k, now, problem, work, key)
            problem.loading_precision[k] = math.exp(now[0])
            _weigh(k, problem.loading_precision[k], problem, work)
        _draw(p, k, now, problem, work, key)
