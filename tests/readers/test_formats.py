import gzip
import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from nsfa import NSFA
from nsfa.readers import read_table
from nsfa.readers.frames import _words
from nsfa.readers.sheet import readable
from tables import SERIES_MATRIX


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (zipped("xl/workbook.xml"), "an Excel workbook; save it as csv"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook; save it as csv"),
        (zipped("t.csv"), "a zip file; unpack it"),
        (b"BZh91AY&SY", "a bzip2 file; decompress it, or compress it with gzip"),
    ],
)
def test_other_formats_are_named(tmp_path, content, what):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_table(path)
    assert str(caught.value) == f"t.csv must be a table: csv, tsv, parquet, h5ad, mtx, npy or npz. Got {what}."


@pytest.mark.parametrize(
    "mark", [b"\x93NUMPY", b"PAR1", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"%%MatrixMarket"], ids=repr
)
def test_damaged_files_of_any_format(tmp_path, mark):
    pytest.importorskip("anndata")
    path = tmp_path / "t"
    path.write_bytes(mark + b" nothing more")
    with pytest.raises(ValueError, match=r"^t must be a readable .* file\. Got a damaged or different one \(.*\)\.$"):
        read_table(path)


def test_missing_files_folders_and_permissions(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="must be an existing file. Got .*t.csv', which does not exist"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(FileNotFoundError, match="must be an existing file"):
        read_table("a\0b")
    with pytest.raises(IsADirectoryError, match="a folder must hold matrix.mtx or matrix.mtx.gz"):
        read_table(tmp_path)
    (tmp_path / "t.csv").write_text("gene,a\nx,1\n")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PermissionError, match="^the table must be readable. Got no permission to read '.*t.csv'.$"):
        read_table(tmp_path / "t.csv")


def test_memory_errors_become_a_sentence():
    with pytest.raises(ValueError, match="t.npy must fit into memory"), readable(Path("t.npy"), ".npy"):
        raise MemoryError


def test_series_matrix(tmp_path):
    path = tmp_path / "renamed.txt"
    path.write_bytes(SERIES_MATRIX)
    table = read_table(path, samples_in_rows=True)
    np.testing.assert_array_equal(table.X, [[1.5, 3, 2], [np.nan, 1, 5], [2, 0, 1]])
    assert table.gene_names == ("p1", "p2", "p3") and table.sample_names == ("a", "b", "c")
    assert table.checksum == f"sha256:{hashlib.sha256(SERIES_MATRIX).hexdigest()}"
    assert table.notes == ["renamed.txt says itself which way round it is: --samples-in-rows was not needed."]


def test_arrays(tmp_path, rng):
    values = rng.normal(size=(5, 3)).astype(np.float32)
    np.save(tmp_path / "t.npy", values)
    np.savez(tmp_path / "t.npz", values)
    for name in ("t.npy", "t.npz"):
        table = read_table(tmp_path / name)
        np.testing.assert_array_equal(table.X, values.T.astype(float))
        assert table.gene_names[-1] == "gene 5" and table.X.to_numpy().flags.writeable
        np.testing.assert_array_equal(read_table(tmp_path / name, samples_in_rows=True).X, values.astype(float))


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros(3), r"must hold a 2-D table with values. Got an array of shape \(3,\)"),
        (np.zeros((0, 3)), r"Got an array of shape \(0, 3\)"),
        (np.zeros((2, 2), complex), "must hold real numbers. Got dtype complex128"),
        (np.array([["a", "b"]]), "must hold real numbers. Got dtype <U1"),
        (np.array([[1, None]]), "must be a readable .npy file. Got .*Python objects"),
    ],
)
def test_arrays_that_are_no_table(tmp_path, array, sentence):
    np.save(tmp_path / "t.npy", array)
    with pytest.raises(ValueError, match=sentence):
        read_table(tmp_path / "t.npy")


@pytest.mark.parametrize("cut", [10, 60, 500])
def test_an_array_cut_short(tmp_path, cut):
    np.save(tmp_path / "t.npy", np.ones((100, 100)))
    whole = (tmp_path / "t.npy").read_bytes()
    # a size that no memory has
    (tmp_path / "t.npy").write_bytes(whole.replace(b"(100, 100)", b"(99999999999, 999)")[:cut])
    with pytest.raises(ValueError, match="must be a readable .npy file"):
        read_table(tmp_path / "t.npy")


