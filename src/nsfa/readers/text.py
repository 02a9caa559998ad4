"""Text tables: one fast parse, and a careful one for what that refuses, which names the cell at fault."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from nsfa.arrays import Floats
from nsfa.readers.content import as_utf8
from nsfa.readers.layout import MISSING, NUMBER, RUNS, Layout, guess_layout, is_value
from nsfa.readers.sheet import Sheet, show

_SPELLINGS = sorted({"".join(letters) for word in MISSING for letters in product(*((c, c.upper()) for c in word))})


def read_text(content: bytes, path: Path) -> Sheet:
    """A delimited text table with or without header and row names; NaN where a value is missing."""
    content, notes = as_utf8(content, path)
    layout = guess_layout(content, path.name)
    if layout.delimiter == RUNS:
        content = _single_spaces(content)
        layout = guess_layout(content, path.name, (" ",))
    names, columns = _parse(content, layout) or _parse_carefully(content, layout, path.name)
    if not columns.shape[1]:
        raise ValueError(f"{path.name} must have rows of values. Got a header without any.")
    if layout.decimal == ",":
        notes += (f"{path.name} has decimal commas: 1,5 was read as 1.5.",)
    return Sheet(columns.T, names, layout.columns, notes + layout.notes, corner=layout.corner)


def _single_spaces(content: bytes) -> bytes:
    lines = (line.strip() for line in re.split(rb"\r\n|\r|\n", content))
    return b"\n".join(re.sub(rb"[ \t]+", b" ", line) for line in lines)


def _parse(content: bytes, layout: Layout) -> tuple[list[str] | None, Floats] | None:
    """Row names and values (n_columns, n_rows), or None if anything is out of order."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    fields = [str(i) for i in range(layout.width)]
    types = dict.fromkeys(fields, pa.float64())
    if layout.has_names:
        types["0"] = pa.string()
    line = max(content.find(b"\n", layout.start) - layout.start, 0)
    try:
        table = arrow.read_csv(
            _owned_by_arrow(memoryview(content)[layout.start :]),
            # some hundred rows at a time: with fewer, wide tables fall into too many pieces
            arrow.ReadOptions(column_names=fields, block_size=min(max(1 << 22, 400 * line), 1 << 30)),
            arrow.ParseOptions(delimiter=layout.delimiter, newlines_in_values=b'"' in content),
            arrow.ConvertOptions(column_types=types, null_values=_SPELLINGS, decimal_point=layout.decimal),
        )
    except (pa.ArrowException, ValueError):
        return None
    names = table.column(0).to_pylist() if layout.has_names else None
    return names, _filled(table, int(layout.has_names))


def _owned_by_arrow(content: memoryview) -> Any:
    """A copy in Arrow's own memory.

    Arrow's threads may drop the last reference after the table is read. To free Python's memory they need the
    interpreter, and if that is about to end, the process aborts.
    """
    import pyarrow as pa

    buffer = pa.allocate_buffer(len(content))
    np.frombuffer(buffer, np.uint8)[:] = content
    return buffer


def _filled(table: Any, first: int) -> Floats:
    """Arrow's columns from ``first`` on as the rows of one array, copied once."""
    out: Floats = np.empty((table.num_columns - first, table.num_rows))
    for row, field in zip(out, range(first, table.num_columns), strict=True):
        start = 0
        for chunk in table.column(field).chunks:
            row[start : start + len(chunk)] = chunk.to_numpy(zero_copy_only=False)
            start += len(chunk)
    return out


def _parse_carefully(content: bytes, layout: Layout, name: str) -> tuple[list[str] | None, Floats]:
    """The same cell by cell, with ValueError naming the first cell or row that is wrong."""
    skip = int(layout.has_names)
    names, values = [], []
    rows = _lines(content, layout, name)
    for number, (cells, line) in enumerate(rows, 1):
        label = show(cells[0]) if skip else str(number)
        if len(cells) != layout.width:
            raise ValueError(
                f"every row of {name} must have {layout.width} fields. Got {len(cells)} in row {label} (line {line}); "
                "look for a delimiter or a quote too many or too few there."
            )
        names.append(cells[0])
        row = [_number(cell, layout.decimal) for cell in cells[skip:]]
        if None in row:
            field = row.index(None) + skip
            below = [other[field] for other, _ in islice(rows, 20) if len(other) == layout.width]
            raise _bad_cell(cells[field], below, (label, layout.column(field)), name)
        values.append(row)
    table = np.array(values, dtype=np.float64).reshape(-1, layout.width - skip)
    return names if skip else None, np.ascontiguousarray(table.T)


def _lines(content: bytes, layout: Layout, name: str) -> Iterator[tuple[list[str], int]]:
    """Rows that are not blank, with the line of the file they end in."""
    before = len(re.findall(rb"\r\n|\r|\n", content[: layout.start]))
    reader = csv.reader(
        io.TextIOWrapper(io.BytesIO(content[layout.start :]), encoding="utf-8", newline=""), delimiter=layout.delimiter
    )
    try:
        for cells in reader:
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield cells, before + reader.line_num
    except csv.Error:
        raise ValueError(
            f"{name} must have fields of ordinary length. Got one without an end near line {before + reader.line_num}; "
            "look for a quote that is not closed."
        ) from None


def _number(cell: str, decimal: str) -> float | None:
    """The number in a cell, NaN for a missing one, None for anything else."""
    word = cell.strip()
    if word.casefold() in MISSING:
        return float("nan")
    if decimal == ",":
        word = word.replace(".", "?").replace(",", ".")
    return float(word) if NUMBER.fullmatch(word) else None


def _bad_cell(cell: str, below: list[str], where: tuple[str, str], name: str) -> ValueError:
    row, column = where
    if below and sum(not is_value(other) for other in below) > len(below) / 2:
        return ValueError(
            f"every column of {name} after the row names must hold numbers. Got text in column {column}, such as "
            f"{show(cell)} in row {row}; remove that column."
        )
    advice = (
        "write thousands without a separator, or decimals with a point"
        if "," in cell and is_value(cell.replace(",", ""))
        else "correct it"
    )
    return ValueError(
        f"the values of {name} must be numbers, or NA, NaN, null or empty where missing. Got {show(cell)} in row "
        f"{row}, column {column}; {advice}."
    )
