import sys
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import multivariate_normal

from nsfa import BFRM, FA, NSFA, SFA, schedule
from nsfa.datasets import make_sparse_factors
from nsfa.model import Priors
from nsfa.posterior import arviz as module
from nsfa.posterior.arviz import to_arviz
from nsfa.samples import Samples

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    az = pytest.importorskip("arviz")

SCALARS = ["n_components", "n_shared", "n_substantial", "n_active", "concentration", "loading_power"]
FAST = {"chains": 2, "tune": 60, "draws": 20, "random_state": 3, "n_jobs": 1}


@pytest.fixture(scope="module")
def fitted():
    """(table, posterior): a fit with holes, names, units of its own, and a feature that does not vary."""
    X = make_sparse_factors(40, 12, 2, density=0.5, missing=0.08, random_state=1).X * 3 + np.arange(12)
    X[:, 5] = 7.0
    frame = pd.DataFrame(X, columns=[f"g{i}" for i in range(12)])
    with pytest.warns(UserWarning, match="do not vary"):
        model = SFA(2, stickiness="infer", **FAST).fit(frame)
    return X, model.posterior_


@pytest.fixture(scope="module")
def tree(fitted):
    return to_arviz(fitted[1], log_likelihood=True, posterior_predictive=True)


def groups_of(tree):
    """Names of the groups, of ArviZ 0.x or 1.x."""
    return set(tree.groups()) if callable(tree.groups) else {name.strip("/") for name in tree.groups} - {""}


def test_groups_and_names(fitted, tree):
    assert groups_of(tree) == {"posterior", "sample_stats", "observed_data", "log_likelihood", "posterior_predictive"}
    assert groups_of(fitted[1].to_arviz()) == {"posterior", "sample_stats", "observed_data"}
    arrays = {"noise_variance", "feature_mean", "loadings", "active"}
    assert set(tree["posterior"].data_vars) == {*SCALARS, "stickiness", *arrays}
    assert set(tree["sample_stats"].data_vars) == {"lp", "n_factors", "births_accepted", "seconds"}
    assert list(tree["posterior"]["feature"].values) == [f"g{i}" for i in range(12)]


@pytest.mark.parametrize(
    ("group", "name", "dims"),
    [
        ("posterior", "n_components", ()),
        ("posterior", "stickiness", ()),
        ("posterior", "noise_variance", ("feature",)),
        ("posterior", "feature_mean", ("feature",)),
        ("posterior", "loadings", ("feature", "factor")),
        ("posterior", "active", ("feature", "factor")),
        ("sample_stats", "lp", ()),
        ("log_likelihood", "X", ("observation",)),
        ("posterior_predictive", "X", ("observation", "feature")),
    ],
)
def test_dimensions(tree, group, name, dims):
    variable = tree[group][name]
    assert variable.dims == ("chain", "draw", *dims)
    sizes = {"chain": 2, "draw": 20, "feature": 12, "observation": 40, "factor": 2}
    assert variable.shape == tuple(sizes[d] for d in variable.dims)


def test_values_are_those_of_the_posterior(fitted, tree):
    _, posterior = fitted
    group = tree["posterior"]
    np.testing.assert_array_equal(group["n_components"], posterior.n_factors)
    np.testing.assert_array_equal(group["n_shared"], posterior.n_shared)
    np.testing.assert_array_equal(group["n_substantial"], posterior.n_substantial)
    np.testing.assert_array_equal(group["concentration"], posterior.trace("concentration"))
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], posterior.trace("log_joint"))
    np.testing.assert_allclose(group["noise_variance"].mean(("chain", "draw")), posterior.noise_variance())
    np.testing.assert_allclose(group["feature_mean"].mean(("chain", "draw")), posterior.feature_mean())
    consensus = posterior.consensus()
    np.testing.assert_allclose(group["loadings"].mean(("chain", "draw")), consensus.loadings, atol=1e-6)
    assert group["active"].dtype == bool
    np.testing.assert_array_equal(group["active"], group["loadings"] != 0)


def test_the_table_comes_back_in_the_users_units(fitted, tree):
    X, _ = fitted
    got = tree["observed_data"]["X"]
    assert got.dims == ("observation", "feature") and np.isnan(X).sum() > 10
    np.testing.assert_allclose(got, X, atol=1e-12)


