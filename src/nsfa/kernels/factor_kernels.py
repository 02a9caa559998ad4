"""Compiled loops over factors: moves along directions that leave the fit G X unchanged (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import inline, jit, normal_at, uniform_pair
from nsfa.kernels.streams import MOST_SHRINKS, MOST_STEPS, WIDTH


@inline
def log_scale_density(t, n, power, square, usage, shape, rate):
    """Log density of the log scale t of one factor: scores times eᵗ, loadings times e⁻ᵗ.

    The slab precision is Gamma(shape, rate) and integrated out; where shape is 0 it is given and ``square`` is Σ λ g².
    """
    value = (n - usage) * t - 0.5 * power * math.exp(2.0 * t)
    rest = 0.5 * square * math.exp(-2.0 * t)
    return value - rest if shape == 0.0 else value - (shape + 0.5 * usage) * math.log(rate + rest)


@jit
def log_scale_slice(k, n, power, square, usage, shape, rate, key):
    """One slice-sampling update (Neal 2003) of factor k's log scale, from 0."""
    u, v = uniform_pair(key, k, 0)
    level = log_scale_density(0.0, n, power, square, usage, shape, rate) + math.log(u)
    low = -WIDTH * v
    high = low + WIDTH
    for _ in range(MOST_STEPS):
        if log_scale_density(low, n, power, square, usage, shape, rate) <= level:
            break
        low -= WIDTH
    for _ in range(MOST_STEPS):
        if log_scale_density(high, n, power, square, usage, shape, rate) <= level:
            break
        high += WIDTH
    for column in range(1, MOST_SHRINKS):
        t = low + (high - low) * uniform_pair(key, k, column)[0]
        if log_scale_density(t, n, power, square, usage, shape, rate) > level:
            return t
        if t < 0.0:
            low = t
        else:
            high = t
    return 0.0


@jit
def rescale(problem, key):
    """What every factor's scores and loadings are multiplied by, (2, K)."""
    out = np.empty((2, problem.usage.shape[0]))
    for k in range(out.shape[1]):
        square, usage = problem.square[k], problem.usage[k]
        t = log_scale_slice(k, problem.n, problem.power[k], square, usage, problem.shape, problem.rate, key)
        out[0, k], out[1, k] = math.exp(t), math.exp(-t)
    return out


@inline
def _add_symmetric(matrix, k, j, a):
    """Matrix of inner products after vector k has become itself + a times vector j."""
    for i in range(np.uint64(matrix.shape[0])):
        matrix[k, i] += a * matrix[j, i]
    matrix[k, k] += a * matrix[k, j]
    for i in range(matrix.shape[0]):
        matrix[i, k] = matrix[k, i]


@jit
def draw_shears(gram, inner, precision, inside, key):
    """Gibbs draws of a in x_k += a x_j, g_j −= a g_k for every ordered pair with ``inside[k, j]``.

    Updates ``gram`` XᵀX and ``inner`` GᵀG; returns (M, W): the new scores are X M, the new loadings G W.
    """
    n_factors = gram.shape[0]
    # transposed, so that each step works along rows
    M, W = np.eye(n_factors), np.eye(n_factors)
    for k in range(n_factors):
        for j in range(n_factors):
            if j == k or not inside[k, j]:
                continue
            q = gram[j, j] + precision[j] * inner[k, k]
            a = (precision[j] * inner[j, k] - gram[j, k]) / q + normal_at(key, k, j) / math.sqrt(q)
            _add_symmetric(gram, k, j, a)
            _add_symmetric(inner, j, k, -a)
            for i in range(np.uint64(n_factors)):
                M[k, i] += a * M[j, i]
                W[j, i] -= a * W[k, i]
    return M.T, W.T
