"""Each move's odds and moments against differences of the log joint: the oracle knows nothing of S, T, q."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats as distributions

from cases import HOLES, case, centred
from nsfa.kernels import few_missing, modules
from nsfa.kernels.reference import ReferenceKernels, _row_gram, entry_conditional
from nsfa.kernels.reference_moves import log_split_ratio
from nsfa.model import Gamma, Priors, priors
from nsfa.model.joint import log_joint, log_prior
from nsfa.moves import births, concentration, doublet, loadings, module, precisions, rotation, shear, split
from nsfa.samples import noise_posterior


def joint(state, samples, spec):
    return sum(log_joint(state, samples, spec).values())


def with_entry(state, d, k, value):
    new = copy.deepcopy(state)
    new.active[d, k] = value != 0
    new.loadings[d, k] = value
    new.usage = new.active.sum(axis=0)
    return new


PRIOR_ODDS = {
    "nsfa": lambda s, m, D: m / (s.stickiness + D - 1 - m),
    "sfa": lambda s, m, D: (m + loadings.finite_pseudo_count(s)) / (s.stickiness + D - 1 - m),
}


@pytest.mark.parametrize("kind", HOLES)
@pytest.mark.parametrize("precision", ["shared", "factor", "element"])
@pytest.mark.parametrize("name", ["nsfa", "sfa", "bfrm"])
def test_entry_odds_and_moments(name, kind, precision):
    """log p(z=1, g, ·) − log N(g; μ, 1/ℓ) − log p(z=0, ·) is the log odds, for any g."""
    state, samples, spec = case(name, kind, precision=precision)
    n_features = len(state.loadings)
    rows = samples.rows(state)
    checked = 0
    for d, k in [(0, 0), (3, 1), (5, 2), (8, 0)]:
        others = state.usage[k] - state.active[d, k]
        if name == "nsfa" and others == 0:
            continue
        gram = _row_gram(rows, d)
        covariate = rows.cross[d, k] - gram[k] @ state.loadings[d] + gram[k, k] * state.loadings[d, k]
        lam = np.broadcast_to(state.slab_rows, state.loadings.shape)[d, k]
        ell, mean, log_bayes = entry_conditional(covariate, gram[k, k], state.noise_precision[d], lam)
        if name == "bfrm":
            p = spec.priors.reliability * state.sparsity[k]
            odds = p / (1 - p)
        else:
            odds = PRIOR_ODDS[name](state, others, n_features)
        off = joint(with_entry(state, d, k, 0.0), samples, spec)
        for g in (mean + 0.3, -1.1):
            on = joint(with_entry(state, d, k, g), samples, spec) - distributions.norm(mean, ell**-0.5).logpdf(g)
            assert on - off == pytest.approx(np.log(odds) + log_bayes, abs=1e-8)
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize("kind", ["complete", "some"])
@pytest.mark.parametrize("name", ["nsfa", "sfa", "bfrm"])
def test_entry_odds_of_a_sweep_where_something_is_known(name, kind, monkeypatch, rng):
    """The odds that the sweep itself gives to every entry, pattern and loadings held, against the joint's."""
    state, samples, spec = case(name, kind, precision="factor")
    state.known = rng.normal(size=(len(state.loadings), 2))
    prior, rows = {}, samples.rows(state)

    def note(self, loadings, active, rows, gram, d, k, odds, key):
        prior[d, k] = odds
        return active[d, k]

    monkeypatch.setattr(ReferenceKernels, "_draw_entry", note)
    KNOWN_UPDATES[name](state, samples, spec, rng)
    assert len(prior) == state.loadings.size
    for (d, k), odds in prior.items():
        if odds is None:
            assert name == "nsfa" and state.usage[k] == 1 and state.active[d, k]
            continue
        gram = _row_gram(rows, d)
        covariate = rows.cross[d, k] - gram[k] @ state.loadings[d] + gram[k, k] * state.loadings[d, k]
        lam = np.broadcast_to(state.slab_rows, state.loadings.shape)[d, k]
        ell, mean, log_bayes = entry_conditional(covariate, gram[k, k], state.noise_precision[d], lam)
        off = joint(with_entry(state, d, k, 0.0), samples, spec)
        for g in (mean + 0.3, -1.1):
            on = joint(with_entry(state, d, k, g), samples, spec) - distributions.norm(mean, ell**-0.5).logpdf(g)
            assert on - off == pytest.approx(odds + log_bayes, abs=1e-8)


