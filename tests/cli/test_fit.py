"""``nsfa fit``: what it writes, says and refuses."""

import json
import shlex
import tomllib

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import nsfa
from command import TINY, read_json, run, write_table
from nsfa.cli import memory
from nsfa.cli.companions import read_samples, write_samples
from nsfa.cli.results import factor_table, gene_lists, write_factor_genes
from nsfa.datasets import make_sparse_factors
from nsfa.enrichment import enrich_both, read_gmt
from nsfa.posterior import diagnostics
from report_cases import made_up

TABLES = ("loadings.csv", "inclusion.csv", "scores.csv", "factors.csv", "genes.csv", "enrichment.csv", "imputed.csv")


def test_every_file_of_a_run_is_there_and_agrees_with_the_draws(finished):
    posterior = nsfa.load(finished / "draws")
    consensus = posterior.consensus()
    loadings = pd.read_csv(finished / "loadings.csv", index_col="gene")
    assert list(loadings.index) == [f"gene{d}" for d in range(12)]
    np.testing.assert_allclose(loadings.to_numpy(), consensus.loadings, rtol=1e-5, atol=1e-12)
    inclusion = pd.read_csv(finished / "inclusion.csv", index_col="gene")
    np.testing.assert_allclose(inclusion.to_numpy(), consensus.inclusion, rtol=1e-5)
    scores = pd.read_csv(finished / "scores.csv", index_col="sample")
    assert list(scores.index) == [f"sample{n}" for n in range(15)]
    np.testing.assert_allclose(scores.to_numpy(), consensus.scores, rtol=1e-5, atol=1e-12)
    factors = pd.read_csv(finished / "factors.csv")
    assert len(factors) == consensus.n_factors == loadings.shape[1]
    assert {"factor", "support", "variance_explained", "core_genes", "genes_at_5_percent_fdr"} <= set(factors)
    diagnostics = json.loads((finished / "diagnostics.json").read_text())
    assert diagnostics["verdict"] == posterior.diagnostics().verdict
    assert [row["verdict"] for row in diagnostics["factors"]] == list(consensus.checks.verdict)
    assert factors["verdict"].tolist() == list(consensus.checks.verdict)
    assert factors["minor"].tolist() == consensus.minor.tolist()
    assert (finished / "report.html").stat().st_size > 1000
    figures = {path.stem for path in (finished / "figures").glob("*.png")}
    assert {"n_components", "traces", "loadings", "variance_explained", "scores"} <= figures
    assert not list(finished.rglob("*.part"))


def test_imputed_holds_what_was_observed_and_fills_the_rest(finished):
    filled = pd.read_csv(finished / "imputed.csv", index_col="gene")
    given = pd.read_csv(finished.parent / "table.csv", index_col="gene")
    assert given.isna().to_numpy().any() and not filled.isna().to_numpy().any()
    seen = given.notna().to_numpy()
    np.testing.assert_allclose(filled.to_numpy()[seen], given.to_numpy()[seen], rtol=1e-9, atol=1e-9)
    digits = [len(f"{value!r}".lstrip("-0.").replace(".", "")) for value in filled.to_numpy()[~seen].tolist()]
    assert max(digits) > 7, "as many as measurements can have"


def test_labels_with_many_digits_are_kept(tmp_path):
    labels = pd.DataFrame({"patient": [1000001, 1000002, None]})
    write_samples(tmp_path, ["a", "b", "c"], labels)
    assert read_samples(tmp_path, 3)["patient"].tolist()[:2] == [1000001, 1000002]


