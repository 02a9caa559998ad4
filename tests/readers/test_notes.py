"""Notes on tables that are probably not what the model expects: each where it belongs, and nowhere else."""

import numpy as np
import pytest
import scipy.sparse as sp

from nsfa.readers import notes, read_table
from nsfa.readers.notes import notes_on

N_SAMPLES, N_GENES = 12, 40
SAMPLES, GENES = [f"s{i}" for i in range(N_SAMPLES)], [f"g{i}" for i in range(N_GENES)]


@pytest.fixture
def logs(rng):
    return rng.normal(8, 2, (N_SAMPLES, N_GENES))


@pytest.fixture
def counted(rng):
    return rng.negative_binomial(1, 0.05, (N_SAMPLES, N_GENES)).astype(float)


def found(values, log2=False, genes=GENES):
    """The notes, the same for the table as a sparse one where it has no holes."""
    out = notes_on(values, SAMPLES, genes, log2)
    if not np.isnan(values).any():
        for form in (sp.csr_array, sp.csc_array):
            assert notes_on(form(values), SAMPLES, genes, log2) == out
    return out


def with_holes(values, rng):
    return np.where(rng.random(values.shape) < 0.2, np.nan, values)


def test_totals_of_counts_that_differ(counted):
    same = np.rint(counted / counted.sum(axis=1, keepdims=True) * 1e6)
    assert found(same, log2=True) == []
    (note,) = found(np.rint(same * np.linspace(1, 4, N_SAMPLES)[:, None]), log2=True)
    assert "1,1" in note and "divide each by its total" in note


def test_samples_and_genes_without_counts(counted, rng):
    counted[[2, 7]], counted[:, 5] = 0, 0
    for log2 in (False, True):
        notes = [text for text in found(counted, log2) if "no counts at all" in text]
        assert notes == [
            "2 sample(s) have no counts at all ('s2', 's7') and 1 gene(s) have no counts at all ('g5'): leave them out, "
            "since they say nothing about the factors."
        ]
    holes = np.where((rng.random(counted.shape) < 0.2) & (counted > 0), np.nan, counted)
    assert any("2 sample(s) have no counts at all" in text for text in found(holes))
    assert not any("no counts" in text for text in found(np.minimum(counted, 1)) + found(counted - 0.5))


def test_two_samples_are_few(logs):
    assert notes_on(logs[:5], SAMPLES[:5], GENES, False) == []
    (note,) = notes_on(logs[:3], SAMPLES[:3], GENES, False)
    assert "3 can show next to none" in note


def test_an_ordinary_table_has_no_notes(logs, rng):
    assert found(logs) == found(logs - 8) == found(with_holes(logs, rng)) == []
    assert found(2**logs, log2=True) == []
    assert found(np.maximum(logs - 8, 0)) == [], "values cut at zero"
    assert found(rng.integers(-2, 3, logs.shape).astype(float)) == [], "gains and losses are no counts"


def test_counts(counted, rng):
    (text,) = found(counted)
    assert text.startswith("The values are whole numbers, as counts are,") and "use --log2 (log2=True)" in text
    assert len(found(with_holes(counted, rng))) == 1
    assert found(counted, log2=True) == []
    counted[3, 7] += 0.5
    assert found(counted) == []


def test_negative_counts(counted):
    counted[2, 5], counted[4, 4] = -3, -1
    (text,) = found(counted)
    assert "but 2 of them are negative (down to -3)" in text and "write NA instead if they are missing" in text
    counted[4, 4] = 1
    (text,) = found(counted)
    assert "but one of them is negative (-3), as no count is: write NA instead if it is missing" in text


def test_zeros_and_ones(rng):
    values = (rng.random((N_SAMPLES, N_GENES)) < 0.3).astype(float)
    (text,) = found(values)
    assert text.startswith("The table holds only 0 and 1")


@pytest.mark.parametrize("value", [-999.0, 999.0, 0.0])
def test_values_that_stand_for_missing_ones(logs, value):
    logs = np.clip(logs, 6, 10) + 10
    logs[:3, 4] = value
    (text,) = found(logs)
    assert text.startswith(f"3 entries are {value:g}, apart from all others (16 to 20)") and "write NA" in text
    logs[0, 4] = 17.0
    assert found(logs) == [], "two are no habit"


