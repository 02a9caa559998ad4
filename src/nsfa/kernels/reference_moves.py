"""Plain-NumPy pieces of the moves beyond the paper: slices, and a feature's update with the scores integrated out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats as distributions

from nsfa.kernels import Split
from nsfa.kernels.streams import (
    ACCEPT,
    FEATURES,
    MOST_SHRINKS,
    MOST_STEPS,
    NOISE,
    NOISE_WIDTH,
    TILT_BISECTIONS,
    TILT_ROUNDS,
    TILT_WEIGHTS,
    normals_at,
    rough_exp,
    uniform_pairs,
)

if TYPE_CHECKING:
    from nsfa.arrays import Floats
    from nsfa.kernels import Marginal, Pairs, Splits


def gamma_draw(shape: float, key: int, row: int, column: int) -> float:
    """Gamma(shape, 1) by Marsaglia & Tsang (2000), from the pairs at (row, column), (row, column + 1), ..."""
    boosted = shape if shape >= 1 else shape + 1
    d = boosted - 1 / 3
    while True:
        u, x = float(uniform_pairs(key, row, column)[0]), float(normals_at(key, row, column))
        column += 1
        cube = (1 + x / np.sqrt(9 * d)) ** 3
        if cube > 0 and np.log(u) < 0.5 * x * x + d - d * cube + d * np.log(cube):
            break
    boost = 1.0 if shape >= 1 else float(uniform_pairs(key, row, column)[0]) ** (1 / shape)
    return float(max(d * cube * boost, np.finfo(float).tiny))


def log_scale_density(t: float, n: float, power: float, square: float, usage: int, shape: float, rate: float) -> float:
    """Log density of a factor's log scale: see ``moves.scale``; shape 0 holds the slab precision fixed."""
    rest = 0.5 * square * np.exp(-2 * t)
    slab = rest if shape == 0 else (shape + 0.5 * usage) * np.log(rate + rest)
    return float((n - usage) * t - 0.5 * power * np.exp(2 * t) - slab)


def slice_update(
    f: Callable[[float], float], start: float, width: float, uniforms: Callable[[], Any], most: float = MOST_STEPS
) -> float:
    """One update by slice sampling with stepping out, ``most`` steps either way, and shrinkage (Neal 2003)."""
    u, v = (float(x) for x in uniforms())
    level = f(start) + np.log(u)
    low = start - width * v
    high = low + width
    steps = [0, 0]
    while steps[0] < most and f(low) > level:
        low, steps[0] = low - width, steps[0] + 1
    while steps[1] < most and f(high) > level:
        high, steps[1] = high + width, steps[1] + 1
    for _ in range(1, MOST_SHRINKS):
        x = low + (high - low) * float(uniforms()[0])
        if f(x) > level:
            return x
        low, high = (x, high) if x < start else (low, x)
    return start


def marginal_row(problem: Marginal, values: Floats, d: int, key: int) -> None:
    """(z, g) entry by entry and then ψ of feature d, given the other features: see ``kernels.marginal_kernels``."""
    if problem.noise_variance[d] < problem.least[d]:
        return
    others = np.arange(len(values)) != d
    G, weight, y = problem.loadings[others], 1 / problem.noise_variance[others, None], values[d]
    V = np.linalg.inv(np.eye(G.shape[1]) + G.T @ (weight * G))
    # fitted scores of all samples from the other features (K, N)
    scores = V @ (weight * G).T @ values[others]
    g, n = problem.loadings[d], len(y)

    def log_likelihood(psi: float) -> float:
        v = psi + g @ V @ g
        return float(-0.5 * n * np.log(v) - 0.5 * ((y - scores.T @ g) ** 2).sum() / v)

    for k in range(len(g)):
        _marginal_entry(problem, y, d, k, V, scores, log_likelihood, key)
    shape, rate = problem.noise_prior[:, d]
    if shape > 0:
        if problem.relative:
            shape = shape + 0.5 * problem.active[d].sum()
            rate = rate + 0.5 * problem.noise_variance[d] * (problem.loading_precision[d] * g**2).sum()
        column = iter(range(NOISE, NOISE + 1000))
        problem.noise_variance[d] = np.exp(
            slice_update(
                lambda x: (
                    -shape * x - rate * np.exp(-x) + log_likelihood(np.exp(x))
                    if np.exp(x) >= problem.least[d]
                    else -np.inf
                ),
                float(np.log(problem.noise_variance[d])),
                NOISE_WIDTH,
                lambda: uniform_pairs(key, d, next(column)),
            )
        )


