import numpy as np
import pytest
import scipy.sparse as sp

from cases import holes
from nsfa import schedule
from nsfa.chain import Chain, chain_generator, run_chain
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.length import Length, default_thin
from nsfa.model import Priors, preset
from nsfa.model.joint import log_joint
from nsfa.model.start import initial_state, starting_factors, towards_data
from nsfa.moves import loadings
from nsfa.moves.tilt import choose_pairs

NAMES = ("fa", "afa", "fok", "sfa", "nsfa", "bfrm")


def specification(name, **changes):
    if name != "nsfa":
        changes.setdefault("n_components", 3)
    return preset(name, **changes)


def tables(rng):
    X = make_sparse_factors(20, 12, 3, density=0.4, random_state=1).X
    gaps = np.where(holes("mixed", 12, 20, rng).T, np.nan, X)
    return {
        "dense": X,
        "missing": gaps,
        "sparse": sp.csr_array(np.where(rng.random(X.shape) < 0.5, 0.0, X)),
        "single": X.astype(np.float32),
    }


@pytest.mark.parametrize("kind", ["dense", "missing", "sparse", "single"])
@pytest.mark.parametrize("name", NAMES)
def test_every_model_runs_on_every_kind_of_table(name, kind, rng):
    chain = Chain(observe(tables(rng)[kind]), specification(name), get_kernels(), chain_generator(0, 0))
    draws = [s.draw for s in run_chain(chain, Length(10, 5, 2)) if s.draw is not None]
    chain.state.check_invariants()
    assert len(draws) == 5
    for draw in draws:
        # clustered scores are not integrated out
        unknown = {"log_evidence"} if name == "bfrm" else set()
        assert {key for key, value in draw.scalars.items() if not np.isfinite(value)} == unknown


@pytest.mark.parametrize("noise", ["diagonal", "isotropic", "shared"])
@pytest.mark.parametrize("precision", ["shared", "factor", "element"])
@pytest.mark.parametrize("rate", [1.5, None])
@pytest.mark.parametrize("name", ["fa", "sfa", "nsfa", "bfrm"])
def test_every_switch_goes_with_every_model(name, noise, precision, rate, rng):
    priors = Priors() if rate is None else Priors(loading_rate=rate, urn=0.8)
    spec = specification(name, noise=noise, precision=precision, priors=priors)
    chain = Chain(observe(tables(rng)["missing"]), spec, get_kernels(), chain_generator(0, 1))
    for _ in range(8):
        chain.sweep()
    chain.state.check_invariants()
    if noise == "isotropic":
        assert np.ptp(chain.state.noise_precision) == 0
    assert (chain.state.loading_rate == rate) == (rate is not None)
    assert chain.state.loading_precision.ndim == {"shared": 0, "factor": 1, "element": 2}[precision]


@pytest.mark.parametrize("kind", ["missing", "sparse"])
@pytest.mark.parametrize("name", NAMES)
def test_reported_log_joint_is_the_oracles(name, kind, rng):
    data = observe(tables(rng)[kind])
    chain = Chain(data, specification(name, noise="shared"), get_kernels(), chain_generator(3, 0))
    for _ in range(15):
        births = chain.sweep()
    draw = chain.draw(births, 0.0)
    assert draw.scalars["log_joint"] == pytest.approx(sum(log_joint(chain.state, data, chain.spec).values()), rel=1e-9)
    np.testing.assert_allclose(draw.loadings(), chain.state.loadings, rtol=1e-6, atol=1e-7)
    assert draw.n_active == chain.state.active.sum()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sweep", ["collapsed", "parallel"])
