import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import nsfa
from nsfa import NSFA, SFA, schedule, tl
from nsfa.datasets import make_sparse_factors
from nsfa.enrichment import enrich
from nsfa.samples import Samples

anndata = pytest.importorskip("anndata")

# anndata 0.13 asks pandas 3.1 for an option that it announces to remove
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")

FAST = {"chains": 2, "tune": 60, "draws": 30, "random_state": 3, "n_jobs": 1}


def cells(X, **var):
    """An AnnData object with named cells and genes."""
    return anndata.AnnData(
        X,
        obs=pd.DataFrame(index=[f"c{i}" for i in range(X.shape[0])]),
        var=pd.DataFrame(var, index=[f"g{i}" for i in range(X.shape[1])]),
    )


@pytest.fixture(scope="module")
def table():
    return make_sparse_factors(70, 24, 3, density=0.4, random_state=1).X


@pytest.fixture(scope="module")
def counts():
    """A sparse table of small numbers with two blocks of genes that go together."""
    rng = np.random.default_rng(0)
    rate = np.full((80, 20), 0.4)
    rate[:40, :6] += 2.0
    rate[20:60, 10:16] += 2.0
    return sp.csr_matrix(np.log1p(rng.poisson(rate)))


@pytest.fixture(scope="module")
def fitted(table):
    """(adata, model): a fit to dense data, never changed by the tests."""
    adata = cells(table)
    return adata, tl.nsfa(adata, model="sfa", n_components=3, return_model=True, **FAST)


def same(a, b):
    """Whether two nested dicts hold equal values."""
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, pd.DataFrame):
        return list(a.columns) == list(b.columns) and all(same(a[c].to_numpy(), b[c].to_numpy()) for c in a)
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and all(x == y or (x != x and y != y) for x, y in zip(a.flat, b.flat, strict=True))
    return bool(a == b)


