"""Compiled loop over pairs of factors: scores of one tilted towards the other's (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import inline, jit, normal_at, rough_exp, uniform_pair
from nsfa.kernels.streams import FEATURES, TILT_BISECTIONS, TILT_ROUNDS, TILT_WEIGHTS

_LOG_WEIGHTS = tuple(math.log(w) for w in TILT_WEIGHTS)


@inline
def _on_and_off(c, i, work):
    """Log weights, at tilt c, of loading i being in use (its value integrated out) and of it being zero."""
    miss = work[0, i] - c * work[1, i]
    half = 0.5 * miss * miss
    return work[4, i] - work[3, i] * half, -work[2, i] * half


@jit
def log_tilt(c, n, power, kept, work):
    """Log density of the tilt c, loadings and pattern summed out; loading number ``kept`` cannot be zero."""
    total, product = -0.5 * power * c * c, 1.0
    for i in range(n):
        on, off = _on_and_off(c, i, work)
        if i == kept:
            total += on
        else:
            # logs of many numbers between 1 and 2: one log of their product
            total += max(on, off)
            product *= 1.0 + math.exp(-abs(on - off))
            if product > 1e200:
                total, product = total + math.log(product), 1.0
    return total + math.log(product)


@jit
def middle_tilt(n, work):
    """Weighted median of h/g_k, the tilts at which single loadings vanish, by bisection: most do there, if most can."""
    low, high, total = np.inf, -np.inf, 0.0
    for i in range(n):
        low, high = min(low, work[6, i]), max(high, work[6, i])
        total += work[7, i]
    if n == 0:
        return 0.0
    for _ in range(TILT_BISECTIONS):
        middle, below = 0.5 * (low + high), 0.0
        for i in range(np.uint64(n)):
            below += work[7, i] if work[6, i] <= middle else 0.0
        if 2.0 * below >= total:
            high = middle
        else:
            low = middle
    return high


@jit
def tilt_mode(centre, rounds, n, power, kept, work):
    """Centre and precision of a normal near the mode that reweighted least squares from ``centre`` find."""
    precision = power
    for _ in range(rounds):
        for i in range(np.uint64(n)):
            miss = work[0, i] - centre * work[1, i]
            x = work[4, i] + 0.5 * (work[2, i] - work[3, i]) * miss * miss
            work[8, i] = (work[3, i] + (work[2, i] - work[3, i]) / (1.0 + rough_exp(x))) * work[1, i]
        if kept >= 0:
            work[8, kept] = work[3, kept] * work[1, kept]
        precision, total = power, 0.0
        for i in range(np.uint64(n)):
            precision += work[8, i] * work[1, i]
            total += work[8, i] * work[0, i]
        centre = total / precision
    return centre, precision


@inline
def _log_proposal(c, modes):
    """Log density of the mixture of normals that proposes tilts."""
    top, total = -np.inf, 0.0
    for m in range(3):
        part = _LOG_WEIGHTS[m] + 0.5 * math.log(modes[m, 1]) - 0.5 * modes[m, 1] * (c - modes[m, 0]) ** 2
        if part > top:
            total, top = total * math.exp(top - part) + 1.0, part
        else:
            total += math.exp(part - top)
    return top + math.log(total)


@jit
def _gather(k, j, problem, excess, rows, work):
    """Features of factor k: h, g_k, precision of a zero, of a loading in use, log odds, ...; which is j's anchor; c."""
    step = min(1, problem.loading_precision.shape[0] - 1)
    power, n, kept = problem.gram[j, j], 0, -1
    tilt = problem.gram[k, j] / power
    for d in range(problem.loadings.shape[0]):
        if problem.active[d, k]:
            slab, g, a = (
                problem.loading_precision[d * step, j],
                problem.loadings[d, k],
                problem.noise_precision[d] * power,
            )
            rows[n] = d
            work[0, n] = excess[d, j] / power + problem.loadings[d, j] + tilt * g
            work[1, n], work[2, n], work[3, n] = g, a, a * slab / (a + slab)
            work[4, n] = problem.logit[j] + 0.5 * math.log(slab / (slab + a))
            work[5, n] = slab
            work[6, n], work[7, n] = work[0, n] / g, math.sqrt(a) * abs(g)
            if problem.anchor[j] == d:
                kept = n
            n += 1
    return n, kept, tilt


