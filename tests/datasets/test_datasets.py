import numpy as np
import pytest

from nsfa.datasets import fetch_breast, fetch_ecoli, fetch_prostate, make_sparse_factors


@pytest.mark.parametrize("pattern", ["random", "overlapping", "regulon"])
def test_simulated_tables_have_the_promised_parts(pattern):
    data = make_sparse_factors(200, 60, 5, pattern=pattern, density=0.2, missing=0.1, random_state=0)
    assert data.X.shape == (200, 60) and data.loadings.shape == (60, 5) and data.scores.shape == (200, 5)
    np.testing.assert_array_equal(data.loadings != 0, data.active)
    assert data.active.any(axis=0).all()
    assert np.isnan(data.X).mean() == pytest.approx(0.1, abs=0.02)
    signal = data.scores @ data.loadings.T
    assert signal.var() / (data.X_complete - signal).var() == pytest.approx(10, rel=0.1)


def test_same_seed_same_table():
    a, b = (make_sparse_factors(random_state=3).X for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_a_given_pattern_is_kept():
    pattern = np.array([[1, 0], [0, -1], [1, 1]])
    np.testing.assert_array_equal(make_sparse_factors(5, pattern=pattern).active, pattern != 0)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_components": 0}, "n_components must be an int >= 1. Got 0"),
        ({"pattern": "stripes"}, "pattern must be one of 'random', 'overlapping', 'regulon'"),
        ({"pattern": np.ones(3)}, "2-D array"),
        ({"snr": 0}, "snr must be positive"),
        ({"missing": 1.0}, "missing in"),
    ],
)
def test_bad_settings_get_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_sparse_factors(**settings)


def test_real_tables(data_dir):
    ecoli = fetch_ecoli()
    assert ecoli.X.shape == (23, 100) and (ecoli.connectivity != 0).sum() == 140
    assert fetch_breast().X.shape == (251, 226)
    prostate = fetch_prostate()
    assert prostate.X.shape == (108, 12558)
    assert sorted(set(prostate.target)) == ["metastasis", "normal", "primary"]


def test_absent_data_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("NSFA_DATA_DIR", raising=False)
    with pytest.raises(FileNotFoundError, match="set NSFA_DATA_DIR"):
        fetch_breast()
    monkeypatch.setenv("NSFA_DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="must hold breast_226x251.csv.gz"):
        fetch_breast()