KNOWN_UPDATES = {
    "nsfa": loadings.update_buffet_collapsed,
    "sfa": loadings.update_finite_collapsed,
    "bfrm": loadings.update_two_level,
}
UPDATES = {
    "nsfa": (loadings.update_buffet_collapsed, loadings.update_buffet_parallel),
    "sfa": (loadings.update_finite_collapsed, loadings.update_finite_parallel),
}


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", UPDATES)
def test_what_is_known_for_certain_decides_in_every_sweep(name, parallel, rng):
    state, samples, spec = case(name, n_features=30, precision="factor", backend="numba")
    sure = rng.random((30, 2)) < 0.5
    state.known = np.where(sure, 60.0, -60.0)
    UPDATES[name][parallel](state, samples, spec, rng)
    # an anchor stays, or the last one that uses a factor
    assert (state.active[:, :2] == sure).mean() > 0.9
    state.check_invariants()


def test_what_is_known_of_factors_keeps_them_from_births_and_deaths(rng):
    state, samples, spec = case("nsfa", precision="factor")
    state.known = rng.normal(size=(len(state.loadings), 2))
    state.loadings[1:, :2], state.active[1:, :2] = 0.0, False
    state.loadings[0, :2], state.active[0, :2], state.usage[:2] = 0.7, True, 1
    samples.residual = samples.residuals(state)
    for move in (births.update_births, split.update_split, births.update_births, split.update_split):
        accepted, _ = move(state, samples, spec, rng)
        assert accepted and (state.usage[:2] == 1).all() and (state.loadings[0, :2] == 0.7).all()
        samples.draw_scores(state, 5)
        samples.refresh(state)
        samples.residual = samples.residuals(state)
        state.check_invariants()


@pytest.mark.parametrize("kind", ["complete", "some"])
def test_birth_ratio_is_the_ratio_of_marginals(kind):
    """Target ratio L(g*) Po(κ*) / L(g) Po(κ), against the joint with the new scores integrated out by quadrature-free
    Gaussian algebra: log p(y_d | G) of the marginal covariance, and the buffet's own probability of the pattern."""
    from nsfa.kernels.reference import log_marginal

    state, samples, spec = case("nsfa", kind, precision="factor")
    d, g = 2, 0.8
    n_features = len(state.loadings)
    kept = state.usage > 1
    rows = samples.rows(state)
    residual = samples.kernels.residuals(state.loadings, state.active, rows, np.array([d]), ~kept)[0]
    missing = samples.data.missing[d] if samples.data.missing is not None else np.zeros(samples.data.shape[1], bool)
    error = (centred(state, samples)[d] - state.loadings[d, kept] @ samples.scores[:, kept].T)[~missing]
    psi = 1 / state.noise_precision[d]
    with_factor = distributions.norm(0, np.sqrt(psi + g * g)).logpdf(error).sum()
    without = distributions.norm(0, np.sqrt(psi)).logpdf(error).sum()
    got = log_marginal(g * g, residual, state.noise_precision[d], samples.count[d])
    assert got == pytest.approx(with_factor - without, abs=1e-8)

    # adding a singleton column changes the pattern's probability by Po(1; γ)/Po(0; γ), up to the column's label
    usage = state.usage
    alpha, beta = state.concentration, state.stickiness
    more = priors.buffet_log_probability(np.append(usage, 1), n_features, alpha, beta)
    less = priors.buffet_log_probability(usage, n_features, alpha, beta)
    rate = births.birth_rate(state, n_features)
    poisson = np.log(rate)
    # 1/K! instead of 1/κ!: K+1 places for the new column
    assert more - less + np.log(len(usage) + 1) == pytest.approx(poisson, abs=1e-10)


ABSOLUTE = Priors(
    concentration=Gamma(40.0, 10.0), noise=Gamma(3, 2), loading_shape=3.0, relative=False, intercept=False
)


