"""``nsfa compare`` and ``nsfa demo``."""

import json
import tomllib

import pandas as pd
import pytest

import nsfa
from command import TINY, read_json, run
from nsfa.cli import memory


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
    said = run("compare", table, "-o", tmp_path / "out", "--models", models, code=1).stderr
    assert said.startswith("Error: ") and "write " in said
    assert not (tmp_path / "out").exists()


def test_memory_is_that_of_all_fits_at_once(table, tmp_path, monkeypatch):
    one = memory.estimate((15, 12), chains=2, draws=10, processes=1, model="nsfa", n_components=None)
    monkeypatch.setattr(memory, "available", lambda: 2.5 * one)
    options = ["compare", table, "-o", tmp_path / "out", "--models", "nsfa", "--splits", "3", *TINY]
    assert "of memory" in run(*options, "--jobs", "3", code=1).stderr
    run(*options, "--jobs", "1", "--quiet")


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
    command = tomllib.loads((tmp_path / "demo" / "config.toml").read_text())["command"]
    run("report", tmp_path / "demo", "--title", "Another", "--quiet")
    changed = tomllib.loads((tmp_path / "demo" / "config.toml").read_text())
    assert changed["command"] == command and changed["results"]["title"] == "Another"
    found = read_json(run("info", tmp_path / "demo" / "table.csv", "--json"))
    assert (found["samples"], found["genes"]) == (100, 100)
    diagnostics = json.loads((tmp_path / "demo" / "diagnostics.json").read_text())
    assert diagnostics["draws_per_chain"] == 5


def test_reproduce_calls_the_experiment_and_shows_its_steps(tmp_path, monkeypatch):
    """With a stand-in for the experiments, which take minutes."""
    import sys
    from types import ModuleType, SimpleNamespace

    def stand_in(name, out, quick=False, progress=None, n_jobs=None):
        if name != "ibp":
            raise ValueError(f"name must be one of ibp. Got {name!r}.")
        progress(SimpleNamespace(done=1, total=2, label=f"a task, quick {quick}", seconds_left=61.0))
        out.mkdir()
        (out / "numbers.csv").write_text("1")
        if n_jobs == 3:
            raise KeyboardInterrupt

    module = ModuleType("nsfa.experiments")
    module.run = stand_in
    monkeypatch.setitem(sys.modules, "nsfa.experiments", module)
    monkeypatch.setattr(nsfa, "experiments", module, raising=False)
    said = run("reproduce", "ibp", "-o", tmp_path / "a", "--quick")
    assert said.stderr == "1/2  a task, quick True  1:01 left\n" and str(tmp_path / "a") in said.stdout
    found = read_json(run("reproduce", "ibp", "-o", tmp_path / "b", "--json", "--quiet"))
    assert found["files"] == ["numbers.csv"]
    assert "Got 'x'" in run("reproduce", "x", "-o", tmp_path / "c", code=1).stderr
    assert "The same command goes on" in run("reproduce", "ibp", "-o", tmp_path / "d", "--jobs", "3", code=130).stderr