def _marginal_entry(
    problem: Marginal, y: Floats, d: int, k: int, V: Floats, scores: Floats, log_likelihood: Any, key: int
) -> None:
    """One Metropolis–Hastings update of (z_dk, g_dk)."""
    g, psi = problem.loadings[d], problem.noise_variance[d]
    lam = problem.loading_precision[d if len(problem.loading_precision) > 1 else 0, k]
    on, old = bool(problem.active[d, k]), float(g[k])
    others = problem.usage[k] - on
    C, rest = scores @ scores.T, np.where(np.arange(len(g)) == k, 0.0, g)
    line = (len(y), psi + rest @ V @ rest, V[k] @ rest, V[k, k],
            ((y - scores.T @ rest) ** 2).sum(), scores[k] @ (y - scores.T @ rest), C[k, k])  # fmt: skip
    centre, precision = marginal_proposal(*line, lam)

    def at(value: float) -> float:
        g[k] = value
        return float(log_likelihood(psi))

    def log_weight(value: float) -> float:
        target = at(value) - 0.5 * lam * value**2
        return float(target + 0.5 * np.log(lam / precision) + 0.5 * precision * (value - centre) ** 2)

    empty, forced = at(0.0), others + problem.prior[0] <= 0
    prior = 0.0
    if not forced:
        prior = np.log((others + problem.prior[0]) / (problem.prior[1] + len(problem.loadings) - 1 - others))
        prior += problem.known[d, k] if k < problem.known.shape[1] else 0.0
    odds = prior + log_weight(centre) - empty
    u = float(uniform_pairs(key, d, k)[0])
    propose = bool(forced or np.log(u) - np.log1p(-u) < odds)
    new = centre + float(normals_at(key, d, k)) / np.sqrt(precision) if propose else 0.0
    chance = 0.0 if forced else -np.logaddexp(0.0, -odds)

    def log_ratio(active: bool, value: float) -> float:
        return float(log_weight(value) + prior - chance if active else empty + np.logaddexp(0.0, odds))

    accept = np.log(float(uniform_pairs(key, d, ACCEPT + k)[0])) < log_ratio(propose, new) - log_ratio(on, old)
    g[k] = new if accept else old
    problem.active[d, k] = propose if accept else on
    problem.usage[k] = others + problem.active[d, k]


def marginal_proposal(
    n: int, v0: float, a1: float, vkk: float, r0: float, s: float, ckk: float, lam: float
) -> tuple[float, float]:
    """Centre and precision of a normal near exp f(g), f = −(N/2) log v − R/(2v) − ½λg²: two Newton steps, held back.

    v = v₀ + 2a₁g + V_kk g² and R = r₀ − 2sg + C_kk g².
    """
    floor = 0.1 * (ckk / v0 + lam)
    g = s / (ckk + v0 * lam)
    for step in range(3):
        v, dv, ddv = v0 + 2 * a1 * g + vkk * g**2, 2 * a1 + 2 * vkk * g, 2 * vkk
        r, dr, ddr = r0 - 2 * s * g + ckk * g**2, -2 * s + 2 * ckk * g, 2 * ckk
        slope = -0.5 * n * dv / v - 0.5 * dr / v + 0.5 * r * dv / v**2 - lam * g
        bend = -0.5 * n * (ddv / v - dv**2 / v**2) - 0.5 * ddr / v + dr * dv / v**2
        bend = max(-(bend + 0.5 * r * ddv / v**2 - r * dv**2 / v**3 - lam), floor)
        if step < 2:
            g += float(np.clip(slope / bend, -3 / np.sqrt(floor), 3 / np.sqrt(floor)))
    return g, 0.9 * bend


