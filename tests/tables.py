"""Tables as people and programs write them, good and bad: hypothesis strategies of (file name suffix, bytes)."""

import gzip
import io

import numpy as np
from hypothesis import strategies as st

MISSING = ("NA", "NaN", "", "null", "na", "nan", "NULL")
ODD_CELLS = (
    "1e400", "-1e400", "1e300", "1e-320", "Inf", "-inf", "1,234", "1,234.5", "1.5.2", "high", "TRUE", "0x1F", "1_000",
    "+1", " 2 ", "--", "#N/A", "N/A", "1e", "٣", "<b>1</b>", "[red]1[/red]", '"', "a\nb", "\x00", "=1+1", "1.5%",
)  # fmt: skip
ODD_NAMES = (
    "<script>alert(1)</script>", 'a "quoted" name', "two\nlines", "a,b;c\td", "", " ", "NA", "1", "TP53", "TP53",
    "ENSG00000141510", "=cmd()", "../../name", "é", "名前", "[red]x[/red]", "[/]", "x" * 300, "#note", "it's", "{0}", "%s",
)  # fmt: skip
SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", "", ".dat")
OTHER_SUFFIXES = (".parquet", ".h5ad", ".npy", ".npz", ".mtx", ".xlsx", ".zip", "_series_matrix.txt.gz")
ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252")

numbers = st.one_of(st.floats(-20, 20).map(lambda x: f"{x:.4g}"), st.integers(-1000, 1000).map(str))
good_cells = st.one_of(*[numbers] * 5, st.sampled_from(MISSING))
odd_cells = st.one_of(
    *[good_cells] * 10, st.sampled_from(ODD_CELLS), st.text(max_size=6), st.floats(width=64).map(repr)
)
names = st.one_of(st.sampled_from(ODD_NAMES), st.text(max_size=8))


@st.composite
def rows_of_text(draw) -> list[list[str]]:
    """The cells of a table: with or without names, now and then ragged or with odd cells."""
    n_rows, n_columns = draw(st.integers(0, 8)), draw(st.integers(0, 8))
    cell = draw(st.sampled_from([good_cells, good_cells, odd_cells]))
    plain = draw(st.booleans())
    name = st.integers(0, 20).map(lambda i: f"name{i}") if plain else names
    body = [draw(st.lists(cell, min_size=n_columns, max_size=n_columns)) for _ in range(n_rows)]
    if with_names := draw(st.sampled_from([True, True, True, False])):
        body = [[draw(name), *row] for row in body]
    header = draw(st.sampled_from(["full", "full", "full", "short", "none"]))
    if header != "none":
        corner = [draw(name)] if with_names and header == "full" else []
        body.insert(0, corner + [draw(name) for _ in range(n_columns)])
    if body and draw(st.integers(0, 5)) == 0:
        where = draw(st.integers(0, len(body) - 1))
        body[where] = body[where][:-1] if draw(st.booleans()) else [*body[where], *draw(st.lists(cell, max_size=3))]
    return body


def quoted(cell: str, delimiter: str, always: bool) -> str:
    if always or any(mark in cell for mark in (delimiter, '"', "\n", "\r")):
        return '"' + cell.replace('"', '""') + '"'
    return cell


@st.composite
def texts(draw) -> str:
    """Those cells as text: some delimiter, line end, quoting and decimal mark, and sometimes lines around them."""
    delimiter = draw(st.sampled_from([",", ",", "\t", "\t", ";", " ", "|"]))
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    quoting = draw(st.sampled_from(["needed", "needed", "always", "never"]))
    rows = draw(rows_of_text())
    if delimiter != "," and draw(st.booleans()):
        rows = [[cell.replace(".", ",") for cell in row] for row in rows]
    if quoting != "never":
        rows = [[quoted(cell, delimiter, quoting == "always") for cell in row] for row in rows]
    before = draw(st.sampled_from(["", "", "", end, f"# a remark{end}", f"#1.2{end}3\t4{end}"]))
    last = draw(st.sampled_from([end, "", end * 3, "\x1a"]))
    return before + end.join(delimiter.join(row) for row in rows) + last


@st.composite
def text_files(draw) -> tuple[str, bytes]:
    """That text as a file: encoded, perhaps compressed, perhaps damaged."""
    text, encoding, suffix = draw(texts()), draw(st.sampled_from(ENCODINGS)), draw(st.sampled_from(SUFFIXES))
    content = text.encode(encoding, errors="replace")
    if suffix.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    return suffix, draw(damaged(content)) if draw(st.integers(0, 4)) == 0 else content


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """The file cut short, or with bytes put in, overwritten or repeated."""
    where = draw(st.integers(0, len(content)))
    extra = draw(st.binary(max_size=8))
    kind = draw(st.sampled_from(["cut", "insert", "overwrite", "repeat"]))
    if kind == "cut":
        return content[:where]
    if kind == "repeat":
        return content + content[where:]
    return content[:where] + extra + content[where + (len(extra) if kind == "overwrite" else 0) :]


def array_file(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@st.composite
def array_files(draw) -> tuple[str, bytes]:
    """.npy files of various types and shapes, some damaged."""
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
    dtype = draw(st.sampled_from(["f8", "f4", "i4", "u1", "?", "c16", "U3", "M8[s]", ">f8"]))
    values = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 9, shape)
    content = array_file(values.astype(dtype))
    return ".npy", draw(damaged(content)) if draw(st.booleans()) else content


SERIES_MATRIX = (
    b'!Series_geo_accession\t"GSE1"\n!Sample_title\t"a"\t"b"\t"c"\n!series_matrix_table_begin\n"ID_REF"\t"a"\t"b"\t"c"\n'
    b'"p1"\t1.5\tnull\t2\n"p2"\t3\t1\t0\n"p3"\t2\t5\t1\n!series_matrix_table_end\n'
)

other_files = st.one_of(
    st.tuples(st.sampled_from(SUFFIXES + OTHER_SUFFIXES), st.binary(max_size=200)),
    st.tuples(st.sampled_from(OTHER_SUFFIXES), text_files().map(lambda file: file[1])),
    st.tuples(st.just("_series_matrix.txt"), damaged(SERIES_MATRIX)),
    st.tuples(st.just("_series_matrix.txt.gz"), damaged(gzip.compress(SERIES_MATRIX, mtime=0))),
    array_files(),
)

files = st.one_of(text_files(), text_files(), text_files(), other_files)
"""Any file a user may hand in: mostly text tables, a good part of them readable."""
