"""Compiled loops over features: the loadings' conditionals and the residuals (docs/model.md).

Each takes a range of rows, so that a thread pool can share them out; random numbers are keyed by row. Hot inner loops
count with unsigned integers: numba then need not look for negative indices, and they become vector instructions.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import (
    corrected_gram,
    fill_words,
    inline,
    jit,
    normal_at,
    normal_from,
    solve_lower,
    solve_transposed,
    to_unit,
)

_LANES = 16
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@jit
def _padded(gram):
    """A copy with zero columns up to a multiple of 16: row updates then run in whole vectors."""
    n_factors = gram.shape[0]
    out = np.zeros((n_factors, (n_factors + _LANES - 1) // _LANES * _LANES))
    # by loops: assigning arrays compiles numba's checks of their shapes
    for i in range(n_factors):
        for j in range(n_factors):
            out[i, j] = gram[i, j]
    return out


@jit
def _load_holes(d, loadings, active, rows, room):
    """Scores of the samples listed for row d into ``room`` (K + 1, most), a row a factor; in the last their fit X g.

    Returns how many there are, with zeros up to a multiple of four; the sign with which they correct T − S g (missing
    ones are added back; where the row is built from what it has, those are subtracted and S is not used); whether S is.
    """
    if room is None:
        return np.uint64(0), 0.0, True
    holes, n_factors, scores = rows.holes, np.uint64(loadings.shape[1]), rows.scores
    start, n = np.uint64(holes.pointer[d]), np.uint64(holes.pointer[d + 1] - holes.pointer[d])
    fours = (n + _THREE) // _FOUR * _FOUR
    for i in range(fours):
        room[n_factors, i] = 0.0
    for k in range(n_factors):
        for i in range(n):
            room[k, i] = scores[np.uint64(holes.entry[start + i]), k]
        for i in range(n, fours):
            room[k, i] = 0.0
        if active[d, k]:
            g = loadings[d, k]
            for i in range(fours):
                room[n_factors, i] += g * room[k, i]
    return fours, -1.0 if holes.rebuild[d] else 1.0, not holes.rebuild[d]


@inline
def _inner(room, k, j, n):
    """Σ over the first n, a multiple of four, of two rows of ``room``."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(np.uint64(0), n, _FOUR):
        a += room[k, i] * room[j, i]
        b += room[k, i + _ONE] * room[j, i + _ONE]
        c += room[k, i + _TWO] * room[j, i + _TWO]
        d += room[k, i + _THREE] * room[j, i + _THREE]
    return (a + b) + (c + d)


@jit
def _diagonal(gram, listed, room, out):
    """S_kk over the samples observed for a row; ``listed`` is what ``_load_holes`` returned."""
    for k in range(gram.shape[0]):
        out[k] = gram[k, k] if listed[2] else 0.0
        if room is not None:
            out[k] -= listed[1] * _inner(room, k, k, listed[0])


@jit
def _with_holes(value, k, listed, room):
    """T_k − S_k·g over the samples observed for the row, from that over all of them."""
    if room is None:
        return value
    return value + listed[1] * _inner(room, k, room.shape[0] - 1, listed[0])


@inline
def _subtract(c, gram, k, change, start):
    """C −= change · S_k from ``start`` on, a multiple of 16."""
    for j in range(np.uint64(start), np.uint64(c.shape[0])):
        c[j] -= change * gram[k, j]


@jit
def _begin_row(d, loadings, active, rows, gram, c, listed, room):
    """Fill c = T_d − S g_d over all samples, touching only the active factors, and return r_d = q_d − g·T_d − g·c."""
    n_factors = gram.shape[0]
    for k in range(n_factors):
        c[k] = rows.cross[d, k]
    if listed[2]:
        for k in range(n_factors):
            if active[d, k]:
                _subtract(c, gram, k, loadings[d, k], 0)
    total = rows.power[d]
    for k in range(n_factors):
        if active[d, k]:
            total -= loadings[d, k] * (rows.cross[d, k] + _with_holes(c[k], k, listed, room))
    return total


