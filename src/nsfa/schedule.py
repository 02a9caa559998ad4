"""From a specification to the ordered moves of one sweep: the place that asks which model it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nsfa.data import Observed
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.moves import (
    births,
    concentration,
    dense,
    doublet,
    intercept,
    loadings,
    marginal,
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
from nsfa.state import State
from nsfa.stats import Stats

Move = Callable[[State, Stats, ModelSpec, np.random.Generator], Any]

# From this many features on, drawing the factors' probabilities and sweeping rows in parallel gives more effective
# samples per second on two cores than the collapsed sweep, which mixes better but is sequential (docs/performance.md).
PARALLEL_FROM = 3000
# Sweeps with the scores integrated out find the plateau; after that their cost is paid back by every fifth alone. At
# most so many, and so much of the warm-up.
MARGINAL_EARLY = 200
MARGINAL_SHARE = 0.4
MARGINAL_PERIOD = 5
# Warm-up begins with noise that falls from far above the data's variance: broad factors find their places before weak
# ones settle around them. At most so many sweeps, a fifth of the warm-up, and none of a short one.
ANNEALED = 100
SHORT_TUNE = 100
LEAST_PRECISION, MOST_PRECISION = 0.2, 100.0
# After that, until the middle of the warm-up, every so-many sweeps begin without the factors that nothing asks for.
PRUNE_PERIOD = 10
# Where no sweep integrates the scores out, broad factors are turned to simple structure after each such part of the
# warm-up, but for the last two.
SIMPLE_PARTS = 10


def build(spec: ModelSpec, n_features: int) -> tuple[Move, ...]:
    """The moves of one sweep, in order. The choice depends on the model and the table's size, never on threads."""
    moves: list[Move] = []
    if spec.moves == "all" and spec.scores == "gaussian":
        # with a precision per loading there is no shear in K×K terms
        moves += [shear.update_shear] if spec.precision != "element" else []
        moves.append(scale.update_scale)
    # right after the scale, which integrates the factors' slab precisions out
    moves.append(
        {
            "shared": precisions.update_precision_shared,
            "factor": precisions.update_precision_factor,
            "element": precisions.update_precision_element,
        }[spec.precision]
    )
    if isinstance(spec.priors.loading_rate, Gamma):
        moves.append(precisions.update_loading_rate)
    # noise next to the loadings: it needs their residuals, which the sweep over rows leaves behind
    moves.append(_pattern_move(spec, n_features))
    moves.append(noise.update_noise_isotropic if spec.noise == "isotropic" else noise.update_noise_diagonal)
    if spec.noise == "shared":
        moves.append(noise.update_noise_rate)
    if spec.pattern == "ibp":
        moves.append(births.update_births)
        if spec.moves == "all" and spec.noise != "isotropic":
            moves.append(split.update_split)
    moves += _pattern_hyperparameters(spec)
    # scores last: they come with log p(Y | G, τ) of the loadings that the sweep ends with
    if spec.scores == "dirichlet":
        moves += [urn.update_urn, urn.update_urn_concentration]
    else:
        moves.append(scores.update_scores)
    if spec.priors.intercept:
        # clustered scores cannot move together
        moves += [intercept.update_mean_scores] if spec.scores == "gaussian" else []
        moves.append(intercept.update_intercept)
    moves.append(refresh)
    return tuple(moves)


def build_marginal(spec: ModelSpec, data: Observed) -> tuple[Move, ...]:
    """Moves before some sweeps: rows with the scores integrated out, the scores, pairs of factors, doublets.

    None for dense patterns, which mix well, for two-level ones and clustered scores, whose conditionals differ, and for
    sparse tables. In long ones only pairs of factors.
    """
    if not _has_more_moves(spec) or data.offset is not None:
        return ()
    before = (marginal.update_marginal, scores.update_scores, refresh) if collapses(spec, data) else ()
    if spec.pattern == "finite":
        return *before, tilt.update_tilt_finite, rotation.update_rotation_finite
    own_noise = spec.noise != "isotropic" and spec.precision != "element"
    pairs = tilt.update_tilt_buffet, rotation.update_rotation_buffet
    return *before, *pairs, *([doublet.update_doublet] if own_noise and before else [])


