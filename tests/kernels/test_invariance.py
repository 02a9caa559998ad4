"""Kernels run on a fixed small problem, again and again, against their target by numerical integration.

Joint-distribution tests see little of a proposal that is forgotten in the ratio when the target is nearly flat; here it
is not.
"""

from itertools import islice, product

import numpy as np
import pytest
from scipy import stats as distributions
from scipy.special import betaln

from nsfa.kernels import (
    Columns,
    Doublets,
    Pairs,
    column_kernels,
    get_kernels,
    pair_kernels,
    reference_rotation,
    rotation_kernels,
    streams,
)


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


def angle_of(problem, wide, rows, work):
    """The pair's angle in units in which factor 0 has `wide` times less slab precision, and what its density needs."""
    rotation_kernels.rescale(0, wide**-0.5, problem)
    found = rotation_kernels._gather(0, 1, wide, problem, rows, work)
    rotation_kernels.rescale(0, wide**0.5, problem)
    return found


@pytest.mark.parametrize("slabs", [False, True])
def test_rotations_leave_the_density_of_the_angle_alone(slabs, rng):
    problem, rows, work, found = pair_of_factors(rng), np.empty(5, np.int64), np.empty((9, 5)), []
    wide = problem.loading_precision[0, 0] / problem.loading_precision[0, 1] if slabs else 1.0
    for key in islice(keys_of(slabs), 20_000):
        get_kernels().rotate(problem, np.array([[0, 1]]), key)
        n, angle, frame = angle_of(problem, wide, rows, work)
        found.append(angle % np.pi)
    grid, odds = np.linspace(0, np.pi, 2001), rotation_kernels.pattern_weights(*problem.logit)
    logs = np.array([rotation_kernels.log_rotation(angle, n, frame, wide - 1, odds, work) for angle in grid])
    assert np.ptp(logs) > 1.6, "a flat density would not notice a forgotten proposal"
    assert distance(found, grid, logs) > 1e-3


