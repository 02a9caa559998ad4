"""Scores on a device are those of the CPU, but for rounding."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from nsfa import AFA, NSFA, SFA
from nsfa.datasets import make_sparse_factors
from nsfa.gpu_samples import DeviceTable
from nsfa.kernels import device
from nsfa.posterior import on_device

HOW = {"chains": 2, "tune": 300, "draws": 80, "thin": 1, "random_state": 1, "preview": True}


@pytest.fixture
def there(host_device, monkeypatch):
    """A device for whoever looks for one."""
    monkeypatch.setattr(device, "gpu_missing", lambda: None)
    monkeypatch.setattr(device, "CupyDevice", lambda: host_device)
    monkeypatch.setattr(on_device, "WORTH_GPU", 100)
    return host_device


@pytest.fixture
def passes(monkeypatch):
    """How often a device was asked."""
    asked, moments = [], DeviceTable.score_moments
    monkeypatch.setattr(DeviceTable, "score_moments", lambda *given: (asked.append(given[1]), moments(*given))[1])
    return asked


@pytest.mark.parametrize("kind", ["dense", "sparse", "single", "turned"])
def test_scores_of_the_fit_and_of_new_samples(kind, there, passes):
    X = make_sparse_factors(60, 20, 3, density=0.4, snr=5, random_state=0).X
    X = sp.csr_array(np.where(np.abs(X) > 0.3, X, 0.0)) if kind == "sparse" else X
    # dense patterns are turned to agree
    model = AFA(3, **HOW) if kind == "turned" else SFA(3, dtype="float32" if kind == "single" else "float64", **HOW)
    cpu = model.fit(X).posterior_
    gpu = replace(cpu, backend_="gpu")
    assert cpu.n_components_ == 3 and not passes
    tolerance = {"atol": 1e-5 if kind == "single" else 1e-9}
    for name in ("scores", "scores_std"):
        np.testing.assert_allclose(getattr(gpu.consensus(), name), getattr(cpu.consensus(), name), **tolerance)
    n_draws = len(cpu.draws)
    assert len(passes) == n_draws > 2
    for one, other in zip(gpu.transform(X[:25], return_std=True), cpu.transform(X[:25], return_std=True), strict=True):
        np.testing.assert_allclose(one, other, **tolerance)
    assert len(passes) == 2 * n_draws and not there._pinned


def test_what_cannot_be_there_is_here(there, passes, monkeypatch):
    """Missing entries, small tables, and a device that has no room."""
    X = make_sparse_factors(60, 20, 3, density=0.4, snr=5, random_state=0).X
    posterior = replace(SFA(3, **HOW).fit(X).posterior_, backend_="gpu")
    expected = replace(posterior, backend_="cpu").consensus().scores
    monkeypatch.setattr(there, "free_bytes", 100)
    np.testing.assert_array_equal(posterior.consensus().scores, expected)
    monkeypatch.setattr(there, "free_bytes", 1 << 30)
    holes = X[:30].copy()
    holes[3, 4] = np.nan
    assert posterior.transform(holes).shape == (30, 3) and not passes
    monkeypatch.setattr(on_device, "WORTH_GPU", 10_000)
    assert posterior.transform(X).shape == (60, 3) and not passes
    monkeypatch.setattr(on_device, "WORTH_GPU", 100)
    assert posterior.transform(X).shape == (60, 3) and passes


def test_a_fit_without_factors_has_no_scores_there_either(there, passes, capfd):
    X = np.random.default_rng(0).standard_normal((60, 20))
    posterior = replace(NSFA(**{**HOW, "tune": 100}).fit(X).posterior_, backend_="gpu")
    assert any(draw.n_factors == 0 for draw in posterior.draws)
    assert posterior.consensus().scores.shape == (60, 0)
    assert all(loadings.shape[1] for loadings in passes) and "DTRTRI" not in capfd.readouterr().err
