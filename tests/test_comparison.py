import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF, PCA, FactorAnalysis, SparsePCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from nsfa import FA, NSFA, SPCA, compare, comparison, filling
from nsfa.comparison import hide
from nsfa.datasets import make_sparse_factors
from nsfa.pl import compare as plot

SHORT = {"chains": 1, "tune": 60, "draws": 40}


@pytest.fixture(scope="module")
def table():
    return make_sparse_factors(40, 20, 3, density=0.3, missing=0.05, random_state=0).X


@pytest.fixture(scope="module")
def frame(table):
    models = {"NSFA": NSFA(**SHORT), "FA 1": FA(1, **SHORT), "SPCA": SPCA(3)}
    return compare(table, models, splits=2, n_jobs=1, progress=False)


def test_a_row_per_model_and_split_in_order(frame):
    assert list(frame.columns) == ["model", "split", "lppd", "rmse", "K", "seconds", "converged"]
    assert frame.model.tolist() == ["NSFA"] * 2 + ["FA 1"] * 2 + ["SPCA"] * 2
    assert frame.split.tolist() == [0, 1] * 3
    assert (frame.rmse > 0).all() and (frame.seconds > 0).all()
    assert frame.lppd[:4].notna().all() and frame.lppd[4:].isna().all()


def test_the_better_model_scores_better(frame):
    by_model = frame.groupby("model").rmse.mean()
    assert by_model["NSFA"] < by_model["FA 1"]
    assert frame.set_index("model").lppd["NSFA"].mean() > frame.set_index("model").lppd["FA 1"].mean()


def test_scores_do_not_depend_on_jobs(table, frame):
    again = compare(table, {"NSFA": NSFA(**SHORT)}, splits=2, n_jobs=2, progress=False)
    np.testing.assert_array_equal(again.lppd, frame.lppd[:2])
    assert again.lppd[0] != again.lppd[1]


def test_hidden_entries_were_seen_and_leave_two_in_every_row_and_column(table):
    mask = hide(table, 0.95, np.random.default_rng(0))
    left = ~np.isnan(table) & ~mask
    assert not (mask & np.isnan(table)).any()
    assert left.sum(axis=0).min() >= 2 and left.sum(axis=1).min() >= 2
    assert hide(table, 0.1, np.random.default_rng(0)).mean() == pytest.approx(0.095, abs=0.02)


def test_features_keep_what_makes_them_vary(table):
    """Nothing can be said of a feature that does not vary: its entries are not scored, whatever is hidden."""
    X = np.nan_to_num(table)
    X[:, 0], X[:, 1] = 3.0, 0.0
    X[5, 1] = 1.0
    masks = [hide(X, 0.4, np.random.default_rng(seed)) for seed in range(20)]
    assert not any(mask[:, 0].any() or mask[5, 1] for mask in masks) and any(mask[:, 1].any() for mask in masks)
    scores = compare(X, {"fa": FA(2, chains=1, tune=5, draws=5)}, splits=2, n_jobs=1, progress=False)
    assert np.isfinite(scores.lppd).all()


