"""Draws of the values behind a table: both backends where numbers are extreme, and the distributions they draw from."""

import numpy as np
import pytest
from scipy import stats

from nsfa.kernels import Hidden, get_kernels
from nsfa.kernels.compiled import fast_exp, jit
from nsfa.latent_samples import LARGEST_PRECISION
from nsfa.model.priors import gamma_log_density, kinds_log_probability

SCALES = np.array([0.0, 3.0, 15.0, 100.0, 1e3, 1e5])
SHARES = np.array([0.9, 0.05, 0.03, 0.01, 0.009, 0.001])


def problem(seen, mean, precision, missing=None) -> Hidden:
    """Values (D, N) that start at their means (D,), zero where missing, with nothing to explain them."""
    n_features, n_samples = seen.shape
    missing = np.zeros((0, 0), dtype=bool) if missing is None else missing
    values = np.repeat(np.asarray(mean, float)[:, None], n_samples, axis=1)
    return Hidden(
        values=np.where(missing, 0.0, values) if missing.size else values,
        seen=np.array(seen, float),
        missing=missing,
        loadings=np.zeros((n_features, 0)),
        scores=np.zeros((0, n_samples)),
        intercept=np.asarray(mean, float),
        noise_precision=np.asarray(precision, float),
    )


@jit
def exponentials(x, out):
    for n in range(len(x)):
        out[n] = fast_exp(x[n])


def test_the_exponential_is_exact_to_the_last_digit():
    x = np.concatenate([np.linspace(-708, 700, 200_001), np.linspace(-1, 1, 20_001)])
    got = np.empty_like(x)
    exponentials(x, got)
    np.testing.assert_allclose(got, np.exp(x), rtol=5e-16)
    ends = np.empty(4)
    exponentials(np.array([-np.inf, np.nan, 1e9, 0.0]), ends)
    np.testing.assert_array_equal(ends[:2] < 1e-300, True)
    assert np.isfinite(ends[2]) and ends[3] == 1.0


def extreme(kind, rng):
    """Seen entries, their means and precisions, far apart."""
    mean, precision = np.repeat([-8.0, -1.0, 0.0, 3.0, 7.0], 4), np.tile([0.02, 1.0, 50.0, 1e4], 5)
    size = len(mean), 41
    if kind == "counts":
        return rng.choice([0, 1, 2, 63, 64, 65, 4000], size=size), mean, precision
    if kind == "binary":
        return rng.integers(2, size=size), mean, np.ones(len(mean))
    return rng.standard_cauchy(size) * 10.0 ** rng.integers(-3, 6, size=size), mean, precision


def draw(backend, kind, given, times=1):
    kernels, level, exposure = (
        get_kernels(backend),
        np.zeros(len(given.seen)),
        0.3 * np.ones(given.seen.shape[1]),
    )
    prior = np.tile([[2.0], [1.5]], len(level))
    for key in range(times):
        if kind == "counts":
            out = [kernels.draw_rates(given, level, exposure, prior, key + 7, 3)]
        elif kind == "binary":
            out = [kernels.draw_signs(given, level, key + 7, 3)]
        else:
            # samples of better and of worse quality
            shares = np.random.default_rng(2).dirichlet(5 * SHARES, given.seen.shape[1])
            out = kernels.draw_outliers(given, shares, SCALES, prior, LARGEST_PRECISION, key + 7, 3)
    return [x for x in out if x is not None]


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("kind", ["robust", "counts", "binary"])
def test_backends_agree_where_numbers_are_extreme(kind, holes):
    rng = np.random.default_rng(5)
    seen, mean, precision = extreme(kind, rng)
    missing = rng.random(seen.shape) < 0.2 if holes else None
    seen = np.where(missing, 0.0, seen) if holes else seen
    both = [problem(seen, mean, precision, missing) for _ in range(2)]
    a, b = draw("reference", kind, both[0], 3), draw("numba", kind, both[1], 3)
    np.testing.assert_allclose(both[1].values, both[0].values, rtol=1e-9, atol=1e-9)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-9)


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("kind", ["robust", "counts", "binary"])
def test_values_hang_on_the_sample_s_number_and_not_on_its_place(kind, backend):
    seen, mean, precision = extreme(kind, np.random.default_rng(5))
    whole, part = problem(seen, mean, precision, None), problem(seen[:, 4:9], mean, precision, None)
    # alike shares, and the noise held: they are what the samples have in common
    kernels, level, held = get_kernels(backend), np.zeros(len(seen)), np.zeros((2, len(seen)))
    for given, numbers in ((whole, 3), (part, np.arange(7, 12))):
        n_samples = given.seen.shape[1]
        if kind == "counts":
            kernels.draw_rates(given, level, 0.3 * np.ones(n_samples), held, 7, numbers)
        elif kind == "binary":
            kernels.draw_signs(given, level, 7, numbers)
        else:
            shares = np.tile(SHARES, (n_samples, 1))
            kernels.draw_outliers(given, shares, SCALES, held, LARGEST_PRECISION, 7, numbers)
    np.testing.assert_allclose(part.values, whole.values[:, 4:9], rtol=1e-12)


