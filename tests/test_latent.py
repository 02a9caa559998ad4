"""Tables that only hint at their Gaussian values: outliers, counts, zeros and ones, from the fit to the answers."""

import html
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import integrate, stats

import nsfa
from nsfa import NSFA, SFA, ModelSpec
from nsfa.chain import Chain, chain_generator
from nsfa.data import observe, observe_discrete
from nsfa.kernels import get_kernels
from nsfa.latent_samples import samples_of
from nsfa.metrics import match_factors
from nsfa.model import Priors, preset
from nsfa.model.joint import log_joint
from nsfa.model.priors import outlier_scales
from nsfa.posterior import outliers
from nsfa.posterior.latent import poisson_normal_log_mass, row_numbers, seen_draw, seen_mean
from nsfa.report import write_report

SETTINGS = {
    "robust": {"noise": "robust"},
    "counts": {"likelihood": "counts"},
    "binary": {"likelihood": "binary"},
}
N_SAMPLES, N_FEATURES = 120, 30
SHORT = {"chains": 2, "tune": 60, "draws": 40, "thin": 1, "random_state": 0, "n_jobs": 1}


def simulate(kind, seed=0, n_samples=N_SAMPLES, n_features=N_FEATURES):
    """A table of three factors on ten features each, and their loadings."""
    rng = np.random.default_rng(seed)
    loadings = np.kron(np.eye(3), np.ones((n_features // 3, 1)))
    loadings *= rng.choice([-1.0, 1.0], loadings.shape)
    values = rng.standard_normal((n_samples, 3)) @ loadings.T
    if kind == "robust":
        return values + rng.standard_t(3, values.shape), loadings
    if kind == "counts":
        depth = 0.5 * rng.standard_normal((n_samples, 1))
        return rng.poisson(np.exp(values + depth)).astype(float), loadings
    return (values + rng.standard_normal(values.shape) > 0).astype(float), loadings


@pytest.fixture(scope="module", params=SETTINGS)
def fitted(request):
    """A fit with a tenth of the entries missing, the whole table, its loadings, and what was missing."""
    X, loadings = simulate(request.param)
    missing = np.random.default_rng(1).random(X.shape) < 0.1
    model = NSFA(**{**SHORT, "draws": 60}, **SETTINGS[request.param])
    with pytest.warns(match="converged|Not|settled|draws"):
        model.fit(np.where(missing, np.nan, X))
    return model, X, loadings, missing


def test_planted_factors_are_found(fitted):
    model, _, loadings, _ = fitted
    assert model.n_components_ == 3
    assert np.abs(match_factors(loadings, model.components_.T)[2]).min() > 0.9


def test_hidden_entries_are_predicted_on_their_own_scale(fitted):
    model, X, _, missing = fitted
    log = model.posterior_.log_predictive_density(X, missing)
    y, plain = X[missing], np.broadcast_to(np.nanmean(np.where(missing, np.nan, X), axis=0), X.shape)[missing]
    if model.noise == "robust":
        by_feature = stats.norm(plain, X.std()).logpdf(y)
    elif model.likelihood == "counts":
        by_feature = stats.poisson(plain).logpmf(y)
    else:
        by_feature = stats.bernoulli(plain).logpmf(y)
    assert log.mean() > by_feature.mean() + 0.03
    if model.likelihood != "gaussian":
        assert (log < 0).all()
        # the probabilities of all values sum to one
        some = missing & (np.arange(X.shape[1]) == 3) & (np.arange(len(X)) < 40)[:, None]
        values = range(2) if model.likelihood == "binary" else range(60)
        total = sum(np.exp(model.posterior_.log_predictive_density(np.full_like(X, v), some)) for v in values)
        np.testing.assert_allclose(total, 1.0, atol=0.02)


def test_what_is_expected_of_rare_counts_is_near_what_was_seen():
    """What a few counts say of their noise leaves it such tails that a mean without end would have no value."""
    rng = np.random.default_rng(3)
    level = np.concatenate([np.full(20, np.log(0.03)), np.full(20, np.log(3.0))])
    X = rng.poisson(np.exp(level + 0.3 * rng.standard_normal((60, 40)))).astype(float)
    X = X[:, X.any(axis=0)]
    with pytest.warns(match="converged|Not|settled|draws"):
        model = NSFA(likelihood="counts", **{**SHORT, "draws": 100}).fit(X)
    noise = np.array([1.0 / draw.noise_precision for draw in model.posterior_.draws]).max(axis=0)
    assert noise[:10].max() > 20, "the noise of some rare genes is large in some draws"
    holes = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    filled, largest = model.impute(holes), X.max(axis=0)
    ratio = filled.mean(axis=0) / X.mean(axis=0)
    assert (filled <= 4 * largest).all() and ratio.min() > 0.5 and ratio.max() < 2


@pytest.mark.parametrize("deviation", [0.3, 2.0, 14.0])
def test_means_of_counts_end_at_their_ceiling(deviation):
    z = stats.norm(-0.4, deviation)
    density = lambda x: np.exp(min(x, 1.5) + 0.7) * z.pdf(x)  # noqa: E731
    expected = sum(integrate.quad(density, *ends, limit=400)[0] for ends in ((-40, 1.5), (1.5, 60)))
    spec, given = ModelSpec(likelihood="counts"), (np.array([-0.4]), np.array([deviation**2]), np.array([0.7]))
    np.testing.assert_allclose(seen_mean(spec, *given, np.array([1.5])), expected, rtol=1e-3)
    np.testing.assert_array_equal(seen_mean(spec, *given, np.array([-np.inf])), 0.0)


@pytest.mark.parametrize(("level", "near"), [(1.0, 0.2), (5.0, 0.3)])
def test_counts_are_predicted_with_the_size_factors_that_were_drawn(level, near):
    """Totals that one gene rules say little of how much was counted: draws know better."""
    rng = np.random.default_rng(0)
    rate = rng.standard_normal((60, 1)) @ rng.standard_normal((1, 40)) * 0.3 + level
    rate[:, 0] += 3.0 + 1.5 * rng.standard_normal(60)
    X = rng.poisson(np.exp(rate)).astype(float)
    missing = (rng.random(X.shape) < 0.1) & (np.arange(40) > 0)
    model = NSFA(likelihood="counts", **SHORT)
    with pytest.warns(match="converged|Not|settled|draws"):
        model.fit(np.where(missing, np.nan, X))
    posterior = model.posterior_
    mean = np.mean([draw.exposure for draw in posterior.draws], axis=0)
    sample = np.nonzero(missing)[0]
    filled = np.log(posterior.predict_missing(missing)) - rate[missing]
    apart = (posterior.data.exposure - mean)[sample]
    # what the totals are wrong by would stand in the predictions
    assert apart.std() > 0.2 and abs(np.corrcoef(filled, apart)[0, 1]) < 0.3
    log = posterior.log_predictive_density(X, missing)
    # ... and the best that can be said, rates known, is not far
    assert log.mean() > stats.poisson(np.exp(rate[missing])).logpmf(X[missing]).mean() - near


def test_the_report_says_what_loadings_are_of(fitted, tmp_path):
    model = fitted[0]
    kind = "robust" if model.noise == "robust" else model.likelihood
    write_report(tmp_path / "report.html", model)
    text = html.unescape((tmp_path / "report.html").read_text())
    terms = {"robust": "the scaled table", "counts": "the genes' log rates", "binary": "the genes' probit values"}
    for name, of in terms.items():
        assert (
            (f"% of the variance of {of}." in text) == (f"Share of the variance of {of} that" in text) == (name == kind)
        )
    for of_measurements in ("in the table's units", "standard deviation of the gene<"):
        assert (of_measurements in text) == (kind == "robust"), of_measurements
    assert ("doubles its rate" in text) == (kind == "counts") and ("a one is seen" in text) == (kind == "binary")
    assert ("are outliers with a probability of one half or more" in text) == (kind == "robust")


def test_holes_are_filled_as_the_table_is_written(fitted):
    model, X, _, missing = fitted
    holes = np.where(missing, np.nan, X)
    filled, low, high = model.impute(holes, level=0.9)
    np.testing.assert_array_equal(filled[~missing], X[~missing])
    assert ((low <= X) & (high >= X))[missing].mean() > 0.8
    error, plain = (filled - X)[missing], (np.nanmean(holes, axis=0) - X)[missing]
    assert (error**2).mean() < (plain**2).mean()
    if model.likelihood == "binary":
        assert filled.min() >= 0 and filled.max() <= 1
    if model.likelihood != "gaussian":
        ends = np.concatenate([low[missing], high[missing]])
        assert (ends == np.rint(ends)).all() and ends.min() >= 0
    # a row of new samples as well as the table itself
    assert np.isfinite(model.impute(holes[:5])).all()


def test_scores_of_new_samples(fitted):
    model, X, _, missing = fitted
    own, again = model.posterior_.consensus().scores, model.transform(np.where(missing, np.nan, X))
    assert all(np.corrcoef(own[:, k], again[:, k])[0, 1] > 0.9 for k in range(3))
    some, deviation = model.transform(X[:7], return_std=True)
    assert some.shape == deviation.shape == (7, 3) and (deviation > 0).all()


def test_scores_hang_on_the_sample_s_own_entries_alone(fitted, monkeypatch):
    """Whatever others are beside it and in whatever order: alone, in small blocks, complete or with entries missing."""
    monkeypatch.setattr("nsfa.posterior.latent.ROUNDS", 6)
    model, X, _, missing = fitted
    new = np.where(missing, np.nan, X)[:24]
    new[:4] = X[:4]
    mean, deviation = model.transform(new, return_std=True)
    order = np.random.default_rng(3).permutation(24)
    np.testing.assert_allclose(model.transform(new[order]), mean[order], rtol=1e-9, atol=1e-9)
    for i in (0, 3, 11):
        alone = model.transform(new[i : i + 1], return_std=True)
        np.testing.assert_allclose(alone, (mean[i : i + 1], deviation[i : i + 1]), rtol=1e-9, atol=1e-9)
    monkeypatch.setattr("nsfa.posterior.project.BLOCK_ENTRIES", 7 * X.shape[1])
    np.testing.assert_allclose(model.transform(new), mean, rtol=1e-9, atol=1e-9)
    # samples have numbers of their own: what chance adds to one is not added to all
    filled = model.impute(np.where(missing, np.nan, X)[:24])
    assert np.isfinite(filled).all() and len(np.unique(row_numbers(model.posterior_.data))) == N_SAMPLES


def test_scores_of_new_samples_are_those_of_the_fit(fitted):
    """What is drawn of samples that come later agrees with what the chains drew of the same samples."""
    model, X, _, missing = fitted
    scores = model.posterior_.consensus().scores
    again = model.transform(np.where(missing, np.nan, X))
    for k in range(model.n_components_):
        assert np.corrcoef(scores[:, k], again[:, k])[0, 1] > 0.98
        # ... and is not drawn towards nothing, where it begins
        assert np.polyfit(again[:, k], scores[:, k], 1)[0] == pytest.approx(1.0, abs=0.05)


def test_shares_of_new_samples_are_drawn_about_their_numbers():
    X = simulate("robust", n_samples=400)[0]
    spec = preset("nsfa", noise="robust")
    data = observe(X)
    samples = samples_of(data, spec, get_kernels())
    state = Chain(samples, spec, chain_generator(0, 0)).state
    samples.part(row_numbers(data), state)
    weight = np.array([30.0, 4.0, 2.0, 1.0, 0.5, 0.5])[: samples.outlier_share.shape[1]]
    shares = samples._draw_shares(np.tile(weight, (400, 1)), np.random.default_rng(0))
    expected = stats.dirichlet(weight)
    np.testing.assert_allclose(shares.mean(axis=0), expected.mean(), atol=5 * np.sqrt(expected.var().max() / 400))
    np.testing.assert_allclose(shares.var(axis=0), expected.var(), rtol=0.5)


def test_outliers_are_as_probable_as_their_scales_say():
    spec = preset("nsfa", noise="robust")
    scales = outlier_scales(spec.priors)
    share = np.linspace(8.0, 1.0, len(scales)) / np.linspace(8.0, 1.0, len(scales)).sum()
    error = np.array([[0.0, 1.0, 2.5, 6.0]])
    each = share[:, None] * stats.norm(0, np.sqrt(1.0 + scales)[:, None]).pdf(error)
    draw = SimpleNamespace(outlier_share=share[None, :])
    np.testing.assert_allclose(outliers._given(draw, error**2, spec)[0], each[1:].sum(axis=0) / each.sum(axis=0))


def test_replicates_have_the_tails_that_their_samples_shares_say():
    spec = preset("nsfa", noise="robust")
    scales, n = outlier_scales(spec.priors), 200_000
    share = np.linspace(8.0, 1.0, len(scales)) / np.linspace(8.0, 1.0, len(scales)).sum()
    one = np.ones(n)
    drawn = seen_draw(spec, np.tile(share, (n, 1)), 0 * one, one, one, 0 * one, np.random.default_rng(0))
    cdf = lambda x: (share * stats.norm.cdf(np.asarray(x)[:, None] / np.sqrt(1.0 + scales))).sum(axis=1)  # noqa: E731
    assert stats.kstest(drawn, cdf).pvalue > 1e-3


def test_what_has_no_closed_form_is_refused(fitted):
    with pytest.raises(ValueError, match="Densities of whole samples need Gaussian noise"):
        fitted[0].score(fitted[1])


def test_a_stored_fit_answers_and_goes_on_to_the_bit(fitted, tmp_path):
    model, X, _, missing = fitted
    holes = np.where(missing, np.nan, X)[:, :12]
    short = {**SHORT, "tune": 4, "draws": 6, **{k: getattr(model, k) for k in ("noise", "likelihood")}}
    with pytest.warns():
        whole = NSFA(**short).fit(holes, store=tmp_path / "whole").posterior_
    with pytest.warns():
        NSFA(**{**short, "draws": 3}).fit(holes, store=tmp_path / "parts")
    resumed = nsfa.resume(tmp_path / "parts", draws=3, n_jobs=1)
    loaded = nsfa.load(tmp_path / "whole")
    assert loaded.spec == whole.spec
    for one in (resumed, loaded):
        for a, b in zip(one.draws, whole.draws, strict=True):
            np.testing.assert_array_equal(a.loadings(), b.loadings())
            np.testing.assert_array_equal(a.drawn_scores, b.drawn_scores)
            np.testing.assert_array_equal(a.noise_precision, b.noise_precision)
            np.testing.assert_array_equal(a.outlier_share, b.outlier_share)
            np.testing.assert_array_equal(a.outlier_concentration, b.outlier_concentration)
            assert a.scalars["log_joint"] == b.scalars["log_joint"]
    np.testing.assert_array_equal(loaded.impute(holes), whole.impute(holes))


@pytest.mark.usefixtures("either_size")
@pytest.mark.parametrize("kind", SETTINGS)
def test_backends_and_threads_draw_the_same(kind):
    X = simulate(kind, n_samples=25, n_features=9)[0]
    X[np.random.default_rng(2).random(X.shape) < 0.1] = np.nan
    spec = preset("nsfa", **SETTINGS[kind])
    data = observe(X) if kind == "robust" else observe_discrete(X, kind)
    chains = [
        Chain(samples_of(data, spec, get_kernels(*kernels)), spec, chain_generator(0, 0), start=2)
        for kernels in (("reference", 1), ("numba", 1), ("numba", 2))
    ]
    for chain in chains:
        for _ in range(4):
            chain.sweep()
    for other in chains[1:]:
        np.testing.assert_allclose(other.samples.data.values, chains[0].samples.data.values, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(other.state.noise_precision, chains[0].state.noise_precision, rtol=1e-7)
    np.testing.assert_array_equal(chains[1].samples.data.values, chains[2].samples.data.values)


def test_outliers_are_listed(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 20))
    X[4, 7], X[30, 2], X[11, 11] = 12.0, -15.0, np.nan
    with pytest.warns():
        posterior = NSFA(**SHORT, noise="robust").fit(X).posterior_
    table = posterior.outliers()
    assert {(4, 7), (30, 2)} <= set(zip(table["sample"], table["feature"], strict=True))
    assert len(table) < 12 and (table["probability"].iloc[:2] > 0.99).all()
    np.testing.assert_allclose(
        table["value"], [X[i, j] for i, j in zip(table["sample"], table["feature"], strict=True)]
    )
    assert np.abs(table["expected"]).max() < 3
    with pytest.raises(ValueError, match="noise='robust'"):
        NSFA(**SHORT).fit(X).posterior_.outliers()


def test_samples_have_shares_of_outliers_of_their_own():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 80))
    bad = np.arange(40) % 4 == 0
    X[bad] *= np.where(rng.random((10, 80)) < 0.3, 8.0, 1.0)
    hidden = rng.random(X.shape) < 0.1
    with pytest.warns():
        posterior = NSFA(**SHORT, noise="robust").fit(np.where(hidden, np.nan, X)).posterior_
    share = posterior.outlier_shares()
    assert share.shape == (40,)
    assert share[bad].min() > 0.12 > np.quantile(share[~bad], 0.9)
    poor = posterior.poor_samples()
    assert set(poor) == set(np.flatnonzero(bad)) and (np.diff(share[poor]) <= 0).all()
    # hidden entries have their own samples' shares, those of new samples too
    both = [hidden & rows[:, None] for rows in (bad, ~bad)]
    found = [posterior.log_predictive_density(np.full_like(X, 6.0), where).mean() for where in both]
    assert found[0] > found[1] + 1
    new = np.where(hidden, np.nan, X)[:8]
    _, low, high = posterior.impute(new, level=0.98)
    width = [np.mean((high - low)[hidden[:8] & rows[:8, None]]) for rows in (bad, ~bad)]
    assert width[0] > 1.5 * width[1]
    with pytest.raises(ValueError, match="noise='robust'"):
        NSFA(**SHORT).fit(X).posterior_.outlier_shares()


def test_samples_are_called_by_their_names(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 20))
    X[4] *= np.where(rng.random(20) < 0.5, 15.0, 1.0)
    frame = pd.DataFrame(X, index=[f"patient {n}" for n in range(40)])
    with pytest.warns():
        posterior = NSFA(**SHORT, noise="robust").fit(frame, store=tmp_path / "run").posterior_
    for each in (posterior, nsfa.load(tmp_path / "run")):
        table, share = each.outliers(), each.outlier_shares()
        assert list(table["sample_name"]) == [f"patient {n}" for n in table["sample"]] and len(table)
        assert share.idxmax() == "patient 4" and share.index.name == "sample"
        assert [frame.index[n] for n in each.poor_samples()] == ["patient 4"]
    write_report(tmp_path / "report.html", posterior)
    page = (tmp_path / "report.html").read_text()
    assert "One sample clearly has more of them than the usual" in page and "badly: patient 4 (" in page
    # numbered rows have no names, those of other tables neither
    assert posterior.data.like(X).sample_names is None
    assert observe(pd.DataFrame(X)).sample_names is None
    assert observe_discrete(pd.DataFrame(1.0 * (X > 0), index=frame.index), "binary").sample_names[3] == "patient 3"
    # of samples that are alike none is named
    with pytest.warns():
        alike = NSFA(**SHORT, noise="robust").fit(rng.standard_t(3, (40, 20))).posterior_
    assert not len(alike.poor_samples()) and "sample_name" not in alike.outliers()
    write_report(tmp_path / "report.html", alike)
    assert "No sample clearly has more of them" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_draw_keeps_what_is_the_samples_own(kind):
    X = simulate(kind, n_samples=12, n_features=6)[0]
    spec = preset("nsfa", **SETTINGS[kind])
    data = observe(X) if kind == "robust" else observe_discrete(X, kind)
    samples = samples_of(data, spec, get_kernels())
    chain = Chain(samples, spec, chain_generator(0, 0), start=2)
    draw = chain.draw(chain.sweep(), 0.0)
    assert draw.scores is None and draw.drawn_scores.dtype == np.float32
    np.testing.assert_allclose(draw.drawn_scores, samples.scores, rtol=1e-6)
    assert (draw.outlier_share is not None) == ("outliers" in draw.scalars) == (kind == "robust")
    assert (draw.exposure is not None) == (kind == "counts")
    if kind == "robust":
        # a share that rounds to zero in single precision would have no logarithm
        samples.outlier_share[0] = [1.0, *[0.0] * (samples.outlier_share.shape[1] - 1)]
        numbers, columns = samples.recorded()
        assert (columns["outlier_share"] > 0).all()
        assert numbers["outliers"] == 1.0 - samples.outlier_share[:, 0].mean()


