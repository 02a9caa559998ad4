"""Matrix Market files, and the folders that 10x Genomics' programs write: genes × cells, with names beside them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from nsfa.readers.content import as_utf8, unpacked
from nsfa.readers.sheet import Sheet, readable

MATRIX_MARKET = b"%%MatrixMarket"
_MATRIX = "matrix.mtx"
_MOST_NAMES = 50_000_000


def find_matrix(folder: Path) -> Path:
    """The one matrix in a folder."""
    found = sorted(p for p in folder.iterdir() if p.name.endswith((_MATRIX, f"{_MATRIX}.gz")))
    if not found:
        raise IsADirectoryError(
            f"a folder must hold {_MATRIX} or {_MATRIX}.gz (10x). Got {str(folder)!r} without; give the table's file."
        )
    if len({p.name.removesuffix(".gz") for p in found}) > 1:
        raise ValueError(f"a folder must hold one {_MATRIX}. Got {', '.join(p.name for p in found)}; give the file.")
    return found[0]


def tenx_files(matrix: Path) -> list[Path]:
    """The matrix and the files of names beside it, those there are."""
    return [matrix, *(p for p in (_beside(matrix, "features.tsv", "genes.tsv"), _beside(matrix, "barcodes.tsv")) if p)]


def read_matrix(path: Path, content: bytes) -> Sheet:
    """A sparse matrix; a 10x one, with its genes and barcodes, is known to be genes × cells."""
    matrix = _parsed(path, content)
    genes, cells = _beside(path, "features.tsv", "genes.tsv"), _beside(path, "barcodes.tsv")
    if genes is None and cells is None:
        return Sheet(matrix, None, None)
    rows = _names(genes, matrix.shape[0], path) if genes else None
    columns = _names(cells, matrix.shape[1], path) if cells else None
    return Sheet(matrix, rows, columns, samples_in_rows=False)


def _parsed(path: Path, content: bytes) -> sp.csr_array:
    from scipy.io import mminfo, mmread

    with readable(path, "Matrix Market"):
        n_rows, n_columns, _, form, field, _ = mminfo(io.BytesIO(content))
    if field == "complex" or n_rows < 1 or n_columns < 1:
        raise ValueError(f"{path.name} must hold real values. Got a {field} matrix of {n_rows} × {n_columns}.")
    # a damaged size would be allocated before it is found to be wrong
    if n_rows + n_columns > _MOST_NAMES or (form == "array" and n_rows * n_columns > len(content)):
        raise ValueError(
            f"{path.name} must hold as much as it says. Got a size of {n_rows} × {n_columns}; copy it again."
        )
    with readable(path, "Matrix Market"):
        matrix = mmread(io.BytesIO(content))
        out = sp.csr_array(matrix, dtype=np.float64)
        out.sum_duplicates()
    return out


def _beside(matrix: Path, *names: str) -> Path | None:
    """The file of names that belongs to a matrix: the same prefix, compressed or not."""
    prefix = matrix.name.removesuffix(".gz").removesuffix(_MATRIX)
    if prefix == matrix.name.removesuffix(".gz"):
        return None
    paths = (matrix.with_name(f"{prefix}{name}{ending}") for name in names for ending in (".gz", ""))
    return next((path for path in paths if path.is_file()), None)


def _names(path: Path, n_names: int, matrix: Path) -> list[str]:
    """One name per line: 10x's second column, the gene's symbol, where there is one, else the first."""
    content, _ = as_utf8(unpacked(path.read_bytes(), path), path)
    lines = [line.split("\t") for line in content.decode().splitlines() if line.strip()]
    if len(lines) != n_names:
        raise ValueError(
            f"{path.name} must have a line for each of the {n_names} of {matrix.name}. Got {len(lines)}; "
            "take both from the same folder."
        )
    return [fields[1] if len(fields) > 1 and fields[1] else fields[0] for fields in lines]
