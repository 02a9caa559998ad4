"""Any expression series of the Gene Expression Omnibus (GEO), from its series matrix file."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from nsfa.arrays import Floats
from nsfa.datasets.sources import cached

ACCESSION = re.compile(r"GSE(\d+)(-GPL\d+)?", re.IGNORECASE)
GEO = "https://ftp.ncbi.nlm.nih.gov/geo/series"
BEGIN, END = "!series_matrix_table_begin", "!series_matrix_table_end"


def fetch_expression(accession_or_path: str | Path) -> Bunch:
    """Read a GEO series matrix, by accession or from a file.

    Parameters
    ----------
    accession_or_path
        The path of a series matrix (.txt or .txt.gz), or an accession such as "GSE6919", which is downloaded once and
        kept in the cache. A series on several platforms has a file for each: "GSE6919-GPL8300".

    Returns
    -------
    Bunch with X (n_samples, n_features), NaN where the file has nothing, "null" or "NA"; feature_names; sample_names;
    metadata, a DataFrame with a row per sample and a column per ``!Sample_`` field or characteristic ("tissue: liver"
    is "liver" in column "tissue", repeated fields are joined by "; "); accession; and sha256 of the file. GEO publishes
    no checksum: note the sha256 to know the file again.
    """
    path = _locate(accession_or_path)
    content = path.read_bytes()
    header, table = _split(_text(content, path), path)
    features, samples, values = _values(table, path)
    return Bunch(
        X=np.ascontiguousarray(values.T),
        feature_names=features,
        sample_names=samples,
        metadata=_metadata(header, samples, path),
        accession=_accession(header),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def series_matrix_url(accession: str) -> str:
    """Where GEO keeps the series matrix of "GSE…" or "GSE…-GPL…"."""
    series = accession.split("-")[0]
    return f"{GEO}/{series[:-3] if len(series) > 6 else 'GSE'}nnn/{series}/matrix/{accession}_series_matrix.txt.gz"


def _locate(accession_or_path: str | Path) -> Path:
    path = Path(accession_or_path)
    if path.is_file():
        return path
    accession = str(accession_or_path).upper()
    if not ACCESSION.fullmatch(accession):
        raise FileNotFoundError(
            "accession_or_path must be a GEO series such as 'GSE6919' or the path of a series matrix file. Got "
            f"{str(accession_or_path)!r}, which is neither."
        )
    instead = "give the path of a series matrix file"
    if "-" not in accession:
        instead += f", or name the platform ({accession}-GPL…) if the series has several"
    return cached(f"{accession}_series_matrix.txt.gz", (series_matrix_url(accession),), instead)


def _text(content: bytes, path: Path) -> str:
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error):
            raise _cut_short(path) from None
    # titles are typed by hand, in any encoding; the numbers are ASCII
    return content.decode("utf-8", errors="replace").replace("\r\n", "\n")


def _split(text: str, path: Path) -> tuple[list[list[str]], list[str]]:
    """The fields of the ``!`` lines before the table, and the lines of the table."""
    before, begin, after = text.partition(BEGIN)
    if not begin:
        if text.startswith("!Series"):
            raise _cut_short(path)
        raise ValueError(f"{path.name} must be a GEO series matrix. Got a file without {BEGIN}.")
    table, end, _ = after.partition(END)
    if not end:
        raise _cut_short(path)
    header = [[_unquoted(field) for field in line.split("\t")] for line in before.split("\n") if line.startswith("!")]
    return header, [line for line in table.split("\n") if line.strip()]


def _values(lines: list[str], path: Path) -> tuple[list[str], list[str], Floats]:
    """Row names, sample names and values (features × samples) of the table."""
    import pandas as pd

    if len(lines) < 2:
        raise ValueError(
            f"{path.name} must hold expression values. Got a table without rows; sequencing series keep theirs in "
            "supplementary files, to be read as a plain table."
        )
    samples = [_unquoted(field) for field in lines[0].split("\t")][1:]
    uneven = next((line for line in lines if line.count("\t") != len(samples)), None)
    if uneven is not None:
        raise ValueError(
            f"every row of {path.name} must have {len(samples)} values. Got {uneven.count(chr(9))} in row "
            f"{_unquoted(uneven.split(chr(9))[0])!r}; download the file again."
        )
    text = io.StringIO("\n".join(lines[1:]))
    frame = pd.read_csv(text, sep="\t", header=None, converters={0: str}, low_memory=False)
    words = frame.iloc[:, 1:].select_dtypes(exclude="number")
    if words.shape[1]:
        column = words.iloc[:, 0].dropna()
        wrong = column[pd.to_numeric(column, errors="coerce").isna()].iloc[:1]
        raise ValueError(
            f"the values of {path.name} must be numbers. Got {wrong.iloc[0]!r} in row {frame[0][wrong.index[0]]!r}, "
            f"column {samples[words.columns[0] - 1]!r}."
        )
    return frame[0].tolist(), samples, frame.iloc[:, 1:].to_numpy(dtype=float)


def _metadata(header: list[list[str]], samples: list[str], path: Path) -> Any:
    """The ``!Sample_`` lines as a DataFrame of strings, a row per sample."""
    import pandas as pd

    columns: dict[str, list[str]] = {}
    for key, *fields in header:
        if not key.startswith("!Sample_"):
            continue
        if len(fields) != len(samples):
            raise ValueError(f"{key} of {path.name} must have a value per sample, {len(samples)}. Got {len(fields)}.")
        for i, field in enumerate(fields):
            name, value = key.removeprefix("!Sample_"), field
            if name.startswith("characteristics") and ":" in field:
                name, value = (part.strip() for part in field.split(":", 1))
            column = columns.setdefault(name, [""] * len(samples))
            column[i] = f"{column[i]}; {value}" if column[i] and value else column[i] or value
    return pd.DataFrame(columns, index=pd.Index(samples, name="sample"), dtype=str)


def _accession(header: list[list[str]]) -> str:
    return next((fields[1] for fields in header if fields[0] == "!Series_geo_accession" and len(fields) > 1), "")


def _unquoted(field: str) -> str:
    return field.strip().removeprefix('"').removesuffix('"')


def _cut_short(path: Path) -> ValueError:
    return ValueError(f"{path} must end with {END}. Got a file cut short; delete it and download it again.")