def test_outliers_in_the_log_joint(rng):
    """One entry that becomes an outlier changes the log joint by its odds, its sample's shares integrated out."""
    X = simulate("robust", n_samples=12, n_features=6)[0]
    spec = preset("nsfa", noise="robust")
    chain = Chain(samples_of(observe(X), spec, get_kernels()), spec, chain_generator(0, 0), start=2)
    chain.sweep()
    samples, state = chain.samples, chain.state
    before, number, a = log_joint(state, samples, spec), samples.outlier_number.copy(), state.outlier_concentration
    samples.outlier_number[4, 0] -= 1
    samples.outlier_number[4, 2] += 1
    deviation, scale = 1.7, spec.priors.outlier_scales[1]
    state.outlier_weight[:, 3] += [1.0, deviation**2 / scale]
    after = log_joint(state, samples, spec)
    wanted = np.log((a[2] + number[4, 2]) / (a[0] + number[4, 0] - 1))
    wanted += stats.norm(0, np.sqrt(scale / state.noise_precision[3])).logpdf(deviation)
    np.testing.assert_allclose(sum(after.values()) - sum(before.values()), wanted)


def test_the_log_joint_knows_of_what_is_seen():
    """Differences of the log joint in one value are those of its own terms."""
    X = simulate("counts", n_samples=12, n_features=6)[0]
    spec = preset("nsfa", likelihood="counts")
    chain = Chain(samples_of(observe_discrete(X, "counts"), spec, get_kernels()), spec, chain_generator(0, 0), start=2)
    chain.sweep()
    samples, state = chain.samples, chain.state
    before, value = log_joint(state, samples, spec), samples.data.values[2, 3]
    fit = state.intercept[2] + state.loadings[2] @ samples.scores[3]
    level = samples.level[2] + samples.exposure[3]
    samples.data.values[2, 3] += 0.4
    after = log_joint(state, samples, spec)
    wanted = stats.poisson(np.exp(value + 0.4 + level)).logpmf(X[3, 2]) - stats.poisson(np.exp(value + level)).logpmf(
        X[3, 2]
    )
    normal = stats.norm(fit, state.noise_precision[2] ** -0.5)
    wanted += normal.logpdf(value + 0.4) - normal.logpdf(value)
    np.testing.assert_allclose(sum(after.values()) - sum(before.values()), wanted)


