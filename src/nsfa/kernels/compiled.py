"""Scalar building blocks compiled by numba: counter-based random numbers and triangular solves.

Small leaf functions. No ``fastmath`` beyond fused multiply-adds: we divide, take logs and rely on exact order.
"""

# numba-typed code: annotations would not be checked by anything
# mypy: ignore-errors

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from nsfa.kernels import streams
from nsfa.kernels.cache import folder_for, kept

# Fused multiply-adds are the only liberty taken: NaN, division and order keep their meaning.
_OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
CACHE = folder_for(Path(__file__).parent)
jit = kept(CACHE, **_OPTIONS)
inline = kept(CACHE, inline="always", **_OPTIONS)

_M0, _M1 = streams.MULTIPLIER_0, streams.MULTIPLIER_1
_W0, _W1 = streams.WEYL_0, streams.WEYL_1
_LOW = streams.LOW_WORD
_FAR = streams.EXP_FAR
_EXP_LEAST, _EXP_MOST = -708.0, 700.0
_LOG2_E, _WHOLE = 1.0 / math.log(2.0), 1.5 * 2.0**52
# log 2 in two parts, the first with so few digits that its multiples have no error
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13))
_EXPONENT, _BIAS = np.int64(52), np.int64(1023 << 52)
_SHIFT, _MANTISSA_SHIFT, _ONE = np.uint64(32), np.uint64(12), np.uint64(1)


_X, _RATIO, _EDGE = streams.ZIGGURAT_X, streams.ZIGGURAT_RATIO, streams.ZIGGURAT_EDGE
_BLOCK = np.uint64(127)


@inline
def word_pair(key, row, column, attempt, half):
    """Two 64-bit words for one position: the scalar twin of ``streams.words``."""
    c0, c1, c2, c3 = np.uint64(column) & _LOW, np.uint64(row) & _LOW, np.uint64(attempt), np.uint64(half)
    k0, k1 = key & _LOW, key >> _SHIFT
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ k0, p1 & _LOW, (p0 >> _SHIFT) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return (c0 << _SHIFT) | c1, (c2 << _SHIFT) | c3


@inline
def to_unit(word):
    """A double in (0, 1) from the upper 52 bits of a word."""
    return (np.float64(word >> _MANTISSA_SHIFT) + 0.5) * 2.0**-52


@inline
def rough_exp(x):
    """(1 + x/256)^256, near eˣ, in eight multiplications that vectorise; x within ±``EXP_FAR``.

    For proposals, where any function will do that is the same whatever the present state.
    """
    e = 1.0 + min(max(x, -_FAR), _FAR) / 256.0
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    return e * e


@inline
def fast_exp(x):
    """eˣ to the last digit or so, in a few dozen operations that vectorise: 2^k · e^r, |r| ≤ ½ log 2.

    Below −708, and of NaN, e^−708; above 700, e^700.
    """
    x = _EXP_MOST if x > _EXP_MOST else x
    x = x if x > _EXP_LEAST else _EXP_LEAST
    # the last bits of a number this large are those of a whole one
    shifted = x * _LOG2_E + _WHOLE
    k = shifted - _WHOLE
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    e = _TAYLOR[12]
    e = e * r + _TAYLOR[11]
    e = e * r + _TAYLOR[10]
    e = e * r + _TAYLOR[9]
    e = e * r + _TAYLOR[8]
    e = e * r + _TAYLOR[7]
    e = e * r + _TAYLOR[6]
    e = e * r + _TAYLOR[5]
    e = e * r + _TAYLOR[4]
    e = e * r + _TAYLOR[3]
    e = e * r + _TAYLOR[2]
    e = e * r + 1.0
    e = e * r + 1.0
    return e * np.int64((np.float64(shifted).view(np.int64) << _EXPONENT) + _BIAS).view(np.float64)


@jit
def _uniform_pair(key, row, column):
    first, second = word_pair(key, row, column, 0, 0)
    return to_unit(first), to_unit(second)


@inline
def uniform_pair(key, row, column):
    """Two uniforms in (0, 1) for one position; one type of integers, so that it is compiled once."""
    return _uniform_pair(key, np.uint64(row), np.uint64(column))


@jit
def fill_words(key, row, first, second):
    """Word pairs for columns 0..len−1 of one row; a loop of its own so that it vectorises."""
    for k in range(first.shape[0]):
        first[k], second[k] = word_pair(key, row, k, 0, 0)


@jit
def fill_words_at(key, row, columns, first, second):
    """Word pairs for some columns of one row."""
    for k in range(first.shape[0]):
        first[k], second[k] = word_pair(key, row, columns[k], 0, 0)


@jit
def words_of_rows(key, first_row, n_rows):
    """Word pairs for column 0 of many rows, as two arrays; vectorised like ``fill_words``."""
    first, second = np.empty(n_rows, np.uint64), np.empty(n_rows, np.uint64)
    for i in range(n_rows):
        first[i], second[i] = word_pair(key, first_row + i, 0, 0, 0)
    return first, second


