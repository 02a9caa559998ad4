"""From a specification to the ordered moves of one sweep: the only place that asks which model it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nsfa.model.spec import Gamma, ModelSpec
from nsfa.moves import births, concentration, dense, loadings, noise, precisions, scores, urn
from nsfa.state import State
from nsfa.stats import Stats

Move = Callable[[State, Stats, ModelSpec, np.random.Generator], Any]

# From this many features on, drawing the factors' probabilities and sweeping rows in parallel gives more effective
# samples per second on two cores than the collapsed sweep, which mixes better but is sequential (docs/performance.md).
PARALLEL_FROM = 3000


def build(spec: ModelSpec, n_features: int) -> tuple[Move, ...]:
    """The moves of one sweep, in order. The choice depends on the model and the table's size, never on threads."""
    # noise next to the loadings: it needs their residuals, which the sweep over rows leaves behind
    moves = [_pattern_move(spec, n_features)]
    moves.append(noise.update_noise_isotropic if spec.noise == "isotropic" else noise.update_noise_diagonal)
    if spec.noise == "shared":
        moves.append(noise.update_noise_rate)
    if spec.pattern == "ibp":
        moves.append(births.update_births)
    moves.append(
        {
            "shared": precisions.update_precision_shared,
            "factor": precisions.update_precision_factor,
            "element": precisions.update_precision_element,
        }[spec.precision]
    )
    if isinstance(spec.priors.loading_rate, Gamma):
        moves.append(precisions.update_loading_rate)
    moves += _pattern_hyperparameters(spec)
    if spec.scores == "dirichlet":
        moves += [urn.update_urn, urn.update_urn_concentration]
    else:
        moves.append(scores.update_scores)
    return tuple(moves)


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