class TestFit:
    def test_writes_what_the_estimator_finds(self, fitted, table):
        adata, model = fitted
        plain = SFA(3, **FAST).fit(pd.DataFrame(table, columns=adata.var_names))
        consensus = plain.posterior_.consensus()
        assert consensus.n_factors > 0
        np.testing.assert_array_equal(adata.obsm["X_nsfa"], consensus.scores)
        weighted = consensus.scores * np.sqrt(consensus.variance_explained)
        np.testing.assert_allclose(adata.obsm["X_nsfa_weighted"], weighted)
        np.testing.assert_array_equal(adata.varm["nsfa_loadings"], consensus.loadings)
        np.testing.assert_array_equal(adata.varm["nsfa_pip"], consensus.inclusion)
        np.testing.assert_array_equal(adata.varm["nsfa_relevance"], consensus.relevance)
        assert 0 < consensus.relevance.sum() < consensus.inclusion.sum()
        np.testing.assert_array_equal(adata.uns["nsfa"]["support"], consensus.support)
        assert adata.uns["nsfa"]["diagnostics"]["verdict"] == plain.posterior_.diagnostics().verdict
        assert model.posterior_.consensus().feature_names[:2] == ("g0", "g1")

    def test_the_settings_of_a_preview_are_those_that_repeat_it(self, table):
        adata = cells(table)
        tl.nsfa(adata, model="sfa", n_components=3, preview=True, chains=2, draws=40, random_state=0)
        params = adata.uns["nsfa"]["params"]
        assert params["preview"] and params["draws"] == 40 and "tune" not in params and "thin" not in params

    def test_record_of_the_fit(self, fitted):
        record = fitted[0].uns["nsfa"]
        assert record["seed"] == 3 and record["params"]["chains"] == 2 and record["params"]["model"] == "sfa"
        assert "layer" not in record["params"] and "random_state" not in record["params"]
        assert list(record["n_components"]["values"]) == [3] and record["n_components"]["share"].sum() == 1
        posterior = fitted[1].posterior_
        for name in ("n_shared", "n_substantial"):
            values, counts = np.unique(getattr(posterior, name), return_counts=True)
            np.testing.assert_array_equal(record[name]["values"], values)
            np.testing.assert_allclose(record[name]["share"], counts / counts.sum())
        assert list(record["factors"]["verdict"]) == list(posterior.consensus().checks.verdict)
        assert len(record["factors"]["rhat"]) == len(record["minor"]) == posterior.consensus().n_factors
        assert record["diagnostics"]["partly_converged"] == posterior.diagnostics().partly_converged
        quantities = record["diagnostics"]["quantity"]
        assert "log joint" in quantities and len(record["diagnostics"]["rhat"]) == len(quantities)

    def test_the_record_survives_a_file(self, fitted, tmp_path):
        adata = fitted[0].copy()
        tl.enrich(adata, {"s": ["g0", "g1", "g2"]})
        adata.write_h5ad(tmp_path / "a.h5ad")
        back = anndata.read_h5ad(tmp_path / "a.h5ad")
        assert same(adata.uns["nsfa"], back.uns["nsfa"])
        for name in ("nsfa_loadings", "nsfa_pip", "nsfa_relevance"):
            np.testing.assert_array_equal(back.varm[name], adata.varm[name])
        np.testing.assert_array_equal(back.obsm["X_nsfa"], adata.obsm["X_nsfa"])

    def test_odd_settings_survive_a_file(self, table, tmp_path):
        from nsfa import Priors

        adata = cells(table)
        settings = {**FAST, "tune": 2, "draws": 4, "random_state": 2**80, "scale": None, "prior": Priors.paper()}
        tl.nsfa(adata, key_added="f", **settings)
        adata.write_h5ad(tmp_path / "a.h5ad")
        back = anndata.read_h5ad(tmp_path / "a.h5ad").uns["f"]
        assert same(adata.uns["f"], back)
        assert back["seed"] == str(2**80) and back["params"]["prior"].startswith("Priors(")
        assert "scale" not in back["params"]

    def test_no_factors_at_all(self, tmp_path):
        """Noise: the object can be written, read, projected on and tested."""
        adata = cells(np.random.default_rng(2).normal(size=(40, 6)))
        model = tl.nsfa(adata, return_model=True, **{**FAST, "concentration": 1e-3})
        assert adata.obsm["X_nsfa"].shape == (40, 0) and adata.varm["nsfa_pip"].shape == (6, 0)
        assert len(tl.enrich(adata, {"s": ["g0", "g1", "g2"]})) == 0
        with pytest.warns(UserWarning, match="no factors"):
            tl.transform(adata, model, return_std=True)
        adata.write_h5ad(tmp_path / "a.h5ad")
        assert same(adata.uns["nsfa"], anndata.read_h5ad(tmp_path / "a.h5ad").uns["nsfa"])

    def test_a_layer_is_fitted_in_place_of_x(self, fitted, table):
        adata = cells(np.zeros_like(table))
        adata.layers["log"] = table
        tl.nsfa(adata, layer="log", model="sfa", n_components=3, **FAST)
        np.testing.assert_array_equal(adata.obsm["X_nsfa"], fitted[0].obsm["X_nsfa"])
        assert adata.uns["nsfa"]["params"]["layer"] == "log"

    def test_highly_variable_genes(self, table):
        marked = np.arange(24) % 2 == 0
        adata = cells(table, highly_variable=marked)
        tl.nsfa(adata, **FAST)
        tl.nsfa(adata, use_highly_variable=True, key_added="yes", **FAST)
        tl.nsfa(adata, use_highly_variable=False, key_added="no", **FAST)
        alone = cells(table[:, marked])
        tl.nsfa(alone, **FAST)
        assert alone.varm["nsfa_loadings"].shape[1] > 0
        for key in ("nsfa", "yes"):
            np.testing.assert_array_equal(adata.varm[f"{key}_loadings"][marked], alone.varm["nsfa_loadings"])
            assert np.isnan(adata.varm[f"{key}_loadings"][~marked]).all()
            assert np.isnan(adata.varm[f"{key}_pip"][~marked]).all()
            assert adata.uns[key]["params"]["use_highly_variable"]
        assert np.isfinite(adata.varm["no_loadings"]).all()

    def test_a_copy_leaves_the_original_alone(self, table):
        adata = cells(table)
        other, model = tl.nsfa(adata, copy=True, return_model=True, **FAST)
        assert "X_nsfa" in other.obsm and not adata.obsm and not adata.uns and not adata.varm
        assert isinstance(model, NSFA)
        assert tl.nsfa(adata, **FAST) is None
        np.testing.assert_array_equal(adata.obsm["X_nsfa"], other.obsm["X_nsfa"])

    def test_a_view_becomes_its_own_object(self, table):
        whole = cells(table)
        part = whole[10:60, 2:20]
        tl.nsfa(part, **FAST)
        assert not part.is_view and part.obsm["X_nsfa"].shape[0] == 50 and not whole.obsm
        alone = cells(table[10:60, 2:20])
        tl.nsfa(alone, **FAST)
        np.testing.assert_array_equal(part.obsm["X_nsfa"], alone.obsm["X_nsfa"])

    def test_missing_entries_are_missing(self, table):
        holed = table.copy()
        holed[::7, ::5] = np.nan
        adata = cells(holed)
        model = tl.nsfa(adata, return_model=True, **FAST)
        assert not model.posterior_.data.complete and np.isfinite(adata.obsm["X_nsfa"]).all()