@pytest.mark.parametrize(("y", "mean", "variance"), [(0, -1.0, 0.5), (3, 0.0, 2.0), (40, 1.0, 0.05), (0, 4.0, 1.0)])
def test_mass_of_a_count(y, mean, variance):
    normal = stats.norm(mean, np.sqrt(variance))
    ends = mean - 12 * np.sqrt(variance), mean + 12 * np.sqrt(variance)
    exact, _ = integrate.quad(lambda x: stats.poisson(np.exp(x)).pmf(y) * normal.pdf(x), *ends, limit=500, epsabs=0)
    found = poisson_normal_log_mass(np.array([float(y)]), np.array([mean]), np.array([variance]))
    np.testing.assert_allclose(found, np.log(exact), rtol=1e-3)


def test_sparse_counts_are_those_of_the_dense_table():
    X = simulate("counts", n_samples=30, n_features=9)[0]
    one, other = observe_discrete(X, "counts"), observe_discrete(sp.csr_array(X), "counts")
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.exposure, other.exposure)


def test_size_factors():
    X = simulate("counts", n_samples=200, n_features=30)[0]
    total = observe_discrete(X, "counts")
    np.testing.assert_allclose(np.exp(total.exposure), X.sum(axis=1) / X.mean(axis=0).sum())
    assert total.exposure_spread > 0
    none = observe_discrete(X, "counts", None)
    assert not none.exposure.any() and none.exposure_spread == 0
    given = observe_discrete(X, "counts", np.arange(1, 201))
    np.testing.assert_allclose(np.diff(given.exposure), np.diff(np.log(np.arange(1, 201))))
    # hidden entries do not count, on either side
    holes = X.copy()
    holes[0, :15] = np.nan
    expected = np.log(np.nansum(holes[0]) / np.nanmean(holes, axis=0)[15:].sum())
    np.testing.assert_allclose(observe_discrete(holes, "counts").exposure[0], expected)
    with pytest.raises(ValueError, match="a positive number for each of 200 samples"):
        observe_discrete(X, "counts", [1.0, 2.0])


