"""From a specification to the ordered moves of one sweep: the place that asks which model it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsfa.model.spec import Gamma, ModelSpec
from nsfa.moves import (
    births,
    carried,
    column,
    concentration,
    dense,
    doublet,
    intercept,
    latent,
    loadings,
    marginal,
    module,
    noise,
    precisions,
    rotation,
    scale,
    scores,
    shear,
    split,
    tilt,
    urn,
)
from nsfa.moves.info import Info
from nsfa.samples import Samples
from nsfa.state import State

Update = Callable[[State, Samples, ModelSpec, np.random.Generator], Info | None]

# From this many features on, drawing the factors' probabilities and sweeping rows in parallel gives more effective
# samples per second on two cores than the collapsed sweep, which mixes better but is sequential (docs/performance.md).
PARALLEL_FROM = 3000
# Sweeps with the scores integrated out find the plateau; after that their cost is paid back by every fifth alone. At
# most so many, and so much of the warm-up.
MARGINAL_EARLY = 200
MARGINAL_SHARE = 0.4
MARGINAL_PERIOD = 5
# From this many features on, weak factors on some of them are slow to gain and lose users one by one.
COLUMNS_FROM = 1000
# Factors of many features come at once late in the warm-up; after it hardly one does, and every so-many sweeps try.
LATE_PERIOD = 50
# Warm-up begins with noise that falls from far above the data's variance: broad factors find their places before weak
# ones settle around them. At most so many sweeps, a fifth of the warm-up, and none of a short one.
ANNEALED = 100
SHORT_TUNE = 100
LEAST_PRECISION, MOST_PRECISION = 0.2, 100.0
# After that, until the middle of the warm-up, every so-many sweeps begin without the factors that nothing asks for.
PRUNE_PERIOD = 10
# Where no sweep integrates the scores out, broad factors are turned to simple structure after each such part of the
# warm-up, but for the last two; elsewhere they are made as few as their fit asks for, once, after such a part of the
# sweeps at raised noise, under which they then find their places.
SIMPLE_PARTS = 10

# On tables of ``COLUMNS_FROM`` features and more every sample gets a factor of its own after these shares of a warm-up,
# if what the others leave is shared: while factors are still dropped, or before the last simple structures.
SEEDS, LONG_SEEDS = (0.24, 0.32, 0.4, 0.48), (0.62, 0.66)

# What a move may need, break or make: scores that belong to the factors there are; S and T of them; residuals. (q is
# true until the intercepts are drawn, last of all.)
SCORES, STATISTICS, RESIDUAL = "scores", "statistics", "residuals"
# When a move has its turn.
EVERY, EARLY, FIFTH = "every sweep", "the first sweeps and every fifth", "every fifth sweep"
LATE = "every fifth sweep of the warm-up's second half, then every 50th"


class Move(NamedTuple):
    """A move, and the terms on which it has its turn.

    It ``needs`` some of the chain's parts to be valid and leaves others broken, or makes them valid; ``when`` says how
    often it comes. If it ``reports``, it returns an ``Info``, which is counted under its ``name``.
    """

    name: str
    update: Update
    needs: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    when: str = EVERY
    reports: bool = False


class Unused(NamedTuple):
    """A move that a model or a table does without, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Schedule:
    """The moves of a chain with ``tune`` warm-up sweeps, in their order, and those it does without.

    ``collapses`` says whether rows are drawn with the scores integrated out; then ``early`` sweeps all have the moves
    of the first sweeps. Where a chain ``anneals``, the first ``annealed`` sweeps have a cap on the noise precisions;
    where it ``simplifies``, some sweeps of the warm-up begin with simple structure. ``seeds`` are those that begin with
    a factor for each sample.
    """

    moves: tuple[Move, ...]
    unused: tuple[Unused, ...]
    tune: int
    collapses: bool
    anneals: bool
    simplifies: bool
    seeds: tuple[int, ...] = ()

    @property
    def early(self) -> int:
        """How many sweeps have all moves of the first ones."""
        return early_sweeps(self.tune) if self.collapses else 0

    @property
    def annealed(self) -> int:
        """How many sweeps run at raised noise: without marginal moves, factors that it hides would be long away."""
        return annealed_sweeps(self.tune) if self.anneals else 0

    def of_sweep(self, number: int) -> tuple[Move, ...]:
        """The moves of sweep ``number`` (from 1)."""
        fifth, first = number % MARGINAL_PERIOD == 0, number <= self.early
        late = number % LATE_PERIOD == 0 if number > self.tune else fifth and 2 * number > self.tune
        # what simple structure has cut off would be taken for a factor
        late = late and not (self.simplifies and _simple_sweep(number, self.tune))
        turn = {EVERY: True, EARLY: first or fifth, FIFTH: fifth, LATE: late}
        return tuple(move for move in self.moves if turn[move.when])