def test_several_arrays_are_named(tmp_path):
    np.savez(tmp_path / "t.npz", counts=np.ones((2, 2)), logs=np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"t.npz must hold one array. Got 2 \('counts', 'logs'\); save one alone."):
        read_table(tmp_path / "t.npz")


def test_sparse_npz_stays_sparse(tmp_path, rng):
    matrix = sp.random_array((6, 4), density=0.5, rng=rng, format="csr")
    sp.save_npz(tmp_path / "t.npz", matrix)
    table = read_table(tmp_path / "t.npz")
    assert sp.issparse(table.X) and table.shape == (4, 6)
    np.testing.assert_array_equal(table.frame(), matrix.toarray().T)
    assert table.frame().columns.tolist() == list(table.gene_names)


@pytest.fixture
def tenx(tmp_path, rng):
    folder = tmp_path / "filtered"
    folder.mkdir()
    counts = rng.poisson(2.0, (5, 4))
    scipy.io.mmwrite(folder / "matrix.mtx", sp.coo_array(counts))
    (folder / "features.tsv").write_text("".join(f"ENSG0000000000{i}\tGENE{i}\tGene Expression\n" for i in range(5)))
    (folder / "barcodes.tsv").write_text("AACC-1\nCCGG-1\nGGTT-1\nTTAA-1\n")
    return folder, counts


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("prefix", ["", "GSM1_"])
def test_10x_folders(tenx, compressed, prefix):
    folder, counts = tenx
    for path in list(folder.iterdir()):
        content = path.read_bytes()
        path.unlink()
        (folder / f"{prefix}{path.name}{'.gz' if compressed else ''}").write_bytes(
            gzip.compress(content, mtime=0) if compressed else content
        )
    table = read_table(folder)
    assert sp.issparse(table.X) and table.notes == []
    np.testing.assert_array_equal(table.X.toarray(), counts.T)
    assert table.gene_names == tuple(f"GENE{i}" for i in range(5)) and table.sample_names[0] == "AACC-1"
    matrix = next(p for p in folder.iterdir() if "matrix" in p.name)
    assert read_table(matrix).gene_names == table.gene_names


def test_names_of_a_sparse_table_reach_the_results(tenx):
    model = NSFA(chains=1, tune=2, draws=2, random_state=0).fit(read_table(tenx[0]).X)
    assert model.posterior_.data.names == tuple(f"GENE{i}" for i in range(5))


def test_the_checksum_of_a_10x_folder_covers_its_names(tenx):
    folder, _ = tenx
    before = read_table(folder).checksum
    assert before == read_table(folder).checksum and before.startswith("sha256:")
    (folder / "barcodes.tsv").write_text("A-1\nC-1\nG-1\nT-1\n")
    assert read_table(folder).checksum != before


def test_10x_names_that_do_not_fit(tenx):
    folder, _ = tenx
    (folder / "barcodes.tsv").write_text("AACC-1\n")
    with pytest.raises(ValueError, match="barcodes.tsv must have a line for each of the 4 of matrix.mtx. Got 1"):
        read_table(folder)
    (folder / "other_matrix.mtx").write_text("x")
    with pytest.raises(ValueError, match="must hold one matrix.mtx. Got matrix.mtx, other_matrix.mtx; give the file"):
        read_table(folder)


def test_matrix_market_alone(tmp_path):
    path = tmp_path / "counts.mtx"
    path.write_text("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n")
    np.testing.assert_array_equal(read_table(path, samples_in_rows=True).X.toarray(), [[1, 3], [2, 4]])
    path.write_text("%%MatrixMarket matrix array real general\n200000 200000\n1\n2\n")
    with pytest.raises(ValueError, match="must hold as much as it says. Got a size of 200000 × 200000"):
        read_table(path)
    path.write_text("%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 1 1\n")
    with pytest.raises(ValueError, match="must hold real values. Got a complex matrix"):
        read_table(path)


@pytest.mark.parametrize("as_index", [True, False])
def test_parquet(tmp_path, as_index):
    frame = pd.DataFrame({"gene": ["x", "y"], "a": [1.5, np.nan], "b": [2, 3]})
    frame["c"] = pd.array([1, None], dtype="Int64")
    (frame.set_index("gene") if as_index else frame).to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(table.X, [[1.5, np.nan], [2, 3], [1, np.nan]])
    assert table.gene_names == ("x", "y") and table.sample_names == ("a", "b", "c")