def test_what_has_no_counts_is_named():
    X = simulate("counts", n_samples=20, n_features=9)[0]
    X[[1, 5, 6, 7]], X[:, 2] = 0, 0
    frame = pd.DataFrame(X, index=[f"cell {n}" for n in range(20)])
    named = r"4 sample\(s\) have no counts at all \('cell 1', 'cell 5', 'cell 6' and 1 more\): nothing"
    with pytest.warns(match=named), pytest.warns(match="do not vary and get zero loadings: feature '2'"):
        data = observe_discrete(frame, "counts")
    assert data.shape == (8, 20) and np.isfinite(data.exposure).all()
    with pytest.warns(match=r"no counts at all \(1, 5, 6 and"):
        observe_discrete(np.delete(X, 2, axis=1), "counts")
    with pytest.warns(match="do not vary") as told:
        observe_discrete(np.minimum(X, 1), "binary")
    assert len(told) == 1


def test_what_is_no_count_is_told_with_what_to_do():
    X = simulate("counts", n_samples=20, n_features=6)[0]
    X[3, 2] = -0.25
    frame = pd.DataFrame(X, index=[f"cell {n}" for n in range(20)])
    with pytest.raises(
        ValueError, match="Got -0.25 at sample 'cell 3', feature '2'; use .* such as logarithms of norm"
    ):
        observe_discrete(frame, "counts")
    with pytest.raises(ValueError, match="Got 0.25 at sample 3.*no whole numbers, such as normalised counts"):
        observe_discrete(np.abs(X), "counts")
    # of zeros and ones something else is advised
    table = np.minimum(np.abs(X), 1.0)
    with pytest.raises(ValueError, match="Got 0.25 at sample 3, .*; use likelihood='gaussian' for measurements"):
        observe_discrete(table, "binary")
    table[3, 2] = 2.0
    with pytest.raises(ValueError, match="Got 2 at .*; use likelihood='counts' for counts, or 'gaussian' for"):
        observe_discrete(table, "binary")


