"""Plain-NumPy draws of the Gaussian values behind a table that only hints at them: the specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from nsfa.kernels.reference_moves import gamma_draw
from nsfa.kernels.streams import (
    CONCENTRATION_STEPS,
    EASY_RATE,
    FAR,
    NEWTON_STEPS,
    STRETCH_COLUMN,
    STRETCH_STEP,
    WIDE_SHARE,
    WIDER,
    Numbers,
    normals_at,
    normals_from,
    numbered,
    to_unit,
    uniform_pairs,
    words,
)

if TYPE_CHECKING:
    from nsfa.arrays import Bools, Floats
    from nsfa.kernels import Hidden


def fits(problem: Hidden) -> Floats:
    """What the model expects of every value (D, N): μ_d + g_d·x_n."""
    out: Floats = problem.intercept[:, None] + problem.loadings @ problem.scores
    return out


def observed(problem: Hidden) -> Bools:
    """Of which values (D, N) something was seen."""
    if len(problem.missing):
        return ~problem.missing
    return np.ones(problem.seen.shape, dtype=np.bool_)


def draw_outliers(
    problem: Hidden, shares: Floats, scales: Floats, prior: Floats, largest: float, key: int, numbers: Numbers = 0
) -> tuple[Floats, Floats, Floats]:
    """P(scale j) ∝ w_j N(y; fit, ψ(1 + v_j)); τ ~ Gamma(a + N/2, b + ½ Σ e²/(1 + v_j)), deviations integrated out.

    Then the deviations o ~ N(share · error, share · ψ), share v/(1 + v).
    """
    n_features, n_samples = problem.seen.shape
    rows, columns = np.arange(n_features)[:, None], numbered(numbers, n_samples)[None, :]
    one, two = words(key, rows, columns)
    error, tau = problem.seen - fits(problem), problem.noise_precision[:, None]
    spread = 1.0 + scales
    # (D, N, J + 1)
    height = shares / np.sqrt(spread) * np.exp(-0.5 * (error**2 * tau)[..., None] / spread)
    outliers = np.cumsum(height[..., 1:], axis=-1)
    rest = to_unit(one) * (outliers[..., -1] + height[..., 0])
    which = np.where(rest < outliers[..., -1], 1 + (rest[..., None] >= outliers[..., :-1]).sum(axis=-1), 0)
    which = np.where(height.sum(axis=-1) == 0, len(scales) - 1, which)
    seen, precision = observed(problem), problem.noise_precision.copy()
    for d in np.flatnonzero(prior[0] > 0):
        shape = prior[0, d] + 0.5 * seen[d].sum()
        rate = prior[1, d] + 0.5 * (error[d] ** 2 / spread[which[d]])[seen[d]].sum()
        precision[d] = min(gamma_draw(shape, key, int(d), STRETCH_COLUMN) / rate, largest)
    share, tau = scales[which] / spread[which], precision[:, None]
    deviation = share * error + np.sqrt(share / tau) * normals_from(two, key, rows, columns, 1)
    problem.values[seen] = np.where(which > 0, problem.seen - deviation, problem.seen)[seen]
    own = (which > 0) & seen
    square = np.where(own, deviation**2 / np.where(own, scales[which], 1.0), 0.0).sum(axis=1)
    number = np.stack([((which == j) & seen).sum(axis=0) for j in range(len(scales))], axis=1).astype(float)
    return number, np.array([own.sum(axis=1), square]), precision


def draw_concentrations(number: Floats, concentration: Floats, shape: Floats, rate: float, key: int) -> Floats:
    """Metropolis on log a: p(a) Π_n Γ(A)/Γ(A + n_n) Π_j Γ(a_j + n_nj)/Γ(a_j), a_j ~ Gamma(shape_j, rate)."""

    def log_density(a: Floats) -> float:
        each = gammaln(a + number) - gammaln(a)
        whole = gammaln(a.sum() + number.sum(axis=1)) - gammaln(a.sum())
        return float((shape * np.log(a) - rate * a).sum() + each.sum() - whole.sum())

    now = concentration.copy()
    for i, step in enumerate(CONCENTRATION_STEPS):
        for j in range(len(now) + 1):
            some = slice(j, j + 1) if j < len(now) else slice(None)
            then = now.copy()
            then[some] *= np.exp(step * normals_at(key, j, i))
            if np.log(uniform_pairs(key, j, i)[0]) < log_density(then) - log_density(now):
                now = then
    return now


def draw_rates(
    problem: Hidden, level: Floats, exposure: Floats, prior: Floats, key: int, numbers: Numbers = 0
) -> Floats:
    """Log rates given counts, entry by entry, then each feature's noise with them."""
    mean, columns = fits(problem), numbered(numbers, problem.seen.shape[1])
    for d, n in zip(*np.nonzero(observed(problem)), strict=True):
        given = float(problem.seen[d, n]), mean[d, n], problem.noise_precision[d], level[d] + exposure[n]
        problem.values[d, n] = _rate(*given, float(problem.values[d, n]), key, int(d), int(columns[n]))
    seen, precision = observed(problem), problem.noise_precision.copy()
    for d in np.flatnonzero(prior[0] > 0):
        own, raised = seen[d], level[d] + exposure[seen[d]]
        fit, values = mean[d, own], problem.values[d, own]
        step = _stretch_step(problem.seen[d, own], fit, values, raised, precision[d], prior[:, d], key, int(d))
        problem.values[d, own] = fit + np.exp(0.5 * step) * (values - fit)
        precision[d] *= np.exp(-step)
    return precision