def collapses(spec: ModelSpec, data: Observed) -> bool:
    """Whether rows are drawn with the scores integrated out.

    Not in tables so long that going through their rows one by one would cost more than it gives.
    """
    return _has_more_moves(spec) and data.offset is None and data.shape[0] < PARALLEL_FROM


def _has_more_moves(spec: ModelSpec) -> bool:
    return spec.pattern in ("ibp", "finite") and spec.scores == "gaussian" and spec.moves == "all"


def early_sweeps(tune: int) -> int:
    """How many sweeps all have the marginal moves, of a chain with ``tune`` warm-up sweeps; the most where it is 0."""
    return min(MARGINAL_EARLY, math.ceil(MARGINAL_SHARE * tune)) if tune else MARGINAL_EARLY


def of_sweep(number: int, early: int, marginal: tuple[Move, ...], moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """The moves of sweep ``number`` (from 1): the marginal ones precede ``early`` sweeps, and every fifth of all.

    Not all in all: factors of two features can wait for a fifth sweep, and shears, which mix well, for marginal moves
    where these integrate the scores out (``early`` is 0 where they do not).
    """
    if not marginal or number % MARGINAL_PERIOD == 0:
        return marginal + moves
    if number <= early:
        return tuple(move for move in marginal + moves if move is not doublet.update_doublet)
    return tuple(move for move in moves if move is not shear.update_shear) if early else moves


def annealed_sweeps(tune: int) -> int:
    """How many of ``tune`` warm-up sweeps have a cap on the noise precisions."""
    return min(ANNEALED, tune // 5) if tune >= SHORT_TUNE else 0


def prunes(number: int, tune: int, annealed: int, spec: ModelSpec) -> bool:
    """Whether sweep ``number`` of a chain with ``tune`` warm-up sweeps drops factors that are not needed."""
    free = spec.n_components is None and spec.moves == "all"
    return free and annealed < number <= tune // 2 and number % PRUNE_PERIOD == 0


def simplifies(number: int, tune: int, spec: ModelSpec) -> bool:
    """Whether sweep ``number`` of a chain with ``tune`` warm-up sweeps begins with simple structure."""
    part = tune // SIMPLE_PARTS
    return _has_more_moves(spec) and part > 0 and number <= tune - 2 * part and number % part == 0


def precision_cap(sweep: int, annealed: int) -> float:
    """What noise precisions may not exceed in annealed sweep number ``sweep`` (from 1), for features of variance 1."""
    return float(LEAST_PRECISION * (MOST_PRECISION / LEAST_PRECISION) ** ((sweep - 1) / annealed))


def refresh(state: State, stats: Stats, spec: ModelSpec, rng: np.random.Generator) -> None:
    """Bring the statistics up to the scores at the end of a sweep."""
    stats.refresh(state)


def _pattern_move(spec: ModelSpec, n_features: int) -> Move:
    parallel = spec.sweep == "parallel" or (spec.sweep == "auto" and n_features >= PARALLEL_FROM)
    if spec.pattern == "dense":
        return dense.update_dense
    if spec.pattern == "two-level":
        return loadings.update_two_level
    if spec.pattern == "finite":
        return loadings.update_finite_parallel if parallel else loadings.update_finite_collapsed
    return loadings.update_buffet_parallel if parallel else loadings.update_buffet_collapsed


def _pattern_hyperparameters(spec: ModelSpec) -> list[Move]:
    if spec.pattern == "two-level":
        return [concentration.update_sparsity]
    if spec.pattern == "dense":
        return []
    finite = spec.pattern == "finite"
    moves: list[Move] = []
    if spec.concentration == "infer":
        moves.append(concentration.update_concentration_finite if finite else concentration.update_concentration_buffet)
    if spec.stickiness == "infer":
        moves.append(concentration.update_stickiness_finite if finite else concentration.update_stickiness_buffet)
    return moves