def test_log_likelihood_is_the_gaussian_with_scores_integrated_out(fitted, tree):
    X, posterior = fitted
    n = int(np.isnan(X).sum(axis=1).argmax())
    seen = ~np.isnan(X[n]) & (np.arange(12) != 5)
    for chain, draw in ((0, 3), (1, 19)):
        loadings = posterior.scaled_loadings(posterior.chains[chain][draw])
        noise = tree["posterior"]["noise_variance"].values[chain, draw]
        covariance = (loadings @ loadings.T + np.diag(noise))[np.ix_(seen, seen)]
        mean = posterior.data.center + posterior.data.to_user(posterior.chains[chain][draw].intercept)
        expected = multivariate_normal(mean[seen], covariance).logpdf(X[n, seen])
        assert float(tree["log_likelihood"]["X"][chain, draw, n]) == pytest.approx(expected, abs=1e-6)


def test_log_likelihood_sums_to_the_recorded_evidence(fitted):
    """The chain keeps log p(Y | G, ψ) of every draw, from another formula; the rest is the change of units.

    Means that are drawn change after it: here they are held.
    """
    posterior = SFA(2, prior=Priors(intercept=False), **FAST).fit(np.delete(fitted[0], 5, axis=1)).posterior_
    data = posterior.data
    units = float(np.log(data.scale[data.kept]) @ data.count)
    total = to_arviz(posterior, log_likelihood=True)["log_likelihood"]["X"].sum("observation").values + units
    np.testing.assert_allclose(total, posterior.trace("log_evidence"), atol=1e-3)


def test_replicates_have_the_spread_that_the_model_gives_them(fitted, tree):
    """Observed entries lie where the replicates do: about 90 % in the central 90 % of their own replicates."""
    X, posterior = fitted
    replicates = tree["posterior_predictive"]["X"].values.reshape(-1, *X.shape)
    np.testing.assert_array_equal(replicates[:, :, 5], 7.0)
    assert np.isfinite(replicates).all()
    rest = ~np.isnan(X) & (np.arange(12) != 5)
    low, high = np.quantile(replicates, [0.05, 0.95], axis=0)
    assert 0.8 < ((low < X) & (high > X))[rest].mean() < 1.0
    # scores are those of each sample: a replicate is closer to its own sample than the feature's mean is
    error = np.square(replicates.mean(axis=0) - X)[rest].mean()
    assert error < 0.8 * np.square(X - posterior.data.center)[rest].mean()


def test_replicates_depend_on_the_seed_alone(fitted, tree):
    again = to_arviz(fitted[1], posterior_predictive=True)
    np.testing.assert_array_equal(again["posterior_predictive"]["X"], tree["posterior_predictive"]["X"])
    other = to_arviz(replace(fitted[1], seed=4), posterior_predictive=True)
    assert not np.allclose(other["posterior_predictive"]["X"], tree["posterior_predictive"]["X"])


def test_summary_and_traces_of_the_label_free_scalars(tree):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    varying = ["n_active", "concentration"]
    with warnings.catch_warnings():
        # short chains, and a constant one, are not what is tested here
        warnings.simplefilter("ignore")
        table = az.summary(tree, var_names=["n_components", *varying])
        plot = az.plot_trace(tree, var_names=["n_components", *varying])
    assert list(table.index) == ["n_components", *varying]
    assert np.isfinite(pd.to_numeric(table.loc[varying, "mean"])).all()
    assert float(table.loc["n_components", "mean"]) == 2
    assert plot is not None
    plt.close("all")


def test_extract_stacks_chains_and_draws(tree):
    """ArviZ names the stacked dimension "sample": nothing of ours may have that name."""
    stacked = az.extract(tree, group="posterior_predictive")
    stacked = stacked["X"] if "X" in getattr(stacked, "data_vars", ()) else stacked
    assert dict(stacked.sizes) == {"observation": 40, "feature": 12, "sample": 40}


def test_cross_validation_reads_the_log_likelihood(tree):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = az.loo(tree)
    assert result.n_data_points == 40 and np.isfinite(getattr(result, "elpd", None) or result.elpd_loo)


