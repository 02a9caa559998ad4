"""Plain-NumPy rotation of two factors into each other: the twin of ``kernels.rotation_kernels``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import softmax

from nsfa.kernels import streams
from nsfa.kernels.reference_moves import apply_step, known_of
from nsfa.kernels.streams import FEATURES, ROTATION_WIDEST, normals_at, rough_exp, uniform_pairs

if TYPE_CHECKING:
    from nsfa.arrays import Bools, Floats
    from nsfa.kernels import Pairs

_PATTERNS = (np.array([False, True]), np.array([True, False]), np.array([True, True]))


class _Mode(NamedTuple):
    weight: float
    centre: float
    deviation: float


def turn(angle: float) -> Floats:
    """R with (x, y) R the scores along axes turned by an angle."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])


def rotate_pair(problem: Pairs, j: int, k: int, p: int, key: int) -> int:
    """Pair number p of ``moves.rotation``: propose, decide, and draw the loadings anew. Returns 1 if accepted."""
    pair, (uniform, units) = np.array([j, k]), (float(x) for x in uniform_pairs(key, p, 0))
    ratio = float(problem.loading_precision[0, j] / problem.loading_precision[0, k])
    wide = float(np.clip(ratio, 1 / ROTATION_WIDEST, ROTATION_WIDEST)) if units < streams.ROTATION_SLABS else 1.0
    # the pair's scores in these units are X @ narrow
    narrow = np.diag([wide**-0.5, 1.0])
    rows = np.flatnonzero(problem.active[:, pair].any(axis=1))
    gram = problem.gram[np.ix_(pair, pair)]
    products = (problem.excess[:, pair] + problem.loadings[:, pair] @ gram)[rows] @ narrow
    tau = problem.noise_precision[rows]
    gram = narrow @ gram @ narrow
    # turns with the pair, and is there where no feature uses either
    spread = products.T @ (tau[:, None] * products) + gram
    frame = 0.5 * float(np.arctan2(2 * spread[0, 1], spread[0, 0] - spread[1, 1]))
    products, gram = products @ turn(frame), turn(frame).T @ gram @ turn(frame)
    slab = np.broadcast_to(problem.loading_precision, problem.loadings.shape)[np.ix_(rows, pair)] @ narrow**2
    # a factor's anchor keeps it
    held = problem.anchor[pair] == rows[:, None]
    logit = problem.logit[pair] + known_of(problem.known, len(problem.gram))[np.ix_(rows, pair)]

    def conditional(i: int, used: Bools, angle: float) -> tuple[float, float, Floats, Floats]:
        """Of a pattern of feature i: its log weight without the data, what they add, mean and precision of g."""
        prior = np.diag(slab[i][used])
        precision = prior + tau[i] * (turn(angle).T @ gram @ turn(angle))[np.ix_(used, used)]
        b = tau[i] * (products[i] @ turn(angle))[used]
        mean = np.linalg.solve(precision, b)
        size = logit[i][used].sum() + 0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(precision)[1])
        return -np.inf if (held[i] & ~used).any() else float(size), float(0.5 * b @ mean), mean, precision

    def log_density(angle: float, exp: Callable[[Floats], Floats] = np.exp) -> float:
        # the first factor's scores have precision `wide`, the second's 1
        total = -0.5 * (wide - 1.0) * float((turn(angle).T @ gram @ turn(angle))[0, 0])
        for i in range(len(rows)):
            size, fit = np.array([conditional(i, used, angle)[:2] for used in _PATTERNS]).T
            total += fit[2] + np.log((np.exp(size) * exp(fit - fit[2])).sum())
        return float(total)

    modes, now = _modes(lambda angle: log_density(angle, rough_exp)), -frame
    which, accept = (float(x) for x in uniform_pairs(key, p, 1))
    edges = np.cumsum([mode.weight for mode in modes])
    chosen = int(np.searchsorted(edges, which, side="right"))
    if chosen < len(modes):
        new = modes[chosen].centre + modes[chosen].deviation * float(normals_at(key, p, 2))
    else:
        new = np.pi * uniform
    ratio = log_density(new) - log_density(now) + _log_proposal(now, modes) - _log_proposal(new, modes)
    accepted = bool(np.log(accept) < ratio)
    new = new if accepted else now
    before = problem.loadings.copy()
    for i, d in enumerate(rows):
        parts = [conditional(i, used, new) for used in _PATTERNS]
        chance = softmax([part[0] + part[1] for part in parts])
        position = FEATURES + 2 * int(d)
        m = int(np.searchsorted(np.cumsum(chance), float(uniform_pairs(key, p, position)[0]), side="right"))
        used, (*_, mean, precision) = _PATTERNS[min(m, 2)], parts[min(m, 2)]
        noise = np.array([float(normals_at(key, p, position)), float(normals_at(key, p, position + 1))])[used]
        # the last loading first, then the first given it
        drawn = mean + np.linalg.solve(np.linalg.cholesky(precision).T, noise)
        problem.loadings[d, pair] = 0.0
        problem.loadings[d, pair[used]] = drawn * narrow.diagonal()[used]
        problem.usage[pair] += used.astype(np.int64) - problem.active[d, pair]
        problem.active[d, pair] = used
    step = np.eye(len(problem.gram))
    step[np.ix_(pair, pair)] = narrow @ turn(new - now) @ np.diag(1 / narrow.diagonal())
    apply_step(problem, before, step)
    return int(accepted)


def _modes(f: Callable[[float], float]) -> list[_Mode]:
    """Normals near the highest modes of a log density on the half circle."""
    spacing = np.pi / streams.ROTATION_GRID
    grid = np.array([f(i * spacing) for i in range(streams.ROTATION_GRID)])
    high = grid >= grid.max() - streams.ROTATION_DEPTH
    peaks = np.flatnonzero(high & (grid >= np.roll(grid, 1)) & (grid >= np.roll(grid, -1)))
    found = []
    for best in peaks[np.argsort(-grid[peaks], kind="stable")][: streams.ROTATION_MODES]:
        centre, height, bend = best * spacing, grid[best], 1.0
        for _ in range(streams.ROTATION_ROUNDS):
            low, high = f(centre - streams.ROTATION_STEP), f(centre + streams.ROTATION_STEP)
            bend = max((2 * height - low - high) / streams.ROTATION_STEP**2, streams.ROTATION_BEND)
            centre += float(np.clip(0.5 * (high - low) / streams.ROTATION_STEP / bend, -0.5 * spacing, 0.5 * spacing))
            height = f(centre)
        found.append((height, centre, bend**-0.5))
    top = max(height for height, _, _ in found)
    weight = np.array([max(np.exp(height - top), streams.ROTATION_FLOOR) * deviation for height, _, deviation in found])
    weight *= (1 - streams.ROTATION_UNIFORM) / weight.sum()
    return [_Mode(float(w), float(c), float(s)) for w, (_, c, s) in zip(weight, found, strict=True)]


def _log_proposal(angle: float, modes: list[_Mode]) -> float:
    """Log density on the half circle of the wrapped normals and the uniform that propose angles."""
    total = streams.ROTATION_UNIFORM / np.pi
    for mode in modes:
        apart = (angle - mode.centre + np.pi / 2) % np.pi - np.pi / 2
        z = (apart + np.pi * np.arange(-1, 2)) / mode.deviation
        total += float(mode.weight * np.exp(-0.5 * z**2).sum() / np.sqrt(2 * np.pi) / mode.deviation)
    return float(np.log(total))
