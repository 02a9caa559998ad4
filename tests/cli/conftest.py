"""A table, and a finished run."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command import TINY, run, write_table


@pytest.fixture
def table(tmp_path) -> Path:
    """A csv file, genes in rows."""
    return write_table(tmp_path / "table.csv")


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """The output directory of a finished run on a table with holes; copy it before changing it."""
    folder = tmp_path_factory.mktemp("finished")
    annotations = folder / "samples.csv"
    groups = np.where(np.arange(15) % 2, "odd", "even")
    pd.DataFrame({"sample": [f"sample{n}" for n in range(15)], "group": groups}).to_csv(annotations, index=False)
    (folder / "sets.gmt").write_text("first\t\tgene0\tgene1\tgene2\nsecond\t\tgene5\tgene6\n")
    table = write_table(folder / "table.csv", missing=0.1)
    out = folder / "out"
    run("fit", table, "-o", out, *TINY, "--impute", "--annotations", annotations, "--gene-sets", folder / "sets.gmt")
    return out