def test_sparse_tables(monkeypatch):
    # sparse tables have no sweeps with the scores integrated out: without them both make the same draws
    monkeypatch.setattr(Samples, "can", frozenset({"whole"}))
    monkeypatch.setattr(schedule, "simplifies", lambda *arguments: False)
    rng = np.random.default_rng(0)
    X = sp.csr_array(np.log1p(rng.poisson(np.where(np.arange(8) < 4, rng.random((30, 1)) * 4, 0.5))))
    model = NSFA(**FAST).fit(X)
    tree = model.posterior_.to_arviz(log_likelihood=True)
    np.testing.assert_allclose(tree["observed_data"]["X"], X.toarray(), atol=1e-12)
    assert list(tree["posterior"]["feature"].values)[:2] == ["feature 0", "feature 1"]
    assert "stickiness" not in tree["posterior"]
    dense = NSFA(**FAST).fit(X.toarray()).posterior_.to_arviz(log_likelihood=True)
    np.testing.assert_allclose(tree["log_likelihood"]["X"], dense["log_likelihood"]["X"], atol=1e-4)


@pytest.mark.parametrize("kind", [FA, BFRM])
def test_other_models(kind, fitted):
    X = np.delete(fitted[0], 5, axis=1)
    tree = to_arviz(kind(2, **FAST).fit(X).posterior_, log_likelihood=True, posterior_predictive=True)
    assert "concentration" not in tree["posterior"]
    for group in ("log_likelihood", "posterior_predictive"):
        assert np.isfinite(tree[group]["X"]).all()
    rest = ~np.isnan(X)
    error = np.square(tree["posterior_predictive"]["X"].mean(("chain", "draw")).values - X)[rest].mean()
    assert error < np.square(X - np.nanmean(X, axis=0))[rest].mean()


def test_no_factors():
    X = np.random.default_rng(2).normal(size=(30, 5))
    posterior = NSFA(**FAST, concentration=1e-3).fit(X).posterior_
    tree = posterior.to_arviz(log_likelihood=True, posterior_predictive=True)
    assert tree["posterior"]["loadings"].shape == (2, 20, 5, 0)
    assert tree["posterior_predictive"]["X"].shape == (2, 20, 30, 5)


def test_loadings_beyond_memory_are_left_out(fitted, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 100)
    with pytest.warns(UserWarning, match="loadings of all draws are left out"):
        tree = fitted[1].to_arviz()
    assert set(tree["posterior"].data_vars) == {*SCALARS, "stickiness", "noise_variance", "feature_mean"}


def test_what_is_not_wanted_is_left_out(fitted):
    tree = fitted[1].to_arviz(loadings=False, log_likelihood=True)
    assert {"loadings", "active"}.isdisjoint(tree["posterior"].data_vars) and "noise_variance" in tree["posterior"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert az.loo(tree).n_data_points == 40


def test_the_export_takes_less_than_four_times_the_draws():
    X = make_sparse_factors(30, 400, 6, density=0.3, random_state=1).X
    posterior = SFA(6, chains=2, tune=10, draws=100, random_state=0, n_jobs=1).fit(X).posterior_
    arrays = [value for draw in posterior.draws for value in vars(draw).values() if isinstance(value, np.ndarray)]
    posterior.to_arviz(log_likelihood=True)
    tracemalloc.start()
    try:
        tree = posterior.to_arviz(log_likelihood=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tree["posterior"]["loadings"].shape[-1] > 3
    assert peak < 4 * sum(array.nbytes for array in arrays)


def test_loadings_that_are_nearly_all_zero_are_left_out(monkeypatch):
    monkeypatch.setattr(module, "SMALL", 0)
    X = make_sparse_factors(30, 400, 20, density=0.02, random_state=1).X
    posterior = SFA(20, chains=2, tune=60, draws=20, random_state=0, n_jobs=1).fit(X).posterior_
    assert posterior.consensus().n_factors > 10
    with pytest.warns(UserWarning, match="loadings of all draws are left out"):
        assert "loadings" not in posterior.to_arviz()["posterior"]


def test_without_arviz_the_extra_is_named(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"to_arviz needs ArviZ: pip install 'nsfa\[arviz\]'\."):
        to_arviz(fitted[1])
