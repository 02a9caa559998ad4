"""Compiled loop over pairs of factors: scores of one tilted towards the other's (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import inline, jit, normal_at, rough_exp, uniform_pair
from nsfa.kernels.streams import FEATURES, TILT_BISECTIONS, TILT_ROUNDS, TILT_WEIGHTS

# Rows of the work space, a column per feature of factor k: the loading h that factor j would have without a tilt; g_k;
# the precision in c of a zero, and of a loading in use; log prior odds; j's slab precision; the tilt h/g_k at which the
# loading vanishes, and how much that weighs; the pull of its term in a reweighted fit.
_WISH, _G, _OFF, _ON, _ODDS, _SLAB, _VANISH, _WEIGHT, _PULL, _ROWS = range(10)
_LOG_WEIGHTS = tuple(math.log(w) for w in TILT_WEIGHTS)


@inline
def _on_and_off(c, i, work):
    """Log weights, at tilt c, of loading i being in use (its value integrated out) and of it being zero."""
    miss = work[_WISH, i] - c * work[_G, i]
    half = 0.5 * miss * miss
    return work[_ODDS, i] - work[_ON, i] * half, -work[_OFF, i] * half


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
        low, high = min(low, work[_VANISH, i]), max(high, work[_VANISH, i])
        total += work[_WEIGHT, i]
    if n == 0:
        return 0.0
    for _ in range(TILT_BISECTIONS):
        middle, below = 0.5 * (low + high), 0.0
        for i in range(np.uint64(n)):
            below += work[_WEIGHT, i] if work[_VANISH, i] <= middle else 0.0
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
            miss = work[_WISH, i] - centre * work[_G, i]
            x = work[_ODDS, i] + 0.5 * (work[_OFF, i] - work[_ON, i]) * miss * miss
            work[_PULL, i] = (work[_ON, i] + (work[_OFF, i] - work[_ON, i]) / (1.0 + rough_exp(x))) * work[_G, i]
        if kept >= 0:
            work[_PULL, kept] = work[_ON, kept] * work[_G, kept]
        precision, total = power, 0.0
        for i in range(np.uint64(n)):
            precision += work[_PULL, i] * work[_G, i]
            total += work[_PULL, i] * work[_WISH, i]
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
def _gather(k, j, problem, rows, work):
    """List the features of factor k and fill their work space; returns how many, which is j's anchor, and c."""
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
            work[_WISH, n] = problem.excess[d, j] / power + problem.loadings[d, j] + tilt * g
            work[_G, n], work[_OFF, n], work[_ON, n] = g, a, a * slab / (a + slab)
            known = problem.known[d, j] if j < problem.known.shape[1] else 0.0
            work[_ODDS, n] = problem.logit[j] + known + 0.5 * math.log(slab / (slab + a))
            work[_SLAB, n] = slab
            work[_VANISH, n], work[_WEIGHT, n] = work[_WISH, n] / g, math.sqrt(a) * abs(g)
            if problem.anchor[j] == d:
                kept = n
            n += 1
    return n, kept, tilt


@jit
def _redraw(p, j, tilt, change, n, kept, problem, rows, work, key):
    """Pattern and loadings of factor j on the gathered features, given the tilt; ``excess`` is brought up to date."""
    gram, loadings, active, excess = problem.gram, problem.loadings, problem.active, problem.excess
    for i in range(n):
        d = rows[i]
        on, off = _on_and_off(tilt, i, work)
        position = FEATURES + d
        used = i == kept or uniform_pair(key, p, position)[0] * (1.0 + math.exp(min(off - on, 700.0))) < 1.0
        new = 0.0
        if used:
            precision = work[_OFF, i] + work[_SLAB, i]
            miss = work[_WISH, i] - tilt * work[_G, i]
            new = work[_OFF, i] * miss / precision + normal_at(key, p, position) / math.sqrt(precision)
        more = change * work[_G, i] + new - loadings[d, j]
        problem.usage[j] += int(used) - int(active[d, j])
        active[d, j], loadings[d, j] = used, new
        if more != 0.0:
            for t in range(np.uint64(gram.shape[0])):
                excess[d, t] -= more * gram[j, t]


@jit
def _shift(k, j, change, problem):
    """x_k → x_k + change · x_j in the map of the scores and in everything computed from them."""
    gram, excess, turn = problem.gram, problem.excess, problem.turn
    for d in range(excess.shape[0]):
        excess[d, k] += change * excess[d, j]
    for t in range(gram.shape[0]):
        turn[t, k] += change * turn[t, j]
    for t in range(gram.shape[0]):
        gram[k, t] += change * gram[j, t]
    gram[k, k] += change * gram[k, j]
    for t in range(gram.shape[0]):
        gram[t, k] = gram[k, t]


@jit
def tilt_pairs(problem, pairs, key):
    """Try the ordered ``pairs`` one after another; returns how many tilts were accepted."""
    n_features = problem.loadings.shape[0]
    rows, work, modes = np.empty(n_features, np.int64), np.empty((_ROWS, n_features)), np.empty((3, 2))
    accepted = 0
    for p in range(pairs.shape[0]):
        k, j = pairs[p, 0], pairs[p, 1]
        n, kept, tilt = _gather(k, j, problem, rows, work)
        power, new = problem.gram[j, j], tilt
        wide, total = power, 0.0
        for i in range(n):
            wide += work[_ON, i] * work[_G, i] * work[_G, i]
            total += work[_ON, i] * work[_G, i] * work[_WISH, i]
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
        _redraw(p, j, new, new - tilt, n, kept, problem, rows, work, key)
        if new != tilt:
            _shift(k, j, new - tilt, problem)
    return accepted