def test_tables_of_another_kind_are_refused():
    X = simulate("counts", n_samples=20, n_features=6)[0]
    for likelihood, value, wanted in (
        ("counts", 0.5, "whole numbers"),
        ("counts", -1.0, "whole"),
        ("binary", 2, "ones"),
    ):
        table = np.minimum(X, 1)
        table[3, 2] = value
        with pytest.raises(ValueError, match=f"needs a table of .*{wanted}.*at sample 3, feature 2"):
            NSFA(likelihood=likelihood).fit(table)
    with pytest.raises(ValueError, match="dense table"):
        NSFA(noise="robust", **SHORT).fit(sp.csr_array(X))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"size_factors": "totl"},
            "size_factors is for likelihood='counts'. Got 'totl' with likelihood='gaussian'; lea",
        ),
        ({"size_factors": None, "likelihood": "binary"}, "Got None with likelihood='binary'; leave it out"),
        ({"size_factors": np.ones(20)}, "Got an array with likelihood='gaussian'; leave it out"),
        ({"size_factors": "totl", "likelihood": "counts"}, "must be 'total', None, or a positive number .* Got 'totl'"),
        ({"size_factors": 2.0, "likelihood": "counts"}, "for each of 20 samples. Got 2.0"),
        ({"size_factors": ["a"] * 20, "likelihood": "counts"}, "Got an array of shape .20,. with other values"),
        ({"size_factors": [[1.0], [1.0, 2.0]], "likelihood": "counts"}, "Got a list of other things"),
        ({"size_factors": np.ones(3), "likelihood": "counts"}, "Got an array of shape .3,."),
        (
            {"scale": "global", "likelihood": "counts"},
            "scale='global' is for likelihood='gaussian'. Got it with .*'coun",
        ),
        ({"scale": "genes", "likelihood": "binary"}, "scale must be 'feature', 'global' or None"),
    ],
)
def test_settings_of_another_likelihood_are_refused(settings, words):
    X = simulate("binary", n_samples=20, n_features=6)[0]
    with pytest.raises(ValueError, match=words):
        NSFA(**SHORT, **settings).fit(X)


