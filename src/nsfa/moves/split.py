"""Part of a feature's noise split off as a factor of its own, and put back (docs/model.md)."""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Floats
from nsfa.kernels import Split, Splits
from nsfa.kernels.streams import fresh_key
from nsfa.model.priors import draw_gamma
from nsfa.model.spec import ModelSpec
from nsfa.moves.births import birth_rate, with_others
from nsfa.moves.info import Info
from nsfa.moves.noise import LARGEST
from nsfa.moves.precisions import slab_posterior
from nsfa.samples import Samples
from nsfa.state import State

Generator = np.random.Generator


def update_split(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> Info:
    """Metropolis–Hastings between noise variance and factors used by one feature alone, their scores integrated out.

    Each feature tries, with probability ½ each, a birth, g² = uψ with u uniform and an even sign, ψ′ = ψ − g²; or the
    death of one of its n own factors, ψ′ = ψ + g². Neither changes the likelihood, so the ratio of a birth is
    γ/(n+1) · t(g) · p(ψ′)/p(ψ) · ψ/|g|, t the slab with its precision integrated out. Where slabs are relative, t is
    that of g/√ψ′ over √ψ′, and p includes the feature's other loadings. The scores of new factors are not set: the
    scores must be drawn before anything conditions on them.
    Changes ``loadings``, ``active``, ``usage``, ``loading_precision``, ``noise_precision``, K. Cost O(D).
    """
    n_features = len(state.noise_precision)
    if state.loading_precision.ndim:
        slab = spec.priors.loading_shape, state.loading_rate
    else:
        slab = 0.0, float(state.loading_precision)
    problem = Splits(
        # the whole buffers: always in C order, also without factors
        loadings=state.buffers["loadings"],
        active=state.buffers.get("active"),
        usage=state.free_usage,
        noise_precision=state.noise_precision,
        noise_prior=(spec.priors.noise.shape, state.noise_rate),
        slab=slab,
        rate=birth_rate(state, n_features),
        largest=LARGEST,
        relative=state.relative,
        weight=state.given_weight,
        loading_precision=state.precision_rows,
    )
    split = samples.kernels.draw_splits(problem, fresh_key(rng))
    if len(split.row) or len(split.dead[0]):
        state.noise_precision = split.noise_precision
        precision = _slab_of_new(state, spec, split, rng)
        state.replace_singletons(split.dead, split.row, split.loading, precision)
    return Info(len(split.row) + len(split.dead[0]), n_features)


def _slab_of_new(state: State, spec: ModelSpec, split: Split, rng: Generator) -> Floats | None:
    """Slab precisions of new factors given their loadings; per element, features without them draw from the prior."""
    if state.loading_precision.ndim == 0:
        return None
    square = split.loading**2
    if state.relative:
        square = square * split.own_precision
    shape, rate = slab_posterior(spec.priors.loading_shape, state.loading_rate, 1, square)
    own: Floats = draw_gamma(rng, shape, rate, len(split.row))
    return own if state.loading_precision.ndim == 1 else with_others(state, spec, split.row, own, rng)