@pytest.mark.parametrize(
    ("y", "mean", "precision"),
    [(0, -2.0, 2.0), (0, 2.0, 1.0), (0, 5.0, 5.0), (0, 7.0, 4.0), (1, 0.0, 0.5), (200, 3.0, 4.0), (900, 5.0, 30.0)],
)
def test_log_rates_are_drawn_from_their_conditional(y, mean, precision):
    n_samples, times = 4000, 40
    given = problem(np.full((1, n_samples), y), [mean], [precision])
    # as chains begin: a zero where hundreds were expected, too
    given.values[:] = np.log(max(y, 0.5))
    held = np.zeros((2, 1))
    for key in range(times):
        get_kernels().draw_rates(given, np.zeros(1), np.zeros(n_samples), held, key)
    grid = np.linspace(mean - 12, mean + 12, 200_001)
    height = y * grid - np.exp(grid) - 0.5 * precision * (grid - mean) ** 2
    total = np.cumsum(np.exp(height - height.max()))
    p = stats.kstest(given.values[0], lambda x: np.interp(x, grid, total / total[-1])).pvalue
    assert p > 1e-4


@pytest.mark.parametrize("least", [-3.0, -0.4, 0.0, 0.3, 0.49, 0.51, 2.0, 9.0])
def test_normals_behind_ones_are_cut_off(least):
    given = problem(np.ones((1, 20_000)), [-least], [1.0])
    get_kernels().draw_signs(given, np.zeros(1), 3)
    beyond = given.values[0] + least
    assert stats.kstest(beyond, stats.truncnorm(least, np.inf).cdf).pvalue > 1e-4


@pytest.mark.parametrize("common", [0.3, 40.0])
def test_backends_agree_on_the_parameters_of_shares(common):
    rng = np.random.default_rng(4)
    number = np.array([rng.multinomial(size, rng.dirichlet(common * SHARES)) for size in rng.integers(900, size=60)])
    both = [np.array([50.0, 1e-3, 8.0, 0.2, 1e-30, 3.0]) for _ in range(2)]
    for key in range(20):
        rest = np.array([1.0, 0.2, 0.2, 0.2, 0.2, 0.2]), 0.02, key
        both = [
            get_kernels(name).draw_concentrations(number.astype(float), a, *rest)
            for name, a in zip(("reference", "numba"), both, strict=True)
        ]
        np.testing.assert_allclose(both[1], both[0], rtol=1e-9)


