"""Compiled loop over pairs of factors whose scores are rotated into each other (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import inline, jit, normal_at, rough_exp, uniform_pair
from nsfa.kernels.streams import (
    FEATURES,
    ROTATION_BEND,
    ROTATION_DEPTH,
    ROTATION_FLOOR,
    ROTATION_GRID,
    ROTATION_MODES,
    ROTATION_ROUNDS,
    ROTATION_SLABS,
    ROTATION_STEP,
    ROTATION_UNIFORM,
    ROTATION_WIDEST,
)

# Rows of the work space, a column per feature of either factor: its products with the two scores in the frame of the
# pair; its noise precision; the two slab precisions; prior weights of the first factor alone and of the second alone,
# that of both being one; and, of the last angle looked at, the sum of the weights and the exponent taken out of it.
_X, _Y, _TAU, _SLAB, _SLAB_TOO, _FIRST, _SECOND, _SUM, _EXPONENT, _ROWS = range(10)
_LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)


@inline
def _axes(angle, frame):
    """Cosine and sine of an angle, and the Gram matrix of the two scores along the axes that it gives."""
    c, s = math.cos(angle), math.sin(angle)
    first = c * c * frame[0] + 2.0 * c * s * frame[1] + s * s * frame[2]
    second = s * s * frame[0] - 2.0 * c * s * frame[1] + c * c * frame[2]
    return c, s, first, c * s * (frame[2] - frame[0]) + (c * c - s * s) * frame[1], second


@inline
def pattern_weights(first, second):
    """Prior weights, by the factors' logits, of using the first alone, the second alone and both; the largest is 1."""
    most = max(first, second, first + second)
    return math.exp(first - most), math.exp(second - most), math.exp(first + second - most)


@inline
def _choices(i, axes, odds, work):
    """Feature i's weights of the first factor alone, the second alone and both, all over e to the last value."""
    c, s, first, both, second = axes
    tau, slab, slab_too = work[_TAU, i], work[_SLAB, i], work[_SLAB_TOO, i]
    b, b_too = tau * (c * work[_X, i] + s * work[_Y, i]), tau * (c * work[_Y, i] - s * work[_X, i])
    p, q, r = slab + tau * first, slab_too + tau * second, tau * both
    det = p * q - r * r
    alone, other = 0.5 * b * b / p, 0.5 * b_too * b_too / q
    together = 0.5 * (b * b * q - 2.0 * b * b_too * r + b_too * b_too * p) / det
    # the exponent of both is never less than that of one
    return (
        work[_FIRST, i] * odds[0] * math.sqrt(slab / p) * math.exp(alone - together),
        work[_SECOND, i] * odds[1] * math.sqrt(slab_too / q) * math.exp(other - together),
        odds[2] * math.sqrt(slab * slab_too / det),
        together,
    )


@jit
def log_rotation(angle, n, frame, pull, odds, work):
    """Log density of the first factor's angle in the frame of the pair, loadings and pattern summed out.

    ``pull`` is the precision of the first factor's scores minus 1, that of the second's.
    """
    axes = _axes(angle, frame)
    total, product = -0.5 * pull * axes[2], 1.0
    for i in range(n):
        first, second, both, exponent = _choices(i, axes, odds, work)
        total += exponent
        product *= first + second + both
        if product > 1e150 or product < 1e-150:
            total, product = total + math.log(product), 1.0
    return total + math.log(product)


@jit
def _roughly(angle, n, frame, pull, odds, work):
    """``log_rotation`` with ``rough_exp`` for the exponential, in a loop that vectorises: good enough to find modes."""
    c, s, first, both, second = _axes(angle, frame)
    for i in range(np.uint64(n)):
        tau, slab, slab_too = work[_TAU, i], work[_SLAB, i], work[_SLAB_TOO, i]
        b, b_too = tau * (c * work[_X, i] + s * work[_Y, i]), tau * (c * work[_Y, i] - s * work[_X, i])
        p, q, r = slab + tau * first, slab_too + tau * second, tau * both
        det = p * q - r * r
        together = 0.5 * (b * b * q - 2.0 * b * b_too * r + b_too * b_too * p) / det
        one = work[_FIRST, i] * odds[0] * math.sqrt(slab / p) * rough_exp(0.5 * b * b / p - together)
        two = work[_SECOND, i] * odds[1] * math.sqrt(slab_too / q) * rough_exp(0.5 * b_too * b_too / q - together)
        work[_SUM, i] = one + two + odds[2] * math.sqrt(slab * slab_too / det)
        work[_EXPONENT, i] = together
    total, product = -0.5 * pull * first, 1.0
    for i in range(n):
        total += work[_EXPONENT, i]
        product *= work[_SUM, i]
        if product > 1e150 or product < 1e-150:
            total, product = total + math.log(product), 1.0
    return total + math.log(product)


@inline
def _without(d, k, problem):
    """What is known of feature d and factor k, as a prior weight of doing without it."""
    return math.exp(-problem.known[d, k]) if k < problem.known.shape[1] else 1.0


