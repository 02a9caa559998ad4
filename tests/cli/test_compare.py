"""``nsfa compare`` and ``nsfa demo``."""

import json

import pandas as pd
import pytest

import nsfa
from command import TINY, read_json, run


def test_compare_writes_a_row_per_model_and_split(table, tmp_path):
    out = tmp_path / "out"
    said = run(
        "compare", table, "-o", out, "--models", "nsfa,fa:2,spca:2", "--splits", "2", *TINY, "--jobs", "1"
    ).stdout
    frame = pd.read_csv(out / "comparison.csv")
    assert list(frame["model"]) == ["nsfa", "nsfa", "fa:2", "fa:2", "spca:2", "spca:2"]
    assert frame["rmse"].notna().all() and (frame.loc[frame["model"] == "fa:2", "K"] == 2).all()
    assert "spca:2" in said and "higher is better" in said
    assert {path.name for path in (out / "figures").iterdir()} == {"lppd.png", "rmse.png"}
    assert "earlier run" in run("compare", table, "-o", out, *TINY, code=1).stderr
    options = ["--models", "fa:1", "--splits", "1", "--jobs", "1", "--force"]
    found = read_json(run("compare", table, "-o", out, *TINY, *options, "--json"))
    assert [row["model"] for row in found["models"]] == ["fa:1"] and "comparison.csv" in found["files"]
    run("compare", table, "-o", out, *TINY, *options, "--require-convergence", "--quiet", code=2)


@pytest.mark.parametrize("models", ["", "pca:3", "fa", "spca", "sfa:0", "sfa:x", "nsfa:3", "sfa:-2"])
def test_models_that_are_none_are_refused(models, table, tmp_path):
    assert "Error: --" in run("compare", table, "-o", tmp_path / "out", "--models", models, code=1).stderr
    assert not (tmp_path / "out").exists()


def test_holdout_is_checked(table, tmp_path):
    assert "holdout" in run("compare", table, "-o", tmp_path / "out", *TINY, "--holdout", "2", code=1).stderr
    assert not (tmp_path / "out").exists()


def test_demo_finds_a_free_name_and_says_how_close_it_came(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = ["demo", "--chains", "2", "--tune", "30", "--draws", "20", "--thin", "1"]
    said = run(*short).stdout
    assert "Report: nsfa-demo/report.html" in said and "The truth: 16 factors" in said
    assert said.count("Not converged") == 1
    assert "true factor 1" in (tmp_path / "nsfa-demo" / "gene_sets.gmt").read_text()
    run(*short, "--quiet", "--seed", "3")
    assert nsfa.load("nsfa-demo-2/draws").seed == 3
    assert "earlier run" in run(*short, "-o", "nsfa-demo", code=1).stderr


def test_the_demo_s_table_can_be_fitted_as_a_table(tmp_path):
    run("demo", "-o", tmp_path / "demo", "--chains", "1", "--tune", "5", "--draws", "5", "--thin", "1", "--quiet")
    found = read_json(run("info", tmp_path / "demo" / "table.csv", "--json"))
    assert (found["samples"], found["genes"]) == (100, 100)
    diagnostics = json.loads((tmp_path / "demo" / "diagnostics.json").read_text())
    assert diagnostics["draws_per_chain"] == 5
