"""Which format a file is in, told by its content, and the reader for it."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

from nsfa.readers.arrays import read_npy, read_npz
from nsfa.readers.content import unpacked
from nsfa.readers.frames import read_h5ad, read_parquet
from nsfa.readers.matrices import MATRIX_MARKET, find_matrix, read_matrix, tenx_files
from nsfa.readers.sheet import Sheet, readable
from nsfa.readers.text import read_text

_OTHERS = (
    (b"\xd0\xcf\x11\xe0", "an Excel workbook; save it as csv"),
    (b"BZh", "a bzip2 file; decompress it, or compress it with gzip"),
    (b"\xfd7zXZ", "an xz file; decompress it, or compress it with gzip"),
    (b"(\xb5/\xfd", "a zstandard file; decompress it, or compress it with gzip"),
    (b"%PDF", "a PDF; save the table as csv"),
    (b"RDX", "an R workspace; save the table with write.csv"),
)


def read_sheet(path: Path, layer: str | None) -> Sheet:
    """The table in a file or 10x folder; OSError or ValueError in one sentence if there is none."""
    path = _existing(path)
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"\x89HDF"):
        return read_h5ad(path, layer)
    if layer is not None:
        raise ValueError(f"layer applies to .h5ad files only. Got layer={layer!r} for {path.name}; leave it out.")
    if start.startswith(b"PAR1"):
        return read_parquet(path)
    if start.startswith(b"\x93NUMPY"):
        return read_npy(path)
    if start.startswith(b"PK"):
        return _read_zip(path)
    other = next((what for mark, what in _OTHERS if start.startswith(mark)), None)
    if other:
        raise ValueError(f"{path.name} must be a table: csv, tsv, parquet, h5ad, mtx, npy or npz. Got {other}.")
    return _read_lines(path)


def checksum(path: Path) -> str:
    """The sha256 of a file; of a 10x matrix and its names, one file after the other."""
    digest = hashlib.sha256()
    for part in tenx_files(find_matrix(path)) if path.is_dir() else [path]:
        with part.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def _existing(path: Path) -> Path:
    """The file to open, or an OSError in plain words."""
    try:
        if path.is_dir():
            _check_not_zarr(path)
            return find_matrix(path)
        if not path.exists():
            raise FileNotFoundError(f"the table must be an existing file. Got {str(path)!r}, which does not exist.")
        if not path.is_file():
            raise OSError(f"the table must be a file. Got {str(path)!r}, which is something else.")
        with path.open("rb"):
            return path
    except PermissionError:
        raise PermissionError(f"the table must be readable. Got no permission to read {str(path)!r}.") from None
    except ValueError as error:
        # a name that no file can have
        if "null" not in str(error):
            raise
        raise FileNotFoundError(f"the table must be an existing file. Got {str(path)!r}.") from None


def _check_not_zarr(folder: Path) -> None:
    kind = next((name for name in ("zarr.json", ".zarray", ".zgroup") if (folder / name).exists()), None)
    if kind is not None:
        raise OSError(
            f"the table must be a file or a 10x folder. Got {str(folder)!r}, a zarr folder; nsfa fit --dask reads it "
            "in blocks."
        )


def _read_zip(path: Path) -> Sheet:
    """NumPy's .npz is a zip of arrays; other zips are not read."""
    with readable(path, "zip or .npz"), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if names and all(name.endswith(".npy") for name in names):
        return read_npz(path)
    what = "an Excel workbook; save it as csv" if any(n.startswith("xl/") for n in names) else "a zip file; unpack it"
    raise ValueError(f"{path.name} must be a table: csv, tsv, parquet, h5ad, mtx, npy or npz. Got {what}.")


def _read_lines(path: Path) -> Sheet:
    """Text of one kind or another, perhaps compressed."""
    raw = path.read_bytes()
    content = unpacked(raw, path)
    if content.startswith(MATRIX_MARKET):
        return read_matrix(path, content)
    if content.startswith((b"!Series", b"!Sample")) or b"\n!series_matrix_table_begin" in content[: 1 << 20]:
        return _read_geo(path)
    return replace(read_text(content, path), checksum=f"sha256:{hashlib.sha256(raw).hexdigest()}")


def _read_geo(path: Path) -> Sheet:
    from nsfa.datasets.geo import fetch_expression

    series = fetch_expression(path)
    return Sheet(series.X, series.sample_names, series.feature_names, samples_in_rows=True)
