import numpy as np
import pytest
from scipy.stats import ortho_group

from nsfa.draw import Draw
from nsfa.model.rotate import varimax
from nsfa.posterior import columns as module
from nsfa.posterior.align import SAME, _match_draws, align
from nsfa.posterior.columns import blocks


def draw_of(loadings, log_joint=0.0):
    """A draw with the given loadings and unit noise."""
    active = loadings != 0
    return Draw(
        shape=loadings.shape, pattern=np.packbits(active), value=loadings[active].astype(np.float32), step=None,
        noise_precision=np.ones(len(loadings)), loading_precision=np.ones(loadings.shape[1]),
        scalars={"log_joint": log_joint, "loading_power": float((loadings**2).sum())},
    )  # fmt: skip


@pytest.fixture
def truth(rng):
    return np.where(rng.random((40, 5)) < 0.3, rng.normal(size=(40, 5)) + 0.5, 0.0)


def shuffled(truth, rng, n_draws, noise=0.05, extra=0):
    """Draws with the true factors in any order and sign, a little noise, and ``extra`` spurious ones."""
    draws, orders = [], []
    for _ in range(n_draws):
        order, sign = rng.permutation(truth.shape[1]), rng.choice([-1.0, 1.0], truth.shape[1])
        g = truth[:, order] * sign
        g = np.where(g != 0, g + noise * rng.normal(size=g.shape), 0.0)
        spurious = np.zeros((len(truth), extra))
        spurious[rng.integers(len(truth), size=extra), np.arange(extra)] = 1.0
        draws.append(draw_of(np.hstack([g, spurious])))
        orders.append((order, sign))
    return draws, orders


def test_every_draw_is_brought_back_to_one_order_and_sign(truth, rng):
    draws, orders = shuffled(truth, rng, 30)
    found = align(draws, dense=False)
    # true factor of pivot column m, and its sign, read off the first draw: then all others must agree
    column = {int(m): int(k) for m, k in zip(found.factor[0], orders[0][0], strict=True)}
    turn = {int(m): s * o for m, s, o in zip(found.factor[0], found.sign[0], orders[0][1], strict=True)}
    assert sorted(column.values()) == list(range(5))
    for factor, sign, (order, flip) in zip(found.factor, found.sign, orders, strict=True):
        assert [column[int(m)] for m in factor] == order.tolist()
        assert all(s * f == turn[int(m)] for m, s, f in zip(factor, sign, flip, strict=True))


def test_spurious_factors_stay_unmatched_and_absent_ones_lower_the_support(truth, rng):
    with_all, _ = shuffled(truth, rng, 30, extra=2)
    without, _ = shuffled(truth[:, :4], rng, 10)
    found = align(with_all + without, dense=False)
    support = np.sort(found.support().mean(axis=0))[::-1]
    np.testing.assert_allclose(support[:5], [1, 1, 1, 1, 0.75])
    assert (support[5:] < 0.3).all()


def test_a_factor_that_the_first_draw_lacks_is_found(truth, rng):
    # the start is the most probable draw of median size: here one without the last factor
    some, _ = shuffled(truth[:, :4], rng, 3)
    rest, _ = shuffled(truth, rng, 20)
    swapped = np.hstack([truth[:, :4], 3.0 * np.eye(40)[:, :1]])
    first = draw_of(swapped, log_joint=100.0)
    found = align([first, *some, *rest], dense=False)
    assert (found.support().mean(axis=0) > 0.8).sum() == 5


def test_no_factors_anywhere_is_no_error():
    found = align([draw_of(np.zeros((6, 0)))] * 3, dense=False)
    assert found.pivot.shape == (6, 0) and found.support().shape == (3, 0)


def test_dense_draws_are_rotated_to_one_another(rng):
    simple = np.kron(np.eye(3), np.ones((8, 1))) + 0.05 * rng.normal(size=(24, 3))
    draws = [
        draw_of((simple + 0.02 * rng.normal(size=(24, 3))) @ ortho_group.rvs(3, random_state=i)) for i in range(12)
    ]
    found = align(draws, dense=True)
    assert found.support().mean() == 1.0
    turned = [
        (d.loadings() @ found.rotation[i])[:, np.argsort(found.factor[i])] * found.sign[i][np.argsort(found.factor[i])]
        for i, d in enumerate(draws)
    ]
    assert np.ptp(turned, axis=0).max() < 0.3


def test_varimax_undoes_a_rotation(rng):
    simple = np.kron(np.eye(4), np.ones((6, 1)))
    rotation = varimax(simple @ ortho_group.rvs(4, random_state=1))
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(4), atol=1e-10)
    back = simple @ ortho_group.rvs(4, random_state=1) @ rotation
    np.testing.assert_allclose(np.sort(np.abs(back), axis=1)[:, -1], 1.0, atol=1e-4)


def test_similar_columns_that_never_occur_together_are_one_factor(truth, rng):
    """The same factor drawn with and without half of its small loadings must not become two."""
    lean = truth.copy()
    lean[np.abs(lean) < 0.5] = 0.0
    cosine = (truth * lean).sum(0) / np.linalg.norm(truth, axis=0) / np.linalg.norm(lean, axis=0)
    assert (cosine > SAME).all()
    draws = shuffled(truth, rng, 15)[0] + shuffled(lean, rng, 15)[0]
    assert align(draws, dense=False).pivot.shape[1] == 5


def test_two_forms_of_a_factor_that_seldom_occur_together_are_one(truth, rng):
    """A factor of two features, drawn with either of them as the larger, and now and then twice."""
    forms = np.zeros((2, 40, 1))
    forms[0, :2, 0], forms[1, :2, 0] = (0.5, 1.0), (1.0, 0.5)
    once = [np.hstack([truth, form]) for form in forms]
    draws = [*shuffled(once[0], rng, 22)[0], *shuffled(once[1], rng, 22)[0]]
    draws += shuffled(np.hstack([truth, *forms]), rng, 6)[0]
    support = np.sort(align(draws, dense=False).support().mean(axis=0))[::-1]
    assert (support[:6] == 1.0).all() and (support[6:] < 0.5).all()


def test_two_factors_that_resemble_one_another_are_matched_one_to_one():
    # the second draw's columns are both nearest to the first of the pivot: together they fit best the other way round
    pivot = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    between = np.array([[0.75, 0.8], [0.66, 0.0], [0.0, 0.6]])
    plain = np.array([[0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]])
    assert (between > SAME)[:2].tolist() == [[True, True], [True, False]]
    factor, sign = _match_draws(pivot.T @ np.hstack([plain, between, plain[:, :1]]), [2, 2, 1])
    assert [f.tolist() for f in factor] == [[1, 0], [1, 0], [1]]
    assert [s.tolist() for s in sign] == [[-1.0, 1.0], [1.0, 1.0], [-1.0]]


def test_blocks_have_a_bounded_number_of_entries(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 40)
    draws = [draw_of(np.ones((10, k))) for k in (2, 1, 1, 9, 0, 0, 0, 0, 0)]
    assert [b.tolist() for b in blocks(draws, np.arange(9))] == [[0, 1, 2], [3], [4, 5, 6, 7], [8]]
    assert [len(b) for b in blocks(draws, np.arange(4, 9), least=4)] == [1] * 5
