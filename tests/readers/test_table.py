import hashlib

import numpy as np
import pytest
import scipy.sparse as sp

from nsfa import NSFA
from nsfa.readers import filters, read_annotations, read_gene_names, read_genes, read_table
from nsfa.readers.names import complete, doubts
from nsfa.readers.sheet import Sheet

TABLE = "gene,a,b,c\nflat,1,1,1\nlow,1,2,1\nhigh,0,15,3\nmid,0,NA,7\n"


@pytest.fixture
def write(tmp_path):
    def write(content, name="t.csv"):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return write


def test_orientation_and_checksum(write):
    path = write(TABLE)
    table = read_table(str(path))
    assert table.shape == (3, 4) and table.gene_names == ("flat", "low", "high", "mid")
    assert table.checksum == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    turned = read_table(path, samples_in_rows=True)
    assert turned.X.equals(table.X.T) and turned.frame() is turned.X


def test_the_result_can_be_fitted(write):
    model = NSFA(chains=1, tune=2, draws=2, random_state=0).fit(
        read_table(write(TABLE), genes=["low", "high", "mid"]).X
    )
    assert model.feature_names_in_.tolist() == ["low", "high", "mid"]


def test_filters(write):
    path = write(TABLE)
    assert read_table(path, min_variance=0.1).gene_names == ("low", "high", "mid")
    assert read_table(path, top_genes=2).gene_names == ("high", "mid")
    assert read_table(path, top_genes=99).gene_names == read_table(path).gene_names
    listed = read_table(path, genes=write("# mine\nmid\nflat\nnowhere\nmid\n", "genes.txt"))
    assert listed.gene_names == ("flat", "mid")
    assert listed.notes == ["1 gene(s) of the list are not in the table: 'nowhere'."]
    logs = read_table(path, log2=True, top_genes=2).X
    np.testing.assert_allclose(logs["high"], [0, 4, 2])
    np.testing.assert_allclose(logs["mid"], [0, np.nan, 3])


def test_filters_of_sparse_tables_agree_with_dense_ones(tmp_path, rng):
    values = rng.poisson(1.0, (30, 8)).astype(float)
    np.save(tmp_path / "dense.npy", values)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_array(values))
    options = {"log2": True, "min_variance": 0.2, "top_genes": 5}
    dense, sparse = read_table(tmp_path / "dense.npy", **options), read_table(tmp_path / "sparse.npz", **options)
    assert dense.gene_names == sparse.gene_names and len(dense.gene_names) == 5
    np.testing.assert_allclose(sparse.X.toarray(), dense.X)
    np.testing.assert_allclose(filters.variances(sp.csr_array(values)), values.var(axis=0))


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        (TABLE, {"top_genes": 1}, "top_genes must be an int >= 2. Got 1."),
        (TABLE, {"min_variance": -1}, "min_variance must be a number >= 0. Got -1."),
        (TABLE, {"min_variance": float("nan")}, "min_variance must be a number >= 0. Got nan."),
        (TABLE, {"min_variance": 30}, "min_variance must leave at least 2 genes. Got 30, which leaves 1; the largest variance is 42."),
        (TABLE, {"genes": ["x", "y"]}, "Got none of it: the list has 'x', 'y', the table 'flat', 'low', 'high' and 1 more."),
        ("gene,a,b\nx,1,2\ny,-1,3\n", {"log2": True}, "log2(x + 1) must be of values >= 0. Got -1 for gene 'y', sample 'a'; leave out log2"),
    ],
)  # fmt: skip
def test_filters_that_cannot_be(write, content, options, sentence):
    with pytest.raises(ValueError) as caught:
        read_table(write(content), **options)
    assert sentence in str(caught.value)


def test_negative_values_of_a_sparse_table_are_found(tmp_path):
    sp.save_npz(tmp_path / "t.npz", sp.csr_array(np.array([[0, 1.0], [2, 0], [0, -3]])))
    with pytest.raises(ValueError, match="Got -3 for gene 'gene 3', sample 'sample 2'"):
        read_table(tmp_path / "t.npz", log2=True)


def test_an_infinite_value_survives_the_filters_to_be_named(write):
    table = read_table(write("gene,a,b\nx,1,inf\ny,1,2\nz,1,9\n"), top_genes=2)
    assert table.gene_names == ("x", "z")
    with pytest.raises(ValueError, match="Got inf at sample 1, feature 'x'"):
        NSFA().fit(table.X)


def test_empty_genes_and_samples_are_left_out_with_a_note(write):
    table = read_table(write("gene,a,b,c\nx,1,NA,2\ny,,,\nz,3,,4\n"))
    np.testing.assert_array_equal(table.X, [[1, 3], [2, 4]])
    assert table.sample_names == ("a", "c") and table.gene_names == ("x", "z")
    assert table.notes == [
        "1 sample(s) without any value were left out: 'b'.",
        "1 gene(s) without any value were left out: 'y'.",
    ]