def test_the_command_in_config_repeats_the_run(finished, tmp_path):
    config = tomllib.loads((finished / "config.toml").read_text())
    assert config["sampling"] == {"chains": 2, "tune": 10, "draws": 10, "thin": 4, "preview": False, "seed": 0}
    assert config["input"]["checksum"].startswith("sha256:") and config["input"]["missing_entries"] > 0
    assert config["estimator"]["class"] == "NSFA" and config["versions"]["nsfa"] == nsfa.__version__
    words = shlex.split(config["command"])
    assert words[:2] == ["nsfa", "fit"] and words[words.index("-o") + 1] == str(finished)
    words[words.index("-o") + 1] = str(tmp_path / "again")
    run(*words[1:])
    for name in TABLES:
        assert (tmp_path / "again" / name).read_bytes() == (finished / name).read_bytes(), name


def test_what_is_said_and_what_is_json(table, tmp_path):
    said = run("fit", table, "-o", tmp_path / "a", *TINY, "--no-report")
    assert "more than half of the draws" in said.stdout and "Tables: " in said.stdout
    assert "(5 genes or more)" in said.stdout and "Number of substantial factors: " in said.stdout
    assert "chain 1" in said.stderr and "chain 2" not in said.stderr
    assert not (tmp_path / "a" / "report.html").exists()
    found = read_json(run("fit", table, "-o", tmp_path / "b", *TINY, "--no-report", "--json"))
    assert 0 <= found["n_substantial"] <= found["n_components"]
    for number in ("n_components", "n_shared", "n_substantial"):
        assert sum(found[f"{number}_posterior"].values()) == pytest.approx(1)
    assert found["advice"]["draws"] == 1000 and found["partly_converged"] is False and found["n_settled"] == 0
    assert found["converged"] is False and found["verdict"].startswith("Not converged")
    assert found["output"] == str(tmp_path / "b") and "loadings.csv" in found["files"]
    assert all((tmp_path / "b" / name).exists() for name in found["files"])
    silent = run("fit", table, "-o", tmp_path / "c", *TINY, "--no-report", "--quiet")
    assert silent.output == ""


@pytest.mark.parametrize("sparse", [False, True])
def test_an_h5ad_file_brings_its_annotations_and_symbols(tmp_path, sparse):
    anndata = pytest.importorskip("anndata")
    values = make_sparse_factors(22, 12, 2, density=0.6, random_state=1).X
    values = sp.csr_matrix(np.where(values > 0, values, 0)) if sparse else values
    names = [f"cell{i}" for i in range(22)]
    obs = pd.DataFrame({"leiden": pd.Categorical([str(i % 2) for i in range(22)]), "barcode": names}, index=names)
    var = pd.DataFrame({"gene_symbols": [f"SYMBOL{d}" for d in range(12)]}, index=[f"ENSG{d:011d}" for d in range(12)])
    anndata.AnnData(values, obs=obs, var=var).write_h5ad(tmp_path / "t.h5ad")
    out, given = tmp_path / "out", tmp_path / "given"
    (tmp_path / "sets.gmt").write_text("s\t\tSYMBOL0\tSYMBOL1\tSYMBOL2\nlost\t\tX\tY\n")
    said = run("fit", tmp_path / "t.h5ad", "-o", out, *TINY, "--gene-sets", tmp_path / "sets.gmt").stderr
    assert "barcode (22 different labels in 22 samples)" in said and "1 of 2 gene sets have no gene" in said
    assert pd.read_csv(out / "samples.csv", dtype=str)["leiden"].tolist() == obs["leiden"].tolist()
    assert pd.read_csv(out / "gene_names.csv").symbol.tolist() == var["gene_symbols"].tolist()
    assert pd.read_csv(out / "genes.csv").symbol.str.startswith("SYMBOL").all()
    assert set(pd.read_csv(out / "enrichment.csv").set_size) == {3}
    assert "leiden" in (out / "report.html").read_text(encoding="utf-8")
    # files that are given take their place
    pd.DataFrame({"sample": names, "site": ["a", "b"] * 11}).to_csv(tmp_path / "s.csv", index=False)
    pd.DataFrame({"id": var.index, "symbol": [f"OTHER{d}" for d in range(12)]}).to_csv(tmp_path / "g.csv", index=False)
    files = ["--annotations", tmp_path / "s.csv", "--gene-names", tmp_path / "g.csv"]
    run("fit", tmp_path / "t.h5ad", "-o", given, *TINY, "--no-report", *files)
    assert pd.read_csv(given / "samples.csv").columns.tolist() == ["sample", "site"]
    assert pd.read_csv(given / "gene_names.csv").symbol[0] == "OTHER0"
    assert "--gene-names" in tomllib.loads((given / "config.toml").read_text())["command"]