@jit
def _change(k, change, c, gram, listed, room):
    """Update c and the listed samples' fit after loading k has changed by ``change``."""
    if listed[2]:
        # entries before k are done with: this row will not look at their covariates again
        _subtract(c, gram, k, change, k // _LANES * _LANES)
    if room is not None:
        last = room.shape[0] - 1
        for i in range(listed[0]):
            room[last, i] += change * room[k, i]


@inline
def slab_unit(rows, d):
    """What row d's slab precisions are multiples of."""
    return rows.noise_precision[d] if rows.relative else 1.0


@jit
def _prepare(d, rows, diagonal, key, work, first, second):
    """Everything about row d's entries that does not depend on the other loadings, in loops that vectorise.

    Rows of ``work``: 0 the conditional variance 1/ℓ, ℓ = τ S_kk + λ; 1 its root; 2 the threshold that exp(½ℓμ²) × prior
    odds must pass for z = 1, u/(1−u) √(ℓ/λ). ``second`` holds the words that the loadings' normals are made of.
    """
    n_factors, tau = diagonal.shape[0], rows.noise_precision[d]
    lam, unit = rows.loading_precision[d * min(1, rows.loading_precision.shape[0] - 1)], slab_unit(rows, d)
    variance, deviation, threshold = work[0], work[1], work[2]
    fill_words(key, d, first, second)
    for k in range(n_factors):
        variance[k] = 1.0 / (tau * diagonal[k] + unit * lam[k])
    for k in range(n_factors):
        u = to_unit(first[k])
        deviation[k] = math.sqrt(variance[k])
        threshold[k] = u / ((1.0 - u) * math.sqrt(unit * lam[k]) * deviation[k])


@inline
def _exceeds(t, threshold):
    """Whether exp(t) > threshold: decided by bounds where they suffice, by exp itself between them.

    exp(s) ≥ (1 + s/4)⁴ for s ≥ −4, used for s = t (certainly above) and for s = −t (certainly below).
    """
    bound = 1.0 + 0.25 * abs(t)
    bound *= bound
    bound *= bound
    if t > 0.0:
        return bound > threshold or math.exp(min(t, 700.0)) > threshold
    return threshold * bound < 1.0 and math.exp(t) > threshold


@jit
def independent_rows(lo, hi, loadings, active, rows, room, logit, anchor, key, usage, residual):
    """Gibbs pass over rows lo..hi, some with holes, given prior logits (1 or D, K); ``anchor[k]`` keeps factor k."""
    n_factors = rows.gram.shape[0]
    gram = _padded(rows.gram)
    c, work = np.zeros(gram.shape[1]), np.empty((4, n_factors))
    diagonal = work[3]
    first, second = np.empty(n_factors, np.uint64), np.empty(n_factors, np.uint64)
    logit_step = min(1, logit.shape[0] - 1)
    for d in range(lo, hi):
        tau, prior = rows.noise_precision[d], logit[d * logit_step]
        listed = _load_holes(d, loadings, active, rows, room)
        total = _begin_row(d, loadings, active, rows, gram, c, listed, room)
        _diagonal(gram, listed, room, diagonal)
        _prepare(d, rows, diagonal, key, work, first, second)
        for k in range(n_factors):
            g = loadings[d, k]
            excess = _with_holes(c[k], k, listed, room)
            shift = tau * (excess + g * diagonal[k])
            mean = shift * work[0, k]
            on = anchor[k] == d or _exceeds(0.5 * shift * mean + prior[k], work[2, k])
            new = 0.0
            if on:
                new = mean + work[1, k] * normal_from(second[k], key, d, k, 1)
                usage[k] += 1
            if new != g:
                change = new - g
                total += change * (change * diagonal[k] - 2.0 * excess)
                _change(k, change, c, gram, listed, room)
                loadings[d, k] = new
            active[d, k] = on
        residual[d] = max(total, 0.0)


@jit
def collapsed_rows(loadings, active, rows, room, usage, prior_on, prior_off, key, residual):
    """Gibbs pass over all rows in turn, prior odds (m + prior_on)/(prior_off + D − 1 − m), m without the row.

    Times e to what is known of the entry. Where m + prior_on is 0 the factor is the row's own: it stays, and belongs to
    the birth/death move.
    """
    n_features, n_factors = loadings.shape
    gram = _padded(rows.gram)
    c, work = np.zeros(gram.shape[1]), np.empty((4, n_factors))
    diagonal = work[3]
    first, second = np.empty(n_factors, np.uint64), np.empty(n_factors, np.uint64)
    n_known = rows.known.shape[1]
    for d in range(n_features):
        tau = rows.noise_precision[d]
        listed = _load_holes(d, loadings, active, rows, room)
        total = _begin_row(d, loadings, active, rows, gram, c, listed, room)
        _diagonal(gram, listed, room, diagonal)
        _prepare(d, rows, diagonal, key, work, first, second)
        for k in range(n_factors):
            g, on = loadings[d, k], active[d, k]
            others = usage[k] - (1 if on else 0)
            usage[k] = others
            excess = _with_holes(c[k], k, listed, room)
            shift = tau * (excess + g * diagonal[k])
            mean = shift * work[0, k]
            weight = others + prior_on
            if weight > 0.0:
                known = rows.known[d, k] if k < n_known else 0.0
                on = _exceeds(0.5 * shift * mean + known, work[2, k] * (prior_off + n_features - 1.0 - others) / weight)
            # as above, line by line: a function for both would cost two fifths of the sweep
            new = 0.0
            if on:
                new = mean + work[1, k] * normal_from(second[k], key, d, k, 1)
                usage[k] += 1
            if new != g:
                change = new - g
                total += change * (change * diagonal[k] - 2.0 * excess)
                _change(k, change, c, gram, listed, room)
                loadings[d, k] = new
            active[d, k] = on
        residual[d] = max(total, 0.0)


@jit
def _gram_of_row(d, rows, ones, shared):
    """XᵀX over the samples observed for feature d, padded: ``shared`` itself, or a corrected copy.

    ``ones`` are the samples' weights, or None where nothing is missing: the rest is then not even compiled.
    """
    if ones is None:
        return shared
    holes = rows.holes
    start, stop = holes.pointer[d], holes.pointer[d + 1]
    if start == stop and not holes.rebuild[d]:
        return shared
    base = np.zeros_like(rows.gram) if holes.rebuild[d] else rows.gram
    return _padded(corrected_gram(base, rows.scores, ones, holes.entry[start:stop], holes.rebuild[d]))


@jit
def dense_rows(lo, hi, loadings, active, rows, ones, key, residual):
    """g_d ~ N(A⁻¹ τ_d T_d, A⁻¹), A = τ_d S_d + diag(λ_d), for rows lo..hi; ``active`` is all true."""
    n_factors = rows.gram.shape[0]
    shared = _padded(rows.gram)
    c, b = np.zeros(shared.shape[1]), np.empty(n_factors)
    lam, tau = rows.loading_precision, rows.noise_precision
    lam_step = min(1, lam.shape[0] - 1)
    for d in range(lo, hi):
        gram = _gram_of_row(d, rows, ones, shared)
        precision, unit = tau[d] * gram[:, :n_factors], slab_unit(rows, d)
        for i in range(n_factors):
            b[i] = tau[d] * rows.cross[d, i]
            precision[i, i] += unit * lam[d * lam_step, i]
        root = np.linalg.cholesky(precision)
        solve_lower(root, b)
        for i in range(n_factors):
            b[i] += normal_at(key, d, i)
        solve_transposed(root, b)
        for i in range(n_factors):
            loadings[d, i] = b[i]
        residual[d] = max(_begin_row(d, loadings, active, rows, gram, c, (np.uint64(0), 0.0, True), None), 0.0)


@jit
def residual_rows(loadings, active, rows, which, skip, out):
    """r_d of the features ``which`` over the active factors that are not skipped; at most O(active · K) each."""
    n_factors = rows.gram.shape[0]
    c, kept = np.empty(n_factors), np.empty(n_factors)
    holes = rows.holes
    for i in range(which.shape[0]):
        d = which[i]
        for k in range(n_factors):
            kept[k] = loadings[d, k] if active[d, k] and not skip[k] else 0.0
            c[k] = 2.0 * rows.cross[d, k]
        # g·(2T − S g); a feature seen in few samples has S_d rebuilt from those alone
        if not holes.rebuild[d]:
            for k in range(n_factors):
                if kept[k] != 0.0:
                    _subtract(c, rows.gram, k, kept[k], 0)
        total = rows.power[d]
        for k in range(n_factors):
            total -= kept[k] * c[k]
        sign = 1.0 if holes.rebuild[d] else -1.0
        for position in range(holes.pointer[d], holes.pointer[d + 1]):
            fitted = 0.0
            for k in range(n_factors):
                fitted += kept[k] * rows.scores[holes.entry[position], k]
            total += sign * fitted * fitted
        out[i] = max(total, 0.0)
