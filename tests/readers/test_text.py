import gzip
import textwrap

import numpy as np
import pytest

from nsfa.readers import read_table
from nsfa.readers import text as text_module

EXPECTED = [[1.5, 2.0, -3.0], [np.nan, 4.0, 0.25]]  # genes × samples


def read(tmp_path, content, name="t.csv", **options):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(path, **options)


def refusal(tmp_path, content, name="t.csv", **options):
    with pytest.raises((ValueError, OSError)) as caught:
        read(tmp_path, content, name, **options)
    assert caught.value.__cause__ is None
    return str(caught.value)


def plain(delimiter, end="\n", missing="NA"):
    rows = [["gene", "a", "b", "c"], ["x", "1.5", "2", "-3"], ["y", missing, "4", ".25"]]
    return end.join(delimiter.join(row) for row in rows) + end


def check(table):
    np.testing.assert_array_equal(table.X.to_numpy(), np.transpose(EXPECTED))
    assert table.sample_names == ("a", "b", "c") == tuple(table.X.index)
    assert table.gene_names == ("x", "y") == tuple(table.X.columns)


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|", " ", ", "], ids=repr)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=repr)
def test_delimiters_and_line_ends(tmp_path, delimiter, end):
    table = read(tmp_path, plain(delimiter, end))
    check(table)
    assert table.notes == []


@pytest.mark.parametrize("missing", ["NA", "NaN", "", "null", "na", "nan", "NULL", " NA ", '"NA"'])
def test_spellings_of_missing(tmp_path, missing):
    check(read(tmp_path, plain(",", missing=missing)))


