"""Part of one factor moved into another whose features include its own; the likelihood does not see it."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Bools, Floats, Ints
from nsfa.kernels.streams import fresh_key
from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State


def update_shear(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> None:
    """For every ordered pair of factors with supp(z_k) ⊆ supp(z_j): x_k → x_k + a x_j, g_j → g_j − a g_k.

    a ~ N((λ_j g_j·g_k − x_j·x_k)/q, 1/q), q = ‖x_j‖² + λ_j ‖g_k‖²: an exact Gibbs draw along the direction, which has
    unit Jacobian and leaves G X and the pattern as they are. Products of loadings are weighted by the features' noise
    precisions where slabs are relative. Changes the scores, ``loadings`` and the
    statistics. Works on the K×K inner products; cost O(D K² + pairs · K).
    """
    inner, together = state.products
    inside = nested(together, state.usage)
    if not inside.any():
        return
    precision = np.broadcast_to(state.loading_precision, state.n_factors).astype(np.float64)
    gram = samples.gram
    M, W = samples.kernels.draw_shears(gram, inner, precision, inside, fresh_key(rng))
    # the kernel has brought S up to date
    samples.turn(M, gram=gram)
    # exact zeros stay: W links a factor only to those whose features include its own
    state.turn_loadings(W)


def nested(together: Floats, usage: Ints) -> Bools:
    """Whether all features of factor k are among those of factor j ≠ k, (K, K); ``together`` counts those of both."""
    inside: Bools = together >= usage[:, None]
    np.fill_diagonal(inside, False)
    return inside
