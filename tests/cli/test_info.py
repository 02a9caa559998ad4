"""``nsfa info``, ``--help``, ``--version`` and the exit codes of what is no command."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from typer.main import get_command

import nsfa
from command import read_json, run, write_table
from nsfa.cli import app, info

ROOT = Path(__file__).parent.parent.parent
COMMANDS = ("demo", "fit", "resume", "report", "transform", "compare", "reproduce", "info")


def test_info_of_the_installation(monkeypatch):
    monkeypatch.setattr(info, "OPTIONAL", {**info.OPTIONAL, "no_such_package": ("extra", "nothing")})
    said = run("info").stdout
    assert nsfa.__version__ in said and "cores" in said and "pip install 'nsfa[extra]' for nothing" in said
    found = read_json(run("info", "--json"))
    assert found["nsfa"] == nsfa.__version__ and found["cores"] >= 1


def test_every_optional_package_is_in_an_extra():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for module, (extra, _) in info.OPTIONAL.items():
        assert any(word.startswith(module) for word in extras[extra]), module


def test_info_of_a_table(tmp_path):
    table = write_table(tmp_path / "table.csv", missing=0.2)
    found = read_json(run("info", table, "--json"))
    assert (found["samples"], found["genes"]) == (15, 12) and found["missing_entries"] > 0
    assert found["smallest"] < found["largest"] and found["first_genes"][0] == "gene0"
    assert run("info", table, "--quiet").output == ""
    turned = read_json(run("info", table, "--json", "--samples-in-rows"))
    assert (turned["samples"], turned["genes"]) == (12, 15)
    assert "another directory" in run("info", tmp_path, code=1).stderr.lower()
    assert "nowhere" in run("info", tmp_path / "nowhere", code=1).stderr


def test_info_of_a_sparse_table_that_looks_odd(tmp_path, monkeypatch, rng):
    counts = sp.csr_array(rng.poisson(1.0, (40, 12)))
    sp.save_npz(tmp_path / "t.npz", counts)
    monkeypatch.setattr(sp.csr_array, "toarray", lambda *_: pytest.fail("made dense"))
    found = read_json(run("info", tmp_path / "t.npz", "--json"))
    assert found["smallest"] == 0 and found["largest"] == counts.max() and found["missing_entries"] == 0
    assert len(found["notes"]) == 1 and "as counts are" in found["notes"][0]
    (line,) = [line for line in run("info", tmp_path / "t.npz").stdout.splitlines() if line.startswith("note")]
    assert line.split(None, 1)[1] == found["notes"][0]


@pytest.mark.parametrize(("spread", "advice"), [(3.0, "nearly as well"), (1e5, "quiet genes would be lost")])
def test_info_says_how_far_the_deviations_of_genes_are_apart(tmp_path, rng, spread, advice):
    X = rng.standard_normal((30, 20))
    X *= np.geomspace(1.0, spread, 20) / X.std(axis=0)
    pd.DataFrame(X.T).to_csv(tmp_path / "t.csv")
    sp.save_npz(tmp_path / "t.npz", sp.csr_array(X.T))
    dense, sparse = (read_json(run("info", tmp_path / name, "--json")) for name in ("t.csv", "t.npz"))
    low, high = np.quantile(np.geomspace(1.0, spread, 20), [0.05, 0.95])
    assert dense["deviations_of_genes"].startswith(f"{low:.3g} to {high:.3g} ")
    assert advice in dense["scaling"]
    assert [dense[key] for key in ("deviations_of_genes", "scaling")] == [
        sparse[key] for key in ("deviations_of_genes", "scaling")
    ]


def test_info_says_which_moves_a_table_gets_and_why(tmp_path):
    short, long = (write_table(tmp_path / f"{n}.csv", n_genes=n, n_samples=8) for n in (20, 3000))
    said = run("info", short).stdout
    assert "every fifth sweep: doublet" in said
    assert [line.strip() for line in said.splitlines() if "not used" in line] == [
        "not used, few features (below 1,000): column"
    ]
    why = "not used, too many features to go through one by one (from 3,000 on): marginal\n"
    assert why in run("info", long).stdout
    found = read_json(run("info", long, "--json"))["moves"]
    assert {"name": "tilt", "when": "the first sweeps and every fifth", "accepted": None} in found


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_every_option_has_a_text(command):
    said = run(command, "--help").stdout
    assert "Examples" in said and f"nsfa {command}" in said.split("Examples")[1]
    for parameter in get_command(app).commands[command].params:
        assert parameter.help, parameter.name


def test_help_version_and_wrong_words():
    said = run("--help").stdout
    assert all(command in said for command in COMMANDS) and "--install-completion" in said
    assert run("--version").stdout == f"nsfa {nsfa.__version__}\n"
    assert "frobnicate" in run("frobnicate", code=1).stderr


def test_every_command_in_the_documentation_is_one():
    """Lines of the README and the docs that begin with nsfa: the command and all its options exist."""
    commands = get_command(app).commands
    found = 0
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for line in re.findall(r"^(?:    |\$ )nsfa ([a-z].*)$", page.read_text(encoding="utf-8"), re.M):
            name, *words = line.split("#")[0].split()
            known = {option for parameter in commands[name].params for option in parameter.opts} | {"--help"}
            known |= {option for parameter in commands[name].params for option in parameter.secondary_opts}
            assert {word for word in words if word.startswith("-")} <= known, f"{page.name}: {line}"
            found += 1
    assert found >= 8


def test_python_m_nsfa_is_the_command_and_completion_answers():
    command = [sys.executable, "-m", "nsfa"]
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"nsfa {nsfa.__version__}\n"
    env = {**os.environ, "_NSFA_COMPLETE": "complete_bash", "COMP_WORDS": "nsfa re", "COMP_CWORD": "1"}
    said = subprocess.run(command, capture_output=True, text=True, env=env).stdout
    assert said.split() == ["resume", "report", "reproduce"]


def test_output_survives_a_narrow_encoding_and_a_closed_pipe():
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run([sys.executable, "-m", "nsfa", "fit", "é≤.csv", "-o", "x"], capture_output=True, env=env)
    assert done.returncode == 1 and b"Traceback" not in done.stderr and b"Error: " in done.stderr


def test_debug_lets_exceptions_through(tmp_path, monkeypatch):
    monkeypatch.setenv("NSFA_DEBUG", "1")
    with pytest.raises(ValueError, match="nsfa fit"):
        run("report", tmp_path)
