import numpy as np
import pytest

from cases import case
from nsfa import draw as module
from nsfa.draw import record


@pytest.mark.parametrize("name", ["nsfa", "fa", "bfrm"])
@pytest.mark.parametrize("size", ["small", "large", "huge"])
def test_a_draw_gives_back_the_state(name, size, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 50_000 if size == "small" else 0)
    monkeypatch.setattr(module, "HUGE", 0 if size == "huge" else 200_000)
    state, samples, _ = case(name, n_features=30)
    draw = record(state, {"extra": 1.0}, samples.recorded()[1])
    np.testing.assert_array_equal(draw.active(), state.active)
    tolerance = np.abs(state.loadings).max() / {"small": 1e6, "large": 32_000, "huge": 120}[size]
    np.testing.assert_array_equal(draw.loadings() != 0, state.active)
    np.testing.assert_allclose(draw.loadings(), state.loadings, atol=tolerance)
    assert draw.n_active == state.active.sum()
    assert draw.scalars["extra"] == 1.0 and draw.scalars["n_factors"] == state.n_factors
    assert (draw.scores is not None) == (name == "bfrm")
    if name == "bfrm":
        np.testing.assert_array_equal(draw.scores, samples.scores.astype(np.float32))


@pytest.mark.parametrize("name", ["nsfa", "fa"])
def test_a_draw_counts_shared_and_substantial_factors(name):
    state, _, _ = case(name, n_features=30)
    draw = record(state, {}, {})
    usage = state.active.sum(axis=0)
    np.testing.assert_array_equal(draw.usage(), usage)
    assert draw.scalars["n_shared"] == np.count_nonzero(usage >= 2)
    assert draw.scalars["n_substantial"] == np.count_nonzero(usage >= 5)
    if name == "nsfa":
        assert 0 < draw.scalars["n_substantial"] < draw.n_factors, "the case tells them apart"


def test_only_active_loadings_take_room():
    state, _, _ = case(n_features=200, concentration=0.5)
    draw = record(state, {}, {})
    assert draw.value.nbytes == 4 * state.active.sum()
    assert draw.pattern.nbytes == -(-state.active.size // 8)


def test_an_empty_model_is_a_draw():
    state, _, _ = case()
    state.drop(np.arange(state.n_factors))
    assert record(state, {}, {}).loadings().shape == (9, 0)


def test_a_draw_keeps_the_norm_and_some_entries_of_the_covariance(monkeypatch):
    state, _, _ = case(n_features=30)
    covariance = state.loadings @ state.loadings.T
    scalars = record(state, {}, {}).scalars
    assert scalars["covariance_norm"] == pytest.approx(np.linalg.norm(covariance))
    pairs = module.feature_pairs(30)
    assert (pairs[:, 0] != pairs[:, 1]).all() and pairs.max() < 30
    assert [scalars[name] for name in module.COVARIANCES] == pytest.approx(covariance[pairs[:, 0], pairs[:, 1]])
    monkeypatch.setattr(module, "_MOST_FEATURES", 10)
    every_third = np.linalg.norm(covariance[::3, ::3])
    assert record(state, {}, {}).scalars["covariance_norm"] == pytest.approx(every_third)
