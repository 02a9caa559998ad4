"""One factor's scores tilted towards another's, whose loadings on the first one's features are drawn anew."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from nsfa.arrays import Floats, Ints, beside, contiguous
from nsfa.kernels import Pairs
from nsfa.kernels.streams import fresh_key
from nsfa.model.spec import ModelSpec
from nsfa.moves.info import Info
from nsfa.moves.loadings import draw_anchors, without_anchors
from nsfa.samples import Samples
from nsfa.state import State

# Random pairs tried at a time, per factor: relevant ones are few, and their modes last for thousands of sweeps. This
# share of the factors in them is chosen uniformly, the others by their probabilities.
PAIRS = 2
UNIFORM = 0.5


def update_tilt_buffet(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> Info:
    """For random pairs (k, j): the component c of x_k along x_j, and all (z_dj, g_dj) with z_dk = 1, in one block.

    With x_k = x⊥ + c x_j, feature d wants g_dj near h_d − c g_dk, h_d not depending on c. Summing z and g out,
    p(c) ∝ exp(−½ c² ‖x_j‖²) Π_d [off_d(c) + on_d(c)], off and on normal in c. A proposal from normals near the modes
    with most or few of the loadings off does not depend on the present c, and is accepted or not; then z and g are
    drawn. This passes between two supports that explain the data equally well in one step, where entry-by-entry draws
    would have to switch every loading in between off or on alone.
    The factors' probabilities are drawn with anchors, as in the parallel sweep. Missing entries are drawn first and
    forgotten afterwards. Changes the scores, ``loadings``, ``active``, ``usage``; the statistics are brought up to
    date. Cost O(D K²).
    """
    return change_pairs(state, samples, draw_anchors, PAIRS * state.n_factors, samples.kernels.tilt, rng)


def update_tilt_finite(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> Info:
    """The same with K fixed: no anchors, a factor may lose its last loading."""
    return change_pairs(state, samples, without_anchors, PAIRS * state.n_factors, samples.kernels.tilt, rng)


def change_pairs(
    state: State,
    samples: Samples,
    prior: Callable[[State, np.random.Generator], tuple[Ints, Floats]],
    number: int,
    kernel: Callable[[Pairs, Ints, int], int],
    rng: np.random.Generator,
) -> Info:
    """Let a kernel change scores, loadings and pattern of random pairs of factors; ``prior`` draws anchors and logits.

    The statistics are brought up to date.
    """
    if state.n_factors < 2:
        return Info(0, 0)
    anchor, (logit,) = prior(state, rng)
    pairs = choose_pairs(logit, number, rng)
    cross, gram, active = samples.complete_cross(state, rng), samples.gram, state.pattern
    # kernels that go by the zeros change the loadings where they are
    loadings = state.loadings if active is None else contiguous(state.loadings)
    problem = Pairs(
        turn=np.eye(state.n_factors),
        gram=gram,
        excess=cross - loadings @ beside(gram, loadings),
        loadings=loadings,
        active=None if active is None else contiguous(active),
        usage=state.usage,
        noise_precision=state.noise_precision,
        loading_precision=state.slab_rows,
        logit=logit,
        anchor=anchor,
        known=state.prior_offset,
    )
    accepted = kernel(problem, pairs, fresh_key(rng))
    if active is not None:
        state.loadings[:], state.active[:] = problem.loadings, problem.active
    samples.turn(problem.turn, gram=problem.gram)
    if not samples.complete:
        samples.refresh(state)
    return Info(accepted, len(pairs))


def choose_pairs(logit: Floats, number: int, rng: np.random.Generator) -> Ints:
    """At most ``number`` pairs (P, 2) of different factors, in part uniform, in part by their prior probabilities.

    Broad factors are few and their rotations matter most. The probabilities are those drawn for the move, which it
    leaves alone, so that a pair is as likely to be chosen before as after.
    """
    n_factors = len(logit)
    # never all zero: with K fixed every factor may be empty
    weight = expit(logit) + np.finfo(float).tiny
    upto = ((1 - UNIFORM) * weight / weight.sum() + UNIFORM / n_factors).cumsum()
    pairs = np.minimum(upto.searchsorted(rng.random((number, 2)), side="right"), n_factors - 1)
    out: Ints = pairs[pairs[:, 0] != pairs[:, 1]]
    return out
