"""Other people's methods on a table with planted factors."""

import numpy as np
import pytest

from nsfa.datasets import make_sparse_factors
from nsfa.experiments import peers
from nsfa.filling import log_density
from nsfa.metrics import reconstruction_error

NAMES = list(peers.PEERS)


@pytest.fixture(scope="module")
def data():
    return make_sparse_factors(80, 30, 3, density=0.4, snr=10, missing=0.1, random_state=0)


@pytest.mark.parametrize("name", NAMES)
def test_hidden_entries_are_predicted_with_honest_variances(data, name):
    pytest.importorskip(peers.PEERS[name].module)
    found = peers.predict(name, 5.0 * data.X + 7.0, 3, 0)
    where, truth = np.isnan(data.X), 5.0 * data.X_complete + 7.0
    error = (truth - found.mean)[where]
    assert error.var() < 0.4 * truth[where].var()
    # standardised errors have about unit size
    assert 0.5 < np.mean(error**2 / found.variance[where]) < 2.0
    naive = -0.5 * (np.log(2 * np.pi * truth.var(axis=0)) + (truth - truth.mean(axis=0)) ** 2 / truth.var(axis=0))
    assert log_density(found.mean[where], found.variance[where], truth[where]).mean() > naive[where].mean() + 0.3


@pytest.mark.parametrize("name", [name for name in NAMES if name != "soft-impute"])
def test_loadings_are_for_scores_of_unit_variance(data, name):
    pytest.importorskip(peers.PEERS[name].module)
    loadings = peers.predict(name, data.X_complete, 3, 0).loadings
    assert loadings.shape == data.loadings.shape
    explained = (loadings**2).sum() / ((data.X_complete.var(axis=0)).sum())
    assert 0.6 < explained < 1.1
    assert reconstruction_error(data.loadings, loadings) < np.mean(data.loadings**2)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6)])
def test_shrinking_lowers_singular_values(rng, shape):
    table = rng.normal(size=shape)
    before, after = (np.linalg.svd(x, compute_uv=False) for x in (table, peers._shrink(table, 1.5)))
    np.testing.assert_allclose(after, np.maximum(before - 1.5, 0.0), atol=1e-7)