def test_repeated_and_blank_names(write):
    table = read_table(write("gene,a,a,\nx,1,2,3\nx,4,5,6\nx.1,7,8,9\nx,1,0,1\n"))
    assert table.sample_names == ("a", "a.1", "sample 3") and table.gene_names == ("x", "x.2", "x.1", "x.3")
    assert table.notes == [
        "1 sample(s) without a name were numbered: 'sample 3'.",
        "1 sample name(s) occur more than once and were made unique (x, x.1, …): 'a'.",
        "1 gene name(s) occur more than once and were made unique (x, x.1, …): 'x'.",
    ]


def test_names_are_always_different(rng):
    names = [f"x{'.1' * int(rng.integers(3))}" for _ in range(50)] + ["", "gene 51", ""]
    out, notes = complete(names, len(names), "gene")
    assert len(set(out)) == len(out) and len(notes) == 2 and out[0] == names[0]


GENES, SAMPLES = ["TP53", "GAPDH", "RPL3", "XIST"], ["GSM1", "GSM2", "GSM3", "GSM4"]


@pytest.mark.parametrize(
    ("rows", "columns", "shape", "in_rows", "words"),
    [
        (GENES, SAMPLES, (4, 4), False, None),
        (SAMPLES, GENES, (4, 4), True, None),
        (SAMPLES, GENES, (4, 4), False, "columns have names of genes, but it was read as 4 genes of 4 samples; use --samples-in-rows"),
        (GENES, ["a", "b"], (4, 2), True, "rows have names of genes, but it was read as 2 genes of 4 samples; leave out"),
        (SAMPLES, ["p", "q"], (4, 2), False, "rows have names of samples, but"),
        (["a", "b"], ["ENSG00000141510.3", "ENSMUSG00000059552"], (2, 2), False, "columns have names of genes"),
        (None, None, (40, 20_000), False, "The table has 40 rows and 20000 columns: it was read as 40 genes of 20000 samples; use"),
        (None, None, (20_000, 40), False, None),
        (None, None, (20_000, 40), True, "The table has 20000 rows and 40 columns: it was read as 40 genes of 20000 samples; leave"),
        (None, None, (40, 120), False, "Neither names nor shape tell whether the table's rows are genes: it was read as 40 genes of 120 samples; use --samples-in-rows"),
        (None, None, (40, 120), True, None),
        (None, None, (40, 13), False, None),
        (None, [f"sample_{i}" for i in range(30)], (40, 30), False, None),
        ([f"gene{i}" for i in range(40)], None, (40, 30), False, None),
        (GENES, None, (4, 500), False, None),
        (["x", "y"], ["u", "v"], (2, 2), False, None),
    ],
)  # fmt: skip
def test_a_wrong_orientation_is_noticed(rows, columns, shape, in_rows, words):
    notes = doubts(Sheet(np.zeros(shape), rows, columns), in_rows)
    assert (notes == []) if words is None else (len(notes) == 1 and words in notes[0])


@pytest.mark.parametrize(
    ("corner", "in_rows", "noticed"),
    [
        ("sample", False, True),
        ("gene", True, True),
        ("Patient ID", False, True),
        ("gene", False, False),
        ("", True, False),
    ],
)
def test_the_word_above_the_row_names_is_read(write, corner, in_rows, noticed):
    table = read_table(write(f"{corner},u,v\np,1,2\nq,3,4\n"), samples_in_rows=in_rows)
    assert any("stand under" in text for text in table.notes) == noticed


def test_filters_say_what_they_keep(write):
    path = write("gene,a,b,c\nw,1,2,9\nx,1,2,3\ny,1,1,1\n")
    assert any("2 of 3 genes" in text for text in read_table(path, min_variance=0.1).notes)
    assert any("only 3 genes" in text for text in read_table(path, top_genes=50).notes)


def test_the_orientation_note_reaches_the_table(write):
    table = read_table(write("sample,TP53,GAPDH\nGSM1,1,2\nGSM2,3,4\n"))
    assert len(table.notes) == 1 and "--samples-in-rows (samples_in_rows=True)" in table.notes[0]
    assert table.gene_names == ("GSM1", "GSM2"), "never turned silently"


def test_gene_lists(write, tmp_path):
    assert read_genes(write("﻿TP53\r\n\r\nMYC\r\nTP53\r\n", "g.txt")) == ["TP53", "MYC"]
    assert read_genes(write("TP53\ttumour protein\nMYC\tx\n", "g.tsv")) == ["TP53", "MYC"]
    with pytest.raises(ValueError, match="g.txt must hold names of genes, one per line. Got none."):
        read_genes(write("# nothing\n", "g.txt"))
    with pytest.raises(ValueError, match="the list of genes must not be empty. Got g.txt without a line."):
        read_genes(write("\n", "g.txt"))
    with pytest.raises(OSError, match="the list of genes must be a readable file. Got '.*': No such file"):
        read_genes(tmp_path / "none.txt")


