"""Formats that bring their own frame: parquet and AnnData's .h5ad."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.readers.layout import is_id
from nsfa.readers.lists import is_symbol, symbol_in
from nsfa.readers.sheet import Sheet, readable, show, show_some


def read_parquet(path: Path) -> Sheet:
    """A frame: row names from its index or from a first column of text, numbers everywhere else."""
    import pandas as pd
    from pyarrow.fs import LocalFileSystem

    with readable(path, "parquet"):
        # opened by Arrow itself: its threads must not hold a file of Python's when the interpreter ends
        frame = pd.read_parquet(path.absolute(), engine="pyarrow", filesystem=LocalFileSystem())
    rows = None if isinstance(frame.index, pd.RangeIndex) else [str(name) for name in frame.index]
    corner = str(frame.index.name or "")
    if rows is None and frame.shape[1]:
        first = str(frame.columns[0])
        named = first.strip() and is_id(first) and pd.api.types.is_integer_dtype(frame.dtypes.iloc[0])
        if named or not pd.api.types.is_numeric_dtype(frame.dtypes.iloc[0]):
            corner, rows, frame = first, [str(name) for name in frame.iloc[:, 0]], frame.iloc[:, 1:]
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if not pd.api.types.is_numeric_dtype(dtype) or dtype.kind == "c":
            raise ValueError(
                f"every column of {path.name} after the row names must hold numbers. Got {dtype} in column "
                f"{show(name)}; remove or convert that column."
            )
    if 0 in frame.shape:
        raise ValueError(f"{path.name} must hold a table with values. Got {frame.shape[0]} × {frame.shape[1]}.")
    columns = [str(name) for name in frame.columns]
    return Sheet(frame.to_numpy(dtype=np.float64, na_value=np.nan), rows, columns, corner=corner)


def read_h5ad(path: Path, layer: str | None = None) -> Sheet:
    """An AnnData file's X or a layer: samples (obs) × genes (var), sparse if it is."""
    try:
        import anndata
    except ImportError:
        raise ImportError("Reading .h5ad needs AnnData: pip install 'nsfa[anndata]'.") from None

    if _is_10x(path):
        raise ValueError(f"{path.name} must be an AnnData file. Got a 10x .h5 file; give the folder of its matrix.mtx.")
    with readable(path, "AnnData .h5ad"), warnings.catch_warnings():
        # about names that repeat, which are made unique later
        warnings.simplefilter("ignore")
        adata = anndata.read_h5ad(path)
    if layer is not None and layer not in adata.layers:
        has = show_some(list(adata.layers)) or "none"
        raise ValueError(f"{path.name} must have the layer {layer!r}. Got the layers: {has}.")
    values = adata.X if layer is None else adata.layers[layer]
    if values is None:
        has = show_some(list(adata.layers)) or "none"
        raise ValueError(f"{path.name} must have values in X. Got none; give a layer (there are: {has}).")
    samples, genes = list(adata.obs_names), list(adata.var_names)
    column, symbols = symbols_of(adata.var, genes)
    known = list(adata.obs.columns)
    notes = [f"Annotations of the samples (obs): {show_some(known, 5)}."] if known else []
    notes += [f"Symbols of the genes (var): {show(column)}."] if symbols else []
    annotations = adata.obs if known else None
    return Sheet(_real(values, path), samples, genes, tuple(notes), True, annotations=annotations, symbols=symbols)


def symbols_of(frame: Any, names: list[str]) -> tuple[Any, list[str] | None]:
    """The column of var with the genes' symbols, and these; None for both without one."""
    column = _symbol_column(frame, names)
    return column, None if column is None else _words(frame[column])


def _symbol_column(frame: Any, names: list[str]) -> Any:
    """The column of symbols, by its name; None without one, or if it has the genes' names again."""
    column = next((name for name in frame.columns if is_symbol(str(name))), None)
    return None if column is None or _words(frame[column]) == names else column


def _words(column: Any) -> list[str]:
    """The symbols of a column, empty where missing."""
    return ["" if missing else symbol_in(str(word)) for word, missing in zip(column, column.isna(), strict=True)]


def layers_in(path: Path) -> list[str] | None:
    """The layers of an .h5ad file; None for another file, or one that cannot be read."""
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        if not path.is_file() or not h5py.is_hdf5(path):
            return None
        with h5py.File(path) as file:
            return None if "var" not in file else list(file["layers"]) if "layers" in file else []
    except OSError:
        return None


def _is_10x(path: Path) -> bool:
    import h5py

    try:
        with h5py.File(path) as file:
            return "matrix" in file and "barcodes" in file["matrix"]
    except OSError:
        return False


def _real(values: Any, path: Path) -> Any:
    if values.dtype.kind not in "buif" or 0 in values.shape:
        raise ValueError(
            f"{path.name} must hold real values. Got {values.dtype}, {values.shape[0]} × {values.shape[1]}."
        )
    return sp.csr_array(values, dtype=np.float64) if sp.issparse(values) else np.asarray(values, dtype=np.float64)
