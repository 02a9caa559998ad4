"""How a text table is laid out: delimiter, decimal mark, header and row names, guessed from its first lines."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nsfa.readers.sheet import show

RUNS = "  "
"""Stands for columns lined up by any number of spaces or tabs."""
DELIMITERS = ("\t", ",", ";", "|", " ", RUNS)
MISSING = frozenset({"", "na", "nan", "null"})
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|-nan", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
# what people write above a column of names, without its spaces and underscores
_ID = re.compile(
    r"|unnamed:?0|#?(hgnc|entrez|ensembl|refseq|affy|ncbi|locus)?(gene|probe|probeset|feature|transcript|target|symbol|"
    r"protein|accession|tag|orf|sample|cell|barcode|patient|subject|donor|row|index|entrez|ensembl|id|name)s?"
    r"(id|ids|name|names|symbol|symbols|ref|gene|geneid)?"
)
_FIRST_LINES, _FIRST_BYTES, _FIRST_CELLS = 100, 1 << 18, 200


@dataclass(frozen=True)
class Layout:
    """Where the values of a text table are; ``start`` is the first byte of the first row of values."""

    delimiter: str
    decimal: str
    start: int
    width: int
    has_names: bool
    columns: tuple[str, ...] | None
    notes: tuple[str, ...] = ()
    corner: str = ""
    """What stands above the row names."""

    def column(self, field: int) -> str:
        """The name of a field in a sentence."""
        if self.columns is None:
            return str(field + 1)
        return show(self.columns[field - self.has_names])


def is_value(cell: str) -> bool:
    """Whether a cell is a number, with a point or a comma, or stands for a missing value."""
    word = cell.strip()
    return word.casefold() in MISSING or NUMBER.fullmatch(word.replace(",", ".", 1)) is not None


def guess_layout(content: bytes, name: str, delimiters: Sequence[str] = DELIMITERS) -> Layout:
    """Guess from the first lines of a UTF-8 text; ValueError if they hold no table."""
    lines, whole = _first_lines(content)
    if not any(line.strip() for line in lines):
        raise ValueError(f"{name} must hold a table. Got an empty file.")
    delimiter, rows = _best(lines, whole, delimiters)
    width = _width(rows)
    if width < 2:
        raise ValueError(
            f"{name} must have at least 2 columns, separated by commas, tabs, semicolons or spaces. Got one column."
        )
    skipped = _skipped(rows, width)
    body = rows[skipped:]
    header, has_names, notes = _names(body, width)
    if skipped:
        notes = (f"The first {skipped} line(s) of {name} are no part of the table and were left out.", *notes)
    if whole and len(body) == header:
        raise ValueError(f"{name} must have rows of values. Got a header without any.")
    first = body[0].cells
    columns = tuple(first[has_names and len(first) == width :]) if header else None
    if columns is not None and len(columns) != width - has_names:
        raise ValueError(
            f"the header of {name} must name every column. Got {len(first)} names above rows of {width} fields."
        )
    corner = first[0] if header and has_names and len(first) == width else ""
    used = rows[: skipped + header]
    start = len("".join(lines[: used[-1].end]).encode()) if used else 0
    return Layout(delimiter, _decimal(body[header:]), start, width, has_names, columns, notes, corner)


@dataclass(frozen=True)
class _Row:
    cells: list[str]
    end: int
    """How many lines of the file this row and those before it take."""


def _first_lines(content: bytes) -> tuple[list[str], bool]:
    """Whole lines from the beginning, enough to guess from, and whether they are all there is."""
    end = len(content)
    for number, match in enumerate(re.finditer(rb"\r\n|\r|\n", content), 1):
        if number >= _FIRST_LINES or (number >= 6 and match.end() >= _FIRST_BYTES):
            end = match.end()
            break
    return list(io.StringIO(content[:end].decode(), newline="")), end == len(content)


def _rows(lines: list[str], delimiter: str) -> Iterator[_Row]:
    """The rows that are not blank."""
    if delimiter == RUNS:
        lines, delimiter = [re.sub(r"[ \t]+", " ", line.strip()) + "\n" for line in lines], " "
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        for cells in reader:
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield _Row(cells, reader.line_num)
    except csv.Error:
        # a field too long to be one: what came before is what there is
        return


def _best(lines: list[str], whole: bool, delimiters: Sequence[str]) -> tuple[str, list[_Row]]:
    """The delimiter that gives rows of equal width full of numbers, and these rows."""
    best: tuple[tuple[float, float], str, list[_Row]] = ((-1.0, -1.0), delimiters[0], [])
    for delimiter in delimiters:
        rows = list(_rows(lines, delimiter))
        if not whole and len(rows) > 3:
            # a quoted field may go on beyond the last line
            rows.pop()
        width = _width(rows)
        if not rows or width < 2:
            continue
        if delimiter == " " and any("" in row.cells for row in rows):
            # two spaces are no empty cell: the columns are lined up
            continue
        body = [row.cells for row in rows[1:] or rows]
        even = sum(len(cells) == width for cells in body) / len(body)
        values = [is_value(cell) for cells in body for cell in cells[1:_FIRST_CELLS]]
        score = (even * sum(values) / max(len(values), 1), even)
        if score > best[0]:
            best = score, delimiter, rows
    return best[1], best[2]


def _width(rows: list[_Row]) -> int:
    """The number of fields that most rows have, not counting the first."""
    counts = Counter(len(row.cells) for row in rows[1:] or rows)
    return counts.most_common(1)[0][0] if counts else 0


def _skipped(rows: list[_Row], width: int) -> int:
    """How many rows at the top are titles or remarks: fewer fields than a header could have."""
    number = 0
    while number < len(rows) - 1:
        cells = rows[number].cells
        remark = cells[0].startswith("#") and len(cells) not in (width, width - 1)
        if not remark and not (len(cells) <= width // 2 and len(cells) < width - 1):
            break
        number += 1
    return number


def _names(rows: list[_Row], width: int) -> tuple[bool, bool, tuple[str, ...]]:
    """Whether the first row is a header, whether the first column holds names, and what is unsure about it."""
    first, body = rows[0].cells, [row.cells for row in rows[1:] if len(row.cells) == width]
    if len(first) == width - 1 and body:
        return True, True, ()
    labelled = is_id(first[0])
    words = not all(is_value(cell) for cell in first[1:])
    # "gene,1001,1002": samples that have numbers for names; without a word above the names below, too
    below = bool(body) and not all(is_value(cells[0]) for cells in body)
    numbered = labelled and (bool(first[0].strip()) or below or _counts(first[1:]))
    header = words or numbered or (not is_value(first[0]) and bool(body) and not below)
    column = [cells[0] for cells in (body if header else [first, *body])]
    has_names = (header and labelled) or not all(is_value(cell) for cell in column)
    notes: tuple[str, ...] = ()
    if not header:
        notes = ("The first line holds numbers: it was read as values, not as names.",)
    if not has_names and len(column) > 2 and _counts(column):
        notes += ("The first column counts up: it was read as values; name it 'id' if it holds names.",)
    elif not has_names and header and _look_like_ids(column, [cells[1] for cells in body]) and not _alike(*first[:2]):
        notes += (f"The first column, {show(first[0])}, was read as values; name it 'id' if these are names of rows.",)
    return header, has_names, notes


def is_id(cell: str) -> bool:
    """Whether a cell is what people write above a column of names, nothing at all included."""
    word = re.sub(r"[\s_.\-]", "", cell).casefold()
    return _ID.fullmatch(word) is not None and word not in MISSING - {""}


def _alike(a: str, b: str) -> bool:
    """Whether two names differ by a number only."""
    return re.sub(r"\d+", "", a) == re.sub(r"\d+", "", b)


def _look_like_ids(column: Sequence[str], beside: Sequence[str]) -> bool:
    """Whether cells are different whole numbers beside cells that are not."""
    whole = [[cell.strip().isdecimal() for cell in cells] for cells in (column, beside)]
    return len(column) > 2 and all(whole[0]) and len(set(column)) == len(column) and not all(whole[1])


def _counts(cells: Sequence[str]) -> bool:
    """Whether cells are 0, 1, 2, … or 1, 2, 3, … in this order."""
    words = [cell.strip() for cell in cells]
    return bool(words) and words in ([str(i) for i in range(len(words))], [str(i + 1) for i in range(len(words))])


def _decimal(rows: list[_Row]) -> str:
    """The decimal mark. "1,234" alone may be a thousand: a comma counts when it can be nothing else."""
    cells = [cell.strip() for row in rows for cell in row.cells[1:_FIRST_CELLS]]
    commas = [cell for cell in cells if "," in cell and is_value(cell)]
    points = any("." in cell and is_value(cell) for cell in cells)
    return "," if any(not _THOUSANDS.fullmatch(cell) for cell in commas) and not points else "."
