"""Random numbers that depend on a key and a position, not on who asks or in which order.

Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011) maps (key, row, column) to four 32-bit words. A row of loadings or
a sample's scores therefore gets the same numbers whichever thread, process, block or backend computes it.

These are the plain-NumPy versions; ``kernels/compiled.py`` holds the scalar twins and the tests compare the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsfa.arrays import Floats, Ints

MULTIPLIER_0 = np.uint64(0xD2511F53)
MULTIPLIER_1 = np.uint64(0xCD9E8D57)
WEYL_0 = np.uint64(0x9E3779B9)
WEYL_1 = np.uint64(0xBB67AE85)
LOW_WORD = np.uint64(0xFFFFFFFF)
ROUNDS = 10

# Positions within one kernel call that must not collide. Births: column 0 decides, then a stretch of columns per new
# factor, its loading first and then attempts at its precision. Urn: cluster values use rows past any sample's. Scores:
# a sample's normals for its missing features come after those for its factors.
STRETCH = 1 << 10
VALUES = 1 << 30
EXTRA = 1 << 20

# Sweeps without the scores: columns of the acceptances, and of the noise variances' slices of width NOISE_WIDTH.
ACCEPT = 1 << 20
NOISE = 1 << 21
NOISE_WIDTH = 0.5
# Below this share of a feature's variance as noise the rank-one corrections of such sweeps lose their digits, as the
# cube of it: they leave such features alone and do not go there.
LEAST_SHARE = 3e-4
# Tilts: columns 1 and 2 of a pair's row propose and decide, those from ``FEATURES`` on belong to features. The proposal
# is a mixture of normals near three modes, with these weights; so many rounds of reweighting find the modes.
FEATURES = 3
TILT_WEIGHTS = (0.2, 0.3, 0.5)
TILT_ROUNDS = 3
TILT_BISECTIONS = 20
# Rotations: modes are sought on so many angles of the half circle; the highest so many that are within DEPTH of the top
# are followed by so many rounds of Newton's method with differences over the step. The proposal's normals are no wider
# than a curvature of BEND makes them, weigh at least FLOOR times what the highest does for their width, and a share is
# uniform. Column 0 of a pair's row proposes an angle and decides the units, 1 and 2 as for tilts.
ROTATION_GRID = 20
ROTATION_MODES = 4
ROTATION_DEPTH = 40.0
ROTATION_ROUNDS = 2
ROTATION_STEP = 0.02
ROTATION_BEND = 20.0
ROTATION_FLOOR = 0.02
ROTATION_UNIFORM = 0.05
# This share of the pairs is rotated in units of their slabs; a ratio of slab precisions counts as no further from 1
# than WIDEST or its inverse.
ROTATION_SLABS = 0.5
ROTATION_WIDEST = 1e3
# Whole columns: the width of slices of log odds and log slab precisions, and what log odds, and the size of log slab
# precisions, are kept within: a column where they are beyond stays as it is. Below FEW_ODDS, ω Σ BF stands for
# Σ log(1 + ω BF). What the log of a Bayes factor has beyond MOST_BAYES is the same whatever the odds; a product goes
# over into a sum of logs before it leaves e to ± LOG_SUM behind.
COLUMN_WIDTH = 1.5
LEAST_ODDS, MOST_ODDS, MOST_LOG_SLAB = -60.0, 100.0, 300.0
FEW_ODDS = 1e-6
MOST_BAYES = 100.0
LOG_SUM = 400.0
# Factors of two features: the spread of a proposed correlation in units of its standard error, the column of a new
# slab precision, and where the residuals' correlations are cut off.
DOUBLET_SPREAD = 1.2
SLAB = 1 << 20
LARGEST_CORRELATION = 0.95
# A climb to a direction that many features share: where slab precision and users start, what they are kept within (the
# share of users; the first two times 1/D, the largest slab times √N), and the change of the cosine at which it ends.
START_SLAB, LEAST_SLAB, LARGEST_SLAB = 3.0, 1e-3, 50.0
START_USED, LEAST_USED, MOST_USED = 20.0, 0.3, 1.0 - 1e-6
CLIMBED = 1e-5
# Log rates behind counts: for a zero whose expected log rate is below this the prior is proposed, for others a normal
# near the mode, which so many Newton steps find, its precision times this; in a share of the steps that of the prior,
# whose tails are nowhere lighter than the target's, so that no rate stays for good where a chain began.
EASY_RATE = 0.4
NEWTON_STEPS = 2
WIDER = 0.9
WIDE_SHARE = 0.125
# Noise variances behind counts: the standard deviation of steps on the log scale. Those drawn with values: columns
# after any sample's.
STRETCH_STEP = 0.7
STRETCH_COLUMN = 1 << 31
# Loadings and scores that take log rates along: the width of their slices, in standard deviations of what counts at
# their usual rates say.
CARRIED_WIDTH = 12.0
# Dirichlet parameters behind shares: the standard deviations of steps on the log scale, broad to narrow.
CONCENTRATION_STEPS = np.array([1.5, 0.4, 0.1])
# Normals beyond a bound: from here on it is far out.
FAR = 0.5
# Exponents of the rough exponential stay within ± this.
EXP_FAR = 250.0
# Slices of a log scale: the first guess at their width, and how often either end may be moved out.
WIDTH = 0.2
MOST_STEPS = 20
MOST_SHRINKS = 200

Words = NDArray[np.uint64]
Numbers = int | Ints
"""What keys samples' random numbers: the first one's number, those of the others following, or the number of each."""


def numbered(numbers: Numbers, size: int) -> Words:
    """The number of each of ``size`` samples."""
    if isinstance(numbers, np.ndarray):
        return numbers.astype(np.uint64)
    return np.arange(numbers, numbers + size, dtype=np.uint64)


def philox(counter: tuple[Any, Any, Any, Any], key: int) -> tuple[Words, Words, Words, Words]:
    """Four 32-bit words (held in uint64) for each counter, under a 64-bit key. Counters broadcast."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, dtype=np.uint64) for c in counter))
    k0, k1 = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    for _ in range(ROUNDS):
        p0, p1 = MULTIPLIER_0 * c0, MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & LOW_WORD, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & LOW_WORD
        k0, k1 = np.uint64((int(k0) + int(WEYL_0)) & 0xFFFFFFFF), np.uint64((int(k1) + int(WEYL_1)) & 0xFFFFFFFF)
    return c0, c1, c2, c3


