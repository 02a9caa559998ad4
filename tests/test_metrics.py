import numpy as np
import pytest

from nsfa import metrics


def test_reconstruction_is_free_of_order_sign_and_spurious_factors(rng):
    G = rng.normal(size=(10, 3))
    hat = np.hstack([-G[:, [2]], G[:, [0]], rng.normal(size=(10, 2)), G[:, [1]]])
    assert metrics.reconstruction_error(G, hat) == pytest.approx(0.0, abs=1e-12)
    assert metrics.reconstruction_error(G, G + 0.1) == pytest.approx(0.01, rel=0.3)


def test_no_estimate_is_an_estimate_of_zero(rng):
    G = rng.normal(size=(10, 3))
    assert metrics.reconstruction_error(G, np.zeros((10, 0))) == pytest.approx((G**2).mean())


def test_matching_is_one_to_one(rng):
    G = rng.normal(size=(20, 4))
    rows, columns, cosine = metrics.match_factors(G, -G[:, [3, 1, 0, 2]])
    np.testing.assert_array_equal(columns[np.argsort(rows)], [2, 1, 3, 0])
    np.testing.assert_allclose(cosine, -1.0)


def test_precision_and_recall(rng):
    active = rng.random((30, 3)) < 0.4
    G = np.where(active, rng.normal(size=active.shape), 0)
    assert metrics.pattern_precision_recall(active, active, G, G) == (1.0, 1.0)
    extra = np.hstack([G, rng.normal(size=(30, 1))])
    precision, recall = metrics.pattern_precision_recall(active, extra != 0, G, extra)
    assert recall == 1.0 and precision == pytest.approx(active.sum() / (active.sum() + 30))


def test_log_of_the_mean_is_not_the_mean_of_the_logs():
    logs = np.log([[0.1, 0.2], [0.3, 0.2]])
    np.testing.assert_allclose(metrics.log_mean_density(logs), np.log([0.2, 0.2]))
    assert metrics.lppd([-1.0, -3.0]) == -2.0
    assert metrics.rmse([1, 2], [1, 4]) == pytest.approx(np.sqrt(2))


def test_shapes_are_explained(rng):
    with pytest.raises(ValueError, match="pass its transpose"):
        metrics.reconstruction_error(rng.normal(size=(10, 3)), rng.normal(size=(3, 10)))