def test_missing_counts_do_not_hide_that_they_are_counts(counted):
    counted[:2, 3:6] = -9
    first, second = found(counted)
    assert first.startswith("6 entries are -9, apart") and second.startswith("The values are whole numbers")


def test_logarithms_of_logarithms(logs):
    (text,) = found(np.abs(logs), log2=True)
    assert text.startswith("No value is larger than") and "leave out --log2" in text


def test_the_same_sample_twice(logs, rng):
    logs[3], logs[7], logs[8] = logs[1], logs[1], logs[2]
    (text,) = found(logs)
    assert text.startswith("3 sample(s) have exactly the values of another ('s3' is 's1', 's7' is 's1', 's8' is 's2')")
    holes = with_holes(logs, rng)
    holes[3] = holes[1]
    assert "1 sample(s)" in found(holes)[0] and "'s3' is 's1'" in found(holes)[0]


@pytest.mark.parametrize(
    "name", ["1-Mar", "2-Sep", "10-Dec", "Sep-02", "2021-03-01", "2021-03-01 00:00:00", "3/1/2021"]
)
def test_names_that_a_spreadsheet_made_dates_of(logs, name):
    (text,) = found(logs, genes=[name, *GENES[1:]])
    assert text.startswith("1 gene name(s) are dates") and f"'{name}'" in text


def test_names_of_genes_are_no_dates(logs):
    names = ["MARCHF1", "SEPT2", "DEC1", "HLA-A", "1-8", "NKX2-5", "Mar-x", "2-Sepx", "12345",
             "apr-1", "sep-1", "dec-11", "mar-10", "Sep-1"]  # fmt: skip
    assert found(logs, genes=[*names, *GENES[len(names) :]]) == []


def test_few_values_say_nothing(counted):
    assert found(counted[:, :5], genes=GENES[:5]) == []


def test_a_large_table_is_looked_at_in_part(counted, monkeypatch):
    monkeypatch.setattr(notes, "_MOST", 200)
    assert len(notes.look(counted).values) < 200 and len(found(counted)) == 1
    counted[:6, :6] = -9
    assert "about 36 entries are -9" in notes_on(counted, SAMPLES, GENES, False)[0]
    sparse = notes.look(sp.csr_array(counted))
    assert len(sparse.values) <= 200 and sparse.zeros > 0


def test_sparse_tables_stay_sparse(counted, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("made dense")

    for form in (sp.csr_array, sp.csc_array):
        table = form(counted)
        monkeypatch.setattr(form, "toarray", refuse)
        assert len(notes_on(table, SAMPLES, GENES, False)) == 1


def test_heavy_tails(rng):
    normal, heavy = rng.normal(size=(50, 80)), rng.standard_t(4, size=(50, 80))
    for plain in (normal, normal[:20], with_holes(normal, rng), normal @ rng.normal(size=(80, 80)), heavy[:19]):
        assert notes.tails(plain) is None
    for form in (heavy, with_holes(heavy, rng), 1e-6 * heavy + 7):
        text = notes.tails(form)
        assert "more than 4 deviations from their gene's median" in text and "--noise robust (noise='robust')" in text
    heavy[0, 3] = np.nan
    heavy[:, 7] = np.nan
    heavy[:, 9] = 2.0
    assert notes.tails(heavy) is not None, "a gene without values or with a single one has no say"
    assert notes.tails(sp.csr_array(normal)) is None is notes.tails(np.rint(30 * np.exp(normal)))
    assert notes.tails(np.where(rng.random(normal.shape) < 0.7, 0, normal)) is None, "many zeros hide the tails"


def test_tails_are_of_what_is_fitted(tmp_path, rng):
    np.save(tmp_path / "t.npy", 2 ** rng.normal(8, 2, size=(60, 40)))
    assert "--noise robust" in read_table(tmp_path / "t.npy").notes[-1]
    assert not any("--noise robust" in text for text in read_table(tmp_path / "t.npy", log2=True).notes)


def test_the_notes_reach_the_table(tmp_path, counted):
    np.save(tmp_path / "t.npy", counted.T)
    assert "as counts are" in read_table(tmp_path / "t.npy").notes[0]
    assert read_table(tmp_path / "t.npy", log2=True).notes == []