@pytest.mark.parametrize("given", [None, np.linspace(0.5, 2.0, 20), [1] * 20])
def test_size_factors_of_counts_may_be_given(given):
    X = simulate("counts", n_samples=20, n_features=6)[0]
    with pytest.warns():
        NSFA(likelihood="counts", size_factors=given, scale=None, **{**SHORT, "tune": 3, "draws": 6}).fit(X)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"likelihood": "poisson"}, "likelihood must be one of"),
        ({"likelihood": "counts", "noise": "robust"}, "noise of its own"),
        ({"likelihood": "binary", "noise": "shared"}, "noise of its own"),
        ({"likelihood": "counts", "priors": Priors.paper()}, "intercept=True"),
    ],
)
def test_models_that_make_no_sense(changes, words):
    with pytest.raises(ValueError, match=words):
        ModelSpec(**changes)


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("model", ["sfa", "fa", "bfrm"])
def test_every_model_takes_them(kind, model):
    X = simulate(kind, n_samples=60, n_features=9)[0]
    estimator = nsfa.estimators.ESTIMATORS[model](3, **{**SHORT, "chains": 1, "tune": 30, "draws": 6}, **SETTINGS[kind])
    with pytest.warns():
        estimator.fit(X)
    assert np.isfinite(estimator.transform(X[:4])).all()


