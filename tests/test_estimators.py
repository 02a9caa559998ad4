"""The estimators as their users meet them: frames, pipelines, seeds, pickles, warnings."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nsfa
from nsfa import FA, NSFA, SFA, SPCA, FactorModel, ModelSpec
from nsfa.datasets import make_sparse_factors

SHORT = {"chains": 2, "tune": 60, "draws": 30, "random_state": 3}


@pytest.fixture(scope="module")
def table():
    return make_sparse_factors(40, 12, 2, density=0.4, snr=20, missing=0.05, random_state=0).X


@pytest.fixture(scope="module")
def fitted(table):
    return SFA(2, **SHORT).fit(table)


def same(a, b):
    np.testing.assert_array_equal(a.components_, b.components_)
    np.testing.assert_array_equal(a.inclusion_probability_, b.inclusion_probability_)
    np.testing.assert_array_equal(a.noise_variance_, b.noise_variance_)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_keep_their_names(kind, table):
    frames = pytest.importorskip(kind)
    frame = frames.DataFrame({f"gene{d}": column for d, column in enumerate(table.T)})
    model = SFA(2, **SHORT).set_output(transform=kind).fit(frame)
    assert model.feature_names_in_[:2].tolist() == ["gene0", "gene1"]
    assert model.posterior_.consensus().feature_names[11] == "gene11"
    assert model.n_components_ >= 1
    names = [f"sfa{k}" for k in range(model.n_components_)]
    assert list(model.transform(frame).columns) == names == model.get_feature_names_out().tolist()
    scores, deviation = model.transform(frame, return_std=True)
    assert type(scores) is type(deviation) is frames.DataFrame and list(deviation.columns) == names
    np.testing.assert_array_equal(deviation.to_numpy(), model.posterior_.transform(table, return_std=True)[1])


def test_shapes_of_the_contract(fitted):
    k = fitted.n_components_
    assert fitted.components_.shape == fitted.inclusion_probability_.shape == (k, 12)
    assert fitted.component_support_.shape == fitted.explained_variance_ratio_.shape == (k,)
    assert fitted.n_components_draws_.shape == (2, 30)
    assert fitted.noise_variance_.shape == fitted.mean_.shape == (12,)


def test_same_seed_same_result_in_any_number_of_jobs(table, fitted):
    for jobs in (1, 2):
        again = clone(fitted).set_params(n_jobs=jobs).fit(table)
        same(fitted, again)
        np.testing.assert_array_equal(fitted.transform(table), again.transform(table))


def test_another_process_and_a_pickle_give_the_same_result(table, fitted, tmp_path):
    np.save(tmp_path / "table.npy", table)
    program = (
        "import sys, pickle, warnings, numpy as np; warnings.simplefilter('ignore'); from nsfa import SFA; "
        f"m = SFA(2, **{SHORT!r}).fit(np.load(sys.argv[1])); pickle.dump(m, open(sys.argv[2], 'wb'))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "table.npy"), str(tmp_path / "model.pkl")]
    subprocess.run(command, check=True)
    with (tmp_path / "model.pkl").open("rb") as handle:
        other = pickle.load(handle)
    same(fitted, other)
    np.testing.assert_array_equal(other.transform(table), pickle.loads(pickle.dumps(fitted)).transform(table))


def test_in_a_pipeline_and_a_grid_search(table):
    pipeline = make_pipeline(StandardScaler(), SFA(2, **SHORT))
    assert pipeline.fit_transform(table).shape[0] == 40
    search = GridSearchCV(FA(**SHORT), {"n_components": [1, 2]}, cv=2).fit(table)
    assert search.best_params_["n_components"] in (1, 2)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_no_factors_are_no_columns_and_a_sentence(table):
    """... which is there when the next step of a pipeline complains."""
    noise = np.random.default_rng(0).normal(size=(40, 6))
    model = NSFA(**SHORT, concentration=1e-3).fit(noise)
    with pytest.warns(UserWarning, match="The fit has no factors, so that there are no scores.*will fail[.]$"):
        assert model.transform(noise).shape == (40, 0)
    with pytest.warns(UserWarning, match="no factors"), pytest.raises(ValueError, match=r"0 feature\(s\)"):
        make_pipeline(NSFA(**SHORT, concentration=1e-3), StandardScaler()).fit(noise)


def test_a_model_of_ones_own(table, fitted):
    same(FactorModel(fitted.posterior_.spec, **SHORT).fit(table), fitted)
    spec = ModelSpec("mine", pattern="finite", scores="dirichlet", n_components=2)
    model = FactorModel(spec, **SHORT).fit(table)
    assert model.posterior_.spec == spec == clone(model).spec and model.posterior_.draws[0].scores is not None
    with pytest.raises(ValueError, match="spec must be a ModelSpec. Got 'sfa'"):
        FactorModel("sfa").fit(table)


def test_a_fit_shows_its_progress(table, fitted, capsys, tmp_path):
    seen = []
    same(clone(fitted).fit(table, progress=True, monitor=seen.append, store=tmp_path / "s"), fitted)
    told = capsys.readouterr().err
    assert "chain 0  done" in told and "chain 1  done" in told and "K 2  log joint" in told and seen
    nsfa.resume(tmp_path / "s", draws=5, progress=True)
    assert "35 draws" in repr(nsfa.load(tmp_path / "s")) and "chain 1  done" in capsys.readouterr().err
    clone(fitted).fit(table)
    assert capsys.readouterr().err == ""


def test_a_loaded_fit_answers_like_the_estimator(table, tmp_path):
    frame = pd.DataFrame(table, columns=[f"gene{d}" for d in range(12)], index=[f"s{n}" for n in range(40)])
    model = SFA(2, **SHORT).fit(frame, store=tmp_path / "s")
    loaded = nsfa.load(tmp_path / "s")
    machinery = {*model.get_params(), "fit", "fit_transform", "get_params", "get_metadata_routing"}
    names = {name for name in dir(model) if not name.startswith(("_", "set_"))} - machinery
    assert {"transform", "impute", "components_", "posterior_", "feature_names_in_"} <= names
    assert [name for name in sorted(names) if not hasattr(loaded, name)] == []
    given = {"inverse_transform": model.transform(frame)}
    for name in sorted(names - {"posterior_"}):
        mine, other = getattr(model, name), getattr(loaded, name)
        if callable(mine):
            arguments = [] if name.startswith("get_") else [given.get(name, frame)]
            mine, other = mine(*arguments), other(*arguments)
        assert type(mine) is type(other), name
        np.testing.assert_array_equal(mine, other, err_msg=name)
    for mine, other in zip(model.transform(frame, True), loaded.transform(frame, True), strict=True):
        np.testing.assert_array_equal(mine, other)
    pd.testing.assert_frame_equal(loaded.impute(frame, level=0.5)[2], model.impute(frame, level=0.5)[2])


def test_one_sentence_when_not_converged(table):
    with pytest.warns(ConvergenceWarning, match="^Not (converged|assessed): .*[.]$") as caught:
        NSFA(chains=2, tune=0, draws=10, random_state=0).fit(table)
    (told,) = [str(w.message) for w in caught if w.category is ConvergenceWarning]
    assert told.endswith(" Run longer: fit again with tune=200 and draws=1010, or nsfa.resume(store, draws=1000).")


def test_one_chain_warns_without_matching_factors_and_in_the_same_words(table):
    with pytest.warns(ConvergenceWarning) as caught:
        posterior = FA(3, chains=1, tune=0, draws=10, random_state=0).fit(table).posterior_
    assert "_consensus" not in vars(posterior)
    assert str(caught[0].message).startswith(posterior.diagnostics().verdict)


def test_a_preview_has_no_warm_up_that_ends_by_itself(table):
    with pytest.raises(ValueError, match="preview=True with tune='auto'; leave one of them out"):
        NSFA(preview=True, tune="auto").fit(table)


def test_a_preview_is_a_tenth_of_a_fit_and_says_so(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = NSFA(preview=True, chains=2, tune=100, draws=200, thin=2, random_state=0).fit(table)
    length = model.posterior_.length
    assert (length.tune, length.draws, length.thin, length.sweeps) == (30, 10, 2, 50)
    found = model.posterior_.diagnostics()
    assert found.verdict.startswith("Preview") and not found.converged
    short = NSFA(chains=2, tune=30, draws=10, thin=2, random_state=0)
    with pytest.warns(ConvergenceWarning):
        same(short.fit(table), model)


def test_wrong_number_of_features(fitted):
    for method in (fitted.transform, fitted.impute, fitted.score_samples):
        with pytest.raises(ValueError, match="X has 3 features, but SFA is expecting 12"):
            method(np.zeros((4, 3)))


def test_missing_entries_of_spca():
    data = make_sparse_factors(60, 15, 2, density=0.5, snr=50, missing=0.1, random_state=0)
    model = SPCA(2).fit(data.X)
    filled, holes = model.impute(data.X), np.isnan(data.X)
    assert np.corrcoef(filled[holes], data.X_complete[holes])[0, 1] > 0.7
    full = model.transform(data.X_complete)
    for k in range(2):
        assert np.corrcoef(model.transform(data.X)[:, k], full[:, k])[0, 1] > 0.95
    assert model.get_feature_names_out().tolist() == ["spca0", "spca1"]
    assert model.set_output(transform="pandas").transform(pd.DataFrame(data.X)).shape == (60, 2)


def test_importing_is_light():
    program = (
        "import sys, nsfa; heavy = {'anndata', 'arviz', 'dask', 'plotly', 'matplotlib', 'pandas', 'sklearn', 'numba'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_sampling_needs_no_display_tables_or_plots():
    program = """
import sys, warnings
# importing any of these is an error
sys.modules |= dict.fromkeys(["rich", "typer", "matplotlib", "pyarrow", "jinja2", "pandas"])
import numpy as np
from nsfa import NSFA
warnings.simplefilter("ignore")
model = NSFA(chains=1, tune=5, draws=5, random_state=0, n_jobs=1).fit(np.random.default_rng(0).normal(size=(10, 5)))
print(len(model.posterior_.chains[0]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "5", done.stderr


def test_estimators_do_not_load_the_optional_libraries():
    program = "import sys; from nsfa import NSFA; print(sorted({'anndata', 'arviz', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
