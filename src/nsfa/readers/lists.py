"""Lists that go with a table: the genes to keep, and labels of its samples."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsfa.readers.content import as_utf8, unpacked
from nsfa.readers.layout import MISSING
from nsfa.readers.sheet import show, show_some


def read_genes(path: str | os.PathLike[str]) -> list[str]:
    """Gene names from a text file: one per line, or the first field of each line; lines with # are remarks."""
    path = Path(path)
    rows = _rows(path, "list of genes")
    names = [row[0].strip() for row in rows if row[0].strip() and not row[0].startswith("#")]
    if not names:
        raise ValueError(f"{path.name} must hold names of genes, one per line. Got none.")
    return list(dict.fromkeys(names))


def read_annotations(path: str | os.PathLike[str], sample_names: Sequence[str]) -> Any:
    """Labels of the samples from a csv or tsv file with a row per sample and a header.

    The column that has the samples' names is found by them. Returns a DataFrame with a row for each of
    ``sample_names``, in their order, NaN where the file has nothing; columns of numbers are numbers. Its
    ``attrs["notes"]`` lists sentences about what did not fit.
    """
    import pandas as pd

    path = Path(path)
    header, *rows = _rows(path, "file of annotations")
    # R leaves out the name of the column of row names
    header = ["", *header] if rows and all(len(row) == len(header) + 1 for row in rows) else header
    uneven = next((row for row in rows if len(row) != len(header)), None)
    if uneven is not None:
        raise ValueError(
            f"every row of {path.name} must have {len(header)} fields, as its header. Got {len(uneven)} in row "
            f"{show(uneven[0])}."
        )
    key, notes = _key(header, rows, sample_names, path.name)
    labels = {row[key].strip(): row for row in rows}
    if len(labels) < len(rows):
        twins = [row[key].strip() for row in rows]
        twin = next(name for name in twins if twins.count(name) > 1)
        raise ValueError(f"{path.name} must have one row per sample. Got {show(twin)} {twins.count(twin)} times.")
    columns = {
        name.strip() or f"column {i + 1}": [
            labels[sample][i].strip() if sample in labels else "" for sample in sample_names
        ]
        for i, name in enumerate(header)
        if i != key
    }
    frame = pd.DataFrame({name: _typed(cells) for name, cells in columns.items()}, index=list(sample_names))
    frame.attrs["notes"] = notes
    return frame


def _key(header: list[str], rows: list[list[str]], samples: Sequence[str], name: str) -> tuple[int, list[str]]:
    """The column with the most names of samples, and a note about samples it does not have."""
    known = set(samples)
    found = [len({row[i].strip() for row in rows} & known) for i in range(len(header))]
    if not rows or not max(found):
        has = show_some([row[0] for row in rows]) or "no rows"
        raise ValueError(
            f"{name} must have a column with the samples' names. Got none of them: its first column has {has}, the "
            f"samples are {show_some(samples)}."
        )
    key = found.index(max(found))
    there = {row[key].strip() for row in rows}
    absent = [sample for sample in samples if sample not in there]
    return key, [f"{len(absent)} sample(s) are not in {name}: {show_some(absent)}."] if absent else []


def _typed(cells: list[str]) -> Any:
    """Numbers if all cells are, else text; NaN where missing."""
    import pandas as pd

    column = pd.Series([None if cell.casefold() in MISSING else cell for cell in cells], dtype=object)
    try:
        return pd.to_numeric(column).to_numpy()
    except (ValueError, TypeError):
        return column.to_numpy()


def _rows(path: Path, what: str) -> list[list[str]]:
    """The fields of a small text file, blank lines left out; OSError or ValueError in one sentence."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OSError(f"the {what} must be a readable file. Got {str(path)!r}: {reason}.") from None
    text = as_utf8(unpacked(content, path), path)[0].decode()
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = next((line for line in lines if line.strip()), "")
    delimiter = max("\t,;", key=first.count)
    try:
        rows = [
            row for row in csv.reader((line + "\n" for line in lines), delimiter=delimiter) if any(map(str.strip, row))
        ]
    except csv.Error:
        raise ValueError(
            f"{path.name} must be a text table. Got a field without an end; look for an open quote."
        ) from None
    if not rows:
        raise ValueError(f"the {what} must not be empty. Got {path.name} without a line.")
    return rows
