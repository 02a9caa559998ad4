"""Lists that go with a table: the genes to keep or their symbols, and labels of its samples."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsfa.readers.content import as_utf8, unpacked
from nsfa.readers.layout import MISSING
from nsfa.readers.names import complete
from nsfa.readers.sheet import show, show_some

# what people write above a column of symbols, without its spaces and underscores
_SYMBOL = re.compile(r"(hgnc|mgi|officialgene|gene)?symbols?|(externalgene|geneshort|gene|feature)names?")
# what programs write where there is no symbol; na is a gene of the fly
_NO_SYMBOL = frozenset({"", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "NULL", "None"})
_VERSIONED = re.compile(r"(ENS[A-Z]*[GTP]\d{11})\.\d+")


def read_genes(path: str | os.PathLike[str]) -> list[str]:
    """Gene names from a text file: one per line, or the first field of each line; lines with # are remarks."""
    path = Path(path)
    rows = _rows(path, "list of genes")
    names = [row[0].strip() for row in rows if row[0].strip() and not row[0].startswith("#")]
    if not names:
        raise ValueError(f"{path.name} must hold names of genes, one per line. Got none.")
    return list(dict.fromkeys(names))


def is_symbol(word: str) -> bool:
    """Whether a word is what people write above a column of gene symbols."""
    return _SYMBOL.fullmatch(re.sub(r"[\s_.\-]", "", word).casefold()) is not None


def symbol_in(cell: str) -> str:
    """The symbol in a cell, empty where that says that there is none."""
    word = cell.strip()
    return "" if word in _NO_SYMBOL else word


def named(genes: Sequence[str], symbols: Sequence[str]) -> dict[str, str]:
    """The symbol of every gene; the gene's own name where there is none."""
    return {gene: symbol_in(symbol) or gene for gene, symbol in zip(genes, symbols, strict=True)}


def read_gene_names(path: str | os.PathLike[str], genes: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Symbols of the genes of a table from a csv or tsv file with a column of their ids and one of symbols.

    The column of ids is the one with most of ``genes``; versions of Ensembl ids (ENSG….3) need not agree. Symbols are
    in the column that a header names so, else in the first other one. Returns each gene's symbol, its own name where
    the file has none, and a note about those genes.
    """
    path = Path(path)
    header, *rest = rows = _even(_rows(path, "file of gene names"), path.name)
    width = len(header)
    if width < 2:
        raise ValueError(f"{path.name} must have two columns, ids and symbols. Got a row of one: {show(header[0])}.")
    columns = [[_bare(row[i].strip()) for row in rows] for i in range(width)]
    key = _best(columns, {_bare(gene) for gene in genes})
    if key is None:
        raise _no_column(path.name, "the table's genes", "genes", genes, rest or rows)
    titled = [i for i in range(width) if i != key and is_symbol(header[i])]
    symbol = (titled or [i for i in range(width) if i != key])[0]
    # the first of several lines for an id
    by_id = {columns[key][i]: symbol_in(rows[i][symbol]) for i in reversed(range(len(rows)))}
    out = named(genes, [by_id.get(_bare(gene), "") for gene in genes])
    absent = [gene for gene in genes if not by_id.get(_bare(gene))]
    return out, [f"{len(absent)} gene(s) have no symbol in {path.name}: {show_some(absent)}."] if absent else []


def _bare(name: str) -> str:
    """An Ensembl id without its version; any other name as it is."""
    match = _VERSIONED.fullmatch(name)
    return match.group(1) if match else name


def read_annotations(path: str | os.PathLike[str], sample_names: Sequence[str]) -> Any:
    """Labels of the samples from a csv or tsv file with a row per sample and a header.

    The column that has the samples' names is found by them. Returns a DataFrame with a row for each of
    ``sample_names``, in their order, NaN where the file has nothing; columns of numbers are numbers. Its
    ``attrs["notes"]`` lists sentences about what did not fit.
    """
    import pandas as pd

    path = Path(path)
    header, *rows = _even(_rows(path, "file of annotations"), path.name)
    key, notes = _key(header, rows, sample_names, path.name)
    labels = {row[key].strip(): row for row in rows}
    if len(labels) < len(rows):
        twins = [row[key].strip() for row in rows]
        twin = next(name for name in twins if twins.count(name) > 1)
        raise ValueError(f"{path.name} must have one row per sample. Got {show(twin)} {twins.count(twin)} times.")
    others = [i for i in range(len(header)) if i != key]
    names, twins = complete([header[i].strip() or f"column {i + 1}" for i in others], len(others), "annotation")
    columns = [[labels[sample][i].strip() if sample in labels else "" for sample in sample_names] for i in others]
    typed = {name: _typed(cells) for name, cells in zip(names, columns, strict=True)}
    frame = pd.DataFrame(typed, index=list(sample_names))
    frame.attrs["notes"] = notes + twins
    return frame


def _even(rows: list[list[str]], name: str) -> list[list[str]]:
    """Rows as long as the first, the header; ValueError if one is not."""
    header, *rest = rows
    # R leaves out the name of the column of row names
    header = ["", *header] if rest and all(len(row) == len(header) + 1 for row in rest) else header
    uneven = next((row for row in rest if len(row) != len(header)), None)
    if uneven is not None:
        raise ValueError(
            f"every row of {name} must have {len(header)} fields, as its header. Got {len(uneven)} in row "
            f"{show(uneven[0])}."
        )
    return [header, *rest]


def _key(header: list[str], rows: list[list[str]], samples: Sequence[str], name: str) -> tuple[int, list[str]]:
    """The column with the most names of samples, and a note about samples it does not have."""
    key = _best([[row[i].strip() for row in rows] for i in range(len(header))], set(samples))
    if key is None:
        raise _no_column(name, "the samples' names", "samples", samples, rows)
    there = {row[key].strip() for row in rows}
    absent = [sample for sample in samples if sample not in there]
    return key, [f"{len(absent)} sample(s) are not in {name}: {show_some(absent)}."] if absent else []


def _best(columns: list[list[str]], names: set[str]) -> int | None:
    """The column with the most of these names; None if none has any."""
    found = [len(names.intersection(column)) for column in columns]
    return found.index(max(found)) if any(found) else None


def _no_column(name: str, what: str, kind: str, wanted: Sequence[str], rows: list[list[str]]) -> ValueError:
    has = show_some([row[0] for row in rows]) or "no rows"
    return ValueError(
        f"{name} must have a column with {what}. Got none of them: its first column has {has}, the {kind} are "
        f"{show_some(wanted)}."
    )


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