def build(spec: ModelSpec, n_features: int, can: frozenset[str], tune: int = 0) -> Schedule:
    """The moves for a model and a table. The choice depends on them and the table's size, never on threads.

    ``can`` is what the samples are able to do (``Samples.can``). Raises ValueError if a move would come where something
    that it needs is not valid.
    """
    found: list[Move | Unused] = [*_before(spec, n_features, can)]
    collapses = any(isinstance(move, Move) and move.name == "marginal" for move in found)
    found += _plain(spec, n_features, can, collapses)
    if "latent" in can:
        # before the statistics are brought up to date for the next sweep
        found.append(Move("latent", latent.update_latent, (SCORES,), (STATISTICS, RESIDUAL)))
    if "carry" in can:
        found += _carried(spec)
    found.append(_refresh())
    moves = tuple(move for move in found if isinstance(move, Move))
    unused = tuple(move for move in found if isinstance(move, Unused))
    # values behind zeros and ones would follow the raised noise
    anneals = collapses and spec.likelihood != "binary"
    # ... and behind counts they follow the factors there are, so that more than rows must move
    simplifies = not collapses or spec.likelihood != "gaussian"
    seeds = _seeds(spec, n_features, can, tune, simplifies)
    schedule = Schedule(moves, unused, tune, collapses, anneals, simplifies, seeds)
    for number in (1, MARGINAL_PERIOD, LATE_PERIOD, 10**9, 10**9 + 1):
        check(schedule.of_sweep(number))
    return schedule


def check(moves: Iterable[Move]) -> None:
    """Raise ValueError unless every move finds what it needs valid, and the sweep ends with scores and statistics."""
    broken: dict[str, str] = {RESIDUAL: "the sweep before"}
    for move in moves:
        for part in move.needs:
            if part in broken:
                raise ValueError(f"{move.name} needs valid {part}, which {broken[part]} leaves broken.")
        broken.update(dict.fromkeys(move.breaks, move.name))
        for part in move.makes:
            broken.pop(part, None)
    for part in (SCORES, STATISTICS):
        if part in broken:
            raise ValueError(f"a sweep must end with valid {part}, which {broken[part]} leaves broken.")


def _before(spec: ModelSpec, n_features: int, can: frozenset[str]) -> Iterator[Move | Unused]:
    """Moves before some sweeps: rows with the scores integrated out, the scores, pairs of factors, doublets.

    None for dense patterns, which mix well, for two-level ones and clustered scores, whose conditionals differ. In long
    and in sparse tables only pairs of factors: these need nothing but S and T.
    """
    why = _refusal(spec)
    if why is not None:
        yield from (Unused(name, why) for name in ("marginal", "tilt", "rotation", "doublet", "module"))
        return
    by_row = _by_row_refusal(n_features, can)
    if by_row is not None:
        yield Unused("marginal", by_row)
    else:
        everything = SCORES, STATISTICS, RESIDUAL
        yield Move("marginal", marginal.update_marginal, (SCORES, STATISTICS), everything, when=EARLY)
        yield _scores()._replace(when=EARLY)
        yield _refresh()._replace(when=EARLY)
    yield from _pairs(spec, can)
    if spec.pattern == "finite":
        yield Unused("doublet", "the number of factors is given")
    elif not spec.noise_of_features or spec.precision == "element":
        yield Unused(
            "doublet", "a slab per loading" if spec.noise_of_features else "features have no noise of their own"
        )
    elif by_row is not None and "small" not in can:
        yield Unused("doublet", by_row)
    else:
        yield Move("doublet", doublet.update_doublet, (SCORES, STATISTICS), (RESIDUAL,), when=FIFTH, reports=True)
    # rows with the scores integrated out leave it nothing to do
    if by_row is not None:
        yield _module(spec, can) if "dense" in can else Unused("module", _module_refusal(spec) or by_row)


def _module(spec: ModelSpec, can: frozenset[str]) -> Move | Unused:
    """Births and deaths of factors of many features, or why there are none."""
    why = _module_refusal(spec)
    if why is None and not {"small", "many features"} <= can:
        why = "the table is too large, or has too many samples or too few"
    if why is not None:
        return Unused("module", why)
    return Move("module", module.update_module, (SCORES, STATISTICS), (RESIDUAL,), when=LATE, reports=True)


def _module_refusal(spec: ModelSpec) -> str | None:
    """Why a model has no births and deaths of factors of many features, or None."""
    if spec.pattern == "finite":
        return "the number of factors is given"
    relative = spec.precision == "factor" and spec.priors.relative
    return None if relative else "slabs are not one per factor, in units of the noise"