@inline
def fast_normal(word):
    """A standard normal from a word by the ziggurat, and whether it is valid: one in eighty needs more words."""
    u, block = 2.0 * to_unit(word) - 1.0, word & _BLOCK
    return u * _X[block], abs(u) < _RATIO[block]


@inline
def normal_from(word, key, row, column, half):
    """A standard normal from a word by the ziggurat; one in eighty needs more words of the position."""
    normal, fine = fast_normal(word)
    # one type of integers, so that the slow part is compiled once
    at = np.uint64(row), np.uint64(column), np.uint64(half)
    return normal if fine else _slow_normal(word, key, at[0], at[1], at[2])


@jit
def _slow_normal(word, key, row, column, half):
    """The ziggurat's wedges and tail: the compiled twin of ``streams._slow_normal``."""
    attempt = 1
    while True:
        u = 2.0 * to_unit(word) - 1.0
        block = np.int64(word & _BLOCK)
        x = u * _X[block]
        if abs(u) < _RATIO[block]:
            return x
        first, second = word_pair(key, row, column, attempt, half)
        attempt += 1
        if block == 0:
            while True:
                past = -math.log(to_unit(first)) / _EDGE
                if -2.0 * math.log(to_unit(second)) > past * past:
                    return math.copysign(_EDGE + past, u)
                first, second = word_pair(key, row, column, attempt, half)
                attempt += 1
        top = math.exp(-0.5 * (_X[block] ** 2 - x * x))
        low = math.exp(-0.5 * (_X[block + 1] ** 2 - x * x))
        if low + to_unit(first) * (top - low) < 1.0:
            return x
        word = second


@jit
def _normal_at(key, row, column):
    return normal_from(word_pair(key, row, column, 0, 0)[1], key, row, column, 1)


@inline
def normal_at(key, row, column):
    """One standard normal for a position, independent of its first uniform."""
    return _normal_at(key, np.uint64(row), np.uint64(column))


@jit
def fill_normals(key, rows, out):
    """Standard normals, those of row i keyed by ``rows[i]``: the compiled twin of ``streams.normals``."""
    n_columns = out.shape[1]
    n_blocks = (n_columns + 1) // 2
    first, second = np.empty(n_blocks, np.uint64), np.empty(n_blocks, np.uint64)
    for i in range(out.shape[0]):
        row = rows[i]
        fill_words(key, row, first, second)
        for k in range(n_columns // 2):
            out[i, 2 * k] = normal_from(first[k], key, row, k, 0)
            out[i, 2 * k + 1] = normal_from(second[k], key, row, k, 1)
        if n_columns % 2:
            out[i, n_columns - 1] = normal_from(first[n_blocks - 1], key, row, n_blocks - 1, 0)


@inline
def _gamma_try(first, second, d, key, row, column):
    """One attempt of Marsaglia & Tsang (2000) at Gamma(d + 1/3, 1) from a word pair; negative where it fails."""
    u, x = to_unit(first), normal_from(second, key, row, column, 1)
    cube = (1.0 + x / math.sqrt(9.0 * d)) ** 3
    # the first test implies the second and spares its logarithms
    if cube > 0.0 and (
        u < 1.0 - 0.0331 * (x * x) * (x * x) or math.log(u) < 0.5 * x * x + d - d * cube + d * math.log(cube)
    ):
        return d * cube
    return -1.0


@inline
def gamma_draw(shape, key, row, column):
    """Gamma(shape, 1) from the pairs at (row, column), (row, column + 1), ..."""
    pair = word_pair(key, row, column, 0, 0)
    return gamma_from(pair[0], pair[1], shape, key, np.uint64(row), np.uint64(column))


@jit
def gamma_from(first, second, shape, key, row, column):
    """``gamma_draw`` with the word pair at (row, column) already made."""
    d = shape - 1.0 / 3.0 if shape >= 1.0 else shape + 2.0 / 3.0
    value = -1.0
    while True:
        value = _gamma_try(first, second, d, key, row, column)
        column += _ONE
        if value >= 0.0:
            break
        first, second = word_pair(key, row, column, 0, 0)
    if shape < 1.0:
        value *= uniform_pair(key, row, column)[0] ** (1.0 / shape)
    return max(value, 2.2250738585072014e-308)


@jit
def fill_gammas(key, rows, shape, rate, out):
    """Gamma(shape, rate) draws, entry i keyed by ``rows[i]``."""
    first, second = np.empty(out.shape[0], np.uint64), np.empty(out.shape[0], np.uint64)
    for i in range(out.shape[0]):
        first[i], second[i] = word_pair(key, rows[i], 0, 0, 0)
    for i in range(out.shape[0]):
        out[i] = gamma_from(first[i], second[i], shape[i], key, rows[i], np.uint64(0)) / rate[i]


@jit
def sum_of(x):
    """Σ x, four sums at a time: one would wait for itself."""
    a, b, c, d, whole = 0.0, 0.0, 0.0, 0.0, x.shape[0] // 4 * 4
    for i in range(0, whole, 4):
        a, b, c, d = a + x[i], b + x[i + 1], c + x[i + 2], d + x[i + 3]
    for i in range(whole, x.shape[0]):
        a += x[i]
    return (a + b) + (c + d)


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