def test_no_gene_set_to_test_is_said(table, tmp_path):
    (tmp_path / "empty.gmt").write_text("")
    result = run("fit", table, "-o", tmp_path / "out", *TINY, "--gene-sets", tmp_path / "empty.gmt")
    assert "There are no gene sets to test." in result.stderr
    assert len(pd.read_csv(tmp_path / "out" / "enrichment.csv")) == 0
    assert "No gene set could be tested" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_gene_set_that_does_not_stand_out_is_no_best_one(tmp_path):
    consensus = made_up(3, 60, 20, density=0.4).consensus()
    mine = [consensus.feature_names[d] for d in consensus.genes(1)]
    tested = enrich_both(consensus, {"own": mine, "any": ["GENE1", "GENE2", "GENE3"]})
    best = factor_table(consensus, tested)
    standing = tested[tested.fdr <= 0.05].factor.unique()
    assert 0 < len(standing) < 3
    for column in ("best_gene_set", "best_gene_set_method", "best_gene_set_fdr"):
        assert set(best[column].dropna().index) == set(standing)


def test_a_warm_up_that_ends_by_itself_is_kept_as_such(table, tmp_path):
    """The command in config.toml repeats the run, also after it was resumed."""
    out = tmp_path / "out"
    given = ["--chains", "1", "--draws", "4", "--thin", "1", "--no-report", "--quiet"]
    run("fit", table, "-o", out, "--tune", "auto", *given)
    run("resume", out, "--draws", "2", "--quiet")
    config = tomllib.loads((out / "config.toml").read_text())
    assert config["sampling"]["tune"] == "auto" and "most" not in str(config)
    repeat = shlex.split(config["command"])[1:]
    repeat[repeat.index(str(out))] = tmp_path / "again"
    run(*repeat, "--quiet")
    assert (tmp_path / "again" / "loadings.csv").read_bytes() == (out / "loadings.csv").read_bytes()
    said = run("fit", table, "-o", tmp_path / "x", "--tune", "banana", code=1)
    assert "must be an int >= 0, or auto. Got 'banana'." in said.stderr


def test_the_verdict_decides_the_exit_code_only_when_asked(table, tmp_path):
    result = run("fit", table, "-o", tmp_path / "out", *TINY, "--no-report", "--require-convergence", code=2)
    assert f"nsfa resume {tmp_path / 'out'} --draws" in result.stdout
    assert (tmp_path / "out" / "loadings.csv").exists()


def test_a_fit_with_settled_factors_has_an_exit_code_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnostics, "RHAT_LIMIT", 0.5)
    table = write_table(tmp_path / "table.csv", 24, 40)
    length = ["--chains", "2", "--tune", "50", "--draws", "200", "--seed", "6"]
    result = run("fit", table, "-o", tmp_path / "out", *length, "--no-report", "--require-convergence", code=3)
    assert "Partly converged: both factors are settled and can be read; the " in result.stdout
    assert f"Run longer: nsfa resume {tmp_path / 'out'} --draws 1000" in result.stdout
    advice = nsfa.load(tmp_path / "out" / "draws").diagnostics().advice
    assert advice.for_command(str(tmp_path / "out")) in result.stdout
    run("report", tmp_path / "out", "--require-convergence", code=3)