@jit
def _gather(j, k, wide, problem, rows, work):
    """The features of either factor, their products with the scores and precisions, in the frame of the pair.

    Loadings of factor j are √wide times as large as those that the slab precisions are for.
    Returns their number, the angle of factor j in that frame, and the frame's Gram matrix. The frame is the principal
    axes of the weighted products and the Gram matrix together: the same whatever the present angle, used or not.
    """
    gram, excess, step = problem.gram, problem.excess, min(1, problem.loading_precision.shape[0] - 1)
    n, xx, xy, yy = 0, gram[j, j], gram[j, k], gram[k, k]
    for d in range(problem.loadings.shape[0]):
        if problem.active[d, j] or problem.active[d, k]:
            g, h = problem.loadings[d, j], problem.loadings[d, k]
            rows[n] = d
            work[_X, n] = excess[d, j] + g * gram[j, j] + h * gram[j, k]
            work[_Y, n] = excess[d, k] + g * gram[j, k] + h * gram[k, k]
            work[_TAU, n] = problem.noise_precision[d]
            work[_SLAB, n], work[_SLAB_TOO, n] = (
                problem.loading_precision[d * step, j] / wide,
                problem.loading_precision[d * step, k],
            )
            # a factor's anchor keeps it
            work[_FIRST, n] = 0.0 if problem.anchor[k] == d else _without(d, k, problem)
            work[_SECOND, n] = 0.0 if problem.anchor[j] == d else _without(d, j, problem)
            xx += work[_TAU, n] * work[_X, n] * work[_X, n]
            xy += work[_TAU, n] * work[_X, n] * work[_Y, n]
            yy += work[_TAU, n] * work[_Y, n] * work[_Y, n]
            n += 1
    turn = 0.5 * math.atan2(2.0 * xy, xx - yy)
    c, s, first, both, second = _axes(turn, (gram[j, j], gram[j, k], gram[k, k]))
    for i in range(n):
        a, b = work[_X, i], work[_Y, i]
        work[_X, i], work[_Y, i] = c * a + s * b, c * b - s * a
    return n, -turn, (first, both, second)


@jit
def _modes(n, frame, pull, odds, work, grid, modes):
    """Normals near the highest modes on a half circle: weight, centre and standard deviation; returns how many."""
    spacing = math.pi / ROTATION_GRID
    for i in range(ROTATION_GRID):
        grid[i] = _roughly(i * spacing, n, frame, pull, odds, work)
    number, top, highest = 0, -np.inf, -np.inf
    for _ in range(ROTATION_MODES):
        best = -1
        for i in range(ROTATION_GRID):
            peak = grid[i] >= grid[i - 1] and grid[i] >= grid[(i + 1) % ROTATION_GRID]
            fresh = True
            for m in range(number):
                fresh = fresh and modes[m, 3] != i
            if peak and fresh and (best < 0 or grid[i] > grid[best]):
                best = i
        highest = grid[best] if number == 0 else highest
        if best < 0 or grid[best] < highest - ROTATION_DEPTH:
            break
        centre, height, bend = best * spacing, grid[best], 1.0
        for _ in range(ROTATION_ROUNDS):
            low = _roughly(centre - ROTATION_STEP, n, frame, pull, odds, work)
            high = _roughly(centre + ROTATION_STEP, n, frame, pull, odds, work)
            bend = max((2.0 * height - low - high) / ROTATION_STEP**2, ROTATION_BEND)
            move = 0.5 * (high - low) / ROTATION_STEP / bend
            centre += min(max(move, -0.5 * spacing), 0.5 * spacing)
            height = _roughly(centre, n, frame, pull, odds, work)
        modes[number, 0], modes[number, 1], modes[number, 2] = height, centre, 1.0 / math.sqrt(bend)
        modes[number, 3] = best
        number, top = number + 1, max(top, height)
    total = 0.0
    for m in range(number):
        modes[m, 0] = max(math.exp(modes[m, 0] - top) * modes[m, 2], ROTATION_FLOOR * modes[m, 2])
        total += modes[m, 0]
    for m in range(number):
        modes[m, 0] *= (1.0 - ROTATION_UNIFORM) / total
    return number


@jit
def _log_proposal(angle, number, modes):
    """Log density on the half circle of the wrapped normals and the uniform that propose angles."""
    total = ROTATION_UNIFORM / math.pi
    for m in range(number):
        apart = angle - modes[m, 1]
        apart -= math.pi * math.floor(apart / math.pi + 0.5)
        for wrap in range(-1, 2):
            z = (apart + wrap * math.pi) / modes[m, 2]
            total += modes[m, 0] * math.exp(-0.5 * z * z - _LOG_ROOT_2PI) / modes[m, 2]
    return math.log(total)


@inline
def slab_ratio(j, k, problem):
    """Factor j's slab precision over that of k, within reason."""
    ratio = problem.loading_precision[0, j] / problem.loading_precision[0, k]
    return min(max(ratio, 1.0 / ROTATION_WIDEST), ROTATION_WIDEST)