def test_binary_noise_is_one():
    X = simulate("binary", n_samples=40, n_features=9)[0]
    with pytest.warns():
        model = SFA(2, likelihood="binary", **{**SHORT, "tune": 100, "draws": 5}).fit(X)
    np.testing.assert_array_equal(model.noise_variance_, 1.0)


def test_robust_noise_compares_with_others():
    X = simulate("robust", n_samples=50, n_features=12)[0]
    short = {**SHORT, "random_state": None, "tune": 100, "draws": 60}
    models = {"plain": NSFA(**short), "robust": NSFA(noise="robust", **short)}
    table = nsfa.compare(X, models, splits=2, n_jobs=1, progress=False)
    means = table.groupby("model")["lppd"].mean()
    assert means["robust"] > means["plain"]


def test_size_factors_are_those_of_the_samples(tmp_path):
    rng = np.random.default_rng(8)
    depth = np.exp(0.6 * rng.standard_normal(60))
    X = rng.poisson(4.0 * depth[:, None] * np.exp(0.3 * rng.standard_normal((60, 40)))).astype(float)
    frame = pd.DataFrame(X, index=[f"cell {n}" for n in range(60)])
    with pytest.warns():
        posterior = NSFA(likelihood="counts", **SHORT).fit(frame, store=tmp_path / "run").posterior_
    sizes = posterior.size_factors()
    assert sizes.dtype == np.float64 and list(sizes.index) == list(frame.index) and sizes.index.name == "sample"
    # in the unit of samples whose totals are usual
    ratio = sizes / (X.sum(axis=1) / X.sum(axis=1).mean())
    assert ((ratio > 0.8) & (ratio < 1.25)).all() and abs(np.corrcoef(np.log(sizes), np.log(depth))[0, 1]) > 0.98
    pd.testing.assert_series_equal(nsfa.load(tmp_path / "run").size_factors(), sizes)
    short = {**SHORT, "tune": 3, "draws": 6}
    for given, expected in ((None, np.ones(60)), (depth, depth / np.exp(np.log(depth).mean()))):
        with pytest.warns():
            own = NSFA(likelihood="counts", size_factors=given, **short).fit(X).posterior_.size_factors()
        assert isinstance(own, np.ndarray)
        np.testing.assert_allclose(own, expected, rtol=1e-6)
    with pytest.warns():
        binary = NSFA(likelihood="binary", **short).fit(1.0 * (X > 3)).posterior_
    with pytest.raises(ValueError, match=r"likelihood='counts'. Got likelihood='binary'; fit counts with it"):
        binary.size_factors()
