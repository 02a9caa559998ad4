"""``nsfa transform``."""

import numpy as np
import pandas as pd
import pytest

import nsfa
from command import TINY, read_json, run


@pytest.fixture
def new(finished):
    """The fitted table (samples × genes), to make new ones of."""
    return pd.read_csv(finished.parent / "table.csv", index_col=0).T


def write(frame, path):
    frame.T.to_csv(path, index_label="gene")
    return path


def test_old_samples_get_their_scores_and_deviations(finished, new, tmp_path):
    out = tmp_path / "deep" / "scores.csv"
    said = run("transform", finished, finished.parent / "table.csv", "-o", out)
    found = pd.read_csv(out, index_col="sample")
    scores = pd.read_csv(finished / "scores.csv", index_col="sample")
    assert scores.shape[1] > 0
    pd.testing.assert_frame_equal(found[list(scores)], scores, rtol=1e-4, atol=1e-5)
    deviation = nsfa.load(finished / "draws").consensus().scores_std
    assert list(found) == [*scores, *(f"{name}_std" for name in scores)]
    np.testing.assert_allclose(found.filter(like="_std"), deviation, rtol=1e-3)
    assert f"15 samples on {scores.shape[1]} factors, by 12 of the run's 12 genes: {out}" in said.stdout
    assert said.stderr == ""


def test_genes_are_matched_by_name(finished, new, tmp_path):
    """One sample, genes shuffled, two of them gone and one that the run does not know; samples in rows."""
    new = new.iloc[:1].fillna(0.5)
    genes = ["gene7", "other", *(f"gene{d}" for d in range(2, 12) if d != 7)]
    table = tmp_path / "new.csv"
    new.assign(other=1e6)[genes].to_csv(table, index_label="sample")
    said = run("transform", finished, table, "-o", tmp_path / "s.csv", "--samples-in-rows", "--json")
    assert "2 of the 12 features of the fit are not in X and count as missing: 'gene0', 'gene1'." in said.stderr
    assert "1 of the 11 features of X are unknown to the fit and ignored: 'other'." in said.stderr
    found = read_json(said)
    assert (found["samples"], found["genes_in_common"], found["genes_of_the_run"]) == (1, 10, 12)
    expected = nsfa.load(finished / "draws").transform(new.assign(gene0=np.nan, gene1=np.nan))
    scores = pd.read_csv(tmp_path / "s.csv", index_col="sample")
    assert list(scores.index) == ["sample0"]
    np.testing.assert_allclose(scores.iloc[:, : found["factors"]], expected, rtol=1e-4, atol=1e-5)


def test_other_units_are_told(finished, new, tmp_path):
    table = write(2.0 ** new.abs() - 1, tmp_path / "new.csv")
    said = run("transform", finished, table, "-o", tmp_path / "s.csv", "--log2")
    assert "was read without and this one with --log2" in said.stderr
    expected = np.hstack(nsfa.load(finished / "draws").transform(new.abs(), return_std=True))
    np.testing.assert_allclose(pd.read_csv(tmp_path / "s.csv", index_col=0), expected, rtol=1e-4, atol=1e-5)
    assert run("transform", finished, table, "-o", tmp_path / "t.csv", "--log2", "--quiet").output == ""


def test_nothing_is_overwritten(finished, tmp_path):
    table, out = finished.parent / "table.csv", tmp_path / "scores.csv"
    out.write_text("mine")
    assert "--force" in run("transform", finished, table, "-o", out, code=1).stderr
    assert out.read_text() == "mine"
    assert "name a file in it" in run("transform", finished, table, "-o", tmp_path, "--force", code=1).stderr
    run("transform", finished, table, "-o", out, "--force")
    assert out.read_text().startswith("sample,factor_0")


def test_what_cannot_be_is_a_sentence(finished, new, tmp_path):
    out = tmp_path / "s.csv"
    assert "nsfa fit" in run("transform", tmp_path, finished.parent / "table.csv", "-o", out, code=1).stderr
    other = write(new.add_prefix("x"), tmp_path / "new.csv")
    assert "features in common" in run("transform", finished, other, "-o", out, code=1).stderr
    assert not out.exists()


def test_a_run_without_factors(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 6)), index=[f"s{n}" for n in range(30)], columns=list("abcdef"))
    table = write(frame, tmp_path / "noise.csv")
    run("fit", table, "-o", tmp_path / "out", *TINY, "--concentration", "0.001", "--no-report")
    said = run("transform", tmp_path / "out", table, "-o", tmp_path / "s.csv")
    assert "The fit has no factors" in said.stderr and "30 samples on 0 factors" in said.stdout
    assert pd.read_csv(tmp_path / "s.csv").shape == (30, 1)