@pytest.mark.parametrize("changes", [{}, {"priors": ABSOLUTE}], ids=["relative", "absolute"])
def test_split_ratio_is_a_difference_of_log_priors(changes, monkeypatch):
    """A share of one feature's noise becomes a factor of its own, its slab precision integrated out on a grid."""
    state, samples, spec = case("nsfa", precision="factor", **changes)
    problems = []
    monkeypatch.setattr(
        samples.kernels, "draw_splits", lambda problem, key: problems.append(problem) or 1 / 0, raising=False
    )
    with pytest.raises(ZeroDivisionError):
        split.update_split(state, samples, spec, np.random.default_rng(0))
    d = int(np.argmax(state.active.sum(axis=1)))
    variance, n_factors = 1 / state.noise_precision[d], state.n_factors
    g = 0.6 * np.sqrt(variance)
    own = int(((state.usage == 1) & state.active[d]).sum())
    weight = problems[0].weight[0, d], problems[0].weight[1, d]
    got = log_split_ratio(g, variance - g * g, own, weight, problems[0])
    grid, logs, wider = np.geomspace(1e-4, 1e3, 4000), [], copy.copy(samples)
    wider.set_scores(np.column_stack([samples.scores, np.zeros(samples.n_samples)]))
    for value in grid:
        new = copy.deepcopy(state)
        new.add(np.array([[d]]), np.array([[g]]), np.array([value]))
        new.noise_precision[d] = 1 / (variance - g * g)
        logs.append(sum(log_prior(new, wider, spec).values()))
    more = np.log(np.trapezoid(np.exp(np.array(logs) - max(logs)), grid)) + max(logs)
    less = sum(log_prior(state, samples, spec).values())
    # densities of ψ, not of τ; scores integrated out; K + 1 places for the column; g drawn with density |g|/ψ
    jacobian = 2 * np.log(variance) - 2 * np.log(variance - g * g)
    scores = 0.5 * samples.n_samples * np.log(2 * np.pi)
    expected = more - less + jacobian + scores + np.log(n_factors + 1) - np.log(own + 1) + np.log(variance / g)
    assert got == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("changes", [{}, {"priors": ABSOLUTE}], ids=["relative", "absolute"])
def test_shears_are_drawn_from_their_conditional(changes, rng):
    state, samples, spec = case("nsfa", precision="factor", **changes)
    samples.keep(state.drop(np.arange(2, state.n_factors)))
    state.active[:, 0] = True
    state.active[:, 1] = np.arange(9) < 5
    state.loadings[:] = np.where(state.active, rng.normal(size=(9, 2)), 0.0)
    state.usage = state.active.sum(axis=0)
    samples.refresh(state)

    def sheared(a):
        new, moved = copy.deepcopy(state), copy.deepcopy(samples)
        moved.scores[:, 1] += a * moved.scores[:, 0]
        new.loadings[:, 0] -= a * new.loadings[:, 1]
        return joint(new, moved, spec)

    down, here, up = sheared(-1.0), sheared(0.0), sheared(1.0)
    precision = 2 * here - up - down
    mean = 0.5 * (up - down) / precision
    draws, before = [], samples.scores.copy()
    for _ in range(3000):
        samples.set_scores(before)
        samples.refresh(state)
        shear.update_shear(copy.deepcopy(state), samples, spec, rng)
        draws.append((samples.scores[:, 1] - before[:, 1]) @ before[:, 0] / (before[:, 0] ** 2).sum())
    z = (np.array(draws) - mean) * np.sqrt(precision)
    assert distributions.kstest(z, "norm").pvalue > 1e-3


@pytest.mark.parametrize("changes", [{}, {"priors": ABSOLUTE}], ids=["relative", "absolute"])
def test_births_without_data_have_loadings_of_their_slab(changes, rng):
    state, samples, spec = case("nsfa", precision="factor", n_features=40, backend="numba", **changes)
    state.noise_precision = rng.gamma(1.0, 3.0, 40)
    empty = copy.copy(samples)
    empty.count, empty.power, drawn = np.zeros(40), np.zeros(40), []
    for _ in range(400):
        empty.residual, empty.cross = np.zeros(40), np.zeros((40, state.n_factors))
        empty.gram, empty.valid = np.zeros((state.n_factors,) * 2), True
        births.update_births(state, empty, spec, rng)
        empty.set_scores(np.zeros((empty.n_samples, state.n_factors)))
        own = state.usage == 1
        rows = state.active[:, own].argmax(axis=0)
        drawn.append(
            state.loadings[rows, np.flatnonzero(own)]
            * np.sqrt(state.slab_rows[rows % len(state.slab_rows), np.flatnonzero(own)])
        )
    values = np.concatenate(drawn[::5])
    assert len(values) > 300 and distributions.kstest(values, "norm").pvalue > 1e-3


