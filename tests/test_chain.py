import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from cases import holes
from nsfa.chain import Chain, chain_generator, run_chain
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.length import Length, arrived, default_thin
from nsfa.model import Priors, preset
from nsfa.model.joint import log_joint
from nsfa.model.start import initial_state, starting_factors
from nsfa.moves import loadings
from nsfa.moves.tilt import choose_pairs
from nsfa.samples import Samples

NAMES = ("fa", "afa", "fok", "sfa", "nsfa", "bfrm")


def specification(name, **changes):
    if name != "nsfa":
        changes.setdefault("n_components", 3)
    return preset(name, **changes)


def chain_of(data, spec, rng, start=0, tune=0, backend="numba"):
    return Chain(Samples(data, get_kernels(backend)), spec, rng, start, tune)


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
    chain = chain_of(observe(tables(rng)[kind]), specification(name), chain_generator(0, 0))
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
    chain = chain_of(observe(tables(rng)["missing"]), spec, chain_generator(0, 1))
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
    chain = chain_of(data, specification(name, noise="shared"), chain_generator(3, 0))
    for _ in range(15):
        births = chain.sweep()
    draw = chain.draw(births, 0.0)
    expected = sum(log_joint(chain.state, chain.samples, chain.spec).values())
    assert draw.scalars["log_joint"] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(draw.loadings(), chain.state.loadings, rtol=1e-6, atol=1e-7)
    assert draw.n_active == chain.state.active.sum()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sweep", ["collapsed", "parallel"])
