from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from nsfa import BFRM, FA, NSFA, SFA, Priors
from nsfa.datasets import make_sparse_factors
from nsfa.draw import COVARIANCES, feature_pairs
from nsfa.metrics import rmse


@pytest.fixture(scope="module")
def fitted():
    data = make_sparse_factors(60, 30, 4, density=0.3, missing=0.1, random_state=5)
    return data, SFA(4, chains=2, tune=200, draws=100, random_state=1).fit(data.X)


def test_shapes_and_names(fitted):
    data, estimator = fitted
    assert estimator.n_components_draws_.shape == (2, 100)
    assert estimator.noise_variance_.shape == (30,)
    usage = [[draw.active().sum(axis=0) for draw in chain] for chain in estimator.posterior_.chains]
    for counts, least in ((estimator.n_shared_draws_, 2), (estimator.n_substantial_draws_, 5)):
        np.testing.assert_array_equal(counts, [[(own >= least).sum() for own in chain] for chain in usage])
    assert estimator.posterior_.trace("log_joint").shape == (2, 100)
    assert estimator.n_features_in_ == 30


def test_density_of_missing_entries_is_the_conditional_gaussian(fitted):
    """Against the covariance matrix itself: p(y_d | observed entries of the sample) for each draw, then averaged."""
    data, estimator = fitted
    posterior = estimator.posterior_
    holes = np.isnan(data.X)
    got = posterior.log_predictive_density(data.X_complete, holes)
    scaled = (data.X_complete - posterior.data.center) / posterior.data.scale
    n, d = np.argwhere(holes)[3]
    seen = ~holes[n]
    densities = []
    for draw in posterior.draws:
        covariance = draw.loadings() @ draw.loadings().T + np.diag(1 / draw.noise_precision.astype(float))
        both = np.r_[np.flatnonzero(seen), d]
        y = scaled[n] - draw.intercept
        joint = multivariate_normal(cov=covariance[np.ix_(both, both)]).logpdf(y[both])
        densities.append(joint - multivariate_normal(cov=covariance[np.ix_(seen, seen)]).logpdf(y[seen]))
    expected = np.log(np.mean(np.exp(densities))) - np.log(posterior.data.scale[d])
    assert got[3] == pytest.approx(expected, abs=1e-5)


def test_imputation_beats_the_feature_means(fitted):
    data, estimator = fitted
    holes = np.isnan(data.X)
    filled = estimator.impute(data.X)
    np.testing.assert_array_equal(filled[~holes], data.X[~holes])
    means = np.broadcast_to(np.nanmean(data.X, axis=0), data.X.shape)
    assert rmse(data.X_complete[holes], filled[holes]) < 0.7 * rmse(data.X_complete[holes], means[holes])


def test_dirichlet_scores_predict_from_the_drawn_scores():
    data = make_sparse_factors(40, 20, 3, density=0.4, missing=0.1, random_state=6)
    estimator = BFRM(3, chains=1, tune=150, draws=60, random_state=2).fit(data.X)
    holes = np.isnan(data.X)
    density = estimator.posterior_.log_predictive_density(data.X_complete, holes)
    assert np.isfinite(density).all()
    means = np.broadcast_to(np.nanmean(data.X, axis=0), data.X.shape)
    assert rmse(data.X_complete[holes], estimator.impute(data.X)[holes]) < rmse(data.X_complete[holes], means[holes])


def test_units_of_the_user(fitted):
    data, estimator = fitted
    again = SFA(4, chains=2, tune=200, draws=100, random_state=1).fit(100 * data.X)
    np.testing.assert_allclose(again.noise_variance_, 1e4 * estimator.noise_variance_, rtol=1e-5)
    holes = np.isnan(data.X)
    shifted = again.posterior_.log_predictive_density(100 * data.X_complete, holes)
    plain = estimator.posterior_.log_predictive_density(data.X_complete, holes)
    np.testing.assert_allclose(shifted, plain - np.log(100), atol=1e-4)


def test_constant_features_are_carried_along():
    X = make_sparse_factors(30, 10, 2, density=0.5, random_state=0).X
    X[:, 4] = 3.0
    with pytest.warns(UserWarning, match="feature 4"):
        estimator = NSFA(chains=1, tune=20, draws=5, random_state=0).fit(X)
    assert estimator.noise_variance_[4] == 0
    assert len(estimator.noise_variance_) == 10


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        (lambda X: np.isnan(X).astype(int), "where must be a boolean mask of shape"),
        (lambda X: np.isnan(X)[:5], "where must be a boolean mask of shape"),
        (lambda X: ~np.isnan(X), "where must mark only entries that were missing"),
    ],
)
def test_only_entries_the_fit_did_not_see_can_be_scored(where, sentence, fitted):
    data, estimator = fitted
    with pytest.raises(ValueError, match=sentence):
        estimator.posterior_.log_predictive_density(data.X_complete, where(data.X))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: NSFA(chains=0), "chains must be an int >= 1. Got 0"),
        (lambda: NSFA(draws=0), "draws must be an int >= 1. Got 0"),
        (lambda: NSFA(tune=-1), "tune must be an int >= 0. Got -1"),
        (lambda: NSFA(thin=0), "thin must be an int >= 1. Got 0"),
        (lambda: NSFA(concentration=-1), "concentration must be a positive number"),
        (
            lambda: NSFA(prior="flat"),
            "prior must be one of 'default', 'paper', 'learned', or a Priors object. Got 'flat'",
        ),
        (lambda: NSFA(random_state="x"), "random_state must be None, an int"),
        (lambda: NSFA(scale="unit"), "scale must be"),
        (lambda: FA(50), r"n_components must be at most min\(n_samples, n_features\) = 30 for FA. Got 50"),
        (lambda: SFA(), "n_components must be an int >= 1. Got None; use NSFA to infer it"),
    ],
)
def test_bad_settings_get_one_sentence(build, sentence, fitted):
    with pytest.raises(ValueError, match=sentence):
        build().fit(fitted[0].X)