@pytest.mark.parametrize("wide", [1.0, 2.0 / 0.7, 0.3])
def test_the_density_of_an_angle_is_that_of_scores_and_features(wide, rng):
    """Against the model's own terms: scores N(0, 1), and each feature's normal density for every pattern it may have."""
    problem, rows, work = pair_of_factors(rng), np.empty(5, np.int64), np.empty((9, 5))
    X = np.linalg.cholesky(problem.gram).T
    # residuals in the space of the scores have these products with them; what is outside of it does not matter
    residual = np.linalg.solve(X.T, problem.excess.T).T
    Y = residual + problem.loadings @ X.T
    n, angle, frame = angle_of(problem, wide, rows, work)
    units, odds = np.diag([wide**-0.5, 1.0]), rotation_kernels.pattern_weights(*problem.logit)
    mine, direct = [], []
    for change in np.linspace(0, np.pi, 7):
        mine.append(rotation_kernels.log_rotation(angle + change, n, frame, wide - 1, odds, work))
        turned = X @ units @ reference_rotation.turn(change) @ np.linalg.inv(units)
        total = -0.5 * (turned**2).sum()
        for y in Y:
            parts = []
            for use in ([1.0, 0.0], [0.0, 1.0], [1.0, 1.0]):
                slab = np.diag(use / problem.loading_precision[0])
                fit = distributions.multivariate_normal(
                    np.zeros(len(X)), turned @ slab @ turned.T + np.eye(len(X)) / 1.5
                )
                parts.append(problem.logit @ use + fit.logpdf(y))
            total += np.logaddexp.reduce(parts)
        direct.append(total)
    assert np.ptp(direct) > 1
    np.testing.assert_allclose(np.diff(mine), np.diff(direct), atol=1e-9)


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("wide", [1.0, 3.0])
def test_the_frame_of_a_pair_is_the_same_at_every_angle(used, wide, rng):
    """Or proposals would depend on where the pair is: what comes of an angle must not know the present one."""
    problem, rows, work, frames = pair_of_factors(rng), np.empty(5, np.int64), np.empty((9, 5)), []
    if not used:
        problem.loadings[:], problem.active[:] = 0.0, False
    rotation_kernels.rescale(0, wide**-0.5, problem)
    for _ in range(4):
        frames.append(rotation_kernels._gather(0, 1, wide, problem, rows, work)[2])
        rotation_kernels._turn(0, 1, 0.7, problem)
    np.testing.assert_allclose(frames, np.tile(frames[0], (4, 1)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("pseudo", [0.0, 0.4, 0.02])
def test_columns_have_the_patterns_and_slabs_of_their_posterior(pseudo, backend, rng):
    """A column and its slab precision given the scores, against every pattern's probability by numerical integration.

    Every draw starts from an exact one. With a small pseudo-count the log odds of a factor without users go far down.
    """
    pair, stickiness, slab, size = pair_of_factors(rng), 1.3, (2.5, 1.2), {"reference": 1_500, "numba": 20_000}[backend]
    n_features, X = len(pair.loadings), np.linalg.cholesky(pair.gram).T
    tau, known = np.array([0.8, 0.2, 0.4, 0.1, 0.2]), 0.3 * rng.normal(size=(n_features, 1))
    power, cross, logs = pair.gram[0, 0], pair.excess + pair.loadings @ pair.gram, np.linspace(-5.0, 4.0, 1001)
    problem = Columns(
        pair.loadings, pair.active, pair.usage, np.array([2.0, 0.7]), cross, X.T @ X, tau, True, known, pseudo, stickiness,
        *slab,
    )  # fmt: skip
    patterns = np.array([use for use in product([False, True], repeat=n_features) if any(use) or pseudo])
    precision, left = np.exp(logs), tau * (cross[:, 0] - pair.loadings[:, 1] * pair.gram[0, 1])
    bayes = 0.5 * (np.log(precision / (precision + power)) + left[:, None] ** 2 / tau[:, None] / (precision + power))
    users = patterns.sum(axis=1)[:, None]
    weight = betaln(users + pseudo, n_features - users + stickiness) + patterns @ (bayes + known)
    weight += slab[0] * logs - slab[1] * precision
    share = np.exp(weight - weight.max())
    chance = share.sum(axis=1) / share.sum()
    number, slabs, noise = np.zeros(len(patterns)), [], []
    for key, start in enumerate(rng.choice(share.size, size, p=share.ravel() / share.sum())):
        use, at = divmod(start, len(logs))
        problem.active[:, 0], problem.loadings[:, 0] = patterns[use], np.where(patterns[use], 0.1, 0.0)
        problem.usage[0], problem.loading_precision[0] = users[use, 0], precision[at]
        odds = np.exp(np.subtract(*log_gammas(rng, users[use, 0] + pseudo, n_features - users[use, 0] + stickiness)))
        get_kernels(backend).draw_columns(problem, np.array([0]), np.array([np.log(odds)]), key)
        number[np.flatnonzero((patterns == problem.active[:, 0]).all(axis=1))] += 1
        slabs.append(np.log(problem.loading_precision[0]))
        used, spread = problem.active[:, 0], tau * (problem.loading_precision[0] + power)
        noise += ((problem.loadings[:, 0] - left / spread) * np.sqrt(spread))[used].tolist()
    z = ((number - size * chance) / np.sqrt(size * chance * (1 - chance)))[size * chance > 5]
    assert np.abs(z).max() < 4.5 and z @ z < 3 * len(z), np.round(z, 1)
    assert distance(np.array(slabs), logs, np.log(share.sum(axis=0))) > 1e-3
    assert distributions.kstest(noise, "norm").pvalue > 1e-3


def log_gammas(rng, *shapes):
    """Log of Gamma draws, also of small shapes."""
    return [np.log(rng.standard_gamma(shape + 1)) - rng.standard_exponential() / shape for shape in shapes]


def test_columns_whose_odds_are_beyond_all_bounds_stay_as_they_are(rng):
    pair = pair_of_factors(rng)
    before = pair.loadings.copy()
    problem = Columns(
        pair.loadings, pair.active, pair.usage, np.ones(2), pair.excess + before @ pair.gram, pair.gram, np.ones(5), True,
        np.zeros((5, 0)), 0.0, 1.0, 2.0, 1.0,
    )  # fmt: skip
    for backend in ("reference", "numba"):
        get_kernels(backend).draw_columns(problem, np.array([0, 1]), np.array([800.0, -2000.0]), 1)
        np.testing.assert_array_equal(pair.loadings, before)


@pytest.mark.parametrize("known", [-20.0, -30.0])
def test_odds_of_a_column_that_nobody_is_likely_to_use(known):
    """The probability of any user at all is smaller than what rounding leaves of one minus that of none."""
    log_odds, log_bayes = np.linspace(-20.0, 0.0, 5), known + np.array([0.5, -0.3, 0.1])
    mine = [column_kernels._log_column(x, 0.0, 0.0, 1.3, np.exp(log_bayes)) for x in log_odds]
    total = np.logaddexp(0.0, log_odds[:, None] + log_bayes).sum(axis=1)
    right = total + np.log(-np.expm1(-total)) - (1.3 + 3) * np.logaddexp(0.0, log_odds)
    np.testing.assert_allclose(mine, right, atol=1e-5)


def keys_of(slabs):
    """Keys with which the first pair is rotated in units of the slabs, or of the scores."""
    return (key for key in range(100_000) if (streams.uniform_pairs(key, 0, 0)[1] < streams.ROTATION_SLABS) == slabs)


def test_rotations_in_units_of_the_slabs_turn_broad_factors_of_different_size(rng):
    """Two thousand features hold what thirty samples do not: the angle of the one kind hardly moves."""
    size = np.array([2.0, 1.0])
    X, G = rng.normal(size=(30, 2)), rng.normal(size=(2000, 2)) * size
    Y, spread = G @ X.T + 0.5 * rng.normal(size=(2000, 30)), []
    for slabs in (False, True):
        parts = np.eye(2), X.T @ X, (Y - G @ X.T) @ X, G.copy(), G != 0, np.full(2, 2000)
        problem = Pairs(
            *parts, np.full(2000, 4.0), size[None, :] ** -2.0, np.full(2, 7.0), np.full(2, -1), np.zeros((2000, 0))
        )
        angles = []
        for key in islice(keys_of(slabs), 100):
            get_kernels().rotate(problem, np.array([[0, 1]]), key)
            angles.append(np.arctan2(problem.turn[1, 0], problem.turn[0, 0]))
        spread.append(np.std(angles))
    assert spread[1] > 3 * spread[0], spread


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
