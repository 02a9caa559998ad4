"""Outliers, counts, zeros and ones all the way: from the command, an AnnData object and a comparison to what is written."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import nsfa
from command import TINY, run
from nsfa import NSFA, tl
from nsfa.readers.notes import notes_on
from test_latent import SETTINGS, SHORT, simulate

FLAGS = {"robust": ["--noise", "robust"], "counts": ["--likelihood", "counts"], "binary": ["--likelihood", "binary"]}


def table_of(kind, n_samples=20, n_features=12):
    """Samples × features with a few holes, and one gross outlier where these are looked for."""
    X = simulate(kind, n_samples=n_samples, n_features=n_features)[0]
    X[np.random.default_rng(4).random(X.shape) < 0.05] = np.nan
    X[2, :], X[:, 3] = np.nan_to_num(X[2, :]), np.nan_to_num(X[:, 3])
    if kind == "robust":
        X[2, 3] = 60.0
    return X


def written(path, X):
    """The same as a file of genes × samples."""
    names = {"index": [f"gene{d}" for d in range(X.shape[1])], "columns": [f"sample{n}" for n in range(len(X))]}
    pd.DataFrame(X.T, **names).to_csv(path, index_label="gene")
    return path


@pytest.fixture(scope="module", params=SETTINGS)
def finished(request, tmp_path_factory):
    """The kind, its table, and the folder of a finished run of the command."""
    folder, X = tmp_path_factory.mktemp(request.param), table_of(request.param)
    given = written(folder / "table.csv", X)
    result = run("fit", given, "-o", folder / "out", *TINY, *FLAGS[request.param], "--impute")
    assert "--likelihood" not in result.output, "what the likelihood answers is not noted"
    return request.param, X, folder / "out"


def test_the_command_writes_what_was_found(finished):
    kind, X, out = finished
    posterior = nsfa.load(out / "draws")
    assert posterior.spec.likelihood == (kind if kind != "robust" else "gaussian")
    filled = pd.read_csv(out / "imputed.csv", index_col="gene").to_numpy().T
    assert np.isfinite(filled).all()
    np.testing.assert_allclose(filled[~np.isnan(X)], X[~np.isnan(X)], rtol=1e-6, atol=1e-9)
    found = json.loads((out / "diagnostics.json").read_text())
    assert (out / "outliers.csv").exists() == (kind == "robust")
    assert (out / "size_factors.csv").exists() == (kind == "counts")
    if kind == "counts":
        sizes = pd.read_csv(out / "size_factors.csv", index_col="sample")["size_factor"]
        assert list(sizes.index) == [f"sample{n}" for n in range(len(X))]
        np.testing.assert_allclose(sizes, posterior.size_factors(), rtol=1e-4)
    if kind != "robust":
        assert found["share_of_outliers"] is None
        return
    shares = pd.read_csv(out / "outlier_shares.csv", index_col="sample")["outliers"]
    assert list(shares.index) == [f"sample{n}" for n in range(len(X))] and shares.between(0, 1).all()
    assert "which says how good each of them is" in (out / "report.html").read_text()
    first = pd.read_csv(out / "outliers.csv").iloc[0]
    assert first["sample"] == "sample2" and "gene3" in first.to_numpy() and first["probability"] > 0.99
    assert 0 < found["share_of_outliers"] < 1


def test_the_report_says_what_the_entries_were_taken_for(finished):
    kind, _, out = finished
    words = {"robust": "could be outliers", "counts": "taken as Poisson", "binary": "by a probit"}
    page = (out / "report.html").read_text()
    assert words[kind] in page
    assert ("size factors per sample" in page) == (kind == "counts")
    run("report", out)
    assert words[kind] in (out / "report.html").read_text()


def test_the_command_goes_on_and_projects(finished, tmp_path):
    _, X, out = finished
    run("transform", out, written(tmp_path / "new.csv", X[:6]), "-o", tmp_path / "scores.csv")
    scores = pd.read_csv(tmp_path / "scores.csv", index_col=0)
    assert len(scores) == 6 and np.isfinite(scores.to_numpy()).all()
    before = nsfa.load(out / "draws").length.draws
    run("resume", out, "--draws", "4")
    assert nsfa.load(out / "draws").length.draws == before + 4


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_command_compares(kind, tmp_path):
    given = written(tmp_path / "table.csv", table_of(kind))
    run("compare", given, "-o", tmp_path / "out", "--models", f"nsfa+{kind},sfa:2+{kind}", "--splits", "1", *TINY)
    scores = pd.read_csv(next((tmp_path / "out").glob("*.csv")))
    assert len(scores) >= 2 and np.isfinite(scores["lppd"]).all()


def test_counts_in_a_layer_of_cells(tmp_path):
    anndata = pytest.importorskip("anndata")
    X = simulate("counts", n_samples=80, n_features=24)[0]
    adata = anndata.AnnData(np.log1p(X), layers={"counts": sp.csr_matrix(X)})
    with pytest.warns():
        model = tl.nsfa(adata, layer="counts", likelihood="counts", return_model=True, **SHORT)
    assert adata.uns["nsfa"]["params"]["likelihood"] == "counts" and adata.uns["nsfa"]["params"]["layer"] == "counts"
    sizes = model.posterior_.size_factors()
    np.testing.assert_array_equal(adata.obs["nsfa_size_factor"], sizes)
    assert sizes.index[3] == adata.obs_names[3] and sizes.index.name == "sample" and sizes.name == "size_factor"
    own = adata.obsm["X_nsfa"].copy()
    assert own.shape == (80, model.n_components_) and np.isfinite(adata.varm["nsfa_loadings"]).all()
    # other cells, one gene of which was not measured
    others = adata[:30, np.arange(24) != 5].copy()
    tl.transform(others, model, layer="counts")
    again = others.obsm["X_nsfa"]
    assert all(np.corrcoef(own[:30, k], again[:, k])[0, 1] > 0.8 for k in range(own.shape[1]))
    # the layer of the fit is taken, also by a posterior that was saved, and X where it is named
    model.posterior_.save(tmp_path / "saved")
    for each in (model, nsfa.load(tmp_path / "saved")):
        with pytest.warns(UserWarning, match="fitted to the layer 'counts': that of adata is taken"):
            tl.transform(others, each, key_added="same")
        np.testing.assert_array_equal(others.obsm["X_same"], again)
    raw = anndata.AnnData(others.layers["counts"].copy(), var=others.var)
    with pytest.raises(ValueError, match="must have the layer 'counts', which .* are: no layers; name .* layer='X'"):
        tl.transform(raw, model)
    tl.transform(raw, model, layer="X")
    np.testing.assert_array_equal(raw.obsm["X_nsfa"], again)


def test_the_command_reads_the_layer_that_was_fitted(tmp_path):
    anndata = pytest.importorskip("anndata")
    X = simulate("counts", n_samples=40, n_features=12)[0]
    names = pd.DataFrame(index=[f"gene{d}" for d in range(12)])
    cells = anndata.AnnData(np.log1p(X), var=names, layers={"counts": X})
    cells.write_h5ad(tmp_path / "cells.h5ad")
    anndata.AnnData(X, var=names).write_h5ad(tmp_path / "raw.h5ad")
    out = tmp_path / "out"
    run("fit", tmp_path / "cells.h5ad", "-o", out, *TINY, *FLAGS["counts"], "--layer", "counts")
    found = []
    for i, (name, flags, words) in enumerate(
        [
            ("cells.h5ad", ["--layer", "counts"], None),
            ("cells.h5ad", [], "fitted to the layer 'counts': that of cells.h5ad is read; --layer names another"),
            ("raw.h5ad", ["--layer", "X"], None),
            ("table.csv", [], "the scores are right only if the values of table.csv are such"),
        ]
    ):
        written(tmp_path / "table.csv", X)
        said = run("transform", out, tmp_path / name, "-o", tmp_path / f"{i}.csv", *flags)
        assert ("layer" in said.stderr) == (words is not None) and (words or "") in " ".join(said.stderr.split())
        found.append(pd.read_csv(tmp_path / f"{i}.csv", index_col="sample").to_numpy())
    assert all(np.array_equal(each, found[0]) for each in found)
    said = run("transform", out, tmp_path / "raw.h5ad", "-o", tmp_path / "none.csv", code=1)
    words = "raw.h5ad must have the layer 'counts', which the run was fitted to. Got the layers: none; name one with"
    assert words in " ".join(said.stderr.split())


@pytest.mark.parametrize(
    ("kind", "words"), [("counts", "as counts are: use likelihood='counts', or"), ("binary", "ones")]
)
def test_cells_that_were_not_prepared_are_pointed_out(kind, words):
    anndata = pytest.importorskip("anndata")
    X = simulate(kind, n_samples=40, n_features=12)[0]
    adata = anndata.AnnData(sp.csr_matrix(X))
    with pytest.warns(UserWarning, match=f"adata.X holds .*{words}"):
        tl.nsfa(adata, **{**SHORT, "tune": 5, "draws": 5})
    with warnings.catch_warnings(record=True) as caught:
        tl.nsfa(adata, likelihood=kind, **{**SHORT, "tune": 5, "draws": 5})
    assert not any("adata.X" in str(one.message) for one in caught)


def test_size_factors_of_an_earlier_fit_do_not_stay():
    anndata = pytest.importorskip("anndata")
    short = {**SHORT, "tune": 5, "draws": 5}
    adata = anndata.AnnData(simulate("counts", n_samples=40, n_features=12)[0])
    for settings, there in (({}, True), ({"size_factors": None}, False)):
        tl.nsfa(adata, likelihood="counts", **short, **settings)
        assert ("nsfa_size_factor" in adata.obs) == there
    tl.nsfa(adata, likelihood="counts", key_added="again", **short)
    with pytest.warns(match="adata.X holds"):
        tl.nsfa(adata, **short)
    assert list(adata.obs) == ["again_size_factor"]


def test_without_size_factors_none_are_reported(tmp_path):
    from nsfa.report.prose import methods

    X = simulate("counts", n_samples=40, n_features=12)[0]
    with pytest.warns():
        posterior = NSFA(likelihood="counts", size_factors=None, **SHORT).fit(X).posterior_
    text = methods(posterior, posterior.consensus(), posterior.diagnostics())
    assert "Poisson" in text and "size factors" not in text
    run(
        "fit", written(tmp_path / "t.csv", X), "-o", tmp_path / "out", *TINY, *FLAGS["counts"], "--size-factors", "none"
    )
    assert not (tmp_path / "out" / "size_factors.csv").exists()


@pytest.mark.parametrize("kind", ["counts", "binary"])
def test_notes_point_to_the_likelihood(kind):
    X = simulate(kind)[0]
    (note,) = notes_on(X, [f"s{n}" for n in range(len(X))], [f"g{d}" for d in range(X.shape[1])], log2=False)
    assert f"--likelihood {kind} (likelihood='{kind}')" in note


@pytest.mark.parametrize("kind", SETTINGS)
def test_arviz_gets_replicates_of_what_was_seen(kind):
    pytest.importorskip("arviz")
    with pytest.warns():
        posterior = NSFA(**SHORT, **SETTINGS[kind]).fit(table_of(kind)).posterior_
    again = posterior.to_arviz(posterior_predictive=True)["posterior_predictive"]["X"].values
    assert np.isfinite(again).all()
    if kind != "robust":
        np.testing.assert_array_equal(again, np.rint(again))
        assert again.min() == 0 and (kind == "counts" or again.max() == 1)
    with pytest.raises(ValueError, match="likelihood"):
        posterior.to_arviz(log_likelihood=True)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--size-factors", "none"],
            "--size-factors is for --likelihood counts. Got none with gaussian; leave it out.",
        ),
        (
            ["--scale", "global", "--likelihood", "counts"],
            "--scale global is for measurements. Got it with --likelihood counts; leave it out.",
        ),
        (["--likelihood", "binary"], "--likelihood binary needs a table of zeros and ones, .* use --likelihood counts"),
        (["--likelihood", "counts", "--noise", "robust"], "noise of its own. Got --noise robust; leave it out."),
        (["--likelihood", "counts", "--prior", "paper"], "needs priors with unknown means. .*; use --prior default"),
    ],
)
def test_the_command_refuses_in_its_own_words(tmp_path, flags, words):
    table = written(tmp_path / "table.csv", table_of("counts"))
    result = run("fit", table, "-o", tmp_path / "out", *TINY, *flags, code=1)
    assert re.search(words, " ".join(result.output.split()))
    assert "='" not in result.output


def test_the_command_and_its_report_name_factors_of_one_sample(tmp_path):
    X = np.random.default_rng(6).standard_normal((30, 12))
    X[4, :8] += 20.0
    out = tmp_path / "out"
    result = run("fit", written(tmp_path / "table.csv", X), "-o", out, "--chains", "2", "--tune", "60", "--draws", "30")
    sentence = r"factors? rests? on one or two samples \(factors? 0"
    assert re.search(sentence + r".*: see two_samples in factors\.csv\. If .*--noise robust takes", result.stdout)
    page = (out / "report.html").read_text()
    assert re.search(sentence + ".*: look at these samples before you read", page) and '<span class="few">' in page
    found = json.loads((out / "diagnostics.json").read_text())
    assert found["n_outlying"] >= 1 and found["factors"][0]["two_samples"] > 0.5


def test_a_sparse_file_is_refused_in_the_words_of_the_command(tmp_path):
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_array(np.nan_to_num(table_of("counts")).T))
    result = run("fit", tmp_path / "sparse.npz", "-o", tmp_path / "out", *TINY, "--noise", "robust", code=1)
    assert "--noise robust needs a dense table" in result.output and "toarray" not in result.output
