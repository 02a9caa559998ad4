"""What warm-up does beside the moves: drop what nothing asks for, add what noise does not explain, turn the rest."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from nsfa.chain import Chain, chain_generator
from nsfa.data import observe
from nsfa.kernels import get_kernels
from nsfa.metrics import match_factors
from nsfa.model import Priors, preset
from nsfa.moves.prune import log_worth, prune
from nsfa.moves.seed import seed, shared
from nsfa.moves.simplify import add_directions, condense, simplify
from nsfa.passing import passing_abilities
from nsfa.samples import Samples, abilities
from nsfa.schedule import PARALLEL_FROM, build, condenses, prunes, simplifies
from nsfa.state import State

N_FEATURES, N_SAMPLES, N_FACTORS = 400, 40, 3


@pytest.fixture
def planted(rng):
    """(table (D, N), loadings, scores): three factors on a third of the features each, noise of variance one."""
    loadings = np.where(rng.random((N_FEATURES, N_FACTORS)) < 0.35, rng.normal(size=(N_FEATURES, N_FACTORS)), 0.0)
    scores = rng.normal(size=(N_SAMPLES, N_FACTORS))
    return loadings @ scores.T + rng.normal(size=(N_FEATURES, N_SAMPLES)), loadings, scores


def state_of(loadings, precision=1.0):
    return State.from_arrays(
        loadings, loadings != 0, noise_precision=np.ones(len(loadings)),
        loading_precision=np.full(loadings.shape[1], precision), loading_rate=0.5, relative=True,
        intercept=np.zeros(len(loadings)),
    )  # fmt: skip


def samples_of(table, state, scores, missing=0.0, rng=None):
    holes = np.zeros(table.T.shape, bool) if rng is None else rng.random(table.T.shape) < missing
    holes[:3] = False
    X = np.where(holes, np.nan, table.T)
    samples = Samples(observe(X, scale=None), get_kernels())
    samples.set_scores(scores)
    samples.refresh(state)
    return samples


def refreshed(state, samples):
    again = Samples(samples.data, samples.kernels)
    again.set_scores(samples.scores)
    again.refresh(state)
    return again


def test_factors_that_nothing_asks_for_are_dropped_and_true_ones_stay(planted, rng):
    table, loadings, scores = planted
    false = rng.normal(size=(N_FEATURES, 2)) * 0.2, rng.normal(size=(N_SAMPLES, 2))
    order = [3, 0, 1, 4, 2]
    state = state_of(np.hstack([loadings, false[0]])[:, order])
    samples = samples_of(table, state, np.hstack([scores, false[1]])[:, order])
    worth = log_worth(state, samples, preset("nsfa"))
    assert (worth[[1, 2, 4]] > 50).all() and (worth[[0, 3]] < -5).all()
    prune(state, samples, preset("nsfa"))
    state.check_invariants()
    assert state.n_factors == 3
    _, _, cosines = match_factors(loadings, state.loadings)
    np.testing.assert_allclose(np.abs(cosines), 1.0)
    np.testing.assert_allclose(samples.cross, refreshed(state, samples).cross)
    np.testing.assert_allclose(samples.gram, refreshed(state, samples).gram)


def test_chains_that_hold_one_space_in_different_rotations_meet(planted, rng):
    table, loadings, scores = planted
    places = []
    for _ in range(2):
        turn = np.linalg.qr(rng.normal(size=(N_FACTORS, N_FACTORS)))[0]
        state = state_of(loadings @ turn)
        simplify(state, samples := samples_of(table, state, scores @ turn), preset("nsfa"))
        state.check_invariants()
        np.testing.assert_allclose(samples.cross, refreshed(state, samples).cross)
        places.append(state.loadings.copy())
    assert (np.abs(match_factors(*places)[2]) > 0.999).all()
    # and where the features' own pattern is
    assert (np.abs(match_factors(loadings, places[0])[2]) > 0.95).all()


@pytest.mark.parametrize("copied", [0, 2])
def test_one_fit_spread_over_too_many_factors_becomes_as_many_as_it_takes(planted, copied, rng):
    """Five factors share the fit of three: hardly one could be missed alone, so that pruning keeps more."""
    table, loadings, scores = planted
    mixed = rng.normal(size=(N_FACTORS, 5))
    if copied:
        mixed[:, 3:] = mixed[:, :2]
    shares = np.linalg.pinv(mixed)
    state = state_of(loadings @ shares.T + 0.3 * rng.normal(size=(N_FEATURES, 5)) @ (np.eye(5) - shares @ mixed))
    samples = samples_of(table, state, scores @ mixed)
    before = state.loadings @ samples.scores.T
    pruned = copy.deepcopy(state)
    prune(pruned, refreshed(state, samples), preset("nsfa"))
    assert pruned.n_factors > N_FACTORS
    condense(state, samples, preset("nsfa"))
    state.check_invariants()
    assert state.n_factors == N_FACTORS
    np.testing.assert_allclose(state.loadings @ samples.scores.T, before, atol=1e-2)
    np.testing.assert_allclose(samples.gram, N_SAMPLES * np.eye(N_FACTORS), atol=1e-2)
    np.testing.assert_allclose(samples.cross, refreshed(state, samples).cross, atol=1e-8)


def test_factors_become_as_few_as_fit_once_while_the_noise_is_raised():
    spec = preset("nsfa")
    assert [n for n in range(1, 501) if condenses(n, 100, spec)] == [10]
    assert not any(condenses(n, 0, spec) for n in range(5))
    assert not condenses(10, 100, preset("sfa", n_components=3)) and not condenses(
        10, 100, preset("nsfa", moves="plain")
    )


def test_what_simple_structure_leaves_out_is_small_and_no_factor_is_empty(planted):
    table, loadings, scores = planted
    state = state_of(1e-3 * loadings + 1e-6)
    before = state.loadings @ scores.T
    simplify(state, samples := samples_of(table, state, scores), preset("sfa", n_components=3))
    assert state.n_factors == 3 and (state.usage == 1).all()
    assert np.abs(state.loadings @ samples.scores.T - before).max() < 0.1
    np.testing.assert_allclose(state.loading_precision, 1 / (state.loadings**2).sum(axis=0))


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("held", [0, 1, 3])
def test_directions_beyond_noise_become_factors(planted, missing, held, rng):
    table, loadings, scores = planted
    state = state_of(loadings[:, :held])
    add_directions(state, samples := samples_of(table, state, scores[:, :held], missing, rng), rng)
    state.check_invariants()
    assert state.n_factors == N_FACTORS
    np.testing.assert_allclose(samples.gram, refreshed(state, samples).gram)
    fit, truth = state.loadings @ samples.scores.T, loadings @ scores.T
    assert np.corrcoef(fit.ravel(), truth.ravel())[0, 1] > 0.9


@pytest.mark.parametrize("sparse", [False, True])
def test_noise_has_no_direction_beyond_it(sparse, rng):
    X = rng.normal(size=(N_SAMPLES, N_FEATURES))
    data = observe(sp.csr_matrix(X) if sparse else X)
    state = state_of(np.zeros((N_FEATURES, 0)))
    samples = Samples(data, get_kernels())
    samples.refresh(state)
    add_directions(state, samples, rng)
    assert state.n_factors == 0


def test_no_direction_is_left_where_there_are_as_many_factors_as_samples(rng):
    state, scores = state_of(rng.normal(size=(20, 6))), rng.normal(size=(6, 6))
    add_directions(state, samples_of(rng.normal(size=(20, 6)), state, scores), rng)
    assert state.n_factors == 6


def test_when_long_tables_are_simplified():
    spec = preset("nsfa")
    assert [n for n in range(1, 501) if simplifies(n, 500, spec)] == [50, 100, 150, 200, 250, 300, 350, 400]
    assert not any(simplifies(n, 9, spec) for n in range(1, 20))
    for other in (preset("nsfa", moves="plain"), preset("fa", n_components=2), preset("bfrm", n_components=2)):
        assert not simplifies(50, 500, other)


@pytest.mark.parametrize("start", [0, 20])
def test_a_long_table_s_chain_arrives_from_below_and_from_above(start, rng):
    """Four planted factors on an eighth of the features each, from no factor and from many."""
    n_features = PARALLEL_FROM + 100
    loadings = np.where(rng.random((n_features, 4)) < 0.12, rng.normal(size=(n_features, 4)), 0.0)
    X = rng.normal(size=(50, 4)) @ loadings.T + rng.normal(size=(50, n_features))
    chain = Chain(Samples(observe(X), get_kernels()), preset("nsfa"), chain_generator(0, 0), start, tune=100)
    assert not chain.schedule.collapses and "tilt" in {move.name for move in chain.schedule.moves}
    for _ in range(100):
        chain.sweep()
    substantial = chain.state.usage >= 5
    assert 4 <= substantial.sum() <= 5
    cosines = np.abs(match_factors(loadings, chain.state.loadings)[2])
    assert (cosines > 0.85).all(), cosines


@pytest.mark.parametrize("missing", [0.0, 0.6, 0.9])
def test_worth_counts_what_is_observed(planted, missing, rng):
    """Against sums over each feature's and each sample's own entries."""
    table, loadings, scores = planted
    state = state_of(np.where(loadings != 0, loadings + 0.1, 0.0), precision=1.3)
    state.intercept[:] = rng.normal(size=N_FEATURES)
    state.noise_precision[:] = rng.gamma(5, 0.2, N_FEATURES)
    samples = samples_of(table, state, scores, missing, rng)
    seen = np.ones(table.shape, bool) if samples.data.missing is None else ~samples.data.missing
    y = np.where(seen, samples.data.values - state.intercept[:, None], 0.0)
    k, tau, lam = 1, state.noise_precision, 1.3 * state.noise_precision
    others = np.delete(np.arange(N_FACTORS), k)
    x, left = scores[:, k], y - np.where(seen, state.loadings[:, others] @ scores[:, others].T, 0.0)
    ell = tau * (seen @ x**2) + lam
    log_bayes = 0.5 * (np.log(lam / ell) + (tau * (left @ x)) ** 2 / ell)
    best = max(np.logaddexp(np.log1p(-p), np.log(p) + log_bayes).sum() for p in np.linspace(0.0025, 0.9975, 400))
    volume = np.log1p(seen.T @ (tau * state.loadings[:, k] ** 2)).sum()
    expected = best + 0.5 * (N_SAMPLES - x @ x - volume) + np.log(0.5) - 0.5 * 1.3
    assert log_worth(state, samples, preset("nsfa"))[k] == pytest.approx(expected, abs=2)


@pytest.mark.parametrize("n_features", [300, PARALLEL_FROM])
def test_factors_of_a_table_that_is_mostly_holes_are_found(n_features, rng):
    loadings = np.where(rng.random((n_features, 3)) < 0.3, 2 * rng.normal(size=(n_features, 3)), 0.0)
    X = rng.normal(size=(100, 3)) @ loadings.T + rng.normal(size=(100, n_features))
    data = observe(np.where(rng.random(X.shape) < 0.8, np.nan, X))
    chain = Chain(Samples(data, get_kernels()), preset("nsfa"), chain_generator(0, 0), 5, tune=150)
    for _ in range(150):
        chain.sweep()
    assert (np.abs(match_factors(loadings, data.scale[:, None] * chain.state.loadings)[2]) > 0.6).all()


LONG = {
    "buffet": ("nsfa", {}),
    "finite": ("sfa", {"n_components": 3}),
    "per element": ("nsfa", {"precision": "element"}),
    "shared": ("nsfa", {"precision": "shared"}),
    "isotropic": ("nsfa", {"noise": "isotropic"}),
    "absolute": ("nsfa", {"priors": Priors.learned()}),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("kind", ["complete", "holes", "sparse"])
def test_long_tables_of_every_kind_keep_their_books(name, kind, rng):
    """What the chain carries along is what the state says, to the end of a sweep."""
    X = rng.normal(size=(15, 2)) @ rng.normal(size=(2, PARALLEL_FROM)) + rng.normal(size=(15, PARALLEL_FROM))
    if kind == "holes":
        X[rng.random(X.shape) < 0.1] = np.nan
    data = observe(sp.csr_matrix(X) if kind == "sparse" else X)
    model, changes = LONG[name]
    spec = preset(model, **changes)
    samples, start = Samples(data, get_kernels()), 0 if model == "sfa" else 2
    chain = Chain(samples, spec, chain_generator(0, 0), start, tune=20)
    for _ in range(7):
        chain.sweep()
    chain.state.check_invariants()
    assert chain.state.n_factors > 0
    values = data.values.toarray() - data.offset[:, None] if kind == "sparse" else data.values
    fit = chain.state.loadings @ samples.scores.T
    fit += 0.0 if chain.state.intercept is None else chain.state.intercept[:, None]
    square = ((np.where(True if data.missing is None else ~data.missing, values - fit, 0.0)) ** 2).sum(axis=1)
    np.testing.assert_allclose(samples.residuals(chain.state), square, rtol=1e-6, atol=1e-6)


def test_factors_of_which_something_is_known_keep_their_places(planted, rng):
    """Neither pruned nor turned, however little asks for them."""
    table, loadings, scores = planted
    false = 0.2 * rng.normal(size=(N_FEATURES, 1)), rng.normal(size=(N_SAMPLES, 1))
    state = state_of(np.hstack([false[0], loadings]))
    state.known = np.zeros((N_FEATURES, 1))
    samples = samples_of(table, state, np.hstack([false[1], scores]))
    before = state.loadings[:, 0].copy()
    prune(state, samples, preset("nsfa"))
    simplify(state, samples, preset("nsfa"))
    np.testing.assert_array_equal(state.loadings[:, 0], before)
    np.testing.assert_allclose(samples.scores[:, 0], false[1][:, 0])
    state.known = None
    prune(state, samples, preset("nsfa"))
    assert state.n_factors == 3


def none_of(table, missing, rng):
    """A state without factors, its means drawn, and its samples."""
    state = state_of(np.zeros((len(table), 0)))
    state.noise_precision[:] = 1 / table.var(axis=1)
    state.intercept[:] = rng.normal(size=len(table)) * np.sqrt(table.var(axis=1) / table.shape[1])
    return state, samples_of(table, state, np.zeros((table.shape[1], 0)), missing, rng)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_samples_are_as_alike_as_chance_makes_them_unless_they_share_something(missing, rng):
    """Neither heavy tails, nor genes or samples of unequal noise, nor one huge entry make samples alike."""
    sizes, n_features = np.exp(rng.normal(size=(1500, 1))), 1500
    noisy = np.exp(0.1 * rng.normal(size=N_SAMPLES))
    found = []
    for _ in range(20):
        table = sizes * rng.standard_t(3, size=(n_features, N_SAMPLES)) * noisy
        table[7, 3] = 1e4
        state, samples = none_of(table, missing, rng)
        found.append(samples.likeness(state, rng))
        assert not shared(state, samples, rng)
    # nor does a gene whose noise the chain has not found yet
    state.noise_precision[7] *= 1e6
    assert not shared(state, samples, rng)
    # of 780 pairs the mean of squares of normal numbers; unequal noise adds a little
    assert abs(np.mean(found) - 1) < 0.1 and 0.5 < np.std(found) / np.sqrt(2 / 780) < 2
    # one factor on a tenth of the genes, as large as their noise
    scores, users = rng.normal(size=N_SAMPLES), rng.random((n_features, 1)) < 0.1
    table = sizes * (rng.normal(size=table.shape) + users * scores)
    state, samples = none_of(table, missing, rng)
    assert shared(state, samples, rng)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_every_sample_gets_a_factor_of_its_own_but_those_that_have_one(missing, rng):
    table = rng.normal(size=(N_FEATURES, N_SAMPLES))
    # most of one factor is sample 5, less than half of another sample 7; a third rests on all
    loadings = np.where(rng.random((N_FEATURES, 3)) < 0.5, rng.normal(size=(N_FEATURES, 3)), 0.0)
    others = np.resize([1.0, -1.0], N_SAMPLES) / np.sqrt(N_SAMPLES - 1)
    scores = np.column_stack([np.sqrt(0.4) * others, np.sqrt(0.6) * others, others])
    scores[5, 0], scores[7, 1] = np.sqrt(0.6), np.sqrt(0.4)
    scores *= 6.0
    state = state_of(loadings)
    samples = samples_of(table + loadings @ scores.T, state, scores, missing, rng)
    seed(state, samples, rng)
    state.check_invariants()
    assert state.n_factors == 3 + N_SAMPLES - 1
    new = samples.scores[:, 3:]
    assert ((new != 0).sum(axis=0) == 1).all() and not new[5].any() and (new[new != 0] == np.sqrt(N_SAMPLES)).all()
    again = refreshed(state, samples)
    np.testing.assert_allclose(samples.gram, again.gram)
    np.testing.assert_allclose(samples.cross, again.cross)
    square = (state.loadings[:, 3:] ** 2).sum(axis=0)
    np.testing.assert_allclose(state.loading_precision[3:], state.usage[3:] / square)
    fit = state.loadings[:, 3:] @ new.T
    clear = fit != 0
    assert 0.02 < clear.mean() < 0.08
    if not missing:
        # what is clear of a sample is what its factor says there
        left = samples.data.values - loadings @ scores.T
        np.testing.assert_allclose(fit[clear], left[clear])
        assert (np.abs(left[clear]) >= 2).all() and (np.abs(left[:, 6][~clear[:, 6]]) < 2).all()
    before = state.n_factors
    seed(state, samples, rng)
    assert state.n_factors == before and samples.valid
    samples.rows(state)


def sharing(rng, gain=1.0, n_features=1000):
    """Samples × features: forty modules of twenty features each, of which nothing else is shared."""
    X = rng.normal(size=(60, n_features))
    for k in range(40):
        X[:, 20 * k : 20 * k + 20] += gain * np.outer(rng.normal(size=60), rng.choice([-0.8, 0.8], 20))
    return X


def seeded(X, tune=100, **settings):
    return Chain(Samples(observe(X), get_kernels()), preset("nsfa", **settings), chain_generator(0, 0), 0, tune=tune)


@pytest.mark.parametrize("gain", [0.0, 1.0])
def test_only_where_something_is_shared_that_factors_leave_samples_get_their_own(gain, rng):
    chain = seeded(sharing(rng, gain))
    assert chain.schedule.seeds == (24, 32, 40, 48)
    for _ in range(24):
        chain.sweep()
    assert chain.seeding == bool(gain) and (chain.state.n_factors >= 60) == bool(gain)
    # once begun it goes on, whatever is left; and so it does after a checkpoint
    if gain:
        again = seeded(sharing(np.random.default_rng(0), gain))
        again.samples = Samples(chain.samples.data, chain.samples.kernels)
        again.restore(copy.deepcopy(chain.snapshot()))
        assert again.seeding
        for _ in range(10):
            chain.sweep()
            again.sweep()
        assert np.array_equal(chain.state.loadings, again.state.loadings)


def test_checkpoints_of_former_versions_have_not_begun_to_seed(rng):
    chain = seeded(sharing(rng))
    snapshot = copy.deepcopy(chain.snapshot())
    del snapshot["seeding"]
    chain.restore(snapshot)
    assert chain.seeding is False


@pytest.mark.parametrize("n_features", [1000, 3000])
def test_a_chain_whose_samples_all_have_factors_goes_on(n_features, rng):
    """Each sample with genes of its own that deviate: nothing is left to be given."""
    X = rng.normal(size=(30, n_features))
    for n in range(30):
        X[n, rng.random(n_features) < 0.1] += 4.0
    chain = seeded(X)
    for _ in range(70):
        chain.sweep()
        chain.seeding = True
    chain.state.check_invariants()


@pytest.mark.parametrize(
    ("spec", "shape", "tune", "seeds"),
    [
        (preset("nsfa"), (1000, 100), 500, (120, 160, 200, 240)),
        (preset("nsfa"), (2000, 200), 500, (120, 160, 200, 240)),
        (preset("nsfa"), (3000, 100), 500, (310, 330)),
        (preset("nsfa"), (999, 90), 500, ()),
        (preset("nsfa"), (1000, 101), 500, ()),
        (preset("nsfa"), (1000, 29), 500, ()),
        (preset("nsfa"), (2010, 201), 500, ()),
        (preset("nsfa"), (1000, 100), 99, ()),
        (preset("nsfa", moves="plain"), (1000, 100), 500, ()),
        (preset("nsfa", noise="robust"), (1000, 100), 500, ()),
        (preset("nsfa", likelihood="counts"), (1000, 100), 500, ()),
        (preset("nsfa", likelihood="binary"), (1000, 100), 500, ()),
        (preset("sfa", n_components=5), (1000, 100), 500, ()),
        (preset("fa", n_components=5), (1000, 100), 500, ()),
        (preset("nsfa", precision="element"), (1000, 100), 500, ()),
        (preset("nsfa", precision="shared"), (1000, 100), 500, ()),
        (preset("nsfa", priors=Priors.learned()), (1000, 100), 500, ()),
        (preset("nsfa", priors=replace(Priors(), intercept=False)), (1000, 100), 500, ()),
    ],
)
def test_which_warm_ups_give_samples_factors(spec, shape, tune, seeds, rng):
    able = abilities(observe(rng.normal(size=shape[::-1])))
    plan = build(spec, shape[0], able, tune)
    assert plan.seeds == seeds
    # what they bring is dropped again, or turned to simple structure
    for n in seeds:
        later = range(n + 1, tune)
        assert any(
            prunes(m, tune, plan.annealed, spec) or (plan.simplifies and simplifies(m, tune, spec)) for m in later
        )


def test_tables_elsewhere_have_no_seeds(rng):
    able = passing_abilities(False) | abilities(observe(sp.csr_matrix(rng.normal(size=(50, 1000)))))
    assert build(preset("nsfa"), 1000, able, 500).seeds == ()
