"""``nsfa compare`` and ``nsfa demo``."""

import json
import sys
import tomllib

import pandas as pd
import pytest
from typer.main import get_command

import nsfa
from command import TINY, read_json, run
from nsfa.cli import app, memory


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


def interrupt_from(monkeypatch, number):
    """Ctrl-C at the fit of this number; none if it is None."""
    from nsfa import comparison

    made, score = [], comparison._fit_and_score

    def counted(name, **arguments):
        made.append(name)
        if len(made) == number:
            raise KeyboardInterrupt
        yield from score(name, **arguments)

    monkeypatch.setattr(comparison, "_fit_and_score", counted)
    return made


@pytest.mark.parametrize("again", ["same command", "resume"])
def test_an_interrupted_comparison_goes_on(table, tmp_path, monkeypatch, again):
    out, straight = tmp_path / "out", tmp_path / "straight"
    words = ["--models", "fa:2,spca:2", "--splits", "2", "--jobs", "1", *TINY, "--top-genes", "10"]
    run("compare", table, "-o", straight, *words, "--quiet")
    with monkeypatch.context() as patch:
        interrupt_from(patch, 4)
        stopped = run("compare", table, "-o", out, *words, code=130)
    assert f"Interrupted after 3 of 4 fits. nsfa resume {out} goes on" in stopped.stderr
    assert stopped.stderr.count("Interrupted") == 1 and "spca:2" in stopped.stdout and "Table:" not in stopped.stdout
    assert "Means of 1 to 2 split(s)" in stopped.stdout
    assert f"unfinished; nsfa resume {out} goes on" in run("info", out).stdout
    assert "--draws is for runs of nsfa fit" in run("resume", out, "--draws", "3", code=1).stderr
    made = interrupt_from(monkeypatch, None)
    run(*(["resume", out, "--jobs", "1"] if again == "resume" else ["compare", table, "-o", out, *words]))
    assert made == ["spca:2"]
    found, expected = (pd.read_csv(path / "comparison.csv").drop(columns="seconds") for path in (out, straight))
    pd.testing.assert_frame_equal(found, expected)
    assert {path.name for path in out.iterdir()} == {path.name for path in straight.iterdir()}
    said = run("resume", out, code=1).stderr
    assert "finished comparison" in said


def test_other_settings_do_not_go_on_with_an_interrupted_comparison(table, tmp_path, monkeypatch):
    out, words = tmp_path / "out", ["--models", "spca:2", "--jobs", "1", *TINY, "--splits"]
    with monkeypatch.context() as patch:
        interrupt_from(patch, 2)
        run("compare", table, "-o", out, *words, "2", "--quiet", code=130)
    said = run("compare", table, "-o", out, *words, "3", code=1).stderr
    assert "interrupted comparison with another splits (2, now 3)" in said and "--force" in said
    assert "another seed (0, now 3)" in run("compare", table, "-o", out, *words, "2", "--seed", "3", code=1).stderr
    other = tmp_path / "other.csv"
    other.write_text(table.read_text().replace("sample0", "first"))
    assert "another checksum" in run("compare", other, "-o", out, *words, "2", code=1).stderr
    assert f"go on with that run (nsfa resume {out})" in run("fit", table, "-o", out, *TINY, code=1).stderr
    run("compare", table, "-o", out, *words, "1", "--force", "--quiet")
    assert len(pd.read_csv(out / "comparison.csv")) == 1 and not (out / "fits.csv").exists()


def test_an_interrupt_before_the_first_fit_leaves_nothing(table, tmp_path, monkeypatch):
    interrupt_from(monkeypatch, 1)
    said = run("compare", table, "-o", tmp_path / "out", "--models", "spca:2", "--jobs", "1", code=130).stderr
    assert "Interrupted." in said and not (tmp_path / "out").exists()


def test_one_command_at_a_time_writes_to_a_directory(table, tmp_path, monkeypatch):
    from nsfa import comparison
    from nsfa.draws import lock

    out, words = tmp_path / "out", ["--models", "spca:2", "--splits", "2", "--jobs", "1", *TINY]
    score, others = comparison._fit_and_score, []
    monkeypatch.setattr(lock, "PATIENCE", 0.2)

    def meanwhile(name, **arguments):
        if len(others) < 4:
            # the second fit: the first is kept already
            if (out / "fits.csv").exists():
                others.append(run("compare", table, "-o", out, *words, code=1).stderr)
                others.append(run("resume", out, code=1).stderr)
                others.append(run("info", out).stdout)
            others.append(run("compare", table, "-o", out, *words, "--force", code=1).stderr)
        yield from score(name, **arguments)

    monkeypatch.setattr(comparison, "_fit_and_score", meanwhile)
    run("compare", table, "-o", out, *words, "--quiet")
    assert len(others) == 5 and "running" in others.pop(3)
    assert all("is in use: another process is writing to it" in said for said in others)
    assert len(pd.read_csv(out / "comparison.csv")) == 2 and not (out / "lock").exists()


