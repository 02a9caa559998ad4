"""Random numbers that depend on a key and a position, not on who asks or in which order.

Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011) maps (key, row, column) to four 32-bit words. A row of loadings or
a sample's scores therefore gets the same numbers whichever thread, process, block or backend computes it.

These are the plain-NumPy versions; ``kernels/compiled.py`` holds the scalar twins and the tests compare the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

MULTIPLIER_0 = np.uint64(0xD2511F53)
MULTIPLIER_1 = np.uint64(0xCD9E8D57)
WEYL_0 = np.uint64(0x9E3779B9)
WEYL_1 = np.uint64(0xBB67AE85)
LOW_WORD = np.uint64(0xFFFFFFFF)
ROUNDS = 10

# Positions within one kernel call that must not collide. Births: column 0 decides, then a stretch of columns per new
# factor, its loading first and then attempts at its precision. Urn: cluster values use rows past any sample's.
STRETCH = 1 << 10
VALUES = 1 << 30

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]


def philox(counter: tuple[Any, Any, Any, Any], key: int) -> tuple[Words, Words, Words, Words]:
    """Four 32-bit words (held in uint64) for each counter, under a 64-bit key. Counters broadcast."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, dtype=np.uint64) for c in counter))
    k0, k1 = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    for _ in range(ROUNDS):
        p0, p1 = MULTIPLIER_0 * c0, MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & LOW_WORD, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & LOW_WORD
        k0, k1 = np.uint64((int(k0) + int(WEYL_0)) & 0xFFFFFFFF), np.uint64((int(k1) + int(WEYL_1)) & 0xFFFFFFFF)
    return c0, c1, c2, c3


def to_unit(high: Words, low: Words) -> Floats:
    """Two 32-bit words to a double strictly inside (0, 1), 53 bits."""
    mantissa = (((high << np.uint64(32)) | low) >> np.uint64(11)).astype(np.float64)
    out: Floats = (mantissa + 0.5) * 2.0**-53
    return out


def uniform_pairs(key: int, rows: Any, columns: Any) -> tuple[Floats, Floats]:
    """Two independent uniforms for every (row, column) position; rows and columns broadcast."""
    w0, w1, w2, w3 = philox((columns, rows, 0, 0), key)
    return to_unit(w0, w1), to_unit(w2, w3)


def normals(key: int, n_rows: int, n_columns: int, first_row: int = 0) -> Floats:
    """Standard normals (n_rows, n_columns); row i is the stream of row ``first_row + i``."""
    rows = np.arange(first_row, first_row + n_rows)[:, None]
    blocks = np.arange((n_columns + 1) // 2)[None, :]
    pair = np.stack(uniform_pairs(key, rows, blocks), axis=-1).reshape(n_rows, -1)
    out: Floats = ndtri(pair[:, :n_columns])
    return out


def fresh_key(rng: np.random.Generator) -> int:
    """A new 64-bit key: each kernel call gets its own, so no two calls share numbers."""
    return int(rng.bit_generator.random_raw())  # type: ignore[attr-defined]