def test_priors_by_name():
    from nsfa.estimators import resolve_priors

    assert resolve_priors("paper").loading_rate == 1.0
    assert resolve_priors("default") == Priors()
    own = Priors(loading_shape=2.0)
    assert resolve_priors(own) is own


def test_generators_and_random_states_are_seeds(fitted):
    X = fitted[0].X
    settings = {"chains": 1, "tune": 5, "draws": 3}
    for make in (lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)):
        a, b = (NSFA(**settings, random_state=make()).fit(X).posterior_.trace("log_joint") for _ in range(2))
        np.testing.assert_array_equal(a, b)


def test_holes_of_constant_features_are_filled_with_their_value():
    X = make_sparse_factors(30, 10, 2, density=0.5, random_state=0).X
    X[:, 4], X[3, 4], X[5, 6] = 3.0, np.nan, np.nan
    with pytest.warns(UserWarning, match="feature 4"):
        estimator = NSFA(chains=1, tune=20, draws=5, random_state=0).fit(X)
    filled = estimator.impute(X)
    assert filled[3, 4] == 3.0 and np.isfinite(filled).all()


def test_new_samples_can_be_imputed_but_not_other_features(fitted):
    data, estimator = fitted
    part = estimator.impute(data.X[:5])
    np.testing.assert_allclose(part, estimator.impute(data.X)[:5])
    with pytest.raises(ValueError, match="X has 3 features, but SFA is expecting"):
        estimator.impute(data.X[:, :3])


def test_an_interrupt_keeps_the_cut_with_most_draws(fitted):
    from nsfa.length import Length
    from nsfa.posterior import Posterior
    from nsfa.runner import ChainResult

    posterior = fitted[1].posterior_
    draws = list(posterior.chains[0])
    results = [ChainResult(0, draws[:50], True), ChainResult(1, draws[:2], False), ChainResult(2, [], False)]
    cut = Posterior.from_results(posterior.data, posterior.spec, results, Length(), 0)
    assert cut.n_factors.shape == (1, 50) and not cut.finished
    results[1] = ChainResult(1, draws[:40], False)
    assert Posterior.from_results(posterior.data, posterior.spec, results, Length(), 0).n_factors.shape == (2, 40)
    with pytest.raises(RuntimeError, match="Interrupted during warm-up"):
        Posterior.from_results(posterior.data, posterior.spec, results[2:], Length(), 0)


def test_truth_must_be_complete_where_it_is_scored(fitted):
    data, estimator = fitted
    holes = np.isnan(data.X)
    for truth in (data.X, data.X_complete[:5]):
        with pytest.raises(ValueError, match="X_true must have shape"):
            estimator.posterior_.log_predictive_density(truth, holes)


def test_a_verdict_names_the_features_whose_covariance_differs(fitted):
    posterior = fitted[1].posterior_
    name, (a, b) = COVARIANCES[2], feature_pairs(30)[2]
    moved = tuple(replace(d, scalars={**d.scalars, name: d.scalars[name] + 100}) for d in posterior.chains[1])
    found = replace(posterior, chains=(posterior.chains[0], moved)).diagnostics(factors=False)
    assert found.verdict.startswith(f"Not converged: the covariance of feature {a} and feature {b} has R-hat")
    assert "covariance 3" in str(found)


def test_clustered_scores_have_no_evidence(fitted):
    """They are never integrated out: NaN in every draw, and no line among the diagnostics."""
    posterior = BFRM(2, chains=2, tune=20, draws=20, random_state=0).fit(fitted[0].X).posterior_
    assert np.isnan(posterior.trace("log_evidence")).all()
    found = posterior.diagnostics()
    assert np.isfinite([[d.mean, d.rhat, d.ess_bulk] for d in found.table]).all()
    assert "log p(Y|G,ψ)" not in [d.quantity for d in found.table] and "not finite" not in found.verdict
    assert "log p(Y|G,ψ)" in [d.quantity for d in fitted[1].posterior_.diagnostics().table]