def test_reference_and_compiled_chains_stay_together(name, sweep, rng):
    """The same seed gives the same chain on both backends, up to rounding, for many sweeps."""
    data = observe(tables(rng)["missing"])
    chains = [
        chain_of(data, specification(name, sweep=sweep), chain_generator(5, 0), backend=backend)
        for backend in ("reference", "numba")
    ]
    for _ in range(6):
        for chain in chains:
            chain.sweep()
    a, b = (chain.state for chain in chains)
    np.testing.assert_array_equal(a.active, b.active)
    np.testing.assert_allclose(a.loadings, b.loadings, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(*(chain.samples.scores for chain in chains), rtol=1e-6, atol=1e-8)


def test_where_sums_run_over_all_states_the_sampler_is_exact():
    """Two features, one factor, everything but z fixed: the share of draws in each pattern is its probability."""
    spec = preset("sfa", n_components=1, concentration=1.0, sweep="collapsed")
    rng = np.random.default_rng(4)
    data = observe(rng.normal(size=(6, 2)), scale=None)
    chain = chain_of(data, spec, rng)
    state, samples = chain.state, chain.samples
    samples.set_scores(rng.standard_normal(samples.scores.shape))
    samples.refresh(state)
    counts = np.zeros(4)
    for _ in range(20_000):
        loadings.update_finite_collapsed(state, samples, spec, rng)
        counts[2 * state.active[0, 0] + state.active[1, 0]] += 1
    expected = np.array([_pattern_weight(state, samples, spec, [i // 2, i % 2]) for i in range(4)])
    expected = np.exp(expected - expected.max())
    expected /= expected.sum()
    z = (counts / counts.sum() - expected) / np.sqrt(expected * (1 - expected) / counts.sum())
    assert np.abs(z).max() < 6  # draws are correlated


def _pattern_weight(state, samples, spec, pattern):
    """log of the joint with the loadings integrated out analytically."""
    trial = copy.deepcopy(state)
    trial.active[:, 0] = np.array(pattern, bool)
    trial.loadings[:] = 0.0
    trial.usage = trial.active.sum(axis=0)
    total, x = sum(log_joint(trial, samples, spec).values()), samples.scores[:, 0]
    for d in np.flatnonzero(trial.active[:, 0]):
        lam, tau = float(trial.loading_precision[0]), trial.noise_precision[d]
        ell = tau * x @ x + lam
        shift = tau * samples.data.values[d] @ x
        # ∫ N(g; 0, 1/λ) … dg over the density at g = 0, where log_joint has put ½ log(λ/2π)
        total += 0.5 * (np.log(2 * np.pi) - np.log(ell) + shift**2 / ell)
    return total


def test_a_sweep_reports_warm_up_and_keeps_every_thin_th_draw():
    data = observe(make_sparse_factors(15, 10, 2, random_state=0).X)
    chain = chain_of(data, preset("nsfa"), chain_generator(0, 0))
    sweeps = list(run_chain(chain, Length(tune=4, draws=3, thin=2)))
    assert [s.number for s in sweeps] == list(range(1, 11))
    assert [s.warming_up for s in sweeps] == [True] * 4 + [False] * 6
    assert [s.draw is not None for s in sweeps] == [False] * 5 + [True, False, True, False, True]


def test_a_trace_that_goes_nowhere_has_arrived(rng):
    still, slope = rng.normal(size=(400, 3)), np.linspace(0.0, 3.0, 400)
    assert arrived(still) and not arrived(still[:7])
    assert arrived(np.column_stack([still, np.ones(400)]))
    assert arrived(np.column_stack([still, np.full(400, np.nan)]))
    for i in range(3):
        drift = still.copy()
        drift[:, i] += slope
        assert not arrived(drift)
    # where it came from does not matter
    late = still.copy()
    late[:190] += 10.0
    assert arrived(late)


@pytest.mark.parametrize("stays", [True, False])
def test_a_warm_up_can_end_by_itself(stays, monkeypatch):
    """It is looked at after the usual one and every half of it; at its maximum it ends in any case."""
    looked = []

    def look(trace):
        looked.append(len(trace))
        return stays and len(trace) >= 40

    monkeypatch.setattr("nsfa.chain.arrived", look)
    data = observe(make_sparse_factors(15, 10, 2, random_state=0).X)
    chain = chain_of(data, preset("nsfa"), chain_generator(0, 0), tune=20)
    length = Length(tune=20, draws=3, thin=2, most=50)
    sweeps, end = list(run_chain(chain, length)), 40 if stays else 50
    assert looked == [20, 30, 40] and chain.warmed == end and not chain.history
    assert [s.warming_up for s in sweeps] == [True] * end + [False] * 6
    assert [s.total for s in sweeps] == [length.sweeps] * (end - 1) + [end + 6] * 7
    assert sum(s.draw is not None for s in sweeps) == 3


def test_nothing_but_noise_keeps_an_empty_model_alive(rng):
    data = observe(rng.normal(size=(30, 8)))
    chain = chain_of(data, preset("nsfa", concentration=0.01), chain_generator(0, 0))
    for _ in range(200):
        chain.sweep()
    assert chain.state.n_factors <= 2
    chain.state.check_invariants()


def test_an_empty_start_has_no_factors_and_a_fixed_one_has_k(rng):
    data = observe(rng.normal(size=(10, 6)))
    for spec, expected in ((preset("nsfa"), 0), (preset("sfa", n_components=4), 4)):
        assert initial_state(data.shape, spec).n_factors == expected
        samples = chain_of(data, spec, rng).samples
        assert samples.scores.shape == (10, expected) and samples.cross.shape == (6, expected) and samples.valid


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
    samples = Samples(data, get_kernels())
    samples.begin(initial_state(data.shape, preset("nsfa"), 3), rng, towards_data=True)
    scores = samples.scores
    np.testing.assert_allclose(scores.T @ scores, 40 * np.eye(3), atol=1e-8)
    centred = X - X.mean(axis=0)
    left = np.linalg.svd(centred / centred.std(axis=0))[0][:, :3]
    np.testing.assert_allclose(np.linalg.svd(left.T @ scores)[1], np.sqrt(40), rtol=1e-3)


def test_long_tables_start_with_simple_structure(rng):
    """Three groups of features with a factor each: the start finds them, though its scores were rotated at random."""
    group = np.repeat(np.arange(3), 1100)
    X = rng.normal(size=(60, 3))[:, group] + 0.5 * rng.normal(size=(60, 3300))
    chain = chain_of(observe(X), preset("nsfa"), chain_generator(0, 0), 3)
    chain.state.check_invariants()
    share = np.array([[chain.state.active[group == g, k].mean() for k in range(3)] for g in range(3)])
    assert sorted(share.argmax(axis=0)) == [0, 1, 2]
    assert (share.max(axis=0) > 0.99).all() and np.sort(share, axis=0)[1].max() < 0.3
    np.testing.assert_allclose(chain.samples.cross, chain.samples.data.values @ chain.samples.scores)
    chain.sweep()
    chain.state.check_invariants()


@pytest.mark.parametrize("missing", [0.0, 0.05])
def test_copied_features_do_not_break_a_learned_noise_rate(missing, rng):
    """Their residuals vanish; without a bound the shared rate and the precisions would run away together."""
    base = rng.normal(size=200)
    X = np.column_stack([base, base, 2 * base, *rng.normal(size=(3, 200))])
    X[rng.random(X.shape) < missing] = np.nan
    chain = chain_of(observe(X), preset("nsfa", noise="shared"), chain_generator(1, 0))
    for _ in range(600):
        births = chain.sweep()
    assert np.isfinite(chain.draw(births, 0.0).scalars["log_joint"])


@pytest.mark.parametrize("start", [0, 3])
def test_warm_up_begins_at_raised_noise_and_only_there(rng, start):
    data = observe(rng.normal(size=(30, 12)) * 5.0, scale=None)
    chain = chain_of(data, preset("nsfa"), chain_generator(0, 0), start=start, tune=100)
    assert chain.schedule.annealed == 20
    highest = []
    for _ in range(25):
        chain.sweep()
        highest.append((chain.state.noise_precision * data.power / data.count).max())
    caps = 0.2 * 500 ** (np.arange(20) / 20)
    assert (np.array(highest[:20]) <= 1.001 * caps).all() and highest[0] > 0.19 and highest[-1] > 0.5


def test_raised_noise_stays_isotropic(rng):
    data = observe(rng.normal(size=(30, 12)) * np.arange(1.0, 13.0), scale="global")
    chain = chain_of(data, preset("sfa", n_components=3, noise="isotropic"), chain_generator(0, 0), tune=100)
    chain.sweep()
    assert chain.schedule.annealed == 20 and np.ptp(chain.state.noise_precision) == 0


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
        assert chain_of(data, spec, chain_generator(0, 0), start, tune).schedule.annealed == 0


def test_pairs_can_be_chosen_when_every_factor_is_empty(rng):
    pairs = choose_pairs(np.full(3, -1e4), 6, rng)
    assert pairs.shape[1] == 2 and (pairs[:, 0] != pairs[:, 1]).all() and set(pairs.ravel()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("shape", "thin", "with_holes"),
    [
        ((100, 100), 4, 4),
        ((251, 226), 12, 4),
        ((108, 2500), 4, 1),
        ((108, 12558), 3, 1),
        ((200, 12558), 1, 1),
        ((150, 150), 4, 4),
        ((100, 2000), 4, 1),
    ],
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
    assert Length.of(data, "auto", 10, 2) == Length(tune, 10, 2, most=8 * tune)
    # chains of counts find their last factor later
    assert Length.of(replace(data, likelihood="counts"), None, 10, 2) == Length(2 * tune, 10, 2)
    assert Length.of(replace(data, likelihood="binary"), None, 10, 2) == Length(tune, 10, 2)


def test_large_tables_of_counts_have_fewer_sweeps_per_draw(rng):
    data = observe(rng.normal(size=(1000, 600)))
    thins = [default_thin(replace(data, likelihood=kind)) for kind in ("gaussian", "counts", "binary")]
    assert thins == [4, 2, 1]


def test_a_warm_up_is_a_number_or_auto(rng):
    with pytest.raises(ValueError, match="tune must be an int >= 0, 'auto', or None. Got 'long'."):
        Length.of(observe(rng.normal(size=(9, 4))), "long", 10, 2)


REFUSABLE = {
    "nsfa": {"tilt", "rotation", "doublet", "births", "split"},
    "sfa": {"tilt", "rotation"},
    "fa": set(),
    "bfrm": set(),
}


@pytest.mark.parametrize("kind", ["dense", "missing"])
@pytest.mark.parametrize("name", REFUSABLE)
def test_proposals_are_counted_by_move(name, kind, rng):
    """What moves that may be refused report adds up; nothing else reports anything."""
    chain = chain_of(observe(tables(rng)[kind]), specification(name), chain_generator(0, 0), 4 * (name == "nsfa"))
    expected = {}
    for move in chain.schedule.moves:
        counted(move, chain, expected)
    for number in range(1, 11):
        births = chain.sweep()
        assert chain.number == number
        assert name != "nsfa" or (births.tried == 12 and 0 <= births.accepted <= 12)
    assert set(chain.reports) == set(expected) == REFUSABLE[name]
    for key, (accepted, tried) in chain.reports.items():
        assert [accepted, tried] == np.sum(expected[key], axis=0).tolist()
        assert 0 < accepted < tried, key


def counted(move, chain, expected):
    """Have the chain's move add what it reports to ``expected`` too."""

    def update(*arguments):
        info = move.update(*arguments)
        if info is not None:
            assert 0 <= info.accepted <= info.tried
            expected.setdefault(move.name, []).append(info)
        return info

    moves = tuple(m._replace(update=update) if m is move else m for m in chain.schedule.moves)
    chain.schedule = replace(chain.schedule, moves=moves)


def test_a_snapshot_carries_what_was_accepted_and_draws_say_its_share(rng):
    data = observe(tables(rng)["dense"])
    chain, other = (chain_of(data, preset("nsfa"), chain_generator(seed, 0), 4) for seed in (0, 1))
    for _ in range(10):
        births = chain.sweep()
    scalars = chain.draw(births, 0.0).scalars
    for name in REFUSABLE["nsfa"]:
        accepted, tried = chain.reports[name]
        assert scalars[f"accepted_{name}"] == accepted / tried
    before = {name: list(counts) for name, counts in chain.reports.items()}
    other.restore(copy.deepcopy(chain.snapshot()))
    assert other.reports == before
    chain.sweep()
    other.sweep()
    assert other.reports == chain.reports != before


def test_the_draws_of_a_chain_all_have_the_same_scalars(rng):
    """Also while there are too few factors for a move to try anything."""
    chain = chain_of(observe(rng.normal(size=(30, 8))), preset("nsfa", concentration=0.01), chain_generator(0, 0))
    first = chain.draw(chain.sweep(), 0.0).scalars
    more = chain_of(observe(tables(rng)["dense"]), preset("nsfa"), chain_generator(0, 0), 4)
    for _ in range(5):
        births = more.sweep()
    assert set(first) == set(more.draw(births, 0.0).scalars)


def test_a_checkpoint_of_an_earlier_version_is_refused(rng):
    chain = chain_of(observe(tables(rng)["dense"]), preset("nsfa"), chain_generator(0, 0))
    snapshot = {name: value for name, value in chain.snapshot().items() if name != "samples"}
    with pytest.raises(ValueError, match="earlier version of nsfa"):
        chain.restore(snapshot)
    # one share of outliers for all samples
    snapshot = chain.snapshot()
    former = dict.fromkeys(("outlier_share", "outlier_number"))
    snapshot["state"] = {**snapshot["state"], **former, "outlier_share": np.ones(6) / 6}
    with pytest.raises(ValueError, match="earlier version of nsfa"):
        chain.restore(snapshot)


def test_a_checkpoint_of_before_robust_noise_changed_goes_on(rng):
    """Of other noise: fields that are gone were empty; counts of newer moves, and what warm-ups keep, were not there."""
    data = observe(tables(rng)["dense"])
    chain, other = (chain_of(data, preset("nsfa"), chain_generator(seed, 0)) for seed in (0, 1))
    chain.sweep()
    snapshot = {name: value for name, value in chain.snapshot().items() if name not in ("warmed", "history")}
    snapshot["state"] = {**snapshot["state"], "outlier_share": None, "outlier_number": None}
    snapshot["reports"] = {"births": snapshot["reports"]["births"]}
    other.restore(copy.deepcopy(snapshot))
    chain.sweep()
    other.sweep()
    assert np.array_equal(chain.state.loadings, other.state.loadings)


@pytest.mark.parametrize("kind", ["dense", "missing", "sparse"])
@pytest.mark.parametrize("name", ["nsfa", "sfa"])
def test_single_precision_draws_what_double_precision_does(name, kind, rng):
    """Over some sweeps, until a rounding decides otherwise; everything drawn stays double."""
    chains = [
        chain_of(observe(tables(rng)[kind], dtype=dtype), specification(name), chain_generator(0, 0))
        for dtype in ("float64", "float32")
        for rng in [np.random.default_rng(1)]
    ]
    for _ in range(10):
        for chain in chains:
            chain.sweep()
        double, single = (chain.state for chain in chains)
        assert double.n_factors == single.n_factors and np.array_equal(double.active, single.active)
        np.testing.assert_allclose(single.loadings, double.loadings, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(single.noise_precision, double.noise_precision, rtol=1e-4)
        np.testing.assert_allclose(chains[1].samples.scores, chains[0].samples.scores, rtol=1e-4, atol=1e-4)
    for array in (single.loadings, chains[1].samples.scores, chains[1].samples.cross, chains[1].samples.gram):
        assert array.dtype == np.float64


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_single_precision_finds_the_same_number_of_factors(kind):
    X = make_sparse_factors(120, 60, 4, density=0.3, random_state=2).X
    X = X if kind == "dense" else sp.csr_array(X * (np.random.default_rng(0).random(X.shape) < 0.5))
    found = []
    for dtype in ("float64", "float32"):
        chain = chain_of(observe(X, dtype=dtype), preset("nsfa"), chain_generator(1, 0), start=8, tune=100)
        draws = [s.draw for s in run_chain(chain, Length(100, 60, 2)) if s.draw is not None]
        usage = [np.sort(draw.usage())[::-1] for draw in draws]
        found.append(np.median([(u >= 5).sum() for u in usage]))
    assert found[0] == found[1] == 4