def _pairs(spec: ModelSpec, can: frozenset[str]) -> Iterator[Move | Unused]:
    """Moves of pairs of factors, which need S, and T with nothing missing."""
    finite = spec.pattern == "finite"
    pairs = [
        ("tilt", tilt.update_tilt_finite if finite else tilt.update_tilt_buffet),
        ("rotation", rotation.update_rotation_finite if finite else rotation.update_rotation_buffet),
    ]
    for name, update in pairs:
        if "complete" in can:
            yield Move(name, update, (SCORES, STATISTICS), (RESIDUAL,), when=EARLY, reports=True)
        else:
            yield Unused(name, "missing entries cannot be drawn")


def _column(spec: ModelSpec, n_features: int, can: frozenset[str]) -> Move | Unused:
    """Draws of whole columns, right before the loadings, or why there are none."""
    why = _refusal(spec)
    if why is None and spec.precision == "element":
        why = "a slab per loading"
    if why is None and "at once" in can:
        why = "the table is on a device"
    if why is None and "complete" not in can:
        why = "missing entries cannot be drawn"
    if why is None and n_features < COLUMNS_FROM:
        why = f"few features (below {COLUMNS_FROM:,})"
    if why is not None:
        return Unused("column", why)
    return Move("column", column.update_column, (SCORES, STATISTICS), (RESIDUAL,), when=FIFTH)


def _refusal(spec: ModelSpec) -> str | None:
    """Why there are none of the moves that draw whole factors' pattern and loadings, or None."""
    if spec.pattern not in ("ibp", "finite"):
        return f"the pattern is {spec.pattern}"
    if spec.scores != "gaussian":
        return "scores are clustered"
    return None if spec.moves == "all" else f"moves={spec.moves!r}"


def _by_row_refusal(n_features: int, can: frozenset[str]) -> str | None:
    """Why no move goes through the values feature by feature, or None."""
    if "dense" not in can:
        return "the table is on a device" if "at once" in can else "the table is sparse, or in blocks"
    if n_features >= PARALLEL_FROM:
        return f"too many features to go through one by one (from {PARALLEL_FROM:,} on)"
    return None


def _plain(spec: ModelSpec, n_features: int, can: frozenset[str], collapses: bool) -> Iterator[Move | Unused]:
    """The moves of every sweep."""
    everything = SCORES, STATISTICS, RESIDUAL
    if spec.moves == "all" and spec.scores == "gaussian":
        # with a precision per loading there is no shear in K×K terms; shears mix well and can wait for marginal moves
        if spec.precision != "element":
            yield Move("shear", shear.update_shear, (SCORES, STATISTICS), when=EARLY if collapses else EVERY)
        yield Move("scale", scale.update_scale, (SCORES, STATISTICS))
    # right after the scale, which integrates the factors' slab precisions out
    update = {
        "shared": precisions.update_precision_shared,
        "factor": precisions.update_precision_factor,
        "element": precisions.update_precision_element,
    }[spec.precision]
    yield Move("slab precisions", update)
    if isinstance(spec.priors.loading_rate, Gamma):
        yield Move("slab rate", precisions.update_loading_rate)
    yield _column(spec, n_features, can)
    # noise next to the loadings: it needs their residuals, which the sweep over rows leaves behind
    yield Move("loadings", _pattern_update(spec, n_features, can), (SCORES, STATISTICS), makes=(RESIDUAL,))
    isotropic = spec.noise == "isotropic"
    if spec.likelihood != "binary":
        yield Move("noise", noise.update_noise_isotropic if isotropic else noise.update_noise_diagonal, (RESIDUAL,))
    if spec.noise == "shared":
        yield Move("noise rate", noise.update_noise_rate)
    if spec.pattern == "ibp":
        yield Move("births", births.update_births, everything, everything, reports=True)
        if spec.moves == "all" and spec.noise_of_features:
            yield Move("split", split.update_split, breaks=everything, reports=True)
    yield from (Move(name, update) for name, update in _pattern_hyperparameters(spec))
    # scores last: they come with log p(Y | G, τ) of the loadings that the sweep ends with
    if spec.scores == "dirichlet":
        yield Move("clusters", urn.update_urn, (SCORES,), (STATISTICS, RESIDUAL))
        yield Move("urn", urn.update_urn_concentration)
    else:
        yield _scores()
    if spec.priors.intercept:
        # clustered scores cannot move together
        if spec.scores == "gaussian":
            yield Move("mean scores", intercept.update_mean_scores, (SCORES,), (STATISTICS,))
        yield Move("intercepts", intercept.update_intercept, (SCORES,), (STATISTICS, RESIDUAL))