def _stretch_step(
    y: Floats, mean: Floats, values: Floats, raised: Floats, tau: float, prior: Floats, key: int, d: int
) -> float:
    """By how much log ψ moves, 0 if refused: values' distances from their means move with √ψ."""
    u, normal = _numbers(key, d, STRETCH_COLUMN, 0, 1)
    step = STRETCH_STEP * normal

    def height(log_noise: float) -> float:
        new = mean + np.exp(0.5 * (log_noise + np.log(tau))) * (values - mean) + raised
        return float((y * new - np.exp(new)).sum() - prior[0] * log_noise - prior[1] * np.exp(-log_noise))

    return step if np.log(u) < height(step - np.log(tau)) - height(-np.log(tau)) else 0.0


def _rate(y: float, mean: float, tau: float, level: float, now: float, key: int, d: int, n: int) -> float:
    def target(at: float) -> float:
        return float(y * at - np.exp(at + level) - 0.5 * tau * (at - mean) ** 2)

    u, normal = _numbers(key, d, n, 0, 1)
    wide = u < WIDE_SHARE
    u = u / WIDE_SHARE if wide else (u - WIDE_SHARE) / (1.0 - WIDE_SHARE)
    if y == 0 and mean + level + 0.5 / tau < EASY_RATE:
        new = mean + normal / np.sqrt(tau)
        return float(new) if np.log(u) < np.exp(now + level) - np.exp(new + level) else now
    if y > 0:
        centre = (tau * mean + y * (np.log(y) - level)) / (tau + y)
    else:
        centre = min(mean, np.log(1.0 + tau * max(mean + level, 0.0)) - level)
    rate = 0.0
    for _ in range(NEWTON_STEPS):
        rate = np.exp(centre + level)
        centre += (y - rate - tau * (centre - mean)) / (tau + rate)
    precision = tau if wide else WIDER * (tau + rate)
    new = centre + normal / np.sqrt(precision)
    ratio = target(new) - target(now) + 0.5 * precision * ((new - centre) ** 2 - (now - centre) ** 2)
    return float(new) if np.log(u) < ratio else now


def _numbers(key: int, d: int, n: int, attempt: int, half: int) -> tuple[float, float]:
    """A uniform and a standard normal of a position's attempt."""
    one, two = words(key, np.array([d]), np.array([n]), attempt)
    return float(to_unit(one)[0]), float(normals_from(two, key, np.array([d]), np.array([n]), half)[0])


def draw_signs(problem: Hidden, level: Floats, key: int, numbers: Numbers = 0) -> None:
    """Normal values on the side of zero that was seen, entry by entry."""
    mean, spread = fits(problem), problem.noise_precision**-0.5
    columns = numbered(numbers, problem.seen.shape[1])
    for d, n in zip(*np.nonzero(observed(problem)), strict=True):
        side = 1.0 if problem.seen[d, n] > 0.5 else -1.0
        beyond = _beyond(-side * (mean[d, n] + level[d]) / spread[d], key, int(d), int(columns[n]))
        problem.values[d, n] = mean[d, n] + side * spread[d] * beyond


def _beyond(least: float, key: int, d: int, n: int) -> float:
    """A standard normal above ``least``: by rejection of normals, whose signs are free above 0, or of exponentials."""
    rate, attempt = 0.5 * (least + np.sqrt(least * least + 4.0)), 0
    while True:
        pair = words(key, np.array([d]), np.array([n]), attempt)
        if least < FAR:
            for half in range(2):
                drawn = normals_from(pair[1 - half], key, np.array([d]), np.array([n]), 2 * attempt + 1 + half)
                normal = float(drawn[0]) if least < 0 else abs(float(drawn[0]))
                if normal > least:
                    return normal
        else:
            u, v = (float(to_unit(word)[0]) for word in pair)
            normal = least - np.log(u) / rate
            if np.log(v) < -0.5 * (normal - rate) ** 2:
                return float(normal)
        attempt += 1
