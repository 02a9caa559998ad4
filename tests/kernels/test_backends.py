"""The compiled backend must equal the plain-NumPy reference on the same random numbers."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp

from cases import HOLES, case, centred
from nsfa.data import observe
from nsfa.kernels import (
    Births,
    Columns,
    Doublets,
    Marginal,
    Own,
    Pairs,
    Scales,
    Splits,
    few_missing,
    get_kernels,
    numba_cpu,
)

pytestmark = pytest.mark.usefixtures("either_size")

TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}
PRECISIONS = ("shared", "factor", "element")


def both(part, call):
    """Run ``call(kernels, part)`` on the two backends, each with its own copy of the state, or of the scores."""
    parts = [copy.deepcopy(part) for _ in range(2)]
    results = [call(get_kernels(name, threads=2), p) for name, p in zip(("reference", "numba"), parts, strict=True)]
    return parts, results


def same_state(a, b):
    np.testing.assert_array_equal(a.active, b.active)
    np.testing.assert_array_equal(a.usage, b.usage)
    np.testing.assert_allclose(a.loadings, b.loadings, **TOLERANCE)


def per_feature(noise, n_features):
    """Shapes and rates (2, D) of the features' noise, each its own unless they are held."""
    return np.array(noise)[:, None] * (1 + 0.1 * np.arange(n_features))


def something_known(state, rng):
    """What may be known of the first two factors."""
    state.known = rng.normal(size=(len(state.loadings), 2))


