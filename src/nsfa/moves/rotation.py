"""Scores of two factors rotated into each other, and their loadings drawn anew."""

from __future__ import annotations

import numpy as np

from nsfa.model.spec import ModelSpec
from nsfa.moves.info import Info
from nsfa.moves.loadings import draw_anchors, without_anchors
from nsfa.moves.tilt import change_pairs
from nsfa.samples import Samples
from nsfa.state import State

# Random pairs tried at a time: VISITS / D, within these bounds, and one more for so many factors.
VISITS, LEAST_PAIRS, MOST_PAIRS = 120_000, 10, 40
FACTORS_EACH = 2


def update_rotation_buffet(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> Info:
    """For random pairs (j, k): the angle of (x_j, x_k), and all (z, g) of the features that use either, in one block.

    In half of the pairs, rotated scores are as probable as before. Which features use at least one of the two is held;
    each may use the first, the second or both, and with their loadings summed out the angle θ has the density
    p(θ) ∝ Π_d [first_d(θ) + second_d(θ) + both_d(θ)]. It is sought out on a half circle in the frame of the pair's
    principal axes, which does not depend on θ, and proposed from normals near its highest modes; then z and g are
    drawn. Tilts would have to pass from one rotation to another through scores that are correlated.

    The other half is rotated in units in which their slabs are equal: with r² = λ_j/λ_k, (x_j/r, x_k) instead of
    (x_j, x_k). Now loadings are as probable as before, and it is the scores that have a say: p(θ) gets the factor
    exp(−½ (r² − 1) ‖x_j(θ)/r‖²). Slabs of different size hold broad factors in place to 1/√D where few samples hold
    their scores to 1/√N. (A slab per loading has no such units; then r² is that of the first feature, which is exact,
    too.)

    The factors' probabilities are drawn with anchors, as in the parallel sweep. Missing entries are drawn first and
    forgotten afterwards. Changes the scores, ``loadings``, ``active``, ``usage``; the statistics are brought up to
    date. Cost O(D K²).
    """
    return change_pairs(state, samples, draw_anchors, number_of_pairs(state), samples.kernels.rotate, rng)


def update_rotation_finite(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> Info:
    """The same with K fixed: no anchors, a factor may lose its last loading."""
    return change_pairs(state, samples, without_anchors, number_of_pairs(state), samples.kernels.rotate, rng)


def number_of_pairs(state: State) -> int:
    """How many pairs to try; a rotation leaves K alone."""
    number = min(max(VISITS // len(state.loadings), LEAST_PAIRS), MOST_PAIRS)
    return number + state.n_factors // FACTORS_EACH