def test_a_model_with_given_dense_factors_is_not_told_of_substantial_ones(table, tmp_path):
    said = run("fit", table, "-o", tmp_path / "out", *TINY, "--no-report", "--model", "fa", "--n-components", "2")
    assert "Number of factors: 2 (100%)." in said.stdout and "substantial" not in said.stdout


def test_fixed_models_and_settings_reach_the_estimator(table, tmp_path):
    options = [
        "--model",
        "sfa",
        "--n-components",
        "3",
        "--concentration",
        "2",
        "--noise",
        "isotropic",
        "--scale",
        "none",
        "--dtype",
        "float32",
    ]
    run("fit", table, "-o", tmp_path / "out", *TINY, "--no-report", "--prior", "paper", "--seed", "5", *options)
    posterior = nsfa.load(tmp_path / "out" / "draws")
    assert (posterior.n_factors == 3).all() and posterior.seed == 5
    assert posterior.spec.noise == "isotropic" and posterior.spec.concentration == 2
    assert posterior.spec.priors == nsfa.Priors.paper()
    assert posterior.data.values.dtype == np.float32


def test_filters_reach_the_reader(table, tmp_path):
    (tmp_path / "genes.txt").write_text("gene1\ngene4\ngene7\ngene9\n")
    out = tmp_path / "out"
    run("fit", table, "-o", out, *TINY, "--no-report", "--genes", tmp_path / "genes.txt", "--top-genes", "3")
    kept = pd.read_csv(out / "loadings.csv", index_col="gene").index
    assert len(kept) == 3 and set(kept) < {"gene1", "gene4", "gene7", "gene9"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--n-components", "3"], "nsfa infers it"),
        (["--model", "fa"], "must have --n-components"),
        (["--model", "fa", "--n-components", "2", "--concentration", "1"], "is for nsfa and sfa"),
        (["--concentration", "many"], "must be a number or infer"),
        (["--concentration", "-1"], "concentration must be"),
        (["--jobs", "0"], "--jobs must not be 0"),
        (["--chains", "0"], "'--chains': must be >= 1."),
        (["--chains", "x"], "'--chains': must be an int."),
        (["--model", "pca"], "'--model': must be one of fa, afa, fok, sfa, nsfa, bfrm."),
        (["--preview", "--tune", "auto"], "Got it with --tune auto; leave one of them out."),
        (["--likelihood", "poisson"], "'--likelihood': must be one of gaussian, counts, binary."),
        (["--noise", "t"], "'--noise': must be one of diagonal, isotropic, shared,"),
        (["--no-such-option"], "no-such-option"),
        (["--annotations", "nowhere.csv"], "nowhere.csv"),
        (["--gene-sets", "nowhere.gmt"], "nowhere.gmt"),
        (["--gene-names", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_wrong_options_are_one_sentence_and_leave_nothing_behind(table, tmp_path, options, words):
    result = run("fit", table, "-o", tmp_path / "deep" / "out", *TINY, *options, code=1)
    assert words in " ".join(result.stderr.split()) and result.stdout == ""
    assert not (tmp_path / "deep").exists()


def test_a_table_that_cannot_be_fitted_leaves_nothing_behind(tmp_path):
    (tmp_path / "bad.csv").write_text("gene,a,b,c\nx,1,2,inf\ny,3,4,5\n")
    run("fit", tmp_path / "bad.csv", "-o", tmp_path / "deep" / "out", *TINY, code=1)
    assert not (tmp_path / "deep").exists()
    assert "nowhere.csv" in run("fit", tmp_path / "nowhere.csv", "-o", tmp_path / "out", code=1).stderr
    assert "--output" in run("fit", tmp_path / "bad.csv", code=1).stderr


def test_nothing_is_overwritten_without_force(table, tmp_path):
    out = tmp_path / "out"
    run("fit", table, "-o", out, *TINY, "--no-report", "--seed", "1")
    (out / "notes.txt").write_text("mine")
    before = (out / "loadings.csv").read_bytes()
    refused = run("fit", table, "-o", out, *TINY, "--no-report", "--seed", "2", code=1)
    assert "--force" in refused.stderr and (out / "loadings.csv").read_bytes() == before
    # a run that cannot begin gives the earlier one back
    (tmp_path / "bad.csv").write_text("gene,a,b,c\nx,1,2,inf\ny,3,4,5\n")
    run("fit", tmp_path / "bad.csv", "-o", out, *TINY, "--force", code=1)
    assert (out / "loadings.csv").read_bytes() == before and nsfa.load(out / "draws").seed == 1
    run("fit", table, "-o", out, *TINY, "--no-report", "--seed", "2", "--force")
    assert nsfa.load(out / "draws").seed == 2 and (out / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in out.glob(".*")) == []


def test_force_never_touches_a_directory_that_is_no_run(table, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "loadings.csv").write_text("years of work")
    result = run("fit", table, "-o", tmp_path / "thesis", *TINY, "--force", code=1)
    assert "not of a run" in result.stderr
    assert (tmp_path / "thesis" / "loadings.csv").read_text() == "years of work"
    assert "must be a directory" in run("fit", table, "-o", table, *TINY, "--force", code=1).stderr


def test_what_does_not_fit_into_memory_is_said_with_the_number(table, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e6)
    words = run("fit", table, "-o", tmp_path / "out", *TINY, code=1).stderr
    assert "0.0 GB are available" in words and "--top-genes" in words and not (tmp_path / "out").exists()
    run("fit", table, "-o", tmp_path / "out", *TINY, "--no-report", "--ignore-memory")
    monkeypatch.setattr(memory, "available", lambda: None)
    run("fit", table, "-o", tmp_path / "other", *TINY, "--no-report")


def test_a_gene_named_like_a_script_is_text_in_the_report(tmp_path):
    bad = "<script>alert(1)</script>"
    names = [bad, "=cmd()", "[red]x[/red]", "a,b", 'a"b', *(f"gene{i}" for i in range(7))]
    table = write_table(tmp_path / "table.csv", names=names)
    run("fit", table, "-o", tmp_path / "out", *TINY, "--title", f"{bad} & more")
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert bad not in html and "alert(1)" in html
    assert list(pd.read_csv(tmp_path / "out" / "loadings.csv")["gene"]) == names


def test_one_chain_cannot_show_convergence(table, tmp_path):
    few = ["--chains", "1", "--tune", "5", "--draws", "5", "--no-report"]
    result = run("fit", table, "-o", tmp_path / "out", *few, "--require-convergence", code=2)
    assert "One chain has nothing to agree with" in result.stderr


def test_what_was_read_is_said(table, tmp_path):
    result = run("fit", table, "-o", tmp_path / "out", *TINY, "--no-report")
    assert "genes ×" in result.stderr and "missing" in result.stderr


def test_gene_lists_hold_what_the_summary_counts(finished):
    lists, factors = pd.read_csv(finished / "genes.csv"), pd.read_csv(finished / "factors.csv")
    assert lists.groupby("factor").size().reindex(factors["factor"], fill_value=0).tolist() == (
        factors["genes_at_5_percent_fdr"].tolist()
    )
    assert lists.groupby("factor")["core"].sum().reindex(factors["factor"], fill_value=0).tolist() == (
        factors["core_genes"].tolist()
    )
    assert (lists["lower"] <= lists["upper"]).all()


@pytest.fixture
def by_hand():
    """Two factors: of the first, gene 3 is the core and genes 0 to 4 are all; the second is weak everywhere."""
    posterior = made_up(2, 12, 10)
    consensus = posterior.consensus()
    consensus.inclusion[:], consensus.relevance[:], consensus.loadings[:] = 0.0, 0.0, 0.0
    consensus.inclusion[:5, 0], consensus.inclusion[5:8, 1] = 1.0, 1.0
    consensus.relevance[3, 0] = 1.0
    consensus.loadings[:5, 0], consensus.loadings[5:8, 1] = [5, 4, 3, 2, 1], [3, 2, 1]
    return posterior


def test_core_genes_come_first_and_the_others_beside_them(by_hand):
    table = gene_lists(by_hand.consensus())
    assert table["gene"].tolist() == [f"GENE{d}" for d in (3, 0, 1, 2, 4, 5, 6, 7)]
    assert table["core"].tolist() == [True] + 7 * [False]
    assert table["relevance"].tolist() == [1.0] + 7 * [0.0] and (table["inclusion"] == 1).all()


def test_factors_as_gene_sets_say_which_list_is_which(by_hand, tmp_path):
    write_factor_genes(tmp_path / "f.gmt", by_hand)
    assert list(read_gmt(tmp_path / "f.gmt").items()) == [
        ("factor_0_core", ["GENE3"]),
        ("factor_0_all", [f"GENE{d}" for d in range(5)]),
        ("factor_1_all", [f"GENE{d}" for d in range(5, 8)]),
    ]
    said = [line.split("\t")[1] for line in (tmp_path / "f.gmt").read_text(encoding="utf-8").splitlines()]
    assert said[0] == "the factor explains at least 5 % of the gene's variance, at 5 % FDR"
    assert said[1] == said[2] == "the gene's loading is not zero, at 5 % FDR"


def test_all_genes_of_a_dense_factor_are_no_gene_set(tmp_path):
    posterior = made_up(2, 12, 10, model="fa", names=("A\tB", *(f"G{d}" for d in range(11))))
    posterior.consensus().relevance[:, 0] = np.arange(12) < 2
    write_factor_genes(tmp_path / "f.gmt", posterior)
    sets = read_gmt(tmp_path / "f.gmt")
    assert sorted(sets["factor_0_core"]) == ["A B", "G0"] and not any(name.endswith("all") for name in sets)


def test_a_symbol_of_several_probes_is_listed_once(tmp_path):
    posterior = made_up(1, 12, 10, density=1.0)
    posterior.consensus().inclusion[:], posterior.consensus().relevance[:] = 1.0, 1.0
    write_factor_genes(tmp_path / "f.gmt", posterior, tuple(f"S{d // 3}" for d in range(12)))
    sets = read_gmt(tmp_path / "f.gmt")
    line = (tmp_path / "f.gmt").read_text().splitlines()[0].split("\t")[2:]
    assert sorted(line) == ["S0", "S1", "S2", "S3"] == sorted(sets["factor_0_all"])


def test_enrichment_is_written_by_both_methods_and_none_that_may_be_chance_stands_with_its_factor(finished):
    table, factors = pd.read_csv(finished / "enrichment.csv"), pd.read_csv(finished / "factors.csv")
    expected = enrich_both(nsfa.load(finished / "draws").consensus(), finished / "gene_sets.gmt")
    assert set(table["method"]) == {"hypergeometric", "rank"} and list(table.columns) == list(expected.columns)
    for name in ("factor", "gene_set", "overlap", "list_size"):
        assert table[name].tolist() == expected[name].tolist()
    np.testing.assert_allclose(table["fdr"], expected["fdr"], rtol=1e-5)
    assert table["fdr"].min() > 0.05 and factors["best_gene_set"].isna().all() and len(factors) > 0


def test_without_gene_sets_nothing_is_said_of_them(table, tmp_path):
    run("fit", table, "-o", tmp_path / "out", *TINY, "--no-report")
    assert not (tmp_path / "out" / "enrichment.csv").exists()
    assert not any("gene_set" in name for name in pd.read_csv(tmp_path / "out" / "factors.csv"))
    assert read_gmt(tmp_path / "out" / "factor_genes.gmt")


def test_no_factors_and_gene_sets(tmp_path):
    rng = np.random.default_rng(2)
    noise = pd.DataFrame(rng.normal(size=(6, 30)), index=[f"gene{d}" for d in range(6)], columns=map(str, range(30)))
    noise.to_csv(tmp_path / "noise.csv", index_label="gene")
    (tmp_path / "sets.gmt").write_text("s\t\tgene0\tgene1\tgene2\n")
    out = tmp_path / "out"
    run(
        "fit",
        tmp_path / "noise.csv",
        "-o",
        out,
        *TINY,
        "--concentration",
        "0.0001",
        "--gene-sets",
        tmp_path / "sets.gmt",
    )
    assert nsfa.load(out / "draws").consensus().n_factors == 0
    for name in ("enrichment.csv", "factors.csv", "genes.csv"):
        assert len(pd.read_csv(out / name)) == 0 and len(pd.read_csv(out / name).columns) > 5
    assert (out / "factor_genes.gmt").read_text() == ""
    assert "No gene set could be tested: there are no factors." in (out / "report.html").read_text(encoding="utf-8")


def test_gene_sets_of_other_names_are_one_note(table, tmp_path):
    (tmp_path / "sets.gmt").write_text("s\t\tENSG1\tENSG2\tENSG3\n")
    said = run("fit", table, "-o", tmp_path / "out", *TINY, "--gene-sets", tmp_path / "sets.gmt").stderr
    assert said.count("No gene of any set is a feature of the data") == 1
    assert len(pd.read_csv(tmp_path / "out" / "enrichment.csv")) == 0
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "No gene set could be tested: none has three genes or more in the table." in html


def test_a_run_reads_its_table_and_diagnoses_its_draws_once(table, tmp_path, monkeypatch):
    from nsfa.cli import results
    from nsfa.posterior import core
    from nsfa.readers import pipeline as reader

    done = []

    def counted(module, name):
        before = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args: done.append(name) or before(*args))

    # the parser has the bytes at hand; another pass over the file is not needed for its checksum
    for module, name in ((core, "diagnose"), (results, "summary"), (reader, "read_sheet"), (reader, "checksum")):
        counted(module, name)
    run("fit", table, "-o", tmp_path / "out", *TINY, "--quiet")
    assert sorted(done) == ["diagnose", "read_sheet", "summary"]


def test_heavy_tails_are_noted_where_noise_is_normal(tmp_path, rng):
    X = pd.DataFrame(rng.standard_t(3, (12, 30)), [f"g{d}" for d in range(12)], [f"s{n}" for n in range(30)])
    X.to_csv(tmp_path / "t.csv")
    assert "try --noise robust" in run("fit", tmp_path / "t.csv", "-o", tmp_path / "plain", *TINY).stderr
    robust = run("fit", tmp_path / "t.csv", "-o", tmp_path / "robust", *TINY, "--noise", "robust")
    assert "--noise robust" not in robust.stderr
    short = "--splits", "1", "--chains", "1", "--tune", "2", "--draws", "2"
    for models, noted in (("nsfa", True), ("nsfa,nsfa+robust", False)):
        told = run("compare", tmp_path / "t.csv", "-o", tmp_path / models, "--models", models, *short)
        assert ("try --noise robust" in told.stderr) == noted


def test_notes_on_the_table_are_in_the_results(tmp_path, rng):
    X = rng.normal(8, 1, (12, 15))
    X[rng.random(X.shape) < 0.1] = -999
    pd.DataFrame(X, [f"g{d}" for d in range(12)], [f"s{n}" for n in range(15)]).to_csv(tmp_path / "t.csv")
    out = tmp_path / "out"
    assert "entries are -999" in run("fit", tmp_path / "t.csv", "-o", out, *TINY).stderr
    assert "entries are -999" in json.loads((out / "diagnostics.json").read_text())["notes"]
    page = (out / "report.html").read_text()
    assert "About the table:" in page and "entries are -999" in page.split("<nav")[0]