@jit
def rescale(j, by, problem):
    """x_j → by · x_j in the map of the scores and what comes of them; its loadings too, so that the fit stays."""
    if by == 1.0:
        return
    gram = problem.gram
    for d in range(problem.loadings.shape[0]):
        problem.loadings[d, j] /= by
        problem.excess[d, j] *= by
    for t in range(gram.shape[0]):
        problem.turn[t, j] *= by
        gram[t, j] *= by
    for t in range(gram.shape[0]):
        gram[j, t] *= by


@jit
def _turn_columns(array, j, k, c, s):
    for i in range(array.shape[0]):
        a, b = array[i, j], array[i, k]
        array[i, j], array[i, k] = c * a + s * b, c * b - s * a


@jit
def _turn(j, k, change, problem):
    """Rotate factors j and k in the map of the scores and what comes of them; loadings too, so that the fit stays."""
    c, s, gram = math.cos(change), math.sin(change), problem.gram
    for array in (problem.excess, problem.loadings, problem.turn):
        _turn_columns(array, j, k, c, s)
    for t in range(gram.shape[0]):
        a, b = gram[j, t], gram[k, t]
        gram[j, t], gram[k, t] = c * a + s * b, c * b - s * a
    _turn_columns(gram, j, k, c, s)


@jit
def _redraw(p, j, k, axes, n, odds, problem, rows, work, key):
    """Pattern and loadings of both factors on the gathered features, given the axes; the scores are turned already."""
    gram, excess = problem.gram, problem.excess
    for i in range(n):
        d = rows[i]
        position = FEATURES + 2 * d
        first, second, both, _ = _choices(i, axes, odds, work)
        u = uniform_pair(key, p, position)[0] * (first + second + both)
        one, two = u >= second, u < second or u >= second + first
        tau = work[_TAU, i]
        b, b_too = (
            tau * (axes[0] * work[_X, i] + axes[1] * work[_Y, i]),
            tau * (axes[0] * work[_Y, i] - axes[1] * work[_X, i]),
        )
        p_one, p_two, r = work[_SLAB, i] + tau * axes[2], work[_SLAB_TOO, i] + tau * axes[4], tau * axes[3]
        new, new_too = 0.0, 0.0
        if two:
            # the second given the pattern, the first integrated out if it is in use
            precision, mean = p_two, b_too
            if one:
                precision, mean = p_two - r * r / p_one, b_too - r * b / p_one
            new_too = mean / precision + normal_at(key, p, position + 1) / math.sqrt(precision)
        if one:
            new = (b - r * new_too) / p_one + normal_at(key, p, position) / math.sqrt(p_one)
        more, more_too = new - problem.loadings[d, j], new_too - problem.loadings[d, k]
        problem.usage[j] += int(one) - int(problem.active[d, j])
        problem.usage[k] += int(two) - int(problem.active[d, k])
        problem.active[d, j], problem.active[d, k] = one, two
        problem.loadings[d, j], problem.loadings[d, k] = new, new_too
        for t in range(np.uint64(gram.shape[0])):
            excess[d, t] -= more * gram[j, t] + more_too * gram[k, t]


@jit
def rotate_pairs(problem, pairs, key):
    """Try ``pairs`` of factors one after another; returns how many rotations were accepted."""
    n_features = problem.loadings.shape[0]
    rows, work = np.empty(n_features, np.int64), np.empty((_ROWS, n_features))
    grid, modes = np.empty(ROTATION_GRID), np.empty((ROTATION_MODES, 4))
    accepted = 0
    for p in range(pairs.shape[0]):
        j, k = pairs[p, 0], pairs[p, 1]
        uniform, units = uniform_pair(key, p, 0)
        wide = slab_ratio(j, k, problem) if units < ROTATION_SLABS else 1.0
        rescale(j, 1.0 / math.sqrt(wide), problem)
        n, angle, frame = _gather(j, k, wide, problem, rows, work)
        pull = wide - 1.0
        odds = pattern_weights(problem.logit[j], problem.logit[k])
        number = _modes(n, frame, pull, odds, work, grid, modes)
        which, accept = uniform_pair(key, p, 1)
        new = math.pi * uniform
        for m in range(number):
            if 0.0 <= which < modes[m, 0]:
                new = modes[m, 1] + modes[m, 2] * normal_at(key, p, 2)
            which -= modes[m, 0]
        ratio = log_rotation(new, n, frame, pull, odds, work) - log_rotation(angle, n, frame, pull, odds, work)
        ratio += _log_proposal(angle, number, modes) - _log_proposal(new, number, modes)
        if math.log(accept) < ratio:
            accepted += 1
        else:
            new = angle
        _turn(j, k, new - angle, problem)
        _redraw(p, j, k, _axes(new, frame), n, odds, problem, rows, work, key)
        rescale(j, math.sqrt(wide), problem)
    return accepted
