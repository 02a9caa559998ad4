"""Whatever file is handed in, ``nsfa fit`` writes results or says one sentence."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from typer.testing import CliRunner

from command import run
from nsfa.cli import app
from tables import files

FAST = ["--chains", "1", "--tune", "2", "--draws", "5", "--jobs", "1"]


def fit(folder: Path, suffix: str, content: bytes, *options: str):
    table = folder / f"table{suffix}"
    table.write_bytes(content)
    words = ["fit", str(table), "-o", str(folder / "out"), *FAST, *options]
    return CliRunner().invoke(app, words, catch_exceptions=False)


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(files)
def test_no_table_brings_a_traceback(file):
    folder = Path(tempfile.mkdtemp())
    try:
        result = fit(folder, *file, "--no-report")
        assert result.exit_code in (0, 1), result.output
        assert "Traceback" not in result.output and "should not have happened" not in result.output
        assert (folder / "out" / "loadings.csv").exists() == (result.exit_code == 0)
        if result.exit_code:
            assert result.stderr.splitlines()[-1].startswith("Error: ") or "Error: " in result.stderr
            assert not (folder / "out").exists()
    finally:
        shutil.rmtree(folder)


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(files)
def test_nor_does_its_report(file):
    folder = Path(tempfile.mkdtemp())
    try:
        result = fit(folder, *file)
        assert result.exit_code in (0, 1) and "should not have happened" not in result.output, result.output
    finally:
        shutil.rmtree(folder)


def test_the_examples_are_not_all_bad(tmp_path):
    (tmp_path / "good.csv").write_text("gene,a,b,c\nx,1,2,4\ny,3,4,5\nz,2,2,9\n")
    run("fit", tmp_path / "good.csv", "-o", tmp_path / "out", *FAST, "--no-report")