def test_scores_of_several_kinds_are_pointed_out(table):
    X = np.rint(np.exp(np.nan_to_num(table)))
    short = {"chains": 1, "tune": 5, "draws": 5}
    models = {"a": FA(2, **short), "b": FA(2, likelihood="counts", **short)}
    with pytest.warns(UserWarning, match="compare it among models of one likelihood, and rmse among all") as caught:
        compare(X, models, splits=1, n_jobs=1, progress=False)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"holdout": 1.5}, "holdout must lie between 0 and 1. Got 1.5"),
        ({"random_state": -1}, "random_state must be None, an int >= 0 or a NumPy generator. Got -1"),
        ({"models": [PCA(2)]}, "models must be a dict of estimators by name. Got a list; write {'NSFA': NSFA\\(\\)}"),
        ({"models": {}}, "models must be a dict of estimators by name. Got none"),
        ({"splits": 0}, "splits must be an int >= 1. Got 0"),
        ({"models": {"a": 3}}, "models must be estimators with fit and either impute or transform .* Got 3 as 'a'"),
        ({"models": {"a": KMeans(2)}}, "The model 'a' cannot be compared .* must have impute, .* Got KMeans"),
        ({"models": {"b": NMF(2)}}, "The model 'b' cannot be compared on this table: Negative values"),
        ({"store": "."}, "store must be a csv file, .* Got a directory, '.'"),
        ({"store": "no/such/place.csv"}, "store must be a csv file, .* in a directory that does not exist"),
    ],
)
def test_bad_settings_get_one_sentence(table, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        compare(table, **{"n_jobs": 1, "splits": 1, **settings})


def test_no_random_state_is_another_each_time(table):
    first, second = (compare(table, {"PCA": PCA(2)}, splits=1, n_jobs=1, random_state=None) for _ in range(2))
    assert first.rmse[0] != second.rmse[0]


def test_a_table_too_small_to_hide_anything(table):
    with pytest.raises(ValueError, match="holdout must leave entries to score .* table of shape .2, 20."):
        compare(np.nan_to_num(table[:2]), splits=1, n_jobs=1)


def test_box_plot_has_a_box_per_model(frame):
    ax = plot(frame, metric="rmse")
    assert [t.get_text() for t in ax.get_yticklabels()] == ["SPCA", "FA 1", "NSFA"]
    ax.figure.clf()


@pytest.fixture(scope="module")
def scored(table):
    models = {
        "mean": StandardScaler(), "PCA": PCA(3), "scaled": make_pipeline(StandardScaler(), PCA(3)),
        "FA": FactorAnalysis(3), "FA 1": FactorAnalysis(1),
    }  # fmt: skip
    return compare(table, models, splits=2, n_jobs=1, progress=False).set_index("model")


class TestModelsWithoutHoles:
    """Estimators of scikit-learn, which take no missing entries."""

    def test_factors_predict_and_their_number_is_known(self, scored):
        rmse = scored.rmse.groupby("model").mean()
        assert rmse["FA"] < rmse["FA 1"] < rmse["mean"] and max(rmse["PCA"], rmse["scaled"]) < 0.7 * rmse["mean"]
        assert (scored.K[["PCA", "scaled", "FA"]] == 3).all() and (scored.K["FA 1"] == 1).all()
        assert scored.converged["FA 1"].all() and scored.converged["mean"].all()

    def test_only_factor_analysis_has_a_density(self, scored):
        assert scored.lppd[["mean", "PCA", "scaled"]].isna().all()
        assert (scored.lppd["FA"].to_numpy() > scored.lppd["FA 1"].to_numpy()).all()

    def test_its_density_is_near_that_of_the_model_here(self, table, scored):
        ours = compare(table, {"FA": FA(3, **SHORT)}, splits=1, n_jobs=1, progress=False)
        assert scored.lppd["FA"].iloc[0] == pytest.approx(ours.lppd[0], abs=0.2)

    def test_units_do_not_matter(self, table, scored):
        far = compare(1e-5 * table + 3, {"FA": FactorAnalysis(3, tol=1e-4)}, splits=1, n_jobs=1, progress=False)
        near = compare(table, {"FA": FactorAnalysis(3, tol=1e-4)}, splits=1, n_jobs=1, progress=False)
        assert 1e5 * far.rmse[0] == pytest.approx(near.rmse[0], rel=1e-2)
        assert far.lppd[0] - np.log(1e5) == pytest.approx(near.lppd[0], abs=0.02)

    def test_factor_analysis_needs_no_scaling(self, table):
        units = np.geomspace(0.01, 100, 20)
        far, near = (compare(X, {"FA": FactorAnalysis(3)}, splits=1, n_jobs=1) for X in (table * units, table))
        hidden = hide(table, 0.1, np.random.default_rng([0, 0]))
        assert far.lppd[0] + np.log(units)[np.nonzero(hidden)[1]].mean() == pytest.approx(near.lppd[0], abs=0.05)
        with pytest.raises(ValueError, match="must have impute, or transform and inverse_transform. Got Pipeline"):
            compare(table, {"FA": make_pipeline(StandardScaler(), FactorAnalysis(3))}, splits=1, n_jobs=1)

    def test_non_negative_factors_of_a_non_negative_table(self, table):
        found = compare(np.exp(table), {"NMF": NMF(3)}, splits=1, n_jobs=1, progress=False)
        assert np.isfinite(found.rmse[0]) and found.K[0] == 3

    def test_parts_of_a_pipeline_get_seeds_of_the_split(self):
        model = make_pipeline(StandardScaler(), PCA(2, svd_solver="randomized"))
        first, second = (comparison._seeded(model, 0, split)[-1].random_state for split in (0, 1))
        assert first is not None and first != second and model[-1].random_state is None

    def test_parts_of_a_pipeline_run_on_one_core(self):
        model = make_pipeline(StandardScaler(), SparsePCA(2, n_jobs=2), PCA(2))
        assert comparison._seeded(model, 0, 0)[1].n_jobs == 1 and model[1].n_jobs == 2


def test_filling_stops_where_the_conditional_means_are(table):
    """Reconstructions of a fixed model that are filled in again and again end at its means given what was observed."""

    class Fixed:
        components_, noise = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 3)))[0].T, 0.3

        def fit(self, X):
            return self

        def transform(self, X):
            return X @ self.components_.T / (1 + self.noise)

        def inverse_transform(self, scores):
            return scores @ self.components_

    found = filling.fill(Fixed(), table, 1000)
    mean, _ = filling.conditional(table, Fixed.components_.T, np.full(20, Fixed.noise))
    np.testing.assert_allclose(found.mean, mean, atol=0.02)
    assert found.settled and not filling.fill(Fixed(), table, 2).settled