def log_split_ratio(g: float, variance: float, number: int, weight: tuple[float, float], problem: Splits) -> float:
    """Log acceptance ratio of splitting g² off a noise variance of ``variance`` + g², beside ``number`` own factors.

    ``weight`` is (m, Σ λ g²) of the feature's other loadings, where slabs are relative.
    """
    shape, rate = problem.slab
    unit = np.sqrt(variance) if problem.relative else 1.0
    # a normal whose precision is Gamma(c, d) is Student's t with 2c degrees of freedom
    slab = (
        distributions.t(2 * shape, scale=unit * np.sqrt(rate / shape))
        if shape
        else distributions.norm(0, unit * rate**-0.5)
    )
    shape, scale = (prior + 0.5 * more for prior, more in zip(problem.noise_prior, weight, strict=True))
    noise = distributions.invgamma(shape, scale=scale)
    whole = variance + g**2
    prior = np.log(problem.rate) + slab.logpdf(g) + noise.logpdf(variance) - noise.logpdf(whole)
    # the proposal has density |g|/ψ; the way back picks one of n + 1
    return float(prior - np.log(abs(g) / whole) - np.log(number + 1))


def split_features(problem: Splits, key: int) -> Split:
    """Feature after feature: see ``moves.split``."""
    n_features, precision = len(problem.loadings), problem.noise_precision.copy()
    born: list[tuple[int, float]] = []
    died: list[tuple[int, int]] = []
    for d in range(n_features):
        own = np.flatnonzero((problem.usage == 1) & problem.active[d, : len(problem.usage)])
        coin, u = (float(x) for x in uniform_pairs(key, d, 0))
        side, v = (float(x) for x in uniform_pairs(key, d, 1))
        variance = 1.0 / precision[d]
        if coin < 0.5:
            g, rest = float(np.sqrt(u * variance) * (1 if side < 0.5 else -1)), variance * (1 - u)
            weight = (float(problem.weight[0, d]), float(problem.weight[1, d]))
            if rest * problem.largest >= 1 and np.log(v) < log_split_ratio(g, rest, len(own), weight, problem):
                born.append((d, g))
                precision[d] = 1.0 / rest
        elif len(own):
            # the last that a chance of 1/i lets replace the one before: each with the same probability
            kept = [float(uniform_pairs(key, n_features + k, 0)[0]) * i < 1 for i, k in enumerate(own, 1)]
            k = int(own[np.flatnonzero(kept)[-1]])
            g = float(problem.loadings[d, k])
            lam = problem.loading_precision[d if len(problem.loading_precision) > 1 else 0, k]
            own_part = (1.0, float(lam * g**2)) if problem.relative else (0.0, 0.0)
            weight = (float(problem.weight[0, d]) - own_part[0], float(problem.weight[1, d]) - own_part[1])
            if np.log(v) < -log_split_ratio(g, variance, len(own) - 1, weight, problem):
                died.append((d, k))
                precision[d] = 1.0 / (variance + g**2)
    rows, factors = (np.array([pair[i] for pair in died], dtype=np.int64) for i in (0, 1))
    row = np.array([d for d, _ in born], dtype=np.int64)
    return Split(precision, row, precision[row], np.array([g for _, g in born]), (rows, factors))


