import gzip

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
    np.testing.assert_allclose(data.noise_variance, signal.var() / 10)


def test_same_seed_same_table():
    a, b = (make_sparse_factors(random_state=3).X for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_a_given_pattern_is_kept():
    pattern = np.array([[1, 0], [0, -1], [1, 1]])
    np.testing.assert_array_equal(make_sparse_factors(5, pattern=pattern).active, pattern != 0)


@pytest.mark.parametrize("pattern", ["random", "overlapping", "regulon"])
@pytest.mark.parametrize(("n_features", "n_components"), [(3, 20), (1, 1), (1, 4), (5, 1)])
def test_every_factor_has_a_feature_even_when_there_are_few(pattern, n_features, n_components):
    data = make_sparse_factors(4, n_features, n_components, pattern=pattern, density=0.01, random_state=0)
    assert data.active.shape == (n_features, n_components) and data.active.any(axis=0).all()
    assert np.isfinite(data.X).all() and (data.noise_variance > 0).all()


def test_overlapping_blocks_share_half_of_their_features():
    active = make_sparse_factors(5, 60, 5, pattern="overlapping", random_state=0).active
    np.testing.assert_array_equal(active.sum(axis=0), 20)
    np.testing.assert_array_equal(
        active.T.astype(int) @ active, 20 * np.eye(5) + 10 * (np.eye(5, k=1) + np.eye(5, k=-1))
    )


def test_regulons_are_scale_free():
    active = make_sparse_factors(2, 20000, 8, pattern="regulon", density=0.1, random_state=0).active
    size = active.sum(axis=0)
    np.testing.assert_allclose(size[0] / size, np.arange(1, 9), rtol=0.1)
    assert active.mean() == pytest.approx(0.1, rel=0.05)


def test_a_table_without_variance_still_has_noise():
    assert make_sparse_factors(1, 1, 1, random_state=0).noise_variance == 1.0
    none = make_sparse_factors(50, pattern=np.zeros((4, 2)), random_state=0)
    assert none.X.var() == pytest.approx(1.0, rel=0.3) and not none.loadings.any()


def test_infinite_snr_is_free_of_noise():
    data = make_sparse_factors(6, 5, 2, snr=np.inf, random_state=0)
    np.testing.assert_allclose(data.X, data.scores @ data.loadings.T)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_components": 0}, "n_components must be an int >= 1. Got 0"),
        ({"n_samples": 2.5}, "n_samples must be an int >= 1. Got 2.5"),
        ({"pattern": "stripes"}, "pattern must be one of 'random', 'overlapping', 'regulon'"),
        ({"pattern": np.ones(3)}, "2-D array"),
        ({"pattern": np.ones((0, 2))}, "2-D array"),
        ({"snr": 0}, "snr must be positive"),
        ({"snr": np.nan}, "snr must be positive"),
        ({"missing": 1.0}, "missing in"),
        ({"density": 0.0}, "density in"),
    ],
)
def test_bad_settings_get_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_sparse_factors(**settings)


def test_real_tables(data_dir):
    ecoli = fetch_ecoli()
    assert ecoli.X.shape == (23, 100) and (ecoli.connectivity != 0).sum() == 140
    assert ecoli.feature_names[0] == "aceB" and ecoli.regulator_names[0] == "ArcA"
    assert fetch_breast().X.shape == (251, 226)
    prostate = fetch_prostate()
    assert prostate.X.shape == (108, 12558)
    assert np.unique(prostate.target, return_counts=True)[1].tolist() == [25, 18, 65]
    assert len(set(prostate.feature_names)) == 12558


def test_a_data_directory_without_the_file_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("NSFA_DATA_DIR", str(tmp_path))
    for fetch, name in ((fetch_breast, "breast_226x251.csv.gz"), (fetch_ecoli, "ecoli_expression.csv")):
        with pytest.raises(FileNotFoundError, match=f"must hold {name}"):
            fetch()


def test_gene_names_are_text(monkeypatch, tmp_path):
    (tmp_path / "breast_226x251.csv.gz").write_bytes(gzip.compress(b"gene,s1,s2\nNA,0.1,2\n007,3,4e-3\n"))
    monkeypatch.setenv("NSFA_DATA_DIR", str(tmp_path))
    data = fetch_breast()
    assert data.feature_names == ["NA", "007"] and data.sample_names == ["s1", "s2"]
    np.testing.assert_array_equal(data.X, [[0.1, 3.0], [2.0, 0.004]])
