import re
import warnings

from sklearn.exceptions import ConvergenceWarning
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


def test_the_verdict_is_said_once():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        result = runner.invoke(app, SHORT)
    assert result.exit_code == 0 and result.output.count("Not converged") == 1


def test_same_seed_same_words():
    a, b = (runner.invoke(app, [*SHORT, "--seed", "3", "--quiet"]).output for _ in range(2))
    assert a == b


def test_bad_options_are_refused_without_a_traceback():
    for option in ("--chains", "--draws", "--thin"):
        result = runner.invoke(app, ["demo", option, "0"])
        assert result.exit_code == 2
        assert option in result.output and "Traceback" not in result.output
    assert runner.invoke(app, ["demo", "--seed", "-1"]).exit_code == 2


def test_version_and_help():
    assert __version__ in runner.invoke(app, ["--version"]).output
    assert "Simulate a sparse table" in runner.invoke(app, ["demo", "--help"]).output
