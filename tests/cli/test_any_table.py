"""Whatever file is handed in, ``nsfa fit`` writes results or says one sentence."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from typer.testing import CliRunner

from nsfa.cli import app
from tables import files

FAST = ["--chains", "1", "--tune", "2", "--draws", "5", "--jobs", "1"]


def fit(folder: Path, suffix: str, content: bytes, *options: str):
    table = folder / f"table{suffix}"
    table.write_bytes(content)
    words = ["fit", str(table), "-o", str(folder / "out"), *FAST, *options]
    return CliRunner().invoke(app, words, catch_exceptions=False)


def explore(examples: int, *options: str) -> list[int]:
    """Exit codes of ``nsfa fit`` on so many tables; each must end in results, or in a sentence and no trace."""
    codes = []

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(files)
    def each(file):
        with tempfile.TemporaryDirectory() as name:
            result = fit(Path(name), *file, *options)
            codes.append(result.exit_code)
            assert "Traceback" not in result.output and "should not have happened" not in result.output
            assert (Path(name) / "out" / "loadings.csv").exists() == (result.exit_code == 0)
            if result.exit_code:
                assert "Error: " in result.stderr and not (Path(name) / "out").exists()

    each()
    return codes


def test_no_table_brings_a_traceback():
    codes = explore(250, "--no-report")
    assert len(codes) >= 200 and set(codes) == {0, 1} and codes.count(0) >= 15


def test_nor_does_its_report():
    assert set(explore(10)) <= {0, 1}