def _carried(spec: ModelSpec) -> Iterator[Move | Unused]:
    """Moves that take drawn values along, right after these."""
    rest = (SCORES,), (STATISTICS, RESIDUAL)
    if spec.moves != "all":
        yield Unused("loadings with rates", f"moves={spec.moves!r}")
        return
    if spec.priors.intercept:
        yield Move("means with rates", carried.update_carried_intercepts, *rest)
    yield Move("loadings with rates", carried.update_carried_loadings, *rest)
    if spec.scores == "gaussian":
        yield Move("scores with rates", carried.update_carried_scores, *rest)


def _scores() -> Move:
    return Move("scores", scores.update_scores, breaks=(STATISTICS, RESIDUAL), makes=(SCORES,))


def _refresh() -> Move:
    return Move("refresh", refresh, (SCORES,), makes=(STATISTICS,))


def refresh(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> None:
    """Bring the statistics up to the scores."""
    samples.refresh(state)


def early_sweeps(tune: int) -> int:
    """How many sweeps all have the marginal moves, of a chain with ``tune`` warm-up sweeps; the most where it is 0."""
    return min(MARGINAL_EARLY, math.ceil(MARGINAL_SHARE * tune)) if tune else MARGINAL_EARLY


def annealed_sweeps(tune: int) -> int:
    """How many of ``tune`` warm-up sweeps have a cap on the noise precisions."""
    return min(ANNEALED, tune // 5) if tune >= SHORT_TUNE else 0


def prunes(number: int, tune: int, annealed: int, spec: ModelSpec) -> bool:
    """Whether sweep ``number`` of a chain with ``tune`` warm-up sweeps drops factors that are not needed."""
    free = spec.n_components is None and spec.moves == "all"
    return free and annealed < number <= tune // 2 and number % PRUNE_PERIOD == 0


def condenses(number: int, annealed: int, spec: ModelSpec) -> bool:
    """Whether sweep ``number`` of a chain with ``annealed`` sweeps at raised noise begins with few factors."""
    free = spec.n_components is None and spec.moves == "all"
    return free and annealed > 0 and number == max(annealed // SIMPLE_PARTS, 1)


def simplifies(number: int, tune: int, spec: ModelSpec) -> bool:
    """Whether sweep ``number`` of a chain with ``tune`` warm-up sweeps begins with simple structure."""
    sparse = spec.pattern in ("ibp", "finite") and spec.scores == "gaussian" and spec.moves == "all"
    return sparse and _simple_sweep(number, tune)


def _seeds(spec: ModelSpec, n_features: int, can: frozenset[str], tune: int, simplifies: bool) -> tuple[int, ...]:
    """Before which sweeps of the warm-up every sample gets a factor of its own."""
    refused = _refusal(spec) or _module_refusal(spec)
    # values that are drawn follow the factors there are, and about means that are held all samples look alike
    if refused is not None or spec.latent or not spec.priors.intercept:
        return ()
    if n_features < COLUMNS_FROM or "seed" not in can or tune < SHORT_TUNE:
        return ()
    return tuple(round(share * tune) for share in (LONG_SEEDS if simplifies else SEEDS))


def _simple_sweep(number: int, tune: int) -> bool:
    part = tune // SIMPLE_PARTS
    return 0 < part <= number <= tune - 2 * part and number % part == 0


def precision_cap(sweep: int, annealed: int) -> float:
    """What noise precisions may not exceed in annealed sweep number ``sweep`` (from 1), for features of variance 1."""
    return float(LEAST_PRECISION * (MOST_PRECISION / LEAST_PRECISION) ** ((sweep - 1) / annealed))


def _pattern_update(spec: ModelSpec, n_features: int, can: frozenset[str]) -> Update:
    long = n_features >= PARALLEL_FROM or "at once" in can
    parallel = spec.sweep == "parallel" or (spec.sweep == "auto" and long)
    if spec.pattern == "dense":
        return dense.update_dense
    if spec.pattern == "two-level":
        return loadings.update_two_level
    if spec.pattern == "finite":
        return loadings.update_finite_parallel if parallel else loadings.update_finite_collapsed
    return loadings.update_buffet_parallel if parallel else loadings.update_buffet_collapsed


def _pattern_hyperparameters(spec: ModelSpec) -> Iterator[tuple[str, Update]]:
    if spec.pattern == "two-level":
        yield "sparsity", concentration.update_sparsity
    if spec.pattern not in ("ibp", "finite"):
        return
    finite = spec.pattern == "finite"
    if spec.concentration == "infer":
        update = concentration.update_concentration_finite if finite else concentration.update_concentration_buffet
        yield "concentration", update
    if spec.stickiness == "infer":
        yield "stickiness", concentration.update_stickiness_finite if finite else concentration.update_stickiness_buffet