def test_splits_keep_each_feature_s_own_variance(rng):
    state, samples, spec = case("nsfa")
    state.noise_precision = np.full(len(state.noise_precision), 0.5)
    changed = 0
    for _ in range(30):
        own = state.usage == 1
        before = 1 / state.noise_precision + (state.loadings[:, own] ** 2).sum(axis=1)
        count = state.n_factors
        split.update_split(state, samples, spec, rng)
        own = state.usage == 1
        np.testing.assert_allclose(1 / state.noise_precision + (state.loadings[:, own] ** 2).sum(axis=1), before)
        changed += count != state.n_factors
        state.check_invariants()
    assert changed > 3


def test_proposal_table_sums_to_one_and_contains_the_spike(rng):
    cumulative, weight = births.proposal_tables(0.4, 3.0, 0.2, 2)
    mass = np.diff(cumulative, prepend=0.0)
    assert cumulative[-1] == pytest.approx(1.0, abs=1e-12)
    direct = 0.8 * distributions.poisson(1.2).pmf(np.arange(len(mass)))
    direct[1] += 0.2
    np.testing.assert_allclose(mass, direct, atol=1e-15)
    some = slice(0, 8)
    prior = distributions.poisson(0.4).logpmf(np.arange(len(mass)))
    np.testing.assert_allclose(weight[some], prior[some] - np.log(direct[some]), atol=1e-6)


@pytest.mark.parametrize("kind", HOLES)
@pytest.mark.parametrize("setting", ["diagonal", "isotropic", "shared"])
def test_noise_posterior(kind, setting):
    state, samples, spec = case("nsfa", kind, noise=setting)
    samples.residual = samples.residuals(state)
    count, residual = samples.noise_evidence(state)
    if setting == "isotropic":
        residual, count = residual.sum(keepdims=True), count.sum(keepdims=True)
    shape, rate = noise_posterior(spec.priors.noise.shape, state.noise_rate, count, residual)
    which = slice(None) if setting == "isotropic" else 3

    def at(value):
        new = copy.deepcopy(state)
        new.noise_precision[which] = value
        return joint(new, samples, spec)

    a, b = (
        np.atleast_1d(shape)[0 if setting == "isotropic" else 3],
        np.atleast_1d(rate)[0 if setting == "isotropic" else 3],
    )
    density = distributions.gamma(a, scale=1 / b).logpdf
    assert at(1.7) - at(0.6) == pytest.approx(density(1.7) - density(0.6), abs=1e-8)


@pytest.mark.parametrize("precision", ["shared", "factor", "element"])
def test_slab_posterior(precision):
    state, samples, spec = case("nsfa", precision=precision)
    square, count = state.loadings**2 * state.noise_precision[:, None], state.active
    where = {"shared": (), "factor": (1,), "element": (2, 1)}[precision]
    total = {"shared": square.sum(), "factor": square.sum(axis=0), "element": square}[precision]
    used = {"shared": count.sum(), "factor": count.sum(axis=0), "element": count}[precision]
    shape, rate = precisions.slab_posterior(spec.priors.loading_shape, state.loading_rate, used, total)

    def at(value):
        new = copy.deepcopy(state)
        new.loading_precision = np.array(new.loading_precision)
        new.loading_precision[where] = value
        return joint(new, samples, spec)

    density = distributions.gamma(np.asarray(shape)[where], scale=1 / np.asarray(rate)[where]).logpdf
    assert at(1.7) - at(0.6) == pytest.approx(density(1.7) - density(0.6), abs=1e-8)


