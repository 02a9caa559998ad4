"""The command, run in this process, on tiny tables."""

import json
from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

from nsfa.cli import app
from nsfa.datasets import make_sparse_factors

TINY = ["--chains", "2", "--tune", "10", "--draws", "10"]


def run(*words, code=0):
    """Run ``nsfa``; what it wrote, once its exit code is the expected one and there is no traceback."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def write_table(path: Path, n_genes=12, n_samples=15, missing=0.0, names=None) -> Path:
    data = make_sparse_factors(n_samples, n_genes, 2, density=0.6, missing=missing, random_state=1)
    genes = names or [f"gene{d}" for d in range(n_genes)]
    frame = pd.DataFrame(data.X.T, index=genes, columns=[f"sample{n}" for n in range(n_samples)])
    frame.to_csv(path, index_label="gene", float_format="%.6g")
    return path


def read_json(result) -> dict:
    """The one JSON object on standard output."""
    (line,) = result.stdout.splitlines()
    return json.loads(line)