def forbid_dense(monkeypatch, size):
    """Make every sparse matrix of ``size`` entries or more refuse to become dense."""
    for kind in (sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array, sp.csc_array, sp.coo_array):
        for name in ("toarray", "todense"):
            before = getattr(kind, name)

            def guarded(self, *args, before=before, **kwargs):
                if np.prod(self.shape) >= size:
                    raise AssertionError("made dense")
                return before(self, *args, **kwargs)

            monkeypatch.setattr(kind, name, guarded)


class TestSparse:
    @pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.csr_array])
    def test_never_made_dense(self, counts, form, monkeypatch):
        dense = cells(counts.toarray())
        tl.nsfa(dense, **FAST)
        adata, half = cells(form(counts)), cells(form(counts), highly_variable=np.arange(20) < 10)
        forbid_dense(monkeypatch, size=10 * 20)
        with pytest.raises(AssertionError, match="made dense"):
            adata.X.toarray()
        model = tl.nsfa(adata, return_model=True, **FAST)
        tl.nsfa(half, **FAST)
        tl.transform(adata, model, key_added="again")
        assert adata.obsm["X_nsfa"].shape[1] > 0
        assert model.posterior_.data.feature_names[3] == "g3"
        np.testing.assert_allclose(adata.obsm["X_again"], adata.obsm["X_nsfa"], atol=1e-9)

    def test_sparse_and_dense_agree(self, counts, monkeypatch):
        # sparse tables have no sweeps with the scores integrated out: without them both make the same draws
        monkeypatch.setattr(Samples, "can", frozenset({"whole"}))
        monkeypatch.setattr(schedule, "simplifies", lambda *arguments: False)
        adata, dense = cells(counts), cells(counts.toarray())
        tl.nsfa(adata, **FAST)
        tl.nsfa(dense, **FAST)
        np.testing.assert_allclose(adata.obsm["X_nsfa"], dense.obsm["X_nsfa"], atol=1e-6)

    def test_a_sparse_view(self, counts):
        part = cells(counts)[:50]
        tl.nsfa(part, **FAST)
        assert part.obsm["X_nsfa"].shape[0] == 50