@pytest.mark.parametrize("kind", ["some", "most"])
def test_scores_are_drawn_from_their_conditional(kind):
    """Moments of many draws equal those of the Gaussian whose log density is the joint's dependence on x_n."""
    state, samples, spec = case("nsfa", kind, n_features=6, n_samples=5)
    problem = samples._projection(state)
    kernels = samples.kernels
    draws = np.array([_draw(kernels, problem, samples, key) for key in range(4000)])
    n_missing = samples.data.missing.sum(axis=0)
    # two ways to draw them: by a correction for few missing features, and from the observed ones
    few = few_missing(problem.holes, state.n_factors)[problem.pattern]
    assert (few & (n_missing > 0)).any() if kind == "some" else not few.all()
    for n in range(5):
        seen = ~samples.data.missing[:, n]
        G, tau = state.loadings[seen], state.noise_precision[seen]
        covariance = np.linalg.inv(G.T @ (tau[:, None] * G) + np.eye(state.n_factors))
        mean = covariance @ G.T @ (tau * centred(state, samples)[seen, n])
        z = (draws[:, n].mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / len(draws))
        assert np.abs(z).max() < 4.5
        np.testing.assert_allclose(np.cov(draws[:, n].T), covariance, atol=0.08)


def _draw(kernels, problem, samples, key):
    out = samples.scores.copy()
    kernels.draw_scores(problem, out, key)
    return out


@pytest.mark.parametrize(
    ("name", "update", "attribute"),
    [
        ("nsfa", concentration.update_concentration_buffet, "concentration"),
        ("nsfa", concentration.update_stickiness_buffet, "stickiness"),
        ("sfa", concentration.update_concentration_finite, "concentration"),
        ("sfa", concentration.update_stickiness_finite, "stickiness"),
    ],
)
def test_buffet_parameters_are_drawn_from_their_conditional(name, update, attribute, rng):
    """A histogram of draws against the normalised joint on a grid."""
    state, samples, spec = case(name, stickiness="infer")
    grid = np.exp(np.linspace(np.log(1e-3), np.log(60), 4000))
    log_density = np.empty(len(grid))
    trial = copy.deepcopy(state)
    for i, value in enumerate(grid):
        setattr(trial, attribute, float(value))
        log_density[i] = sum(log_prior(trial, samples, spec).values())
    weight = np.exp(log_density - log_density.max()) * np.gradient(grid)
    distribution = np.cumsum(weight) / weight.sum()
    draws = np.empty(6000)
    for i in range(len(draws)):
        update(state, samples, spec, rng)
        draws[i] = getattr(state, attribute)
    thinned = draws[::5]
    assert distributions.kstest(np.interp(thinned, grid, distribution), "uniform").pvalue > 1e-3


def test_births_replace_singletons_and_keep_the_state_consistent(rng):
    state, samples, spec = case("nsfa", backend="numba", n_features=30, n_samples=6, precision="element")
    samples.residual = samples.residuals(state)
    seen = set()
    for _ in range(60):
        births.update_births(state, samples, spec, rng)
        samples.set_scores(rng.standard_normal((samples.n_samples, state.n_factors)))
        samples.refresh(state)
        samples.residual = samples.residuals(state)
        state.check_invariants()
        assert (state.usage > 0).all()
        seen.add(state.n_factors)
    assert len(seen) > 3


def test_anchors_are_uniform_among_the_rows_that_use_a_factor(rng):
    """Also where the first uniform row misses, which is how sparse factors get theirs."""
    state, _, _ = case("nsfa", n_features=12, seed=5)
    k = int(np.argmax(state.usage))
    users = np.flatnonzero(state.active[:, k])
    assert 2 < len(users) < 12
    anchors = np.array([loadings.draw_anchors(state, rng)[0] for _ in range(4000)])
    assert state.active[anchors, np.arange(state.n_factors)].all()
    counts = np.bincount(anchors[:, k], minlength=12)[users]
    assert distributions.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("rate", [1e-6, 0.16, 3.0, 700.0])
def test_proposal_table_holds_all_the_mass_at_any_rate(rate):
    cumulative, _ = births.proposal_tables(rate, 1.0, 0.0, 0)
    assert cumulative[-1] == pytest.approx(1.0, abs=1e-9)
    assert len(cumulative) < 60 + rate + 20 * np.sqrt(rate)


