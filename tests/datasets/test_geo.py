import gzip
import hashlib

import numpy as np
import pytest

from nsfa.datasets import fetch_expression, geo

HEADER = """!Series_title\t"A study of two livers"
!Series_geo_accession\t"GSE42"

!Sample_title\t"first"\t"second"\t"third"
!Sample_geo_accession\t"GSM1"\t"GSM2"\t"GSM3"
!Sample_characteristics_ch1\t"tissue: liver"\t"tissue: liver"\t"age: 30"
!Sample_characteristics_ch1\t"age: 41"\t"treated"\t"tissue: bone: hip"
!Sample_description\t"a"\t""\t""
!Sample_description\t"b"\t"c"\t""
"""
ROWS = """"ID_REF"\t"GSM1"\t"GSM2"\t"GSM3"
"1007_s_at"\t1.5\tnull\t-2
"NA"\t\t"3.25"\tNA
"""


def matrix(rows=ROWS, header=HEADER, end="!series_matrix_table_end\n"):
    return f"{header}!series_matrix_table_begin\n{rows}{end}"


@pytest.fixture
def write(tmp_path):
    def write(content, name="GSE42_series_matrix.txt"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_values_names_and_metadata(write):
    path = write(matrix())
    data = fetch_expression(path)
    np.testing.assert_array_equal(data.X, [[1.5, np.nan], [np.nan, 3.25], [-2, np.nan]])
    assert data.feature_names == ["1007_s_at", "NA"] and data.sample_names == ["GSM1", "GSM2", "GSM3"]
    assert data.accession == "GSE42" and data.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    table = data.metadata
    assert table.index.tolist() == data.sample_names
    assert table["title"].tolist() == ["first", "second", "third"]
    assert table["tissue"].tolist() == ["liver", "liver", "bone: hip"]
    assert table["age"].tolist() == ["41", "", "30"]
    assert table["characteristics_ch1"].tolist() == ["", "treated", ""]
    assert table["description"].tolist() == ["a; b", "c", ""]


@pytest.mark.parametrize("name", ["GSE42-GPL96_series_matrix.txt.gz", "GSE42-GPL97_series_matrix.txt", "renamed.dat"])
def test_compressed_or_not_whatever_the_name(write, name):
    data = fetch_expression(str(write(gzip.compress(matrix().encode(), mtime=0), name)))
    assert data.X.shape == (3, 2) and data.accession == "GSE42"


def test_windows_line_ends_and_stray_bytes(write):
    content = matrix().replace("\n", "\r\n").encode().replace(b"livers", b"liv\xe9rs")
    np.testing.assert_array_equal(fetch_expression(write(content)).X[:, 0], [1.5, np.nan, -2])


def test_a_file_without_header_lines_has_empty_metadata(write):
    data = fetch_expression(write(matrix(header="")))
    assert data.metadata.shape == (3, 0) and data.accession == ""


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (matrix(rows='"ID_REF"\t"GSM1"\n'), "must hold expression values. Got a table without rows"),
        (matrix(end=""), "must end with !series_matrix_table_end. Got a file cut short"),
        (HEADER, "Got a file cut short"),
        (gzip.compress(matrix().encode(), mtime=0)[:-20], "Got a file cut short"),
        ("gene,s1\na,1\n", "must be a GEO series matrix. Got a file without !series_matrix_table_begin"),
        (matrix(rows=ROWS + '"x"\t1\n'), "must have 3 values. Got 1 in row 'x'"),
        (matrix(rows=ROWS + '"x"\t1\thigh\t2\n'), "must be numbers. Got 'high' in row 'x', column 'GSM2'."),
        (
            matrix(header='!Sample_title\t"only"\n'),
            "!Sample_title of GSE42_series_matrix.txt must have a value per sample",
        ),
    ],
)
def test_bad_files_get_one_sentence(write, content, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        fetch_expression(write(content))
    assert "\n" not in str(caught.value)


def test_neither_path_nor_accession():
    with pytest.raises(FileNotFoundError, match="must be a GEO series such as 'GSE6919' or the path .* Got 'GDS2545'"):
        fetch_expression("GDS2545")


@pytest.mark.parametrize(
    ("accession", "tail"),
    [
        ("GSE6919", "GSE6nnn/GSE6919/matrix/GSE6919_series_matrix.txt.gz"),
        ("GSE6919-GPL8300", "GSE6nnn/GSE6919/matrix/GSE6919-GPL8300_series_matrix.txt.gz"),
        ("GSE123456", "GSE123nnn/GSE123456/matrix/GSE123456_series_matrix.txt.gz"),
        ("GSE42", "GSEnnn/GSE42/matrix/GSE42_series_matrix.txt.gz"),
        ("GSE999", "GSEnnn/GSE999/matrix/GSE999_series_matrix.txt.gz"),
        ("GSE1000", "GSE1nnn/GSE1000/matrix/GSE1000_series_matrix.txt.gz"),
    ],
)
def test_addresses(accession, tail):
    assert geo.series_matrix_url(accession) == f"https://ftp.ncbi.nlm.nih.gov/geo/series/{tail}"


def test_an_accession_is_downloaded_once(monkeypatch, tmp_path):
    pooch = pytest.importorskip("pooch")
    asked = []

    def serve(self, url, output_file, store, check_only=False):
        asked.append(url)
        with open(output_file, "wb") as handle:
            handle.write(gzip.compress(matrix().encode(), mtime=0))

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", serve)
    monkeypatch.setenv("NSFA_CACHE_DIR", str(tmp_path))
    for name in ("gse42", "GSE42"):
        assert fetch_expression(name).X.shape == (3, 2)
    assert asked == [geo.series_matrix_url("GSE42")]
    assert [path.name for path in tmp_path.iterdir()] == ["GSE42_series_matrix.txt.gz"]


def test_offline_is_one_sentence(monkeypatch, tmp_path):
    pooch = pytest.importorskip("pooch")

    def fail(self, url, output_file, store, check_only=False):
        raise ConnectionResetError("a long story")

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", fail)
    monkeypatch.setenv("NSFA_CACHE_DIR", str(tmp_path))
    with pytest.raises(ConnectionError, match=r"connect to the network or give the path .* \(GSE42-GPL…\)") as caught:
        fetch_expression("GSE42")
    assert caught.value.__context__ is None and not list(tmp_path.iterdir())
    with pytest.raises(ConnectionError, match="give the path of a series matrix file.$"):
        fetch_expression("GSE42-GPL96")
