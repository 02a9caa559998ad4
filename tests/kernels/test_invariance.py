"""Kernels run on a fixed small problem, again and again, against their target by numerical integration.

Joint-distribution tests see little of a proposal that is forgotten in the ratio when the target is nearly flat; here it
is not.
"""

import numpy as np
import pytest
from scipy import stats as distributions

from nsfa.kernels import Doublets, Pairs, get_kernels, pair_kernels, rotation_kernels


def pair_of_factors(rng):
    """Two factors that five features use."""
    X = rng.normal(size=(12, 2))
    G = np.array([[0.8, 0.0], [0.6, 0.3], [0.0, 0.7], [0.5, -0.5], [0.2, 0.4]])
    Y = G @ X.T + 0.7 * rng.normal(size=(5, 12))
    active = G != 0
    tau, slab, logit, anchor = np.full(5, 1.5), np.array([[2.0, 0.7]]), np.array([-0.5, 0.8]), np.full(2, -1)
    parts = np.eye(2), X.T @ X, (Y - G @ X.T) @ X, G, active, active.sum(axis=0)
    return Pairs(*parts, tau, slab, logit, anchor, np.zeros((5, 0)))


def distance(found, grid, logs):
    """P value of draws against a density given on a grid: near-independent ones, but not quite."""
    density = np.exp(logs - logs.max())
    share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return distributions.kstest(np.interp(found[::3], grid, share / share[-1]), "uniform").pvalue


def test_tilts_leave_the_density_of_the_tilt_alone(rng):
    problem, rows, work, found = pair_of_factors(rng), np.empty(5, np.int64), np.empty((9, 5)), []
    for key in range(20_000):
        get_kernels().tilt(problem, np.array([[0, 1]]), key)
        n, kept, tilt = pair_kernels._gather(0, 1, problem, rows, work)
        found.append(tilt)
    grid = np.linspace(-3, 3, 4001)
    logs = np.array([pair_kernels.log_tilt(c, n, problem.gram[1, 1], kept, work) for c in grid])
    assert distance(found, grid, logs) > 1e-3


def test_rotations_leave_the_density_of_the_angle_alone(rng):
    problem, rows, work, found = pair_of_factors(rng), np.empty(5, np.int64), np.empty((9, 5)), []
    for key in range(20_000):
        get_kernels().rotate(problem, np.array([[0, 1]]), key)
        n, angle, frame = rotation_kernels._gather(0, 1, problem, rows, work)
        found.append(angle % np.pi)
    grid, odds = np.linspace(0, np.pi, 2001), rotation_kernels.pattern_weights(*problem.logit)
    logs = np.array([rotation_kernels.log_rotation(angle, n, frame, odds, work) for angle in grid])
    assert np.ptp(logs) > 1.6, "a flat density would not notice a forgotten proposal"
    assert distance(found, grid, logs) > 1e-3


@pytest.mark.parametrize("slab", [(1.5, 0.7), (0.0, 2.0)], ids=["factor", "shared"])
@pytest.mark.parametrize("relative", [False, True])
def test_doublets_leave_their_density_alone(slab, relative, rng):
    """Two features: how often there is one such factor and not none, and its correlation, against quadrature."""
    both = rng.normal(size=8)
    residual = np.stack([both + rng.normal(size=8), both + rng.normal(size=8)])
    variance, noise_prior, log_rate = np.array([1.8, 1.5]), (2.0, 1.5), -2.2
    prior = np.repeat(np.array(noise_prior)[:, None], 2, axis=1)
    left, noise_variance = residual.copy(), variance.copy()
    feature, loading, precision, scores = np.zeros((0, 2), np.int64), np.zeros((0, 2)), np.zeros(0), np.zeros((0, 8))
    number, correlation = [], []
    for key in range(60_000):
        problem = Doublets(noise_variance, 1e-9, feature, loading, log_rate, prior, slab, relative, precision)
        found, new = get_kernels().draw_doublets(problem, left, scores, 3, key)
        old, more = (feature, loading, precision, scores), (found.feature, found.loading, found.precision, new)
        feature, loading, precision, scores = (
            np.concatenate([a[found.kept], b]) for a, b in zip(old, more, strict=True)
        )
        number.append(len(feature))
        if number[-1] == 1:
            correlation.append(loading[0].prod() / np.sqrt(variance.prod()))
    g = np.linspace(-1, 1, 401)[1:-1]
    first, second = np.meshgrid(g * np.sqrt(variance[0]), g * np.sqrt(variance[1]), indexing="ij")
    shape, rate = slab
    law = (
        distributions.multivariate_t(shape=rate / shape * np.eye(2), df=2 * shape)
        if shape
        else distributions.multivariate_normal(cov=np.eye(2) / rate)
    )
    # loadings in units of what noise they leave
    units = (np.sqrt(variance[0] - first**2), np.sqrt(variance[1] - second**2)) if relative else (1.0, 1.0)
    noise = distributions.invgamma(noise_prior[0], scale=noise_prior[1])
    logs = log_rate + law.logpdf(np.stack([first / units[0], second / units[1]], axis=-1))
    logs = logs - np.log(units[0] * units[1])
    for value, whole in ((first, variance[0]), (second, variance[1])):
        logs = logs + noise.logpdf(whole - value**2) - noise.logpdf(whole)
    rho = first * second / np.sqrt(variance.prod())
    a, b = ((residual**2).sum(axis=1) / variance).tolist()
    c = residual[0] @ residual[1] / np.sqrt(variance.prod())
    logs = logs - 4 * np.log(1 - rho**2) + 0.5 * (a + b) - 0.5 * (a + b - 2 * rho * c) / (1 - rho**2)
    weight = np.exp(logs) * (first[1, 0] - first[0, 0]) * (second[0, 1] - second[0, 0])
    number, once = np.array(number), np.mean(np.array(number) == 1)
    odds = once / np.mean(number == 0)
    assert 0.1 < once < 0.9
    blocks = np.array([np.mean(part == 1) / np.mean(part == 0) for part in np.array_split(number, 30)])
    assert abs(odds - weight.sum()) < 4 * blocks.std() / np.sqrt(30)
    parts = np.array([part.mean() for part in np.array_split(correlation, 30)])
    assert abs(parts.mean() - (rho * weight).sum() / weight.sum()) < 4 * parts.std() / np.sqrt(30)
    squares = np.array([(part**2).mean() for part in np.array_split(correlation, 30)])
    assert abs(squares.mean() - (rho**2 * weight).sum() / weight.sum()) < 4 * squares.std() / np.sqrt(30)
