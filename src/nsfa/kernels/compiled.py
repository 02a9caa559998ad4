"""Scalar building blocks compiled by numba: counter-based random numbers, a normal quantile, triangular solves.

Small leaf functions. No ``fastmath`` beyond fused multiply-adds: we divide, take logs and rely on exact order.
"""

# numba-typed code: annotations would not be checked by anything
# mypy: ignore-errors

from __future__ import annotations

import math

import numba
import numpy as np

from nsfa.kernels import streams

# Fused multiply-adds are the only liberty taken: NaN, division and order keep their meaning.
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
jit = numba.njit(**_OPTIONS)
inline = numba.njit(inline="always", **_OPTIONS)

_M0, _M1 = streams.MULTIPLIER_0, streams.MULTIPLIER_1
_W0, _W1 = streams.WEYL_0, streams.WEYL_1
_LOW = streams.LOW_WORD
_SHIFT, _MANTISSA_SHIFT = np.uint64(32), np.uint64(11)


@inline
def uniform_pair(key, row, column):
    """Two uniforms in (0, 1) for one position: the scalar twin of ``streams.uniform_pairs``."""
    c0, c1, c2, c3 = np.uint64(column) & _LOW, np.uint64(row) & _LOW, np.uint64(0), np.uint64(0)
    k0, k1 = key & _LOW, key >> _SHIFT
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ k0, p1 & _LOW, (p0 >> _SHIFT) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    u = (np.float64(((c0 << _SHIFT) | c1) >> _MANTISSA_SHIFT) + 0.5) * 2.0**-53
    v = (np.float64(((c2 << _SHIFT) | c3) >> _MANTISSA_SHIFT) + 0.5) * 2.0**-53
    return u, v


@jit
def fill_uniform_pairs(key, row, first, second):
    """Uniform pairs for columns 0..len-1 of one row; a loop of its own so that it vectorises."""
    for k in range(first.shape[0]):
        first[k], second[k] = uniform_pair(key, row, k)


@inline
def central_quantile(q):
    """Normal quantile at ½ + q for |q| ≤ 0.425: a ratio of polynomials without branches, so that it vectorises."""
    r = 0.180625 - q * q
    top = ((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r + 6.7265770927008700853e4) * r
              + 4.5921953931549871457e4) * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3) * r
           + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
    low = ((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r + 3.9307895800092710610e4) * r
              + 2.1213794301586595867e4) * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2) * r
           + 4.2313330701600911252e1) * r + 1.0
    return q * top / low


@jit
def tail_quantile(p):
    """Normal quantile for p outside [0.075, 0.925]."""
    r = math.sqrt(-math.log(min(p, 1.0 - p)))
    if r <= 5.0:
        r -= 1.6
        top = ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r + 2.41780725177450611770e-1) * r
                  + 1.27045825245236838258e0) * r + 3.64784832476320460504e0) * r + 5.76949722146069140550e0) * r
               + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
        low = ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2) * r
                  + 1.48103976427480074590e-1) * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0) * r
               + 2.05319162663775882187e0) * r + 1.0
    else:
        r -= 5.0
        top = ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 1.24266094738807843860e-3) * r
                  + 2.65321895265761230930e-2) * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0) * r
               + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
        low = ((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5) * r
                  + 7.86869131145613259100e-4) * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r
               + 5.99832206555887937690e-1) * r + 1.0
    return -top / low if p < 0.5 else top / low


@inline
def normal_quantile(p):
    """Inverse of the standard normal distribution function (Wichura 1988, algorithm AS 241, 16 digits)."""
    return central_quantile(p - 0.5) if abs(p - 0.5) <= 0.425 else tail_quantile(p)


@jit
def fill_normals(key, first_row, out):
    """Standard normals, row i keyed by ``first_row + i``: the compiled twin of ``streams.normals``."""
    n_columns = out.shape[1]
    p = np.empty(n_columns + 1)
    for i in range(out.shape[0]):
        for block in range((n_columns + 1) // 2):
            p[2 * block], p[2 * block + 1] = uniform_pair(key, first_row + i, block)
        for k in range(n_columns):
            out[i, k] = central_quantile(p[k] - 0.5)
        for k in range(n_columns):
            if abs(p[k] - 0.5) > 0.425:
                out[i, k] = tail_quantile(p[k])


@jit
def solve_lower(root, b):
    """Overwrite b with L⁻¹ b."""
    for k in range(root.shape[0]):
        value = b[k]
        for j in range(k):
            value -= root[k, j] * b[j]
        b[k] = value / root[k, k]


@jit
def solve_transposed(root, b):
    """Overwrite b with L⁻ᵀ b."""
    for k in range(root.shape[0] - 1, -1, -1):
        b[k] /= root[k, k]
        value = b[k]
        for j in range(np.uint64(k)):
            b[j] -= root[k, j] * value


@jit
def corrected_gram(base, vectors, weights, index, rebuild):
    """A Gram matrix Σ w x xᵀ over some of the rows of ``vectors``, by one matrix product.

    ``rebuild`` false: base − Σ over ``index`` (the missing ones). True: base + Σ (the observed ones), and the caller
    passes the base of an empty sum.
    """
    picked = np.empty((index.shape[0], base.shape[0]))
    for position in range(index.shape[0]):
        root_weight = math.sqrt(weights[index[position]])
        for k in range(base.shape[0]):
            picked[position, k] = root_weight * vectors[index[position], k]
    part = np.dot(picked.T, picked)
    return base + part if rebuild else base - part
