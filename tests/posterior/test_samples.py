from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import multivariate_normal
from test_align import draw_of

from nsfa import BFRM, NSFA
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.posterior.predict import Entries, predictive_moments
from nsfa.posterior.project import sample_moments


@pytest.fixture(scope="module")
def fitted():
    data = make_sparse_factors(80, 30, 3, density=0.3, snr=20, random_state=5)
    return data, NSFA(chains=2, tune=400, draws=100, concentration=1.0, random_state=0).fit(data.X)


@pytest.mark.parametrize("backend", ["numba", "reference"])
@pytest.mark.parametrize("free_means", [False, True])
def test_scores_and_density_of_one_draw_are_the_conditional_gaussian(rng, backend, free_means):
    mu = rng.normal(size=6) if free_means else np.zeros(6)
    draw = replace(draw_of(rng.normal(size=(6, 2))), intercept=mu if free_means else None)
    draw.noise_precision[:] = rng.gamma(3, 1, 6)
    table = rng.normal(size=(9, 6))
    data = observe(np.where(rng.random((9, 6)) < 0.3, np.nan, table))
    g, noise = draw.loadings(), np.diag(1 / draw.noise_precision)
    found = sample_moments(data, draw, get_kernels(backend))
    for n in range(9):
        seen = np.ones(6, bool) if data.missing is None else ~data.missing[:, n]
        y = (data.values[:, n] - mu)[seen]
        covariance = (g @ g.T + noise)[np.ix_(seen, seen)]
        assert found.log_density[n] == pytest.approx(multivariate_normal(cov=covariance).logpdf(y), rel=1e-9)
        gain = g[seen].T @ np.linalg.inv(covariance)
        np.testing.assert_allclose(found.mean[n], gain @ y, rtol=1e-8)
        np.testing.assert_allclose(found.variance[n], np.diag(np.eye(2) - gain @ g[seen]), rtol=1e-7)


@pytest.mark.parametrize("factors", [0, 2])
def test_predictions_of_one_draw_are_about_its_means(rng, factors):
    draw = replace(draw_of(rng.normal(size=(6, factors))), intercept=rng.normal(size=6))
    data = observe(np.where(rng.random((9, 6)) < 0.3, np.nan, rng.normal(size=(9, 6))))
    row, sample = np.nonzero(data.missing)
    order = np.lexsort((row, sample))
    entries = Entries(sample[order], row[order], row[order])
    (found,) = predictive_moments(data, [draw], entries, get_kernels(), fitted=True)
    g, covariance = draw.loadings(), draw.loadings() @ draw.loadings().T + np.diag(1 / draw.noise_precision)
    for i, (n, d) in enumerate(zip(entries.sample, entries.row, strict=True)):
        seen = ~data.missing[:, n]
        gain = g[d] @ g[seen].T @ np.linalg.inv(covariance[np.ix_(seen, seen)])
        y = (data.values[:, n] - draw.intercept)[seen]
        assert found.mean[i] == pytest.approx(draw.intercept[d] + gain @ y)
        assert found.variance[i] == pytest.approx(covariance[d, d] - gain @ g[seen] @ g[d])


def test_sparse_and_dense_new_samples_agree(fitted):
    data, model = fitted
    new = np.where(np.abs(data.X[:10]) > 0.5, data.X[:10], 0.0)
    for method in (model.transform, model.score_samples):
        np.testing.assert_allclose(method(sp.csr_array(new)), method(new), rtol=1e-7, atol=1e-9)


def test_a_sample_with_nothing_observed_has_the_prior_scores(fitted):
    data, model = fitted
    mean, deviation = model.transform(np.full((1, 30), np.nan), return_std=True)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(deviation, 1.0, atol=1e-12)
    assert model.score_samples(np.full((1, 30), np.nan)) == pytest.approx(0.0)


def test_new_samples_with_holes_get_nearly_the_same_scores(fitted, rng):
    data, model = fitted
    full, certain = model.transform(data.X, return_std=True)
    holed, unsure = model.transform(np.where(rng.random(data.X.shape) < 0.3, np.nan, data.X), return_std=True)
    for k in range(full.shape[1]):
        assert np.corrcoef(full[:, k], holed[:, k])[0, 1] > 0.9
    assert (unsure.mean(axis=0) > certain.mean(axis=0)).all()
    np.testing.assert_allclose(full, model.posterior_.consensus().scores, atol=1e-12)


def test_score_is_the_mean_log_density_in_the_users_units(fitted):
    data, model = fitted
    covariance = model.get_covariance()
    direct = multivariate_normal(model.mean_, covariance).logpdf(data.X)
    np.testing.assert_allclose(model.score_samples(data.X), direct, atol=2.0)
    assert model.score(data.X) == pytest.approx(model.score_samples(data.X).mean())
    np.testing.assert_allclose(model.get_precision() @ covariance, np.eye(30), atol=1e-8)
    np.testing.assert_allclose(covariance, np.cov(data.X.T), atol=0.5 * np.abs(covariance).max())


def test_inverse_transform_reconstructs(fitted):
    data, model = fitted
    error = model.inverse_transform(model.transform(data.X)) - data.X
    assert error.var() < 0.15 * data.X.var()
    with pytest.raises(ValueError, match="columns. Got 7"):
        model.inverse_transform(np.zeros((2, 7)))


def test_holes_of_new_samples_are_filled_with_honest_intervals(fitted):
    data, model = fitted
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(800, 3))
    new = scores @ data.loadings.T + np.sqrt(data.noise_variance) * rng.normal(size=(800, 30))
    holed = np.where(rng.random(new.shape) < 0.2, np.nan, new)
    filled, lower, upper = model.impute(holed, level=0.9)
    gone = np.isnan(holed)
    np.testing.assert_array_equal(filled[~gone], new[~gone])
    assert ((lower <= new) & (new <= upper))[gone].mean() == pytest.approx(0.9, abs=0.03)
    assert np.corrcoef(filled[gone], new[gone])[0, 1] > 0.8
    with pytest.raises(ValueError, match="level must lie between 0 and 1. Got 2"):
        model.impute(holed, level=2)


def test_new_samples_may_join_a_cluster_of_the_urn():
    rng = np.random.default_rng(0)
    centres, which = rng.normal(size=(3, 2)) * 2, rng.integers(3, size=90)
    loadings = rng.normal(size=(12, 2))
    table = centres[which] @ loadings.T + 0.3 * rng.normal(size=(90, 12))
    model = BFRM(2, chains=1, tune=300, draws=50, random_state=0).fit(table)
    new = centres[[0, 1, 2]] @ loadings.T + 0.3 * rng.normal(size=(3, 12))
    members = np.array([model.transform(table)[which == c].mean(axis=0) for c in range(3)])
    distance = np.abs(model.transform(new)[:, None] - members[None]).sum(axis=2)
    assert distance.argmin(axis=1).tolist() == [0, 1, 2]
    assert (model.score_samples(new) > model.score_samples(10 * new)).all()
    holed = new.copy()
    holed[:, 3] = np.nan
    np.testing.assert_allclose(model.impute(holed)[:, 3], new[:, 3], atol=1.2)
