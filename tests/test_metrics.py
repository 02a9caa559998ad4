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


def test_reconstruction_when_factors_are_absent_or_shared(rng):
    G = rng.normal(size=(10, 3))
    assert metrics.reconstruction_error(np.zeros((10, 0)), G) == 0.0
    assert metrics.reconstruction_error(np.zeros((10, 0)), np.zeros((10, 0))) == 0.0
    twin = np.hstack([G[:, [0]], -G[:, [0]]])
    assert metrics.reconstruction_error(twin, G[:, [0]]) == pytest.approx(0.0, abs=1e-12)
    one = metrics.reconstruction_error(G, G[:, [1]])
    nearest = [((G[:, k] - s * G[:, 1]) ** 2).sum() for k in (0, 2) for s in (1, -1)]
    assert one == pytest.approx((min(nearest[:2]) + min(nearest[2:])) / 30)


def test_matching_factors_of_different_number(rng):
    G = rng.normal(size=(20, 4))
    rows, columns, cosine = metrics.match_factors(G, np.hstack([np.zeros((20, 1)), -2 * G[:, [2]]]))
    assert dict(zip(rows, columns, strict=True))[2] == 1 and len(rows) == 2
    np.testing.assert_allclose(sorted(cosine), [-1.0, 0.0], atol=1e-12)
    for pair in ((G, G[:, :0]), (G[:, :0], G)):
        assert [len(part) for part in metrics.match_factors(*pair)] == [0, 0, 0]


def test_precision_and_recall_are_free_of_sign_and_order(rng):
    active = rng.random((30, 3)) < 0.4
    G = np.where(active, rng.normal(size=active.shape), 0)
    order = [2, 0, 1]
    assert metrics.pattern_precision_recall(active, active[:, order], G, -3 * G[:, order]) == (1.0, 1.0)


def test_precision_and_recall_count_missed_factors(rng):
    active = rng.random((30, 3)) < 0.4
    G = np.where(active, rng.normal(size=active.shape), 0)
    precision, recall = metrics.pattern_precision_recall(active, active[:, :2], G, G[:, :2])
    assert precision == 1.0 and recall == pytest.approx(active[:, :2].sum() / active.sum())


def test_precision_and_recall_of_nothing(rng):
    active, none = np.ones((5, 2), bool), np.zeros((5, 0))
    G = rng.normal(size=(5, 2))
    assert metrics.pattern_precision_recall(active, none, G, none) == (0.0, 0.0)
    assert metrics.pattern_precision_recall(none, active, none, G) == (0.0, 0.0)
    assert metrics.pattern_precision_recall(none, none, none, none) == (1.0, 1.0)
    with pytest.raises(ValueError, match="must have the shapes of their loadings"):
        metrics.pattern_precision_recall(active.T, active, G, G)


def test_predictive_scores_at_the_edges():
    assert metrics.log_mean_density([[-1000.0], [-1000.0]])[0] == pytest.approx(-1000.0)
    np.testing.assert_allclose(metrics.log_mean_density(np.log([[0.1, 0.3]]), axis=1), np.log([0.2]))
    assert metrics.log_mean_density([[-np.inf], [0.0]])[0] == pytest.approx(np.log(0.5))
    assert metrics.lppd([[-1.0, -2.0], [-3.0, -np.inf]]) == -np.inf
    assert metrics.rmse([[3.0]], [[3.0]]) == 0.0
    with pytest.raises(ValueError, match="at least one entry"):
        metrics.lppd([])
    for truth, prediction in (([1.0, 2.0], [[1.0], [2.0]]), ([], [])):
        with pytest.raises(ValueError, match="must have one shape and an entry"):
            metrics.rmse(truth, prediction)