def test_conditional_means_are_those_of_the_gaussian(rng):
    G, noise = rng.normal(size=(5, 2)), rng.gamma(2, 1, 5)
    row = rng.normal(size=(1, 5))
    row[0, [1, 3]] = np.nan
    mean, variance = filling.conditional(row, G, noise)
    covariance, seen = G @ G.T + np.diag(noise), [0, 2, 4]
    gain = covariance[np.ix_([1, 3], seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
    np.testing.assert_allclose(mean[0, [1, 3]], gain @ row[0, seen])
    left = covariance[np.ix_([1, 3], [1, 3])] - gain @ covariance[np.ix_(seen, [1, 3])]
    np.testing.assert_allclose(variance[0, [1, 3]], left.diagonal())


def hidden_entries(seed):
    """100 × 30 with three factors, a fifth of it hidden; factor analysis of the rest."""
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.3, 1.5, 30)
    table = 5 + rng.normal(size=(100, 3)) @ rng.normal(size=(3, 30)) + noise * rng.normal(size=(100, 30))
    hidden = rng.random(table.shape) < 0.2
    model = FactorAnalysis(3)
    return table, hidden, model, filling.fill(model, np.where(hidden, np.nan, table))


def test_filled_entries_do_not_count_as_data():
    """Standardised errors of hidden entries are about 1: 1.5 where filled ones were taken for data without noise."""
    sizes = []
    for seed in range(5):
        table, hidden, _, found = hidden_entries(seed)
        sizes.append(np.mean((table - found.mean)[hidden] ** 2 / found.variance[hidden]))
        assert found.settled
    assert 0.9 < np.mean(sizes) < 1.2 and max(sizes) < 1.4


def test_factor_analysis_ends_where_the_observed_entries_are_most_likely():
    table, hidden, model, found = hidden_entries(1)
    best = model.mean_, model.components_, model.noise_variance_

    def likelihood(mean, components, noise):
        covariance, total = components.T @ components + np.diag(noise), 0.0
        for row, gone in zip(table, hidden, strict=True):
            part = covariance[np.ix_(~gone, ~gone)]
            off = (row - mean)[~gone]
            total -= 0.5 * (np.linalg.slogdet(part)[1] + off @ np.linalg.solve(part, off))
        return total

    rng, top = np.random.default_rng(0), likelihood(*best)
    for part in range(3):
        for _ in range(5):
            moved = list(best)
            moved[part] = best[part] * np.exp(0.05 * rng.normal(size=best[part].shape))
            assert likelihood(*moved) < top
    assert found.scores.shape == (100, 3)


def test_the_least_noise_is_in_the_variance_too():
    _, variance = filling.conditional(np.array([[1.0, np.nan]]), np.zeros((2, 1)), np.array([1.0, 0.0]))
    assert (variance > 0).all()
    _, variance = filling.conditional(np.array([[1.0, 2.0]]), np.array([[1.0], [1.0]]), np.array([0.0, 1.0]))
    assert variance[0, 0] == pytest.approx(2 * filling.LEAST_NOISE, rel=1e-3)


MODELS = {"FA": FA(1, **SHORT), "PCA": PCA(2)}


class TestStore:
    """Comparisons that go on after an interrupt."""

    @pytest.fixture
    def fits(self, monkeypatch):
        """Models and splits as they are fitted; from the third fit on, an interrupt where ``stop`` is set."""
        made, score = [], comparison._fit_and_score

        def counted(name, **arguments):
            if fits.stop and len(made) == 3:
                raise KeyboardInterrupt
            made.append(name)
            yield from score(name, **arguments)

        class Fits:
            stop = False

            def __iter__(self):
                return iter(made)

        fits = Fits()
        monkeypatch.setattr(comparison, "_fit_and_score", counted)
        return fits

    def run(self, table, store, **settings):
        return compare(
            table, **{"models": MODELS, "splits": 2, "n_jobs": 1, "progress": False, "store": store, **settings}
        )

    def test_an_interrupt_returns_what_is_done_and_the_same_call_goes_on(self, table, tmp_path, fits):
        path = tmp_path / "fits.csv"
        fits.stop = True
        with pytest.warns(UserWarning, match="Interrupted after 3 of 4 fits. These are kept"):
            part = self.run(table, path)
        assert list(part.model) == ["FA", "FA", "PCA"] and list(part.split) == [0, 1, 0]
        fits.stop = False
        whole = self.run(table, path)
        assert list(fits) == ["FA", "PCA", "FA", "PCA"]
        # kept to the last bit
        hidden = hide(table, 0.1, np.random.default_rng([0, 0]))
        assert whole.rmse[2] == comparison._filled(comparison._seeded(PCA(2), 0, 0), table, hidden)["rmse"]
        pd.testing.assert_frame_equal(
            whole.drop(columns="seconds"), self.run(table, None).drop(columns="seconds"), check_exact=True
        )
        pd.testing.assert_frame_equal(whole, self.run(table, path), check_exact=True)

    def test_an_interrupt_before_the_first_fit_is_one(self, table, tmp_path, monkeypatch):
        def interrupted(**_):
            raise KeyboardInterrupt

        monkeypatch.setattr(comparison, "_fit_and_score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            self.run(table, tmp_path / "fits.csv")
        assert not list(tmp_path.iterdir())

    def test_only_what_is_new_is_fitted(self, table, tmp_path, fits):
        path = tmp_path / "fits.csv"
        pca = {"PCA": PCA(2)}
        self.run(table, path, models=pca)
        self.run(table, path, models={"PCA": PCA(2), "mean": StandardScaler()}, splits=3)
        assert list(fits) == ["PCA"] * 2 + ["mean", "mean", "PCA", "mean"]
        other = table.copy()
        other[0, 0] += 1
        before = len(list(fits))
        for changed in ({"X": other}, {"models": {"PCA": PCA(3)}}, {"random_state": 1}, {"holdout": 0.2}):
            self.run(**{"table": changed.pop("X", table), "store": path, "models": pca, **changed})
        assert len(list(fits)) == before + 8
        self.run(table, path, models=pca)
        assert len(list(fits)) == before + 8

    def test_models_that_cannot_be_written_need_no_store(self, table, tmp_path):
        with_lambda = {"PCA": make_pipeline(FunctionTransformer(lambda X: X, inverse_func=lambda X: X), PCA(2))}
        assert len(self.run(table, None, models=with_lambda, splits=1)) == 1
        with pytest.raises(ValueError, match="With store=, models must be such that pickle .* Got 'PCA', which"):
            self.run(table, tmp_path / "fits.csv", models=with_lambda, splits=1)
        assert not list(tmp_path.iterdir())

    def test_a_killed_comparison_goes_on_in_another_process(self, tmp_path, table, fits):
        np.save(tmp_path / "table.npy", table)
        code = """
import os, signal, sys
import numpy as np
from sklearn.decomposition import PCA
from nsfa import FA, comparison
score = comparison._fit_and_score
def fatal(name, **arguments):
    if name == "PCA":
        os.kill(os.getpid(), signal.SIGKILL)
    yield from score(name, **arguments)
comparison._fit_and_score = fatal
models = {"FA": FA(1, chains=1, tune=60, draws=40), "PCA": PCA(2)}
comparison.compare(np.load("table.npy"), models, splits=2, n_jobs=1, store="fits.csv")
"""
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, env=os.environ)
        assert done.returncode == -signal.SIGKILL, done.stderr
        found = self.run(table, tmp_path / "fits.csv")
        assert list(fits) == ["PCA", "FA", "PCA"] and len(found) == 4