@pytest.mark.parametrize("kind", HOLES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("prior", [(0.0, 1.3), (0.4, 1.0)])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_collapsed_sweep(kind, precision, prior, relative, known, rng):
    state, samples, _ = case(kind=kind, precision=precision)
    state.relative = relative
    if known:
        something_known(state, rng)
    states, residuals = both(
        state, lambda k, s: k.sweep_collapsed(s.loadings, s.active, samples.rows(s), s.usage, prior, 2**63 + 7)
    )
    same_state(*states)
    np.testing.assert_allclose(*residuals, rtol=1e-8, atol=1e-9)
    assert (states[0].loadings != state.loadings).any()


# 150 rows are several blocks of a complete table
@pytest.mark.parametrize(("kind", "n_features"), [*((kind, 9) for kind in HOLES), ("complete", 150)])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize("relative", [False, True])
def test_independent_sweep(kind, precision, per_feature, n_features, relative, rng):
    state, samples, _ = case(kind=kind, precision=precision, n_features=n_features)
    state.relative = relative
    logit = rng.normal(size=(len(state.loadings) if per_feature else 1, state.n_factors))
    anchor = rng.integers(-1, len(state.loadings), state.n_factors)

    def call(k, s):
        s.usage, residual = k.sweep_independent(s.loadings, s.active, samples.rows(s), logit, anchor, 5)
        return residual

    states, residuals = both(state, call)
    same_state(*states)
    np.testing.assert_allclose(*residuals, rtol=1e-8, atol=1e-9)
    held = np.flatnonzero(anchor >= 0)
    assert states[0].active[anchor[held], held].all()


@pytest.mark.parametrize("kind", HOLES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_dense_rows(kind, precision):
    state, samples, _ = case("fa", kind, precision=precision)
    states, residuals = both(state, lambda k, s: k.draw_dense(s.loadings, samples.rows(s), 11))
    same_state(*states)
    np.testing.assert_allclose(*residuals, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", HOLES)
def test_residuals_equal_the_reference_and_the_residual_matrix(kind, rng):
    state, samples, _ = case(kind=kind)
    skip = rng.random(state.n_factors) < 0.3
    which = np.array([7, 0, 3])
    _, (a, b) = both(state, lambda k, s: k.residuals(s.loadings, s.active, samples.rows(s), which, skip))
    np.testing.assert_allclose(a, b, **TOLERANCE)
    fit = state.loadings[:, ~skip] @ samples.scores[:, ~skip].T
    missing = np.zeros_like(fit, bool) if samples.data.missing is None else samples.data.missing
    direct = (np.where(missing, 0.0, centred(state, samples) - fit) ** 2).sum(axis=1)
    np.testing.assert_allclose(a, direct[which], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", HOLES)
def test_scores(kind):
    state, samples, _ = case(kind=kind)
    scores, evidence = both(samples.scores, lambda k, x: k.draw_scores(samples._projection(state), x, 3))
    np.testing.assert_allclose(*scores, **TOLERANCE)
    assert (scores[0] != samples.scores).all()
    np.testing.assert_allclose(*evidence, rtol=1e-9)


@pytest.mark.parametrize("kind", HOLES)
@pytest.mark.parametrize("name", ["reference", "numba"])
def test_scores_of_a_part_are_those_of_the_whole(name, kind):
    """Random numbers go by the samples' numbers in the whole table, those for missing features too."""
    state, samples, _ = case(kind=kind, n_samples=12)
    problem = samples._projection(state)
    part = problem._replace(projection=problem.projection[5:], pattern=problem.pattern[5:])
    whole, kernels = samples.scores.copy(), get_kernels(name, threads=2)
    kernels.draw_scores(problem, whole, 3)
    scores = np.zeros_like(whole[5:])
    kernels.draw_scores(part, scores, 3, numbers=5)
    np.testing.assert_allclose(scores, whole[5:], **TOLERANCE)
    few = few_missing(problem.holes, state.n_factors)[problem.pattern[5:]]
    assert kind != "some" or (few & (samples.data.missing[:, 5:].any(axis=0))).any(), "a small correction is among them"
    kernels.draw_scores(part, scores, 3, numbers=np.arange(5, 12))
    np.testing.assert_allclose(scores, whole[5:], **TOLERANCE)
    # in any order
    back = problem._replace(projection=problem.projection[::-1], pattern=problem.pattern[::-1])
    turned = np.zeros_like(whole)
    kernels.draw_scores(back, turned, 3, numbers=np.arange(12)[::-1])
    np.testing.assert_allclose(turned[::-1], whole, **TOLERANCE)
    kernels.draw_scores(part, scores, 3)
    assert not np.isclose(scores, whole[5:]).any()


@pytest.mark.parametrize("kind", HOLES)
def test_evidence_is_the_gaussian_marginal(kind):
    """Σ_n [½ aᵀΛ⁻¹a − ½ log|Λ|] plus the noise-only terms is log N(y_n; 0, GGᵀ + Ψ) over observed entries."""
    from scipy.stats import multivariate_normal

    state, samples, _ = case(kind=kind)
    gain = get_kernels("numba").draw_scores(samples._projection(state), samples.scores.copy(), 3)
    tau = state.noise_precision
    base = 0.5 * (samples.count @ (np.log(tau) - np.log(2 * np.pi)) - tau @ samples.power)
    covariance = state.loadings @ state.loadings.T + np.diag(1 / tau)
    missing = samples.data.missing if samples.data.missing is not None else np.zeros(samples.data.shape, bool)
    direct = 0.0
    for n in range(samples.data.shape[1]):
        seen = ~missing[:, n]
        direct += multivariate_normal(cov=covariance[np.ix_(seen, seen)]).logpdf(centred(state, samples)[seen, n])
    assert base + gain == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize("kind", HOLES)
def test_urn(kind):
    state, samples, _ = case("bfrm", kind)

    def call(k, part):
        k.draw_urn(samples._projection(state), *part, 0.7, 21)

    ((scores, cluster), others), _ = both((samples.scores, samples.cluster), call)
    np.testing.assert_array_equal(cluster, others[1])
    np.testing.assert_allclose(scores, others[0], **TOLERANCE)
    assert 1 < len(np.unique(cluster)) < len(samples.cluster) + 1


@pytest.mark.parametrize("slab_shape", [0.0, 0.6, 3.0])
@pytest.mark.parametrize("relative", [False, True])
def test_births(slab_shape, relative, rng):
    n = 400
    own = Own(None, None, rng.integers(0, 3, n), rng.gamma(1, 1, n), rng.gamma(5, 2, n))
    problem = Births(
        own=own, noise_precision=rng.gamma(3, 1, n), relative=relative, n_observed=np.full(n, 8.0),
        cumulative=np.array([0.3, 0.6, 0.9, 1.0]), weight=np.array([0.0, -0.5, -1.0, -2.0]),
        slab_shape=slab_shape, slab_rate=1.7,
    )  # fmt: skip
    a, b = (get_kernels(name).draw_births(problem, 77) for name in ("reference", "numba"))
    np.testing.assert_array_equal(a.accepted, b.accepted)
    np.testing.assert_array_equal(a.row, b.row)
    np.testing.assert_allclose(a.loading, b.loading, rtol=1e-10)
    np.testing.assert_allclose(a.precision, b.precision, rtol=1e-10)
    assert 0 < a.accepted.sum() < n
    threaded = get_kernels("numba", threads=2)
    np.testing.assert_array_equal(threaded.draw_births(problem, 77).loading, b.loading)
    # relative slabs: the same in units of the noise
    units = own._replace(square=own.square * problem.noise_precision, residual=own.residual * problem.noise_precision)
    if relative:
        plain = problem._replace(own=units, noise_precision=np.ones(n), relative=False)
        c = get_kernels("reference").draw_births(plain, 77)
        np.testing.assert_array_equal(a.row, c.row)
        np.testing.assert_allclose(a.loading * np.sqrt(problem.noise_precision[a.row]), c.loading, rtol=1e-12)


@pytest.mark.parametrize("kind", HOLES)
def test_score_moments(kind):
    state, samples, _ = case(kind=kind)
    _, (a, b) = both(state, lambda k, s: k.score_moments(samples._projection(s)))
    for left, right in zip(a, b, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-8, atol=1e-10)
    gain = get_kernels("numba").draw_scores(samples._projection(state), samples.scores.copy(), 3)
    assert a[2].sum() == pytest.approx(gain, rel=1e-9)


@pytest.mark.parametrize("kind", ["some", "most"])
def test_predictions(kind):
    state, samples, _ = case(kind=kind)
    sample, row = np.nonzero(samples.data.missing.T)
    _, (a, b) = both(state, lambda k, s: k.predict(samples._projection(s), sample, row))
    np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def products_of(data, backend, n_factors, threads=1):
    rng = np.random.default_rng(3)
    n_features, n_samples = data.shape
    scores, loadings = rng.normal(size=(n_samples, n_factors)), rng.normal(size=(n_features, n_factors))
    kernels, out = get_kernels(backend, threads), np.empty((n_features, n_factors))
    kernels.cross(data, scores, out)
    return out, *kernels.project(data, loadings, rng.gamma(2, 1, n_features)), data.power


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n_factors", [1, 3, 40])
@pytest.mark.parametrize("shape", [(30, 12), (3000, 12)])
def test_sparse_and_dense_tables_give_the_same_products(shape, n_factors, dtype, rng):
    """More samples than a block of them has, and features without an entry in some blocks."""
    table = sp.random_array(shape, density=0.3, rng=rng, format="lil")
    table[: shape[0] // 2, 3] = 0.0
    table = sp.csr_array(table)
    dense = products_of(observe(table.toarray()), "reference", n_factors)
    sparse = observe(table, dtype=dtype)
    tolerance = 1e-9 if dtype == "float64" else 1e-4
    for backend in ("reference", "numba"):
        for a, b in zip(dense, products_of(sparse, backend, n_factors), strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    twins = (products_of(sparse, backend, n_factors) for backend in ("reference", "numba"))
    for a, b in zip(*twins, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_threads_change_no_bit_of_a_sparse_product(rng):
    table = sp.random_array((3000, 90), density=0.3, rng=rng, format="csr")
    one, two = (products_of(observe(table), "numba", 20, threads) for threads in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("shape", [(5000, 40), (40, 5000), (300, 300)])
def test_products_in_single_precision(shape, rng):
    """Long sums in pieces, by samples and by features; what comes out is double and right to seven digits or so."""
    X = rng.normal(size=shape) + 3.0
    exact, single = (products_of(observe(X, dtype=dtype), "numba", 30, 2) for dtype in ("float64", "float32"))
    for a, b in zip(exact, single, strict=True):
        assert b.dtype == np.float64
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6 * np.abs(a).max())
    for a, b in zip(single, products_of(observe(X, dtype="float32"), "numba", 30, 1), strict=True):
        assert np.array_equal(a, b)


def test_scores_in_blocks_are_those_of_the_whole(monkeypatch):
    state, samples, _ = case(n_samples=300, backend="numba")
    problem, whole, parts = samples._projection(state), *np.empty((2, 300, state.n_factors))
    # neither by the loop for few samples
    monkeypatch.setattr(numba_cpu, "_SMALL_SCORES", 0)
    first = samples.kernels.draw_scores(problem, whole, 7)
    monkeypatch.setattr(numba_cpu, "_SAMPLES_PER_BLOCK", 70)
    second = samples.kernels.draw_scores(problem, parts, 7)
    np.testing.assert_allclose(whole, parts, rtol=1e-10, atol=1e-12)
    assert first == pytest.approx(second, rel=1e-12)


def test_unknown_backend_is_named():
    with pytest.raises(ValueError, match="backend must be one of numba, reference. Got 'abacus'"):
        get_kernels("abacus")


@pytest.mark.parametrize("kind", HOLES)
def test_own_factors(kind):
    state, samples, _ = case(kind=kind)
    state.loadings[1:, 0], state.active[1:, 0], state.usage[0] = 0.0, False, 1
    state.loadings[0, 0], state.active[0, 0] = 1.3, True
    rows = samples.rows(state)
    residual = samples.residuals(state)
    _, (a, b) = both(state, lambda k, s: k.own_factors(s.loadings, s.active, rows, s.usage, residual))
    for left, right in zip(a, b, strict=True):
        np.testing.assert_allclose(left, right, **TOLERANCE)
    assert a.number[0] >= 1 and a.residual[0] != residual[0]


def test_gammas(rng):
    shape, rate = rng.gamma(1, 2, 5000), rng.gamma(2, 1, 5000)
    a, b = (get_kernels(name).draw_gammas(shape, rate, 78) for name in ("reference", "numba"))
    np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_array_equal(get_kernels("numba", threads=2).draw_gammas(shape, rate, 78), b)
    order = np.arange(len(shape))[::-1]
    for name in ("reference", "numba"):
        turned = get_kernels(name).draw_gammas(shape[order], rate[order], 78, order)
        np.testing.assert_allclose(turned[order], b, rtol=1e-12)


@pytest.mark.parametrize("shape", [0.0, 1.7])
def test_rescale(shape, rng):
    G, X = rng.normal(size=(9, 20)), rng.normal(size=(8, 20))
    usage, square = rng.integers(1, 9, 20), (G**2).sum(axis=0)
    results = []
    for name in ("reference", "numba"):
        problem = Scales((X**2).sum(axis=0), usage, square, 8.0, shape, 0.8)
        up, down = get_kernels(name).rescale(problem, 5)
        np.testing.assert_allclose((G * down) @ (X * up).T, G @ X.T, atol=1e-9)
        # and nothing of the problem is changed
        np.testing.assert_array_equal(problem.power, (X**2).sum(axis=0))
        np.testing.assert_array_equal(problem.square, (G**2).sum(axis=0))
        results.append(X * up)
    np.testing.assert_allclose(*results, rtol=1e-8)
    assert np.log(results[0] / X).std() > 0.05


@pytest.mark.parametrize("slab", [(0.0, 1.3), (1.7, 0.6)])
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_splits(slab, rows, rng):
    """Slabs that are absolute, or relative with a precision per factor or per loading."""
    active = np.zeros((40, 30), dtype=bool)
    active[rng.integers(0, 20, 30), np.arange(30)] = True
    active[:, :4] |= rng.random((40, 4)) < 0.3
    G = np.where(active, rng.normal(size=active.shape), 0.0)
    precision = rng.gamma(2, 1, (max(rows, 1), 30))
    weight = np.array([active.sum(axis=1), (precision * G**2).sum(axis=1)]) if rows else np.zeros((2, 40))
    noise = (1.2, 0.7), rng.gamma(2, 1, 40)
    problem = Splits(G, active, active.sum(axis=0), *noise, weight, precision, slab, 0.8, 10.0, bool(rows))
    for key in range(5):
        a, b = (get_kernels(name).draw_splits(problem, key) for name in ("reference", "numba"))
        np.testing.assert_allclose(a.noise_precision, b.noise_precision, rtol=1e-10)
        np.testing.assert_array_equal(a.row, b.row)
        np.testing.assert_allclose(a.loading, b.loading, rtol=1e-12)
        np.testing.assert_array_equal(a.dead, b.dead)
        assert len(a.row) and len(a.dead[0]) and a.noise_precision.max() <= 10.0


@pytest.mark.parametrize("steps", [1, 5, 60])
def test_climbs_to_what_features_share(steps, rng):
    u = rng.normal(size=40)
    residual = rng.normal(size=(60, 40)) + np.outer(np.repeat([2.0, 0.0], [20, 40]), u)
    residual[50] = 0.0
    start = u / np.linalg.norm(u) + 0.3 * rng.normal(size=40)
    given = residual, start / np.linalg.norm(start), (1.0, 0.9), 1.4, steps
    a, b = (get_kernels(name).climb(*given) for name in ("reference", "numba"))
    for one, other in zip(a, b, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)
    if steps == 60:
        assert abs(a[0] @ u) > 0.98 * np.linalg.norm(u) and 0.25 < a[2] < 0.45
    # nothing left: no direction is better than the start
    empty = np.zeros_like(residual), *given[1:]
    for name in ("reference", "numba"):
        np.testing.assert_array_equal(get_kernels(name).climb(*empty)[0], given[1])


@pytest.mark.parametrize("slab", [(1.5, 0.7), (0.0, 2.0)], ids=["factor", "shared"])
@pytest.mark.parametrize("relative", [False, True])
def test_doublets(slab, relative, rng):
    residual = rng.normal(size=(6, 9)) + np.outer([1, -1, 0, 0, 0.5, 0], rng.normal(size=9))
    feature, loading, scores = np.array([[0, 3], [1, 2]]), rng.normal(size=(2, 2)), rng.normal(size=(2, 9))
    births, deaths = 0, 0
    for key in range(5):
        results = []
        for name in ("reference", "numba"):
            left, variance, prior = residual.copy(), np.full(6, 0.8), np.array([[2.0] * 6, [1.5] * 6])
            lists = feature, loading, 1.0, prior, slab, relative, np.array([1.2, 0.7])
            found, new = get_kernels(name).draw_doublets(Doublets(variance, 0.01, *lists), left, scores, 40, key)
            results.append((*found, new, left, variance, prior))
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
        kept, pair, g, _, accepted, x, left, variance, _ = results[0]
        # what came and went again is counted twice
        assert accepted - len(pair) - (~kept).sum() in range(0, 40, 2)
        births, deaths = births + len(pair), deaths + (~kept).sum()
        # nothing is lost: what the factors do not explain any more is residual, and each feature keeps its variance
        whole, power = left.copy(), variance.copy()
        for i in range(len(pair)):
            whole[pair[i]] += np.outer(g[i], x[i])
            power[pair[i]] += g[i] ** 2
        before, power_before = residual.copy(), np.full(6, 0.8)
        for i in np.flatnonzero(~kept):
            before[feature[i]] += np.outer(loading[i], scores[i])
            power_before[feature[i]] += loading[i] ** 2
        np.testing.assert_allclose(whole, before, atol=1e-9)
        np.testing.assert_allclose(power, power_before, atol=1e-9)
    assert births and deaths


@pytest.mark.parametrize("move", ["tilt", "rotate"])
@pytest.mark.parametrize("rows", [1, 12])
@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("n_known", [0, 2])
def test_pairs_of_factors(move, rows, anchored, n_known, rng):
    active = rng.random((12, 5)) < 0.6
    active[0] = True
    G, X = np.where(active, rng.normal(size=active.shape), 0.0), rng.normal(size=(9, 5))
    Y = G @ X.T + 0.3 * rng.normal(size=(12, 9))
    tau, precision, logit = rng.gamma(4, 1, 12), rng.gamma(2, 1, (rows, 5)), rng.normal(size=5)
    anchor = np.zeros(5, np.int64) if anchored else np.full(5, -1)
    known = rng.normal(size=(12, n_known))
    pairs = np.array([(k, j) for k in range(5) for j in range(5) if k != j])
    results, accepted = [], []
    for name in ("reference", "numba"):
        parts = [np.eye(5), X.T @ X, (Y - G @ X.T) @ X, G.copy(), active.copy(), active.sum(axis=0)]
        problem = Pairs(*parts, tau, precision, logit, anchor, known)
        accepted.append(getattr(get_kernels(name), move)(problem, pairs, 7))
        turn, gram, excess, loadings, now, usage = parts
        scores = X @ turn
        np.testing.assert_allclose(scores.T @ scores, gram, atol=1e-9)
        np.testing.assert_allclose((Y - loadings @ scores.T) @ scores, excess, atol=1e-9)
        np.testing.assert_array_equal(now.sum(axis=0), usage)
        assert (loadings[~now] == 0).all() and (now[0].all() or not anchored)
        results.append(parts)
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)
    assert accepted[0] == accepted[1] > 2 and (results[0][4] != active).any()
    if n_known:
        parts = [np.eye(5), X.T @ X, (Y - G @ X.T) @ X, G.copy(), active.copy(), active.sum(axis=0)]
        getattr(get_kernels(), move)(Pairs(*parts, tau, precision, logit, anchor, np.zeros((12, 0))), pairs, 7)
        assert not np.allclose(parts[3], results[0][3]), "what is known has a say"


def test_rotations_of_factors_that_every_feature_uses(rng):
    """Their odds may be beyond what a float holds; no feature may lose both factors, and none its anchor."""
    for logit in (np.array([800.0, 0.0]), np.array([800.0, 800.0]), np.array([800.0, -800.0])):
        G, X = rng.normal(size=(6, 2)), rng.normal(size=(9, 2))
        active, Y = np.ones((6, 2), bool), G @ X.T
        parts = [np.eye(2), X.T @ X, (Y - G @ X.T) @ X, G, active, active.sum(axis=0), np.ones(6), np.ones((1, 2))]
        problem = Pairs(*parts, logit, np.array([2, 4]), np.zeros((6, 0)))
        get_kernels().rotate(problem, np.array([[0, 1]] * 20), 3)
        assert active.any(axis=1).all() and active[2, 0] and active[4, 1] and np.isfinite(G).all()


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("slab", [(0.0, 1.3), (1.7, 0.6)])
@pytest.mark.parametrize("pseudo", [0.0, 0.4])
@pytest.mark.parametrize("n_known", [0, 2])
@pytest.mark.parametrize("strength", [1.0, 40.0])
def test_columns(relative, slab, pseudo, n_known, strength, rng):
    """Also where data say more of a loading than the exponential of a float can hold."""
    active = rng.random((12, 5)) < 0.6
    active[0] = True
    G, X = np.where(active, strength * rng.normal(size=active.shape), 0.0), rng.normal(size=(9, 5))
    Y = G @ X.T + 0.3 * rng.normal(size=(12, 9))
    tau, precision, known = rng.gamma(4, 1, 12), rng.gamma(2, 1, 5), rng.normal(size=(12, n_known))
    factors, log_odds, results = np.array([3, 0, 1, 4]), rng.normal(size=4), []
    for name in ("reference", "numba"):
        parts = G.copy(), active.copy(), active.sum(axis=0), precision.copy()
        problem = Columns(*parts, Y @ X, X.T @ X, tau, relative, known, pseudo, 1.2, *slab)
        get_kernels(name).draw_columns(problem, factors, log_odds, 7)
        loadings, now, usage, slabs = parts
        np.testing.assert_array_equal(now.sum(axis=0), usage)
        np.testing.assert_array_equal(now, loadings != 0)
        np.testing.assert_array_equal(loadings[:, 2], G[:, 2])
        assert (slabs[factors] != precision[factors]).all() == (slab[0] > 0) and slabs[2] == precision[2]
        results.append(parts)
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)
    assert (results[0][1] != active).any() or strength > 1
    if n_known and strength == 1:
        parts = G.copy(), active.copy(), active.sum(axis=0), precision.copy()
        unknown = Columns(*parts, Y @ X, X.T @ X, tau, relative, known[:, :0], pseudo, 1.2, *slab)
        get_kernels().draw_columns(unknown, factors, log_odds, 7)
        assert not np.allclose(parts[0], results[0][0]), "what is known has a say"


def test_shears(rng):
    X, G = rng.normal(size=(9, 5)), rng.normal(size=(7, 5))
    inside, precision = rng.random((5, 5)) < 0.5, rng.gamma(2, 1, 5)
    results = []
    for name in ("reference", "numba"):
        gram, inner = X.T @ X, G.T @ G
        M, W = get_kernels(name).draw_shears(gram, inner, precision, inside, 5)
        np.testing.assert_allclose(G @ W @ (X @ M).T, G @ X.T, atol=1e-9)
        np.testing.assert_allclose((X @ M).T @ (X @ M), gram, atol=1e-9)
        np.testing.assert_allclose((G @ W).T @ (G @ W), inner, atol=1e-9)
        results.append((M, W))
    np.testing.assert_allclose(results[0], results[1], atol=1e-9)
    assert np.abs(results[0][0] - np.eye(5)).max() > 0.1


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("prior", [(0.0, 1.3), (0.4, 1.0)])
@pytest.mark.parametrize("noise", [(0.0, 1.0), (2.0, 1.5)])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_marginal_sweep(precision, prior, noise, relative, known, rng):
    state, samples, _ = case(precision=precision)
    state.relative = relative
    if known:
        something_known(state, rng)
    # some features below the least noise variance: they stay as they are
    least = np.where(np.arange(9) % 3 == 0, 1.01, 0.5) / state.noise_precision

    def call(k, s):
        problem = Marginal(np.ascontiguousarray(s.loadings), s.active, s.usage, 1 / s.noise_precision, least,
                           s.slab_rows, prior, per_feature(noise, 9), relative, s.prior_offset)  # fmt: skip
        k.sweep_marginal(problem, centred(s, samples), 91)
        s.loadings[:] = problem.loadings
        return problem.noise_variance

    states, psi = both(state, call)
    same_state(*states)
    np.testing.assert_allclose(*psi, rtol=1e-8)
    assert (states[0].active != state.active).any()
    np.testing.assert_array_equal(states[0].loadings[::3], state.loadings[::3])
    assert (psi[0] >= np.minimum(least, 1 / state.noise_precision)).all()
    states[0].check_invariants()


@pytest.mark.parametrize("name", ["reference", "numba"])
@pytest.mark.parametrize("kind", ["complete", "some"])
@pytest.mark.parametrize("sweep", ["collapsed", "marginal"])
def test_what_is_known_for_certain_decides(sweep, kind, name, rng):
    """Of the first two factors, but not of the third."""
    state, samples, _ = case(kind=kind, n_features=30, precision="factor")
    sure = rng.random((30, 2)) < 0.5
    state.known = np.where(sure, 60.0, -60.0)
    kernels, third = get_kernels(name, threads=2), state.active[:, 2].copy()
    if sweep == "collapsed":
        kernels.sweep_collapsed(state.loadings, state.active, samples.rows(state), state.usage, (0.0, 1.3), 4)
    else:
        problem = Marginal(np.ascontiguousarray(state.loadings), state.active, state.usage, 1 / state.noise_precision,
                           np.zeros(30), state.slab_rows, (0.0, 1.3), per_feature((2.0, 1.5), 30), state.relative,
                           state.prior_offset)  # fmt: skip
        kernels.sweep_marginal(problem, centred(state, samples), 4)
    # rows with the scores integrated out may be refused
    assert (state.active[:, :2] == sure).mean() > (0.9 if sweep == "marginal" else 0.99)
    assert 0.1 < (state.active[:, 2] == third).mean() < 0.99