def test_a_comparison_that_another_command_finishes_is_not_done_again(table, tmp_path, monkeypatch):
    from nsfa.cli import compare

    out, words = tmp_path / "out", ["--models", "spca:2", "--splits", "2", "--jobs", "1", *TINY]
    with monkeypatch.context() as patch:
        interrupt_from(patch, 2)
        run("compare", table, "-o", out, *words, "--quiet", code=130)
    read = compare.read_input

    def slow(*arguments):
        monkeypatch.setattr(compare, "read_input", read)
        run("compare", table, "-o", out, *words, "--quiet")
        return read(*arguments)

    monkeypatch.setattr(compare, "read_input", slow)
    assert "holds an earlier run" in run("compare", table, "-o", out, *words, code=1).stderr
    assert len(pd.read_csv(out / "comparison.csv")) == 2


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


def test_the_demo_is_a_fit_of_its_table(tmp_path):
    short = ["--chains", "2", "--tune", "30", "--draws", "20", "--thin", "1", "--seed", "3", "--quiet"]
    demo, again, bare = (tmp_path / name for name in ("demo", "again", "bare"))
    run("demo", "-o", demo, *short)
    told = ["--annotations", demo / "samples.csv", "--gene-sets", demo / "gene_sets.gmt"]
    run("fit", demo / "table.csv", "-o", again, *short, *told)
    run("fit", demo / "table.csv", "-o", bare, *short, "--no-report")
    for name in ("factors.csv", "genes.csv", "scores.csv", "enrichment.csv"):
        assert (again / name).read_text() == (demo / name).read_text(), name
    factors = pd.read_csv(bare / "factors.csv")
    assert len(factors) > 5
    pd.testing.assert_frame_equal(factors, pd.read_csv(demo / "factors.csv")[factors.columns])


def test_the_demo_has_the_defaults_of_fit():
    commands = get_command(app).commands
    demo, fit = ({p.name: p.default for p in commands[name].params} for name in ("demo", "fit"))
    shared = set(demo) & set(fit) - {"output"}
    assert {"chains", "tune", "draws", "thin", "preview", "seed", "jobs"} <= shared
    assert [name for name in shared if demo[name] != fit[name]] == []


def test_reproduce_calls_the_experiment_and_shows_its_steps(tmp_path, monkeypatch):
    """With a stand-in for the experiments, which take minutes."""
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


@pytest.mark.parametrize(("package", "name"), [("pooch", "breast"), ("rdata", "ecoli"), ("rdata", "convergence")])
def test_reproduce_says_what_to_install_before_it_makes_anything(package, name, tmp_path, monkeypatch):
    monkeypatch.delenv("NSFA_DATA_DIR", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    said = run("reproduce", name, "-o", tmp_path / "out", "--quick", code=1).stderr
    assert package in said and "nsfa[datasets]" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "quick"), [("synthetic", False), ("ecoli", True), ("ibp", True)])
def test_reproduce_says_first_which_peers_it_runs_without(name, quick, tmp_path, monkeypatch):
    """The tasks are only listed."""
    from nsfa.experiments import experiment

    tasks = []

    def listed(given, *_):
        tasks.extend(given)
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "mofapy2", None)
    monkeypatch.setattr(nsfa.datasets, "fetch_ecoli", lambda: None)
    monkeypatch.setattr(experiment, "run_tasks", listed)
    options = ["reproduce", name, "-o", tmp_path / "out", *(["--quick"] if quick else [])]
    said = run(*options, code=130).stderr.splitlines()
    assert ("mofapy2" in said[0] and "nsfa[experiments]" in said[0]) == (name != "ibp")
    assert len(said) == 2 - (name == "ibp")
    assert tasks and not any("mofapy2" in task.model for task in tasks)
    assert name == "ibp" or any(task.module == "sklearn" or task.module == "numpy" for task in tasks)


def test_reproduce_runs_an_experiment_and_writes_the_page_about_it(tmp_path):
    said = run("reproduce", "ibp", "-o", tmp_path / "ibp", "--quick", "--jobs", "1")
    assert said.stderr.splitlines()[-1].startswith("6/6") and str(tmp_path / "ibp") in said.stdout
    assert "another size" in run("reproduce", "ibp", "-o", tmp_path / "ibp", code=1).stderr
    said = run("reproduce", "page", tmp_path / "ibp", "-o", tmp_path / "docs").stdout
    page = tmp_path / "docs" / "reproduction.md"
    assert str(page) in said and "nsfa reproduce ibp" in page.read_text(encoding="utf-8")
    assert read_json(run("reproduce", "page", tmp_path / "ibp", "-o", tmp_path / "docs", "--json"))["page"] == str(page)


def test_reproduce_lists_what_the_experiments_cost():
    said = run("reproduce", "plan").stdout.splitlines()
    assert [line.split()[0] for line in said] == ["experiment", *nsfa.experiments.NAMES, "all"]
    total, parts = said[-1].split()[1:], [line.split()[1:] for line in said[1:-1]]
    assert int(total[0]) == sum(int(tasks) for tasks, _ in parts)
    assert abs(int(total[1]) - sum(int(seconds) for _, seconds in parts)) <= len(parts)
    found = read_json(run("reproduce", "plan", "--quick", "--json"))
    assert all(0 < plan["tasks"] < 50 for plan in found.values())


def test_reproduce_says_what_is_missing_or_too_much(tmp_path):
    assert "--output" in run("reproduce", "ibp", code=1).stderr
    assert "only page takes" in run("reproduce", "ibp", tmp_path, "-o", tmp_path / "a", code=1).stderr
    assert "finished runs" in run("reproduce", "page", "-o", tmp_path / "a", code=1).stderr
    assert not (tmp_path / "a").exists()
