"""The paper's real data sets, from the directory named by the environment variable NSFA_DATA_DIR or the public source.

Without NSFA_DATA_DIR a set is downloaded once (``pip install 'nsfa[datasets]'``), checked, and kept in the user's cache
directory or the directory named by NSFA_CACHE_DIR. Values have 6 significant digits and are neither centred nor scaled.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from nsfa.datasets import sources
from nsfa.datasets.sources import NamedValues

CLASSES = {"N": "normal", "P": "primary", "M": "metastasis"}


def fetch_ecoli() -> Bunch:
    """E. coli expression during a glucose-to-acetate transition (Kao et al. 2004): 23 samples × 100 genes.

    From object ``Ecoli`` of the R package plsgenomics; log ratios.

    Returns
    -------
    Bunch with X (23, 100), feature_names, sample_names, connectivity (100, 16), the signed regulator network of
    RegulonDB (1 activates, -1 represses), and regulator_names.
    """
    folder = _data_dir()
    if folder is None:
        expression, network = sources.ecoli()
    else:
        expression, network = _read(folder, "ecoli_expression.csv"), _read(folder, "ecoli_connectivity.csv")
    return Bunch(**_expression(expression), connectivity=network.values, regulator_names=network.columns)


def fetch_breast() -> Bunch:
    """Breast cancer expression (Carvalho et al. 2008): 251 samples × 226 genes.

    From the example of the original NSFA code; log2 intensities. The source has no names: genes are g1, g2, … and
    samples s1, s2, … in its order.

    Returns
    -------
    Bunch with X (251, 226), feature_names and sample_names.
    """
    folder = _data_dir()
    return _expression(sources.breast() if folder is None else _read(folder, "breast_226x251.csv.gz"))


def fetch_prostate() -> Bunch:
    """Prostate cancer expression (Yu et al. 2004; GEO GDS2545): 108 samples × 12558 probes.

    From the R package GSBenchMark, which lacks the 63 samples of normal tissue next to a tumour; log2 of the signals,
    those below 1 set to 1. Probes are named by gene symbol, repeats with a suffix (MYH11, MYH11.2, …).

    Returns
    -------
    Bunch with X (108, 12558), feature_names, sample_names and target (108,): "normal", "primary" or "metastasis".
    """
    folder = _data_dir()
    if folder is None:
        table = sources.prostate()
        label = {name: CLASSES[name[0]] for name in table.columns}
    else:
        table = _read(folder, "prostate_yu_12558x108.csv.gz")
        label = _labels(folder, "prostate_yu_labels.csv")
    return Bunch(**_expression(table), target=np.array([label[name] for name in table.columns]))


def _expression(table: NamedValues) -> Bunch:
    return Bunch(X=np.ascontiguousarray(table.values.T), feature_names=table.rows, sample_names=table.columns)


def _data_dir() -> Path | None:
    folder = os.environ.get("NSFA_DATA_DIR")
    return Path(folder) if folder else None


def _read(folder: Path, name: str) -> NamedValues:
    """Row names, column names and values of a table whose first column holds the row names."""
    import pandas as pd

    # round_trip: the same doubles as the downloaded table
    frame = pd.read_csv(_inside(folder, name), dtype={"gene": str}, keep_default_na=False, float_precision="round_trip")
    return NamedValues(frame["gene"].tolist(), frame.columns[1:].tolist(), frame.iloc[:, 1:].to_numpy(dtype=float))


def _labels(folder: Path, name: str) -> dict[str, str]:
    import pandas as pd

    frame = pd.read_csv(_inside(folder, name), dtype=str)
    return dict(zip(frame["sample"], frame["class"], strict=True))


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.exists():
        raise FileNotFoundError(f"NSFA_DATA_DIR must hold {name}. Got {str(folder)!r}, which does not.")
    return path