class TestTransform:
    def test_old_cells_get_their_scores(self, fitted):
        adata, model = fitted
        again = cells(adata.X)
        tl.transform(again, model, return_std=True)
        np.testing.assert_allclose(again.obsm["X_nsfa"], adata.obsm["X_nsfa"], atol=1e-9)
        np.testing.assert_allclose(again.obsm["X_nsfa_std"], model.posterior_.consensus().scores_std, atol=1e-9)
        np.testing.assert_allclose(again.obsm["X_nsfa_weighted"], adata.obsm["X_nsfa_weighted"], atol=1e-9)
        tl.transform(again, model.posterior_, key_added="p")
        np.testing.assert_array_equal(again.obsm["X_p"], again.obsm["X_nsfa"])
        np.testing.assert_array_equal(again.obsm["X_p_weighted"], again.obsm["X_nsfa_weighted"])
        assert "X_p_std" not in again.obsm

    def test_genes_are_matched_by_name(self, fitted):
        adata, model = fitted
        shuffled = np.random.default_rng(0).permutation(24)
        extra = np.c_[adata.X[:, shuffled], np.full(len(adata), 1e6)]
        other = cells(extra)
        other.var_names = [*(f"g{i}" for i in shuffled), "unknown"]
        tl.transform(other, model)
        np.testing.assert_allclose(other.obsm["X_nsfa"], adata.obsm["X_nsfa"], atol=1e-9)

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
    def test_genes_that_are_gone_count_as_missing(self, fitted, form, monkeypatch):
        adata, model = fitted
        kept = np.arange(24) % 4 != 1
        fewer = anndata.AnnData(form(adata.X[:, kept]), var=pd.DataFrame(index=adata.var_names[kept]))
        monkeypatch.setattr(tl.verbs, "_BLOCK", 24 * 16)
        tl.transform(fewer, model, return_std=True)
        mean, deviation = model.posterior_.transform(np.where(kept, adata.X, np.nan), return_std=True)
        np.testing.assert_allclose(fewer.obsm["X_nsfa"], mean, atol=1e-9)
        np.testing.assert_allclose(fewer.obsm["X_nsfa_std"], deviation, atol=1e-9)
        assert not np.allclose(mean, adata.obsm["X_nsfa"], atol=1e-3)

    def test_a_layer_and_a_view(self, fitted):
        adata, model = fitted
        other = cells(np.zeros_like(adata.X))
        other.layers["log"] = adata.X
        part = other[5:15]
        tl.transform(part, model, layer="log")
        assert not part.is_view
        np.testing.assert_allclose(part.obsm["X_nsfa"], adata.obsm["X_nsfa"][5:15], atol=1e-9)

    def test_a_model_fitted_elsewhere(self, fitted):
        adata, _ = fitted
        model = SFA(3, **FAST).fit(pd.DataFrame(adata.X, columns=adata.var_names))
        again = cells(adata.X)
        tl.transform(again, model)
        np.testing.assert_allclose(again.obsm["X_nsfa"], adata.obsm["X_nsfa"], atol=1e-9)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (lambda a: [f"ENSG{i}" for i in range(24)], "genes in common with the model. Got none: 'ENSG0', ... here"),
            (lambda a: ["g0", "g0", *a.var_names[2:]], "different names to be matched. Got 'g0' twice in the adata"),
        ],
    )
    def test_genes_that_cannot_be_matched(self, fitted, change, sentence):
        other = cells(fitted[0].X)
        other.var_names = change(other)
        with pytest.raises(ValueError, match=sentence):
            tl.transform(other, fitted[1])

    def test_a_model_without_names(self, fitted):
        model = SFA(3, **{**FAST, "tune": 2, "draws": 4}).fit(fitted[0].X)
        with pytest.raises(ValueError, match="model must know its genes' names"):
            tl.transform(cells(fitted[0].X), model)

    def test_something_that_is_no_model(self, fitted):
        for thing in (NSFA(), None, fitted[0]):
            with pytest.raises(TypeError, match="model must be a fitted estimator or its posterior. Got"):
                tl.transform(cells(fitted[0].X), thing)


