"""Which moves a sweep has, in which order, and that the order makes sense."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import digests
from nsfa import schedule
from nsfa.chain import Chain, chain_generator
from nsfa.data import observe, observe_discrete
from nsfa.kernels import get_kernels
from nsfa.latent_samples import abilities_of, samples_of
from nsfa.model import Priors, preset
from nsfa.moves import loadings
from nsfa.samples import Samples
from nsfa.schedule import Move, check

DENSE, SPARSE = frozenset({"whole", "complete", "dense"}), frozenset({"whole", "complete"})
TABLES = {
    "dense": (10, DENSE),
    "sparse": (10, SPARSE),
    "long": (schedule.PARALLEL_FROM, DENSE),
    "elsewhere": (schedule.PARALLEL_FROM, frozenset()),
    "device": (schedule.PARALLEL_FROM, SPARSE | {"at once"}),
}
SPECS = {
    "nsfa": preset("nsfa"),
    "nsfa, isotropic": preset("nsfa", noise="isotropic"),
    "nsfa, per element": preset("nsfa", precision="element"),
    "nsfa, plain": preset("nsfa", moves="plain"),
    **{name: preset(name, n_components=2) for name in ("fa", "afa", "fok", "sfa", "bfrm")},
}


def names(moves):
    return [move.name for move in moves]


def nothing(state, samples, spec, rng):
    """A move that does nothing."""


BIRTHS = Move("births", nothing, breaks=("scores", "statistics", "residuals"))
LOADINGS = Move("loadings", nothing, ("scores", "statistics"), makes=("residuals",))
NOISE = Move("noise", nothing, ("residuals",))
SCORES = Move("scores", nothing, breaks=("statistics", "residuals"), makes=("scores",))
REFRESH = Move("refresh", nothing, ("scores",), makes=("statistics",))


@pytest.mark.parametrize(
    ("moves", "sentence"),
    [
        ((BIRTHS, LOADINGS, SCORES, REFRESH), "loadings needs valid scores, which births leaves broken."),
        ((BIRTHS, REFRESH), "refresh needs valid scores, which births leaves broken."),
        ((BIRTHS, SCORES, LOADINGS, REFRESH), "loadings needs valid statistics, which scores leaves broken."),
        ((NOISE, LOADINGS), "noise needs valid residuals, which the sweep before leaves broken."),
        ((LOADINGS, SCORES, REFRESH, NOISE), "noise needs valid residuals, which scores leaves broken."),
        ((LOADINGS, SCORES), "a sweep must end with valid statistics, which scores leaves broken."),
        ((LOADINGS, BIRTHS), "a sweep must end with valid scores, which births leaves broken."),
    ],
)
def test_an_order_in_which_a_move_finds_something_broken_is_refused(moves, sentence):
    with pytest.raises(ValueError) as error:
        check(moves)
    assert str(error.value) == sentence


def test_an_order_that_makes_sense_passes():
    check(())
    check((LOADINGS, NOISE, BIRTHS, SCORES, REFRESH))
    check((BIRTHS, SCORES, REFRESH, LOADINGS, NOISE))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("tune", [0, 100, 500])
def test_every_model_has_a_schedule_for_every_table(name, table, tune):
    spec, (n_features, can) = SPECS[name], TABLES[table]
    plan = schedule.build(spec, n_features, can, tune)
    for number in (1, 2, 5, 199, 200, 201, 202, 205, 10_000, 10_001):
        moves = plan.of_sweep(number)
        check(moves)
        assert names(moves)[-1] == "refresh" and {"loadings", "noise", "slab precisions"} <= set(names(moves))
        # a subset of all moves, in their order
        rest = iter(plan.moves)
        assert all(move in rest for move in moves)
    assert ("births" in names(plan.moves)) == (spec.pattern == "ibp")
    assert plan.collapses == ("marginal" in names(plan.moves))
    used, unused = {move.name for move in plan.moves}, {move.name for move in plan.unused}
    assert set(MOVES) <= used | unused and not used & unused


MOVES = ("marginal", "tilt", "rotation", "doublet", "column")
FEW = {"column": "few features (below 1,000)"}
WHY = {
    ("nsfa", "dense"): FEW,
    ("nsfa, isotropic", "dense"): {"doublet": "features have no noise of their own", **FEW},
    ("nsfa, per element", "dense"): dict.fromkeys(("doublet", "column"), "a slab per loading"),
    ("sfa", "dense"): {"doublet": "the number of factors is given", **FEW},
    ("nsfa", "long"): dict.fromkeys(
        ("marginal", "doublet"), "too many features to go through one by one (from 3,000 on)"
    ),
    ("nsfa", "sparse"): {**dict.fromkeys(("marginal", "doublet"), "the table is sparse, or in blocks"), **FEW},
    ("sfa", "sparse"): {
        "marginal": "the table is sparse, or in blocks",
        "doublet": "the number of factors is given",
        **FEW,
    },
    ("nsfa", "elsewhere"): {
        **dict.fromkeys(("marginal", "doublet"), "the table is sparse, or in blocks"),
        **dict.fromkeys(("tilt", "rotation", "column"), "missing entries cannot be drawn"),
    },
    ("nsfa", "device"): dict.fromkeys(("marginal", "doublet", "column"), "the table is on a device"),
    ("nsfa, plain", "dense"): dict.fromkeys(MOVES, "moves='plain'"),
    ("fa", "dense"): dict.fromkeys(MOVES, "the pattern is dense"),
    ("bfrm", "dense"): dict.fromkeys(MOVES, "the pattern is two-level"),
}


@pytest.mark.parametrize(("name", "table"), WHY)
def test_a_schedule_says_why_a_move_is_not_used(name, table):
    unused = schedule.build(SPECS[name], *TABLES[table]).unused
    assert {name: why for name, why in unused if name in MOVES} == WHY[name, table]
    assert len(unused) == len({move.name for move in unused})


@pytest.mark.parametrize(
    ("n_features", "expected"), [(100, loadings.update_buffet_collapsed), (20_000, loadings.update_buffet_parallel)]
)
def test_the_sweep_is_chosen_by_size_alone(n_features, expected):
    updates = [move.update for move in schedule.build(preset("nsfa"), n_features, DENSE).moves]
    assert expected in updates


def test_which_moves_a_sweep_has():
    """Before the sweeps: rows with the scores integrated out, with scores and statistics of their own, then pairs."""
    before = ["marginal", "scores", "refresh", "tilt", "rotation"]
    for spec in (preset("nsfa"), preset("sfa", n_components=2), preset("nsfa", noise="isotropic")):
        plan = schedule.build(spec, 10, DENSE, tune=500)
        assert plan.early == 200
        every = names(plan.moves)
        assert every[:5] == before
        assert names(plan.of_sweep(5)) == every
        assert names(plan.of_sweep(300)) == every
        without = [name for name in every if name != "doublet"]
        assert names(plan.of_sweep(4)) == names(plan.of_sweep(199)) == without
        assert names(plan.of_sweep(301)) == [name for name in without[5:] if name != "shear"]
        assert "shear" in every and ("doublet" in every) == (spec == preset("nsfa"))
    assert [schedule.early_sweeps(tune) for tune in (0, 100, 250, 500, 1000)] == [200, 40, 100, 200, 200]
    plain = schedule.build(preset("nsfa", moves="plain"), 10, DENSE)
    assert plain.of_sweep(301) == plain.of_sweep(1) == plain.moves and plain.early == 0


def test_whole_columns_are_drawn_in_every_fifth_sweep_of_tables_with_many_features():
    for can in (DENSE, SPARSE):
        plan = schedule.build(preset("nsfa"), schedule.COLUMNS_FROM, can, tune=500)
        assert [n for n in range(1, 21) if "column" in names(plan.of_sweep(n))] == [5, 10, 15, 20]
        every = names(plan.moves)
        assert every.index("loadings") == every.index("column") + 1


@pytest.mark.parametrize("table", ["long", "sparse"])
def test_long_and_sparse_tables_have_pairs_of_factors_in_every_fifth_sweep_and_shears_in_all(table):
    plan = schedule.build(preset("nsfa"), *TABLES[table], tune=500)
    assert plan.early == plan.annealed == 0
    pairs = {"tilt", "rotation"}
    assert [n for n in range(1, 21) if pairs & set(names(plan.of_sweep(n)))] == [5, 10, 15, 20]
    assert all("shear" in names(plan.of_sweep(n)) for n in range(1, 21))


def test_what_samples_can_do():
    X = np.random.default_rng(0).normal(size=(6, 4))
    assert Samples(observe(X), get_kernels()).can == DENSE | {"small"}
    assert Samples(observe(sp.csr_array(X)), get_kernels()).can == SPARSE


def test_long_tables_have_doublets_while_they_are_small(monkeypatch):
    plan = schedule.build(preset("nsfa"), 20_000, DENSE | {"small"})
    assert [n for n in range(1, 21) if "doublet" in names(plan.of_sweep(n))] == [5, 10, 15, 20]
    assert [name for name, _ in plan.unused] == ["marginal", "module"]
    monkeypatch.setattr("nsfa.samples.SMALL", 23)
    X = np.random.default_rng(0).normal(size=(6, 4))
    assert Samples(observe(X), get_kernels()).can == DENSE
    assert "small" in Samples(observe(X[:5]), get_kernels()).can


def test_long_tables_have_factors_of_many_features_while_they_are_small():
    can = DENSE | {"small", "many features"}
    plan = schedule.build(preset("nsfa"), 20_000, can, tune=40)
    found = [n for n in range(1, 120) if "module" in names(plan.of_sweep(n))]
    assert found == [25, 30, 35, 40, 50, 100]
    # loadings that simple structure has just cut off are no factor
    plan = schedule.build(preset("nsfa"), 20_000, can, tune=100)
    found = [n for n in range(1, 200) if "module" in names(plan.of_sweep(n))]
    assert found == [55, 65, 75, 85, 90, 95, 100, 150]
    assert [name for name, _ in plan.unused] == ["marginal"]
    for spec, given, why in (
        (preset("sfa", n_components=2), can, "the number of factors is given"),
        (preset("nsfa", priors=Priors.paper()), can, "slabs are not one per factor, in units of the noise"),
        (preset("nsfa"), can - {"small"}, "the table is too large, or has too many samples or too few"),
        (preset("nsfa"), SPARSE, "the table is sparse, or in blocks"),
    ):
        assert dict(schedule.build(spec, 20_000, given).unused)["module"] == why
    # rows with the scores integrated out leave it nothing to do
    short = schedule.build(preset("nsfa"), 2_000, can)
    assert not short.unused and "module" not in names(short.moves)
    for n_samples, many in ((29, False), (30, True), (31, False)):
        X = np.random.default_rng(0).normal(size=(n_samples, 300))
        assert ("many features" in Samples(observe(X), get_kernels()).can) == many


def close(a, b):
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-6 * (1 + np.abs(b).max(initial=0)))


def valid_parts(state, samples):
    """What of scores, statistics and residuals is true, computed anew."""
    if samples.scores.shape[1] != state.n_factors:
        return set()
    fresh = Samples(samples.data, samples.kernels)
    fresh.set_scores(samples.scores, state.width)
    fresh.refresh(state)
    found = {schedule.SCORES}
    if all(close(getattr(samples, name), getattr(fresh, name)) for name in ("gram", "cross", "power")):
        found.add(schedule.STATISTICS)
    return found | ({schedule.RESIDUAL} if close(samples.residual, fresh.residuals(state)) else set())


def honest(move):
    """The move, checked against what it declares."""

    def update(state, samples, spec, rng):
        before = valid_parts(state, samples)
        assert set(move.needs) <= before
        info = move.update(state, samples, spec, rng)
        after = valid_parts(state, samples)
        assert (info is not None) == move.reports
        assert before - after <= set(move.breaks), f"{move.name} breaks {before - after - set(move.breaks)}"
        assert set(move.makes) <= after, f"{move.name} does not make {set(move.makes) - after}"
        return info

    return move._replace(update=update)


# the long ones take seconds each
@pytest.mark.parametrize("case", [pytest.param(rest, id=name) for name, *rest in digests.cases() if "long" not in name])
def test_moves_need_break_and_make_what_they_say(case):
    data, model, settings, start, tune = case
    chain = Chain(Samples(data, get_kernels()), preset(model, **settings), chain_generator(3, 0), start, tune)
    chain.schedule = replace(chain.schedule, moves=tuple(honest(move) for move in chain.schedule.moves))
    for _ in range(6):
        chain.sweep()


@pytest.mark.parametrize("model", ["nsfa", "fa", "bfrm"])
@pytest.mark.parametrize("start", [0, 3])
def test_moves_of_counts_need_break_and_make_what_they_say(model, start):
    rng = np.random.default_rng(4)
    X = rng.poisson(np.exp(rng.standard_normal((25, 1)) * rng.standard_normal(9) * 0.7)).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    spec = preset(model, likelihood="counts", **({} if model == "nsfa" else {"n_components": 2}))
    samples = samples_of(observe_discrete(X, "counts"), spec, get_kernels())
    chain = Chain(samples, spec, chain_generator(3, 0), start if model == "nsfa" else 0)
    carried = ["means with rates", "loadings with rates", "scores with rates"]
    at = names(chain.schedule.moves).index("latent")
    assert names(chain.schedule.moves)[at + 1 :] == [*carried[: 2 + (spec.scores == "gaussian")], "refresh"]
    chain.schedule = replace(chain.schedule, moves=tuple(honest(move) for move in chain.schedule.moves))
    for _ in range(6):
        chain.sweep()


def test_what_goes_along_with_means_loadings_and_scores():
    """They are of counts alone."""
    for likelihood in ("counts", "binary"):
        spec = preset("nsfa", likelihood=likelihood)
        data = observe_discrete(np.eye(5), likelihood)
        can = samples_of(data, spec, get_kernels()).can
        assert can == abilities_of(data, spec) and ("carry" in can) == (likelihood == "counts")
        plan, plain = (schedule.build(replace(spec, moves=moves), 5, can) for moves in ("all", "plain"))
        assert ("scores with rates" in names(plan.moves)) == (likelihood == "counts")
        assert "scores with rates" not in names(plain.moves)
        assert (dict(plain.unused).get("loadings with rates") == "moves='plain'") == (likelihood == "counts")