def test_annotations_in_the_order_of_the_samples(write):
    path = write("class,sample,age\ntumour,s2,61\nnormal,s1,NA\nnormal,s9,3\n", "labels.csv")
    frame = read_annotations(path, ["s1", "s2", "s3"])
    assert frame.index.tolist() == ["s1", "s2", "s3"] and frame.columns.tolist() == ["class", "age"]
    assert frame["class"].tolist()[:2] == ["normal", "tumour"] and frame["class"].isna().tolist() == [
        False,
        False,
        True,
    ]
    np.testing.assert_array_equal(frame["age"], [np.nan, 61, np.nan])
    assert frame.attrs["notes"] == ["1 sample(s) are not in labels.csv: 's3'."]
    assert read_annotations(write('"class"\n"s1" "x"\n'.replace(" ", "\t"), "r.tsv"), ["s1"])["class"].tolist() == ["x"]


def test_annotations_of_one_name_are_all_kept(write):
    frame = read_annotations(write("sample,age,site,age\ns1,61,x,3\ns2,40,y,5\n", "l.csv"), ["s1", "s2"])
    assert frame.columns.tolist() == ["age", "site", "age.1"]
    assert frame["age"].tolist() == [61, 40] and frame["age.1"].tolist() == [3, 5]
    (note,) = frame.attrs["notes"]
    assert note == "1 annotation name(s) occur more than once and were made unique (x, x.1, …): 'age'."


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("sample,class\nother,x\n", "must have a column with the samples' names. Got none of them: its first column has 'other', the samples are 's1', 's2'."),
        ("sample,class\n", "its first column has no rows"),
        ("sample,class\ns1,x\ns1,y\n", "must have one row per sample. Got 's1' 2 times."),
        ("sample,class\ns1,x\ns1 ,y\n", "must have one row per sample. Got 's1' 2 times."),
        ("sample,class\ns1,x\ns2\n", "every row of l.csv must have 2 fields, as its header. Got 1 in row 's2'."),
        ("", "the file of annotations must not be empty"),
    ],
)  # fmt: skip
def test_annotations_that_do_not_fit(write, content, sentence):
    with pytest.raises(ValueError) as caught:
        read_annotations(write(content, "l.csv"), ["s1", "s2"])
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("content", "symbols"),
    [
        ("id,symbol\np1,TP53\np2,MYC\np9,GAPDH\n", ["TP53", "MYC", "p3"]),
        ("p1\tTP53\np3\t\np2\tMYC\n", ["TP53", "MYC", "p3"]),
        ("symbol;chromosome;probe\nTP53;17;p1\nMYC;8;p2\nEGFR;7;p3\nKRAS;12;p3\n", ["TP53", "MYC", "EGFR"]),
        ("probe,chromosome,Gene Symbol\np1,17,TP53\np2,8,MYC\n", ["TP53", "MYC", "p3"]),
        ('"","symbol"\n"p1","TP53"\n"p2","na"\n"p3",NA\n', ["TP53", "na", "p3"]),
        ("id,symbol\np1,TP53\np2,MYC\np3, nan\n", ["TP53", "MYC", "p3"]),
        ("symbol\tchromosome\np1\tTP53\t17\np2\tMYC\t8\n", ["TP53", "MYC", "p3"]),
    ],
)
def test_symbols_of_the_genes(write, content, symbols):
    found, notes = read_gene_names(write(content, "n.csv"), ["p1", "p2", "p3"])
    assert list(found) == ["p1", "p2", "p3"] and list(found.values()) == symbols
    assert notes == (["1 gene(s) have no symbol in n.csv: 'p3'."] if symbols[2] == "p3" else [])


def test_versions_of_ensembl_ids_need_not_agree(write):
    path = write("ENSG00000141510.12,TP53\nENSG00000136997,MYC\n", "n.csv")
    genes = ["ENSG00000141510.3", "ENSG00000136997.1"]
    assert read_gene_names(path, genes)[0] == dict(zip(genes, ["TP53", "MYC"], strict=True))


def test_symbols_that_do_not_fit(write):
    with pytest.raises(ValueError, match="must have a column with the table's genes. Got none of them: .* 'x1', the"):
        read_gene_names(write("id,symbol\nx1,TP53\n", "n.csv"), ["p1"])
    with pytest.raises(ValueError, match="must have two columns, ids and symbols. Got a row of one: 'p1'."):
        read_gene_names(write("p1\np2\n", "n.csv"), ["p1"])
    short = "probe,chromosome,symbol\np1,17,TP53\np2,8\n"
    with pytest.raises(ValueError, match="every row of n.csv must have 3 fields, as its header. Got 2 in row 'p2'."):
        read_gene_names(write(short, "n.csv"), ["p1", "p2"])


def test_the_papers_tables(data_dir):
    table = read_table(data_dir / "prostate_yu_12558x108.csv.gz", top_genes=100)
    assert table.shape == (108, 100)
    # what varies most there has heavy tails
    assert [text.split(":")[1].split(",")[0] for text in table.notes] == [" try --noise robust (noise='robust')"]
    labels = read_annotations(data_dir / "prostate_yu_labels.csv", table.sample_names)
    assert labels["class"].value_counts().to_dict() == {"primary": 65, "metastasis": 25, "normal": 18}
    assert read_table(data_dir / "ecoli_expression.csv").shape == (23, 100)