class TestEnrich:
    def test_the_same_as_from_the_model(self, fitted):
        adata, model = fitted[0].copy(), fitted[1]
        sets = {f"s{i}": [f"g{j}" for j in range(i, i + 5)] for i in range(15)}
        for method in ("hypergeometric", "rank"):
            for effect in (0, 0.05):
                expected = enrich(model.posterior_.consensus(), sets, method=method, min_size=4, effect=effect)
                assert len(expected) > 0
                got = tl.enrich(adata, sets, method=method, min_size=4, effect=effect, key_added=method)
                pd.testing.assert_frame_equal(got, expected)
                pd.testing.assert_frame_equal(adata.uns["nsfa"][method], expected)

    def test_other_effects_need_the_draws(self, fitted):
        with pytest.raises(ValueError, match="effect must be 0 or 0.05 where there are no draws"):
            tl.enrich(fitted[0].copy(), {"s": ["g0", "g1", "g2"]}, effect=0.1)

    def test_a_record_without_relevance_is_told(self, fitted):
        adata = fitted[0].copy()
        del adata.varm["nsfa_relevance"]
        with pytest.raises(ValueError, match=r"Got no varm\['nsfa_relevance'\]; run nsfa\.tl\.nsfa\(adata\) first"):
            tl.enrich(adata, {"s": ["g0", "g1", "g2"]})

    def test_genes_that_were_not_fitted_are_not_in_the_universe(self, table):
        marked = np.arange(24) < 16
        adata = cells(table, highly_variable=marked)
        tl.nsfa(adata, **FAST)
        sets = {"s": ["g0", "g1", "g2", "g20", "g21"]}
        assert set(tl.enrich(adata, sets, method="rank").set_size) == {3}
        alone = cells(table[:, marked])
        tl.nsfa(alone, **FAST)
        pd.testing.assert_frame_equal(tl.enrich(adata, sets), tl.enrich(alone, sets))

    def test_symbols_are_a_column_of_var(self, table, tmp_path):
        adata = cells(table, highly_variable=np.arange(24) >= 8)
        adata.var["symbol"] = pd.Categorical([{12: None, 13: "nan", 14: "nan"}.get(i, f"SYMBOL{i}") for i in range(24)])
        tl.nsfa(adata, **FAST)
        by_symbol = tl.enrich(
            adata, {"s": ["SYMBOL8", "SYMBOL10", "g12", "g13", "SYMBOL3", "nan"]}, gene_symbols="symbol", method="rank"
        )
        by_name = tl.enrich(adata, {"s": ["g8", "g10", "g12", "g13", "g3"]}, method="rank")
        assert set(by_symbol.set_size) == {4}
        pd.testing.assert_frame_equal(by_symbol.drop(columns="genes"), by_name.drop(columns="genes"))
        adata.write_h5ad(tmp_path / "a.h5ad")
        with pytest.raises(ValueError, match="must be a column of adata.var. Got 'name'; there are: .*'symbol'"):
            tl.enrich(adata, {"s": ["g8"]}, gene_symbols="name")

    def test_only_stored_things_are_needed(self, fitted, tmp_path):
        fitted[0].write_h5ad(tmp_path / "a.h5ad")
        back = anndata.read_h5ad(tmp_path / "a.h5ad")
        sets = {"s": ["g0", "g1", "g2", "g3"]}
        pd.testing.assert_frame_equal(tl.enrich(back, sets), tl.enrich(fitted[0].copy(), sets))

    def test_needs_a_fit(self, table):
        with pytest.raises(ValueError, match=r"must hold factors under 'nsfa'\. Got none; run nsfa\.tl\.nsfa"):
            tl.enrich(cells(table), {})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layer": "counts"}, "layer must be None or a key of adata.layers. Got 'counts'; there are: no layers"),
        ({"use_highly_variable": True}, r"adata.var\['highly_variable'\] must be boolean. Got no such column"),
        ({"model": "pca"}, "model must be one of 'fa', 'afa', 'fok', 'sfa', 'nsfa', 'bfrm'. Got 'pca'"),
        ({"n_components": 3}, "Got 'n_components'; it infers the number of factors, use model='sfa'"),
        ({"model": "sfa", "n_component": 3}, "Settings of sfa must be among .*n_components.*. Got 'n_component'"),
        ({"model": "sfa"}, "n_components must be an int >= 1. Got None"),
    ],
)
def test_bad_settings_get_one_sentence(change, sentence, table):
    adata = cells(table)
    with pytest.raises(ValueError, match=sentence):
        tl.nsfa(adata, **FAST, **change)
    assert not adata.obsm and not adata.uns