def tilt_pair(problem: Pairs, k: int, j: int, p: int, key: int) -> int:
    """Pair number p of ``moves.tilt``: propose, decide, and draw the loadings anew. Returns 1 if accepted."""
    rows, power = np.flatnonzero(problem.active[:, k]), problem.gram[j, j]
    excess = problem.excess[rows, j]
    slab = np.broadcast_to(problem.loading_precision, problem.loadings.shape)[rows, j]
    g, a, tilt = problem.loadings[rows, k], problem.noise_precision[rows] * power, problem.gram[k, j] / power
    h, wide = excess / power + problem.loadings[rows, j] + tilt * g, a * slab / (a + slab)
    odds = problem.logit[j] + known_of(problem.known, len(problem.gram))[rows, j] + 0.5 * np.log(slab / (slab + a))
    kept = problem.anchor[j] == rows

    def parts(c: float) -> tuple[Floats, Floats]:
        half = 0.5 * (h - c * g) ** 2
        return odds - wide * half, np.where(kept, -np.inf, -a * half)

    def log_target(c: float) -> float:
        return float(np.logaddexp(*parts(c)).sum() - 0.5 * power * c**2)

    def normal(off: Floats) -> tuple[float, float]:
        weight = (off * a + (1 - off) * wide) * g
        return float(weight @ h / (power + weight @ g)), float(power + weight @ g)

    def mode(centre: float) -> tuple[float, float]:
        found = centre, power
        for _ in range(TILT_ROUNDS):
            x = odds + 0.5 * (a - wide) * (h - found[0] * g) ** 2
            found = normal(np.where(kept, 0.0, 1 / (1 + rough_exp(x))))
        return found

    everything = normal(np.zeros(len(rows)))
    modes = [everything, mode(everything[0]), mode(_weighted_median(h / g, np.sqrt(a) * np.abs(g)))]

    def log_proposal(c: float) -> float:
        logs = [
            np.log(w) + 0.5 * np.log(s) - 0.5 * s * (c - m) ** 2 for w, (m, s) in zip(TILT_WEIGHTS, modes, strict=True)
        ]
        return float(np.logaddexp.reduce(logs))

    which, accept = (float(x) for x in uniform_pairs(key, p, 1))
    centre, precision = modes[int(np.searchsorted(np.cumsum(TILT_WEIGHTS[:2]), which, side="right"))]
    new = centre + float(normals_at(key, p, 2)) / np.sqrt(precision)
    ratio = log_target(new) - log_target(tilt) + log_proposal(tilt) - log_proposal(new)
    accepted = bool(np.log(accept) < ratio)
    new = new if accepted else tilt
    on, off = parts(new)
    used = kept | (uniform_pairs(key, p, FEATURES + rows)[0] * (1 + np.exp(np.minimum(off - on, 700))) < 1)
    drawn = a * (h - new * g) / (a + slab) + normals_at(key, p, FEATURES + rows) / np.sqrt(a + slab)
    step = np.eye(len(problem.gram))
    step[j, k] = new - tilt
    before = problem.loadings.copy()
    problem.loadings[rows, j] = np.where(used, drawn, 0.0)
    problem.usage[j] += used.sum() - problem.active[rows, j].sum()
    problem.active[rows, j] = used
    apply_step(problem, before, step)
    return int(accepted)


def apply_step(problem: Pairs, before: Floats, step: Floats) -> None:
    """Scores times ``step`` in their map and in what is computed from them; the loadings were ``before``."""
    excess = problem.excess + before @ problem.gram
    problem.gram[:] = step.T @ problem.gram @ step
    problem.excess[:] = excess @ step - problem.loadings @ problem.gram
    problem.turn[:] = problem.turn @ step


def known_of(known: Floats, n_factors: int) -> Floats:
    """What is known of every entry (D, K), zero beyond the factors that it is about."""
    return np.pad(known, ((0, 0), (0, n_factors - known.shape[1])))


def _weighted_median(values: Floats, weight: Floats) -> float:
    """By bisection, to the digits the compiled twin has."""
    if not len(values):
        return 0.0
    low, high = float(values.min()), float(values.max())
    for _ in range(TILT_BISECTIONS):
        middle = 0.5 * (low + high)
        enough = 2 * weight[values <= middle].sum() >= weight.sum()
        low, high = (low, middle) if enough else (middle, high)
    return high