@pytest.mark.parametrize(
    "encode",
    [
        lambda t: b"\xef\xbb\xbf" + t.encode(),
        lambda t: t.encode("utf-16"),
        lambda t: t.encode("utf-32"),
        lambda t: gzip.compress(t.encode()),
        lambda t: gzip.compress(t.encode("utf-16")),
        lambda t: t.encode() + b"\x1a",
        lambda t: b"\n\n" + t.encode() + b"\n\n",
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t"])
def test_encodings_and_compression_whatever_the_name(tmp_path, encode, name):
    check(read(tmp_path, encode(plain("\t")), name))


def test_western_european_letters_are_read_with_a_note(tmp_path):
    table = read(tmp_path, "gene,a,b\nñ,1,2\ny,3,4\n".encode("latin-1"))
    assert table.gene_names == ("ñ", "y")
    assert table.notes == ["t.csv is not UTF-8: letters such as é were read as Western European (Windows-1252)."]


def test_columns_lined_up_by_spaces(tmp_path):
    check(read(tmp_path, "gene     a   b    c\nx      1.5   2   -3\ny       NA   4  .25\n"))


def test_header_without_a_corner_as_r_writes_it(tmp_path):
    check(read(tmp_path, '"a" "b" "c"\n"x" 1.5 2 -3\n"y" NA 4 0.25\n'))


def test_decimal_commas(tmp_path):
    table = read(tmp_path, "gene;a;b;c\nx;1,5;2;-3\ny;NA;4;,25\n")
    check(table)
    assert table.notes == ["t.csv has decimal commas: 1,5 was read as 1.5."]
    check(read(tmp_path, 'gene,a,b,c\nx,"1,5",2,-3\ny,NA,4,"0,25"\n'))


def test_a_comma_that_may_group_thousands_is_not_guessed(tmp_path):
    sentence = refusal(tmp_path, "gene;a;b\nx;1,234;2,000\ny;3,100;1,000\n")
    assert (
        "Got '1,234' in row 'x', column 'a'; write thousands without a separator, or decimals with a point." in sentence
    )
    assert "'1,234.5' in row 'y', column 'b'" in refusal(tmp_path, 'gene,a,b\nx,1,2\ny,1,"1,234.5"\n')


def test_quoted_names_with_delimiters_quotes_and_line_ends(tmp_path):
    table = read(tmp_path, 'gene,"a,1","b ""2"""\n"two\nlines",1,2\n"<b>;",3,4\n')
    assert table.sample_names == ("a,1", 'b "2"') and table.gene_names == ("two\nlines", "<b>;")
    np.testing.assert_array_equal(table.X, [[1, 3], [2, 4]])


def test_names_that_look_like_missing_values_are_names(tmp_path):
    assert read(tmp_path, "gene,a,b\nNA,1,2\nTP53,3,4\n").gene_names == ("NA", "TP53")


def test_no_names_at_all(tmp_path):
    table = read(tmp_path, "1,2.5\n3,4\n5,7\n")
    np.testing.assert_array_equal(table.X, [[1, 3, 5], [2.5, 4, 7]])
    assert table.sample_names == ("sample 1", "sample 2") and table.gene_names[0] == "gene 1"
    assert table.notes == ["The first line holds numbers: it was read as values, not as names."]


def test_header_but_no_row_names(tmp_path):
    table = read(tmp_path, "s1,s2\n1,2.5\n3,4\n5,7\n")
    assert table.sample_names == ("s1", "s2") and table.X.shape == (2, 3) and table.notes == []


def test_row_names_but_no_header(tmp_path):
    table = read(tmp_path, "x,1,2.5\ny,3,4\n")
    assert table.gene_names == ("x", "y") and table.X.shape == (2, 2) and len(table.notes) == 1


@pytest.mark.parametrize("corner", ["", "gene", "Gene_ID", "ID_REF", "entrez.gene.id", "Unnamed: 0"])
def test_numbers_as_names_under_a_corner_that_says_so(tmp_path, corner):
    table = read(tmp_path, f"{corner},0,1\n7157,1,2\n672,3,4\n")
    assert table.gene_names == ("7157", "672") and table.sample_names == ("0", "1")


def test_a_first_column_that_counts_is_pointed_out(tmp_path):
    table = read(tmp_path, "s1,s2\n1,2.5\n2,4\n3,7\n")
    assert table.X.shape == (2, 3) and "name it 'id' if it holds names" in table.notes[0]


def test_titles_and_remarks_above_the_table_are_left_out(tmp_path):
    for before in ("# made by hand\n", "Table S1, final\n\n", "#1.2\n2\t3\n"):
        table = read(tmp_path, before + plain("\t"))
        check(table)
        assert "no part of the table" in table.notes[0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "t.csv must hold a table. Got an empty file."),
        ("\n \n", "Got an empty file."),
        ("gene,a,b\n", "t.csv must have rows of values. Got a header without any."),
        ("x\ny\nz\n", "t.csv must have at least 2 columns"),
        ("gene,a,b\nx,1,2\ny,3\n", "every row of t.csv must have 3 fields. Got 2 in row 'y' (line 3)"),
        ("gene,a,b,c,d\nx,1,2\ny,3,4\n", "the header of t.csv must name every column. Got 5 names above rows of 3 fields."),
        ("gene,a,b\nx,1,high\ny,3,4\nz,5,6\n", "Got 'high' in row 'x', column 'b'; correct it."),
        ("1,2\n3,4\n5,x\n6,7\n8,9\n", "Got 'x' in row 3, column 2"),
        ("gene,what,a\nx,kinase,2\ny,ligase,4\n", "Got text in column 'what', such as 'kinase' in row 'x'; remove that column."),
        ("gene,a,b\nx,1,1_000\ny,3,4\nz,4,5\n", "Got '1_000' in row 'x'"),
        ("gene,a,b\nx,1,N/A\ny,3,4\nz,4,5\n", "Got 'N/A' in row 'x', column 'b'"),
        ("gene,a,b\nx,1,٣\ny,3,4\nz,4,5\n", "Got '٣' in row 'x', column 'b'"),
        ('gene,a,b\n"x,1,2\ny,3,4\n', "t.csv"),
        ("gene,a,b\nx,,\ny,NA,\n", "t.csv must hold values. Got only missing ones."),
        ("gene,a\x00,b\nx,1,2\n", "t.csv must be a text table. Got binary data"),
        (b"\xff\xfe\x00\xd8", "t.csv must be text. Got damaged UTF-16"),
        (b"\x81\x02\x99,\xf1\n", "Got binary data"),
        (gzip.compress(b"gene,a,b\nx,1,2\n", mtime=0)[:-9], "t.csv must be a whole gzip file. Got one cut short or damaged"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, content, sentence):
    said = refusal(tmp_path, content)
    assert sentence in said and "\n" not in said and said.endswith(".")


def test_a_field_without_end(tmp_path):
    said = refusal(tmp_path, 'gene,a,b\nx,1,2\n"y' + "z" * 200_000 + ",3,4\n")
    assert "look for a quote that is not closed" in said and len(said) < 300


def test_infinite_values_are_left_to_the_engine(tmp_path):
    table = read(tmp_path, "gene,a,b\nx,1e400,-Inf\ny,3,4\n")
    np.testing.assert_array_equal(table.X["x"], [np.inf, -np.inf])


def test_extra_delimiters_at_the_ends_of_lines(tmp_path):
    table = read(tmp_path, "gene,a,b,\nx,1,2,\ny,3,4,\n")
    assert table.sample_names == ("a", "b")
    assert table.notes[-1] == "1 sample(s) without any value were left out: 'sample 3'."


def test_the_careful_parser_agrees_with_the_fast_one(tmp_path, rng, monkeypatch):
    values = np.where(
        rng.random((300, 7)) < 0.1, np.nan, rng.normal(size=(300, 7)) * 10.0 ** rng.integers(-30, 30, (300, 7))
    )
    lines = ["id," + ",".join("abcdefg")] + [
        f'"n""{i}",' + ",".join(map(repr, row)) for i, row in enumerate(values.tolist())
    ]
    fast = read(tmp_path, "\n".join(lines))
    monkeypatch.setattr(text_module, "_parse", lambda *_: None)
    careful = read(tmp_path, "\n".join(lines))
    np.testing.assert_array_equal(fast.X, values.T)
    assert fast.X.equals(careful.X) and fast.gene_names[1] == 'n"1'


def test_a_good_table_is_parsed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "_parse_carefully", None)
    check(read(tmp_path, plain(",")))


def test_wide_and_long_tables_with_quoted_line_ends_across_blocks(tmp_path, rng):
    values = rng.integers(0, 100_000_000, (60_000, 8))
    body = "\n".join(f'"a\n{i}",' + ",".join(map(str, row)) for i, row in enumerate(values.tolist()))
    table = read(tmp_path, "id," + ",".join("abcdefgh") + "\n" + body)
    np.testing.assert_array_equal(table.X.to_numpy(), values.T)
    assert table.gene_names[-1] == "a\n59999"
    wide = read(tmp_path, "".join(",".join(map(str, row)) + "\n" for row in values[:5000].reshape(4, -1).tolist()))
    np.testing.assert_array_equal(wide.X.to_numpy(), values[:5000].reshape(4, -1).T)


def test_the_error_names_a_cell_deep_in_the_file(tmp_path):
    body = [f"g{i},{i},{i}.5" for i in range(5000)]
    body[4321] = "g4321,1,oops"
    said = refusal(tmp_path, textwrap.dedent("gene,a,b\n") + "\n".join(body))
    assert "Got 'oops' in row 'g4321', column 'b'" in said


@pytest.mark.parametrize("corner", ["gene", "id", "", "locus_tag"])
def test_samples_that_have_numbers_for_names(corner, tmp_path):
    (tmp_path / "t.csv").write_text(f"{corner},1001,1002,1007\nTP53,1.5,2,3\nMYC,4,5,6\n")
    table = read_table(tmp_path / "t.csv")
    assert table.sample_names == ("1001", "1002", "1007")
    assert table.gene_names == ("TP53", "MYC")


def test_genes_that_have_numbers_for_names(tmp_path):
    (tmp_path / "t.csv").write_text("locus_tag,s1,s2\n7157,1.5,2\n672,3,4\n1956,5,6\n")
    assert read_table(tmp_path / "t.csv").gene_names == ("7157", "672", "1956")
    (tmp_path / "u.csv").write_text("what,s1,s2\n7157,1.5,2\n672,3,4\n1956,5,6\n")
    table = read_table(tmp_path / "u.csv")
    assert table.sample_names == ("what", "s1", "s2")
    assert any("name it 'id'" in text for text in table.notes)


def test_arrow_reads_from_memory_of_its_own(monkeypatch):
    """Freed by Arrow's threads, Python's memory can abort a process that is about to end."""
    from pyarrow import csv

    from nsfa.readers.layout import guess_layout

    content, real = bytearray(plain(",").encode()), csv.read_csv

    def lent(source, *options):
        # refused with BufferError while anyone looks into it
        content.clear()
        return real(source, *options)

    monkeypatch.setattr(csv, "read_csv", lent)
    names, columns = text_module._parse(content, guess_layout(bytes(content), "t.csv"))
    assert names == ["x", "y"]
    np.testing.assert_array_equal(columns, np.transpose(EXPECTED))
