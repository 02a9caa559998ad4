import re

from typer.testing import CliRunner

from nsfa import __version__
from nsfa.cli import app

runner = CliRunner()
SHORT = ["demo", "--chains", "2", "--tune", "30", "--draws", "20", "--thin", "1"]


def test_demo_says_what_was_found():
    result = runner.invoke(app, SHORT)
    assert result.exit_code == 0, result.output
    assert "Posterior of the number of factors K (true value 16)" in result.output
    assert re.search(r"Reconstruction error of the loadings: \d\.\d{4}", result.output)
    assert "onverged" in result.output


def test_same_seed_same_words():
    a, b = (runner.invoke(app, [*SHORT, "--seed", "3", "--quiet"]).output for _ in range(2))
    assert a == b


def test_bad_settings_are_one_sentence_and_exit_code_one():
    result = runner.invoke(app, ["demo", "--chains", "0"])
    assert result.exit_code == 1
    assert "chains must be an int >= 1. Got 0" in result.output
    assert "Traceback" not in result.output


def test_version_and_help():
    assert __version__ in runner.invoke(app, ["--version"]).output
    assert "Simulate a sparse table" in runner.invoke(app, ["demo", "--help"]).output
