import numpy as np
import pytest

from cases import case


def columns(state):
    """Factors as a set of (loadings, precision) columns, whatever their order."""
    precision = np.broadcast_to(state.loading_precision, state.loadings.shape)
    return sorted(tuple(np.round(np.r_[g, p], 12)) for g, p in zip(state.loadings.T, precision.T, strict=True))


@pytest.mark.parametrize("precision", ["shared", "factor", "element"])
@pytest.mark.parametrize(("n_dead", "n_new"), [(0, 3), (2, 0), (2, 2), (3, 1), (1, 20)])
def test_replacing_singletons_keeps_every_other_factor(precision, n_dead, n_new, rng):
    state, _, _ = case(precision=precision, n_features=30, seed=3)
    dead = rng.choice(np.flatnonzero(state.usage == 1), n_dead, replace=False)
    n_features = len(state.loadings)
    rows = rng.integers(n_features, size=n_new)
    values = rng.normal(size=n_new) + 5
    shape = {"shared": None, "factor": (n_new,), "element": (n_features, n_new)}[precision]
    precisions = None if shape is None else rng.gamma(2, 1, shape)
    kept = np.delete(np.arange(state.n_factors), dead)
    old = np.broadcast_to(state.loading_precision, state.loadings.shape)[:, kept]
    new_loadings = np.zeros((n_features, n_new))
    new_loadings[rows, np.arange(n_new)] = values
    new = np.broadcast_to(state.loading_precision if precisions is None else precisions, new_loadings.shape)
    loadings = np.hstack([state.loadings[:, kept], new_loadings])
    expected = sorted(
        tuple(np.round(np.r_[g, p], 12)) for g, p in zip(loadings.T, np.hstack([old, new]).T, strict=True)
    )

    owners = state.active[:, dead].argmax(axis=0)
    state.replace_singletons((owners, dead), rows, values, precisions)
    assert columns(state) == expected
    state.check_invariants()


@pytest.mark.parametrize("precision", ["shared", "factor"])
def test_added_factors_come_last(precision, rng):
    state, samples, _ = case(precision=precision, n_features=30, seed=3)
    before, scores = state.loadings.copy(), samples.scores.copy()
    feature, values, new = np.array([[3, 7], [9, 0]]), rng.normal(size=(2, 2)), rng.normal(size=(len(scores), 2))
    state.add(feature, values, None if precision == "shared" else np.array([2.0, 3.0]))
    samples._append(new)
    state.check_invariants()
    np.testing.assert_array_equal(state.loadings[:, :-2], before)
    assert list(state.usage[-2:]) == [2, 2] and state.loadings[9, -1] == values[1, 0]
    np.testing.assert_array_equal(samples.scores, np.hstack([scores, new]))
    assert precision == "shared" or list(state.loading_precision[-2:]) == [2.0, 3.0]


def test_dropping_keeps_scores_with_their_factor(rng):
    state, samples, _ = case(n_features=30, seed=3)
    pairs = {tuple(g): tuple(x) for g, x in zip(state.loadings.T, samples.scores.T, strict=True)}
    fit = state.loadings @ samples.scores.T - state.loadings[:, [0, 2, -1]] @ samples.scores[:, [0, 2, -1]].T
    gone = np.array([0, 2, state.n_factors - 1])
    kept = {tuple(g) for g in np.delete(state.loadings, gone, axis=1).T}
    assert len(pairs) == state.n_factors == len(kept) + 3
    order = state.drop(gone)
    assert len(samples.scores.T) == len(pairs), "the scores wait for theirs"
    samples.keep(order)
    state.check_invariants()
    assert {tuple(g) for g in state.loadings.T} == kept and state.n_factors == len(kept)
    for g, x in zip(state.loadings.T, samples.scores.T, strict=True):
        assert pairs[tuple(g)] == tuple(x)
    np.testing.assert_allclose(state.loadings @ samples.scores.T, fit, atol=1e-12)
    gram, cross = samples.gram, samples.cross
    samples.refresh(state)
    np.testing.assert_allclose(gram, samples.gram)
    np.testing.assert_allclose(cross, samples.cross)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda s: s.loadings.__setitem__((~s.active).nonzero()[0][0], 1.0), "not zero|usage|inactive"),
        (lambda s: s.usage.__setitem__(0, 99), "usage"),
        (lambda s: s.noise_precision.__setitem__(0, np.nan), "NaN"),
        (lambda s: s.noise_precision.__setitem__(0, -1.0), "not positive"),
    ],
)
def test_contradictions_are_noticed(spoil, sentence):
    state, _, _ = case()
    state.check_invariants()
    spoil(state)
    with pytest.raises(ValueError, match=sentence):
        state.check_invariants()