@jit
def _redraw(p, j, tilt, change, n, kept, problem, excess, rows, work, key):
    """Pattern and loadings of factor j on the gathered features, given the tilt; ``excess`` is brought up to date."""
    gram, loadings, active = problem.gram, problem.loadings, problem.active
    for i in range(n):
        d = rows[i]
        on, off = _on_and_off(tilt, i, work)
        position = FEATURES + d
        used = i == kept or uniform_pair(key, p, position)[0] * (1.0 + math.exp(min(off - on, 700.0))) < 1.0
        new = 0.0
        if used:
            precision = work[2, i] + work[5, i]
            miss = work[0, i] - tilt * work[1, i]
            new = work[2, i] * miss / precision + normal_at(key, p, position) / math.sqrt(precision)
        more = change * work[1, i] + new - loadings[d, j]
        problem.usage[j] += int(used) - int(active[d, j])
        active[d, j], loadings[d, j] = used, new
        if more != 0.0:
            for t in range(np.uint64(gram.shape[0])):
                excess[d, t] -= more * gram[j, t]


@jit
def _shift(k, j, change, problem, excess):
    """x_k → x_k + change · x_j in the scores and in everything computed from them."""
    gram, cross, scores = problem.gram, problem.cross, problem.scores
    for d in range(cross.shape[0]):
        excess[d, k] += change * excess[d, j]
        cross[d, k] += change * cross[d, j]
    for n in range(scores.shape[0]):
        scores[n, k] += change * scores[n, j]
    for t in range(gram.shape[0]):
        gram[k, t] += change * gram[j, t]
    gram[k, k] += change * gram[k, j]
    for t in range(gram.shape[0]):
        gram[t, k] = gram[k, t]


@jit
def tilt_pairs(problem, excess, pairs, key):
    """Try the ordered ``pairs`` one after another; returns how many tilts were accepted.

    ``excess`` is (Y − G Xᵀ) X, kept up to date.
    """
    n_features = problem.loadings.shape[0]
    rows, work, modes = np.empty(n_features, np.int64), np.empty((9, n_features)), np.empty((3, 2))
    accepted = 0
    for p in range(pairs.shape[0]):
        k, j = pairs[p, 0], pairs[p, 1]
        n, kept, tilt = _gather(k, j, problem, excess, rows, work)
        power, new = problem.gram[j, j], tilt
        wide, total = power, 0.0
        for i in range(n):
            wide += work[3, i] * work[1, i] * work[1, i]
            total += work[3, i] * work[1, i] * work[0, i]
        # all loadings in use, the mode near that, and the one with most of them off: none depends on the present tilt
        modes[0, 0], modes[0, 1] = total / wide, wide
        modes[1, 0], modes[1, 1] = tilt_mode(modes[0, 0], TILT_ROUNDS, n, power, kept, work)
        modes[2, 0], modes[2, 1] = tilt_mode(middle_tilt(n, work), TILT_ROUNDS, n, power, kept, work)
        which, accept = uniform_pair(key, p, 1)
        m = 0 if which < TILT_WEIGHTS[0] else 1 if which < TILT_WEIGHTS[0] + TILT_WEIGHTS[1] else 2
        proposal = modes[m, 0] + normal_at(key, p, 2) / math.sqrt(modes[m, 1])
        ratio = log_tilt(proposal, n, power, kept, work) - log_tilt(tilt, n, power, kept, work)
        ratio += _log_proposal(tilt, modes) - _log_proposal(proposal, modes)
        if math.log(accept) < ratio:
            new = proposal
            accepted += 1
        _redraw(p, j, new, new - tilt, n, kept, problem, excess, rows, work, key)
        if new != tilt:
            _shift(k, j, new - tilt, problem, excess)
    return accepted