def test_parameters_of_shares_are_drawn_from_their_conditional():
    number, shape, rate = np.array([[3.0, 1.0], [5.0, 0.0], [0.0, 6.0]]), np.array([1.3, 0.7]), 0.4
    grid = np.exp(np.linspace(-14, 6, 400))
    density = np.array([[kinds_log_probability(number, np.array([a, b])) for b in grid] for a in grid])
    prior = [gamma_log_density(grid, s, rate) + np.log(grid) for s in shape]
    density = np.exp(density + prior[0][:, None] + prior[1])
    a, drawn = np.ones(2), []
    for key in range(60_000):
        a = get_kernels().draw_concentrations(number, a, shape, rate, key)
        drawn.append(a)
    # one in twenty is nearly independent of the one before
    some = np.array(drawn)[::20]
    for j in range(2):
        total = np.cumsum(density.sum(axis=1 - j))
        cdf = lambda x, total=total: np.interp(np.log(x), np.log(grid), total / total[-1])  # noqa: E731
        assert stats.kstest(some[:, j], cdf).pvalue > 1e-4


def carried(n_features=12, n_samples=21, n_factors=3, missing=0.0, seed=0):
    """Counts and log rates of some factors, with levels, exposures, and precisions of the loadings."""
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((n_features, n_factors)) * (rng.random((n_features, n_factors)) < 0.5)
    scores, intercept = rng.standard_normal((n_factors, n_samples)), rng.standard_normal(n_features)
    level, exposure = rng.standard_normal(n_features), 0.5 * rng.standard_normal(n_samples)
    values = intercept[:, None] + loadings @ scores + 0.5 * rng.standard_normal((n_features, n_samples))
    gone = rng.random(values.shape) < missing
    seen = rng.poisson(np.exp(values + level[:, None] + exposure)).astype(float)
    # of one feature nothing but zeros
    seen[3] = 0.0
    given = Hidden(
        values=np.where(gone, 0.0, values),
        seen=np.where(gone, 0.0, seen),
        missing=gone if missing else np.zeros((0, 0), dtype=bool),
        loadings=loadings,
        scores=scores,
        intercept=intercept,
        noise_precision=np.full(n_features, 4.0),
    )
    return given, level, exposure, np.exp(rng.standard_normal(loadings.shape))


def carry(kernels, given, level, exposure, precision, key=5, numbers=3):
    """All three draws, one after another: the problem after each."""
    out, given = [], given._replace(values=given.values.copy())
    given = given._replace(intercept=kernels.carry_intercepts(given, level, exposure, key))
    out.append(given._replace(values=given.values.copy()))
    given = given._replace(loadings=kernels.carry_loadings(given, precision, level, exposure, key + 1))
    out.append(given._replace(values=given.values.copy()))
    scores = kernels.carry_scores(given, level, exposure, key + 2, numbers)
    return [*out, given._replace(scores=np.ascontiguousarray(scores.T))]


@pytest.mark.usefixtures("either_size")
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize(("n_samples", "n_factors"), [(21, 3), (16, 1), (33, 9), (5, 0)])
def test_backends_agree_on_what_takes_log_rates_along(n_samples, n_factors, missing):
    given = carried(n_samples=n_samples, n_factors=n_factors, missing=missing)
    for key in range(3):
        stages = [carry(get_kernels(*name), *given, key) for name in (("reference",), ("numba",), ("numba", 2))]
        for first, one, two in zip(*stages, strict=True):
            for name in ("values", "intercept", "loadings", "scores"):
                wanted, found = getattr(first, name), getattr(one, name)
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
                np.testing.assert_array_equal(getattr(two, name), found)
    moved = stages[1][0].intercept != given[0].intercept
    np.testing.assert_array_equal(moved, given[0].seen.any(axis=1))
    assert not moved[3]


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_errors_are_held_where_log_rates_are_taken_along(backend, missing):
    given, *rest = carried(missing=missing)
    last = carry(get_kernels(backend), given, *rest)[-1]
    before, after = (p.values - p.intercept[:, None] - p.loadings @ p.scores for p in (given, last))
    seen = ~given.missing if missing else np.ones(before.shape, dtype=bool)
    np.testing.assert_allclose(after[seen], before[seen], atol=1e-12)
    np.testing.assert_array_equal(last.values[~seen], 0.0)
    np.testing.assert_array_equal(last.loadings == 0.0, given.loadings == 0.0)
    assert (last.loadings != given.loadings).sum() == (given.loadings != 0.0).sum() and (
        last.scores != given.scores
    ).all()


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_scores_that_take_log_rates_along_hang_on_the_sample_s_number(backend):
    given, level, exposure, _ = carried()
    some = slice(4, 9)
    part = given._replace(**{n: np.ascontiguousarray(getattr(given, n)[:, some]) for n in ("values", "seen", "scores")})
    kernels = get_kernels(backend)
    whole = kernels.carry_scores(given, level, exposure, 7, 3)
    scores = kernels.carry_scores(part, level, exposure[some], 7, np.arange(7, 12))
    np.testing.assert_allclose(scores, whole[some], rtol=1e-12)
    np.testing.assert_allclose(part.values, given.values[:, some], rtol=1e-12)