def test_reference_and_compiled_chains_stay_together(name, sweep, rng):
    """The same seed gives the same chain on both backends, up to rounding, for many sweeps."""
    data = observe(tables(rng)["missing"])
    chains = [
        Chain(data, specification(name, sweep=sweep), get_kernels(b), chain_generator(5, 0))
        for b in ("reference", "numba")
    ]
    for _ in range(6):
        for chain in chains:
            chain.sweep()
    a, b = (chain.state for chain in chains)
    np.testing.assert_array_equal(a.active, b.active)
    np.testing.assert_allclose(a.loadings, b.loadings, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(a.scores, b.scores, rtol=1e-6, atol=1e-8)


def test_where_sums_run_over_all_states_the_sampler_is_exact():
    """Two features, one factor, everything but z fixed: the share of draws in each pattern is its probability."""
    spec = preset("sfa", n_components=1, concentration=1.0, sweep="collapsed")
    rng = np.random.default_rng(4)
    data = observe(rng.normal(size=(6, 2)), scale=None)
    chain = Chain(data, spec, get_kernels(), rng)
    state, stats = chain.state, chain.stats
    state.scores[:] = rng.standard_normal(state.scores.shape)
    stats.refresh(state)
    counts = np.zeros(4)
    for _ in range(20_000):
        loadings.update_finite_collapsed(state, stats, spec, rng)
        counts[2 * state.active[0, 0] + state.active[1, 0]] += 1
    expected = np.array([_pattern_weight(state, data, spec, [i // 2, i % 2]) for i in range(4)])
    expected = np.exp(expected - expected.max())
    expected /= expected.sum()
    z = (counts / counts.sum() - expected) / np.sqrt(expected * (1 - expected) / counts.sum())
    assert np.abs(z).max() < 6  # draws are correlated


def _pattern_weight(state, data, spec, pattern):
    """log of the joint with the loadings integrated out analytically."""
    import copy

    trial = copy.deepcopy(state)
    trial.active[:, 0] = np.array(pattern, bool)
    trial.loadings[:] = 0.0
    trial.usage = trial.active.sum(axis=0)
    total = sum(log_joint(trial, data, spec).values())
    for d in np.flatnonzero(trial.active[:, 0]):
        lam, tau = float(trial.loading_precision[0]), trial.noise_precision[d]
        ell = tau * trial.scores[:, 0] @ trial.scores[:, 0] + lam
        shift = tau * data.values[d] @ trial.scores[:, 0]
        # ∫ N(g; 0, 1/λ) … dg over the density at g = 0, where log_joint has put ½ log(λ/2π)
        total += 0.5 * (np.log(2 * np.pi) - np.log(ell) + shift**2 / ell)
    return total


def test_a_sweep_reports_warm_up_and_keeps_every_thin_th_draw():
    chain = Chain(
        observe(make_sparse_factors(15, 10, 2, random_state=0).X), preset("nsfa"), get_kernels(), chain_generator(0, 0)
    )
    sweeps = list(run_chain(chain, Length(tune=4, draws=3, thin=2)))
    assert [s.number for s in sweeps] == list(range(1, 11))
    assert [s.warming_up for s in sweeps] == [True] * 4 + [False] * 6
    assert [s.draw is not None for s in sweeps] == [False] * 5 + [True, False, True, False, True]


def test_nothing_but_noise_keeps_an_empty_model_alive(rng):
    chain = Chain(
        observe(rng.normal(size=(30, 8))), preset("nsfa", concentration=0.01), get_kernels(), chain_generator(0, 0)
    )
    for _ in range(200):
        chain.sweep()
    assert chain.state.n_factors <= 2
    chain.state.check_invariants()


@pytest.mark.parametrize(
    ("n_features", "expected"), [(100, loadings.update_buffet_collapsed), (20_000, loadings.update_buffet_parallel)]
)
def test_the_sweep_is_chosen_by_size_alone(n_features, expected):
    assert expected in schedule.build(preset("nsfa"), n_features)


def test_an_empty_start_has_no_factors_and_a_fixed_one_has_k(rng):
    data = observe(rng.normal(size=(10, 6)))
    assert initial_state(data, preset("nsfa"), rng).n_factors == 0
    assert initial_state(data, preset("sfa", n_components=4), rng).n_factors == 4


def test_chains_start_apart_unless_the_schedule_is_the_papers():
    starts = [starting_factors(preset("nsfa"), (100, 80), chain) for chain in range(5)]
    assert starts == [20, 0, 40, 10, 20]
    assert starting_factors(preset("nsfa", moves="plain"), (100, 80), 2) == 0
    assert starting_factors(preset("sfa", n_components=3), (100, 80), 2) == 0
    assert starting_factors(preset("nsfa"), (1_000, 1_000), 2) == 100
    assert starting_factors(preset("nsfa"), (20_000, 1_000_000), 2) == 25
    assert starting_factors(preset("nsfa"), (2, 2), 3) == 1


@pytest.mark.parametrize("sparse", [False, True])
def test_starting_scores_span_where_the_samples_differ(sparse, rng):
    X = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 30)) + 0.01 * rng.normal(size=(40, 30))
    data = observe(sp.csr_matrix(X) if sparse else X)
    scores = towards_data(rng.normal(size=(40, 3)), data, get_kernels(), rng)
    np.testing.assert_allclose(scores.T @ scores, 40 * np.eye(3), atol=1e-8)
    centred = X - X.mean(axis=0)
    left = np.linalg.svd(centred / centred.std(axis=0))[0][:, :3]
    np.testing.assert_allclose(np.linalg.svd(left.T @ scores)[1], np.sqrt(40), rtol=1e-3)


def test_long_tables_start_with_simple_structure(rng):
    """Three groups of features with a factor each: the start finds them, though its scores were rotated at random."""
    group = np.repeat(np.arange(3), 1100)
    X = rng.normal(size=(60, 3))[:, group] + 0.5 * rng.normal(size=(60, 3300))
    chain = Chain(observe(X), preset("nsfa"), get_kernels(), chain_generator(0, 0), 3)
    chain.state.check_invariants()
    share = np.array([[chain.state.active[group == g, k].mean() for k in range(3)] for g in range(3)])
    assert sorted(share.argmax(axis=0)) == [0, 1, 2]
    assert (share.max(axis=0) > 0.99).all() and np.sort(share, axis=0)[1].max() < 0.3
    np.testing.assert_allclose(chain.stats.cross, chain.data.values @ chain.state.scores)
    chain.sweep()
    chain.state.check_invariants()


@pytest.mark.parametrize("missing", [0.0, 0.05])
def test_copied_features_do_not_break_a_learned_noise_rate(missing, rng):
    """Their residuals vanish; without a bound the shared rate and the precisions would run away together."""
    base = rng.normal(size=200)
    X = np.column_stack([base, base, 2 * base, *rng.normal(size=(3, 200))])
    X[rng.random(X.shape) < missing] = np.nan
    chain = Chain(observe(X), preset("nsfa", noise="shared"), get_kernels(), chain_generator(1, 0))
    for _ in range(600):
        births = chain.sweep()
    assert np.isfinite(chain.draw(births, 0.0).scalars["log_joint"])


@pytest.mark.parametrize("start", [0, 3])
def test_warm_up_begins_at_raised_noise_and_only_there(rng, start):
    data = observe(rng.normal(size=(30, 12)) * 5.0, scale=None)
    chain = Chain(data, preset("nsfa"), get_kernels(), chain_generator(0, 0), start=start, tune=100)
    assert chain.annealed == 20
    highest = []
    for _ in range(25):
        chain.sweep()
        highest.append((chain.state.noise_precision * data.power / data.count).max())
    caps = 0.2 * 500 ** (np.arange(20) / 20)
    assert (np.array(highest[:20]) <= 1.001 * caps).all() and highest[0] > 0.19 and highest[-1] > 0.5


def test_raised_noise_stays_isotropic(rng):
    data = observe(rng.normal(size=(30, 12)) * np.arange(1.0, 13.0), scale="global")
    chain = Chain(
        data, preset("sfa", n_components=3, noise="isotropic"), get_kernels(), chain_generator(0, 0), tune=100
    )
    chain.sweep()
    assert chain.annealed == 20 and np.ptp(chain.state.noise_precision) == 0


def test_chains_with_the_paper_s_moves_or_without_warm_up_stay_cold(rng):
    data = observe(rng.normal(size=(30, 12)))
    cases = [
        ("nsfa", 3, 0, {}),
        ("nsfa", 3, 99, {}),
        ("nsfa", 3, 500, {"moves": "plain"}),
        ("fa", 0, 500, {}),
    ]
    for name, start, tune, changes in cases:
        spec = specification(name, **changes)
        assert Chain(data, spec, get_kernels(), chain_generator(0, 0), start, tune).annealed == 0


def test_pairs_can_be_chosen_when_every_factor_is_empty(rng):
    pairs = choose_pairs(np.full(3, -1e4), 6, rng)
    assert pairs.shape[1] == 2 and (pairs[:, 0] != pairs[:, 1]).all() and set(pairs.ravel()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("shape", "thin", "with_holes"),
    [((100, 100), 4, 4), ((251, 226), 12, 4), ((108, 12558), 1, 1), ((150, 150), 4, 4), ((100, 2000), 3, 1)],
)
def test_sweeps_per_draw_by_the_size_of_the_table(shape, thin, with_holes, rng):
    X = rng.normal(size=shape)
    assert default_thin(observe(X)) == thin
    X[0, 0] = np.nan
    assert default_thin(observe(X)) == with_holes


@pytest.mark.parametrize(
    ("shape", "tune"),
    [((100, 100), 150), ((150, 100), 500), ((500, 600), 500), ((108, 12558), 500), ((2000, 2000), 250)],
)
def test_warm_up_by_the_size_of_the_table(shape, tune):
    data = observe(np.random.default_rng(0).normal(size=shape))
    assert Length.of(data, None, 10, 2) == Length(tune, 10, 2)
    assert Length.of(data, 7, 10, None).tune == 7


def test_which_moves_a_sweep_has():
    data = observe(np.random.default_rng(0).normal(size=(20, 10)))
    for spec in (preset("nsfa"), preset("sfa", n_components=2), preset("nsfa", noise="isotropic")):
        marginal, moves = schedule.build_marginal(spec, data), schedule.build(spec, 10)
        every = {m.__name__ for m in marginal + moves}
        assert {m.__name__ for m in schedule.of_sweep(5, 200, marginal, moves)} == every
        assert {m.__name__ for m in schedule.of_sweep(300, 200, marginal, moves)} == every
        assert {m.__name__ for m in schedule.of_sweep(4, 200, marginal, moves)} == every - {"update_doublet"}
        between = {m.__name__ for m in moves} - {"update_shear"}
        assert {m.__name__ for m in schedule.of_sweep(301, 200, marginal, moves)} == between
        assert ("update_doublet" in every) == (spec == preset("nsfa"))
    assert [schedule.early_sweeps(tune) for tune in (0, 100, 250, 500, 1000)] == [200, 40, 100, 200, 200]
    plain = schedule.build(preset("nsfa", moves="plain"), 10)
    assert schedule.of_sweep(301, 200, (), plain) == plain
