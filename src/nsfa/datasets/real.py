"""The paper's real data sets, read from the directory named by the environment variable NSFA_DATA_DIR."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from nsfa.kernels import Floats


def fetch_ecoli() -> Bunch:
    """E. coli expression during a glucose-to-acetate transition (Kao et al. 2004): 23 samples × 100 genes.

    A Bunch with X, feature_names, sample_names, and connectivity (100, 16), the signed regulator network.
    """
    bunch = _expression("ecoli_expression.csv")
    _, regulators, bunch.connectivity = _read("ecoli_connectivity.csv")
    bunch.regulator_names = regulators
    return bunch


def fetch_breast() -> Bunch:
    """Breast cancer expression (Carvalho et al. 2008): 251 samples × 226 genes. A Bunch with X and names."""
    return _expression("breast_226x251.csv.gz")


def fetch_prostate() -> Bunch:
    """Prostate cancer expression (Yu et al. 2004): 108 samples × 12558 probes. A Bunch with X, names and target."""
    bunch = _expression("prostate_yu_12558x108.csv.gz")
    with _open("prostate_yu_labels.csv") as handle:
        label = {row["sample"]: row["class"] for row in csv.DictReader(handle)}
    bunch.target = np.array([label[name] for name in bunch.sample_names])
    return bunch


def _expression(name: str) -> Bunch:
    genes, samples, values = _read(name)
    return Bunch(X=np.ascontiguousarray(values.T), feature_names=genes, sample_names=samples)


def _read(name: str) -> tuple[list[str], list[str], Floats]:
    """Row names, column names and values of a table whose first column holds the row names."""
    with _open(name) as handle:
        reader = csv.reader(handle)
        header = next(reader)[1:]
        rows = list(reader)
    return [row[0] for row in rows], header, np.array([row[1:] for row in rows], dtype=float)


def _open(name: str):  # type: ignore[no-untyped-def]
    folder = os.environ.get("NSFA_DATA_DIR")
    if not folder:
        raise FileNotFoundError(f"{name} is not part of the package: set NSFA_DATA_DIR to the directory that holds it.")
    path = Path(folder) / name
    if not path.exists():
        raise FileNotFoundError(f"NSFA_DATA_DIR must hold {name}. Got {folder!r}, which does not.")
    return gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="")