def distribution(grid, height):
    """The distribution function whose log density is ``height``."""
    total = np.cumsum(np.exp(height - height.max()))
    return lambda x: np.interp(x, grid, total / total[-1])


def test_means_loadings_and_scores_that_take_log_rates_along_are_drawn_from_their_conditionals():
    """One number at a time, from far out in many copies of one problem, against its density on a grid."""
    copies, grid, rng = 3000, np.linspace(-6, 6, 4001), np.random.default_rng(3)
    kernels, x, error = get_kernels(), rng.standard_normal(6), 0.5 * rng.standard_normal(6)
    exposure, level, precision = 0.5 * rng.standard_normal(6), 0.3, 2.0
    y = rng.poisson(np.exp(1.0 + 0.8 * x + error + level + exposure)).astype(float)

    def log_likelihood(mean, loading, count, score, error, exposure):
        rate = mean + np.multiply.outer(loading, score) + error + level + exposure
        return (count * rate - np.exp(rate)).sum(axis=-1)

    def features(mean, loading):
        fit = mean[:, None] + loading[:, None] * x
        return Hidden(
            values=fit + error,
            seen=np.tile(y, (copies, 1)),
            missing=np.zeros((0, 0), dtype=bool),
            loadings=loading[:, None].copy(),
            scores=x[None, :].copy(),
            intercept=mean,
            noise_precision=np.ones(copies),
        )

    given, levels = features(np.full(copies, -2.0), np.full(copies, 0.8)), np.full(copies, level)
    drawn = kernels.carry_intercepts(given, levels, exposure, 1)
    height = np.array([log_likelihood(m, 0.8, y, x, error, exposure) for m in grid])
    assert stats.kstest(drawn, distribution(grid, height)).pvalue > 1e-4
    loading = np.full(copies, 2.0)
    for key in range(15):
        given = features(np.ones(copies), loading)
        loading = kernels.carry_loadings(given, np.full((copies, 1), precision), levels, exposure, key)[:, 0]
    height = log_likelihood(1.0, grid, y, x, error, exposure) - 0.5 * precision * grid**2
    assert stats.kstest(loading, distribution(grid, height)).pvalue > 1e-4
    # samples are copies of one: features are those six
    score, ones = np.full(copies, -2.0), np.ones((6, 1))
    for key in range(25):
        given = Hidden(
            values=1.0 + x[:, None] * score + error[:, None],
            seen=np.tile(y[:, None], copies),
            missing=np.zeros((0, 0), dtype=bool),
            loadings=x[:, None].copy(),
            scores=score[None, :].copy(),
            intercept=ones[:, 0],
            noise_precision=ones[:, 0],
        )
        score = kernels.carry_scores(given, np.full(6, level), np.full(copies, -0.2), key)[:, 0]
    height = log_likelihood(1.0, grid, y, x, error, -0.2) - 0.5 * grid**2
    assert stats.kstest(score, distribution(grid, height)).pvalue > 1e-4