def words(key: int, rows: Any, columns: Any, attempt: int = 0, half: int = 0) -> tuple[Words, Words]:
    """Two independent 64-bit words for every (row, column) position; rows and columns broadcast.

    Samplers that reject go on to attempts 1, 2, …; ``half`` tells apart those begun by the first and the second word.
    """
    w0, w1, w2, w3 = philox((columns, rows, attempt, half), key)
    return (w0 << np.uint64(32)) | w1, (w2 << np.uint64(32)) | w3


def to_unit(word: Words) -> Floats:
    """A 64-bit word to a double strictly inside (0, 1): its upper 52 bits, so that none rounds to 1."""
    out: Floats = ((word >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return out


def rough_exp(x: Any) -> Any:
    """(1 + x/256)^256: the twin of ``compiled.rough_exp``."""
    return (1 + np.clip(x, -EXP_FAR, EXP_FAR) / 256) ** 256


def uniform_pairs(key: int, rows: Any, columns: Any) -> tuple[Floats, Floats]:
    """Two independent uniforms for every (row, column) position."""
    first, second = words(key, rows, columns)
    return to_unit(first), to_unit(second)


# The ziggurat of Marsaglia & Tsang (2000) with 128 blocks of equal area under exp(−x²/2), right edges first to last.
# The block comes from bits that the uniform does not use (Doornik 2005).
ZIGGURAT_EDGE = 3.442619855899
_AREA = 9.91256303526217e-3


def _ziggurat() -> tuple[Floats, Floats]:
    x = np.empty(129)
    x[0], x[1], x[128] = _AREA / np.exp(-0.5 * ZIGGURAT_EDGE**2), ZIGGURAT_EDGE, 0.0
    for i in range(2, 128):
        x[i] = np.sqrt(-2.0 * np.log(_AREA / x[i - 1] + np.exp(-0.5 * x[i - 1] ** 2)))
    return x, x[1:] / x[:-1]


ZIGGURAT_X, ZIGGURAT_RATIO = _ziggurat()


def normals_from(word: Words, key: int, rows: Any, columns: Any, half: int) -> Floats:
    """Standard normals from 64-bit words, the positions' later attempts standing by for the few that need them."""
    u, block = 2.0 * to_unit(word) - 1.0, (word & np.uint64(127)).astype(np.int64)
    out: Floats = u * ZIGGURAT_X[block]
    row_of, column_of = np.broadcast_arrays(rows, columns)
    for at in zip(*np.nonzero(np.abs(u) >= ZIGGURAT_RATIO[block]), strict=True):
        out[at] = _slow_normal(word[at], key, int(row_of[at]), int(column_of[at]), half)
    return out


def _slow_normal(word: Any, key: int, row: int, column: int, half: int) -> float:
    """The ziggurat for one position, wedges and tail included."""
    attempt = 1
    while True:
        u, block = 2.0 * float(to_unit(word)) - 1.0, int(word) & 127
        x = u * ZIGGURAT_X[block]
        if abs(u) < ZIGGURAT_RATIO[block]:
            return float(x)
        first, second = words(key, row, column, attempt, half)
        attempt += 1
        if block == 0:
            while True:
                past = -np.log(float(to_unit(first))) / ZIGGURAT_EDGE
                if -2.0 * np.log(float(to_unit(second))) > past * past:
                    return float(np.copysign(ZIGGURAT_EDGE + past, u))
                first, second = words(key, row, column, attempt, half)
                attempt += 1
        top = np.exp(-0.5 * (ZIGGURAT_X[block] ** 2 - x * x))
        low = np.exp(-0.5 * (ZIGGURAT_X[block + 1] ** 2 - x * x))
        if low + float(to_unit(first)) * (top - low) < 1.0:
            return float(x)
        word = second


def normals_at(key: int, rows: Any, columns: Any) -> Floats:
    """One standard normal per position, independent of the position's first uniform."""
    row_of, column_of = np.broadcast_arrays(rows, columns)
    flat = np.atleast_1d(row_of).ravel(), np.atleast_1d(column_of).ravel()
    return normals_from(words(key, *flat)[1], key, *flat, half=1).reshape(row_of.shape)


def normals(key: int, n_rows: int, n_columns: int, numbers: Numbers = 0) -> Floats:
    """Standard normals (n_rows, n_columns); row i is the stream of its number, two columns a position."""
    rows = numbered(numbers, n_rows)[:, None]
    blocks = np.arange((n_columns + 1) // 2)[None, :]
    pair = [normals_from(w, key, rows, blocks, half) for half, w in enumerate(words(key, rows, blocks))]
    return np.stack(pair, axis=-1).reshape(n_rows, -1)[:, :n_columns]


def fresh_key(rng: np.random.Generator) -> int:
    """A new 64-bit key: each kernel call gets its own, so no two calls share numbers."""
    return int(rng.bit_generator.random_raw())