def test_parquet_with_text_between_the_numbers(tmp_path):
    pd.DataFrame({"gene": ["x"], "a": [1.0], "what": ["kinase"]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="after the row names must hold numbers. Got .* in column 'what'; remove"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("sparse", [True, False])
def test_h5ad(tmp_path, sparse):
    anndata = pytest.importorskip("anndata")
    values = np.array([[1.0, 0, 2], [0, 3, 4]])
    adata = anndata.AnnData(sp.csr_matrix(values) if sparse else values)
    adata.obs_names, adata.var_names = ["s1", "s2"], ["x", "y", "z"]
    adata.layers["logs"] = values * 2
    adata.write_h5ad(tmp_path / "t.h5ad")
    table = read_table(tmp_path / "t.h5ad")
    assert sp.issparse(table.X) == sparse and table.notes == []
    np.testing.assert_array_equal(table.frame(), values)
    assert table.sample_names == ("s1", "s2") and table.gene_names == ("x", "y", "z")
    np.testing.assert_array_equal(read_table(tmp_path / "t.h5ad", layer="logs").X, values * 2)
    with pytest.raises(ValueError, match="must have the layer 'raw'. Got the layers: 'logs'."):
        read_table(tmp_path / "t.h5ad", layer="raw")


@pytest.mark.parametrize("title", ["gene_symbols", "Gene Symbol", "symbol", "feature_name", "gene_name", "hgnc_symbol"])
def test_h5ad_brings_annotations_and_symbols(tmp_path, title):
    anndata = pytest.importorskip("anndata")
    values = np.array([[1.5, 0, 2, 1], [np.nan] * 4, [0, 3, 4, 2]])
    obs = pd.DataFrame({"leiden": pd.Categorical(["0", "1", "1"]), "depth": [7.5, 2, 3]}, index=["s1", "s2", "s3"])
    var = pd.DataFrame({"chromosome": 1, title: ["TP53", "NA", None, "TP53"]}, index=["p1", "p2", "p3", "p4"])
    anndata.AnnData(values, obs=obs, var=var).write_h5ad(tmp_path / "t.h5ad")
    table = read_table(tmp_path / "t.h5ad", genes=["p1", "p2", "p3", "p4"])
    assert table.symbols == {"p1": "TP53", "p2": "p2", "p3": "p3", "p4": "TP53"}
    assert table.annotations.index.tolist() == ["s1", "s3"], "the sample without a value is left out"
    assert table.notes[:2] == [
        "Annotations of the samples (obs): 'leiden', 'depth'.",
        f"Symbols of the genes (var): {title!r}.",
    ]
    assert table.annotations["leiden"].tolist() == ["0", "1"] and table.annotations["depth"].tolist() == [7.5, 3]
    assert _words(pd.Series(["TP53", "NA", "nan", None])) == ["TP53", "", "", ""]
    same = pd.DataFrame({title: list("wxyz")}, index=list("wxyz"))
    anndata.AnnData(values, var=same).write_h5ad(tmp_path / "u.h5ad")
    plain = read_table(tmp_path / "u.h5ad")
    assert plain.symbols is None and plain.annotations is None


def test_layers_are_of_h5ad_files_only(tmp_path):
    (tmp_path / "t.csv").write_text("gene,a\nx,1\n")
    with pytest.raises(ValueError, match="layer applies to .h5ad files only. Got layer='raw' for t.csv"):
        read_table(tmp_path / "t.csv", layer="raw")


def test_h5ad_without_anndata_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "t.h5ad").write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r"Reading .h5ad needs AnnData: pip install 'nsfa\[anndata\]'"):
        read_table(tmp_path / "t.h5ad")


def test_parquet_is_opened_by_arrow_itself(tmp_path, monkeypatch):
    """A file of Python's in the hands of Arrow's threads can abort a process that is about to end."""
    from pyarrow import parquet

    given, real = [], parquet.read_table
    monkeypatch.setattr(parquet, "read_table", lambda source, **rest: (given.append(source), real(source, **rest))[1])
    pd.DataFrame({"a": [1.0, 2.0]}, index=["x", "y"]).to_parquet(tmp_path / "t.parquet")
    monkeypatch.chdir(tmp_path)
    assert read_table("t.parquet").shape == (1, 2)
    assert isinstance(given[0], str | os.PathLike)