def test_a_column_that_is_not_boolean(table):
    adata = cells(table, highly_variable=["yes", "no"] * 12)
    with pytest.raises(ValueError, match="must be boolean. Got dtype"):
        tl.nsfa(adata, use_highly_variable=True, **FAST)


def test_an_estimator_given_such_an_object_points_here(table, fitted):
    for call in (NSFA().fit, SFA(2, **FAST).fit(table).transform, lambda adata: nsfa.compare(adata)):
        with pytest.raises(ValueError, match="Got an AnnData object; fit it with nsfa.tl.nsfa, or pass its X."):
            call(cells(table))


def test_empty_x_and_other_objects(table):
    empty = anndata.AnnData(obs=pd.DataFrame(index=["a", "b"]), var=pd.DataFrame(index=["x", "y"]))
    with pytest.raises(ValueError, match="adata.X must hold the data. Got None; name a layer"):
        tl.nsfa(empty)
    with pytest.raises(TypeError, match="adata must be an AnnData object. Got ndarray; fit tables with nsfa.NSFA"):
        tl.nsfa(table)
    with pytest.raises(TypeError, match="Got SimpleNamespace"):
        tl.enrich(SimpleNamespace(isbacked=False), {})


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_values_of_backed_objects_are_read_as_they_are(kind, table, tmp_path):
    cells(kind(table)).write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    memory = backed.to_memory()
    model = tl.nsfa(backed, return_model=True, **FAST)
    tl.nsfa(memory, **FAST)
    np.testing.assert_array_equal(backed.obsm["X_nsfa"], memory.obsm["X_nsfa"])
    tl.transform(backed, model, key_added="again")
    assert backed.obsm["X_again"].shape == backed.obsm["X_nsfa"].shape
    with pytest.raises(ValueError, match=r"must be in memory to be copied\. .* use adata\.to_memory\(\)"):
        tl.nsfa(backed, copy=True, **FAST)
    backed.file.close()


def test_sparse_values_are_never_made_dense(monkeypatch):
    """As many entries as would fill 16 GB."""
    rng = np.random.default_rng(0)
    n_cells, n_genes, row = 200_000, 10_000, np.repeat(np.arange(200_000), 2)
    column = np.where(rng.random(len(row)) < 0.7, rng.integers(0, 20, len(row)), rng.integers(0, n_genes, len(row)))
    values = sp.csr_matrix((rng.gamma(2.0, 1.0, len(row)), (row, column)), shape=(n_cells, n_genes), dtype=np.float32)

    def refuse(*args, **kwargs):
        raise AssertionError("a sparse table was made dense")

    for name in ("toarray", "todense"):
        for kind in (sp.csr_array, sp.csr_matrix, sp.csc_array, sp.csc_matrix):
            monkeypatch.setattr(kind, name, refuse)
    adata = anndata.AnnData(values)
    model = tl.nsfa(adata, model="fa", n_components=2, chains=1, tune=1, draws=1, dtype="float32", return_model=True)
    assert model.posterior_.data.values.dtype == np.float32
    assert adata.obsm["X_nsfa"].shape[0] == n_cells
    tl.transform(adata, model, key_added="again")


def test_without_anndata_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r"nsfa\.tl needs anndata: pip install 'nsfa\[anndata\]'\."):
        tl.nsfa(None)