@pytest.mark.usefixtures("either_size")
def test_anchors_are_uniform_among_the_users_of_a_factor(rng):
    state, _, _ = case(n_features=6)
    state.active[:] = False
    state.active[[0, 3, 4], 0], state.active[5, 1:] = True, True
    state.usage = state.active.sum(axis=0)
    anchors = np.array([loadings.draw_anchors(state, rng)[0] for _ in range(6000)])
    assert (anchors[:, 1:] == 5).all()
    counts = np.bincount(anchors[:, 0], minlength=6)
    assert counts[[1, 2, 5]].sum() == 0
    assert distributions.chisquare(counts[[0, 3, 4]]).pvalue > 1e-3


def test_long_tables_rotate_fewer_pairs_at_a_time():
    numbers = []
    for n_features in (5, 3_000, 3_200, 100_000):
        state = SimpleNamespace(loadings=np.zeros((n_features, 6)), n_factors=6)
        numbers.append(rotation.number_of_pairs(state))
    assert numbers == [43, 43, 40, 13]


def test_doublets_leave_scores_beside_the_factors_they_belong_to(rng):
    """After births and deaths the residual sums of squares are those of the residual matrix."""
    state, samples, spec = case("nsfa", backend="numba", n_features=12, n_samples=15)
    changed = 0
    for _ in range(40):
        before = state.n_factors
        info = doublet.update_doublet(state, samples, spec, rng)
        changed += info.accepted > 0 and state.n_factors != before
        direct = ((centred(state, samples) - state.loadings @ samples.scores.T) ** 2).sum(axis=1)
        np.testing.assert_allclose(samples.residuals(state), direct, rtol=1e-8, atol=1e-9)
        left = 1 / state.noise_precision + (state.loadings**2).sum(axis=1)
        assert (left > 0).all()
    assert changed > 5


def test_factors_of_many_features_come_and_go_with_their_scores(rng, monkeypatch):
    monkeypatch.setattr(modules, "LEAST_USERS", 2)
    monkeypatch.setattr(modules, "LEAST_SPREAD", 1.5)
    state, samples, spec = case("nsfa", "some", backend="numba", n_features=12, n_samples=15)
    born, died = 0, 0
    for _ in range(200):
        before = state.n_factors
        info = module.update_module(state, samples, spec, rng)
        assert abs(state.n_factors - before) <= info.accepted <= info.tried
        born, died = born + (state.n_factors > before), died + (state.n_factors < before)
        state.check_invariants()
        samples.rows(state)
        assert samples.scores.shape[1] == state.n_factors == len(state.loading_precision)
        np.testing.assert_allclose(samples.gram, samples.scores.T @ samples.scores)
    assert born and died


def test_a_missing_factor_of_many_features_comes_at_once(rng):
    """As it was: its scores, its users, and its size."""
    x, loading = rng.normal(size=30), np.where(np.arange(400) < 60, 1.0, 0.0)
    state, samples, spec = case("nsfa", backend="numba", n_features=400, n_samples=30)
    table = np.outer(loading, x) + rng.normal(size=(400, 30))
    samples.data.values[:] = table
    samples.keep(state.drop(np.arange(state.n_factors)))
    state.noise_precision[:] = 1.0
    if state.intercept is not None:
        state.intercept[:] = 0.0
    samples.refresh(state)
    for _ in range(100):
        if not state.n_factors:
            module.update_module(state, samples, spec, rng)
    fit = state.loadings[:60, 0].mean() * samples.scores[:, 0]
    assert np.corrcoef(fit, x)[0, 1] > 0.95 and 0.7 < fit.std() / x.std() < 1.3
    # the others by chance: thirty samples do not say more
    assert state.active[:60, 0].sum() > 50 and state.active[60:, 0].mean() < 0.25
    # and it stays
    for _ in range(20):
        module.update_module(state, samples, spec, rng)
    assert state.n_factors == 1


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (np.zeros((9, 99)), "at most K"),
        (np.zeros((3, 1)), "D = 9"),
        (np.zeros(9), "known must be"),
        (np.full((9, 1), np.inf), "between ±100"),
        (np.full((9, 1), np.nan), "between ±100"),
    ],
)
def test_what_cannot_be_known_is_refused(known, sentence):
    state, _, _ = case()
    with pytest.raises(ValueError, match=sentence):
        state.know(known)
