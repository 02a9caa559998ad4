"""Shorter ways to the posterior for the warm-up of long tables: no moves of the posterior.

Factors grow there from one feature on, others joining one by one, and chains that hold the same space of broad factors
in different rotations have no short way to each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Floats, Ints
from nsfa.model.rotate import varimax
from nsfa.model.spec import ModelSpec
from nsfa.moves.prune import prune
from nsfa.state import State
from nsfa.stats import Stats

# Factors of at least this share of the features are turned.
BROAD = 0.002
# Of the turned loadings those are kept that are so many standard errors from zero; varimax sees so many features.
KEPT_FROM = 2.0
ROTATED_ON = 2000
# At most so many factors come from the residual at a time, where it exceeds what noise gives by this factor.
DIRECTIONS = 40
BEYOND_NOISE = 1.05
_POWER_STEPS = 6


def simplify(state: State, stats: Stats, spec: ModelSpec) -> None:
    """Rotate the broad factors to simple structure, wherever in their space they were, without what is not needed.

    They are turned to the principal axes of the loadings in units of the noise, which are the same for all chains that
    hold the same space. Axes that nothing asks for are dropped, varimax turns the others, and small loadings go.
    Changes ``scores``, ``loadings``, ``active``, ``usage``, ``loading_precision`` and the statistics. Cost O(D K²).
    """
    broad = _broad(state)
    if len(broad) == 0:
        return
    loadings = state.noise_precision[:, None] ** 0.5 * state.loadings[:, broad]
    _turn(state, broad, np.linalg.eigh(loadings.T @ loadings)[1])
    stats.refresh(state)
    if spec.n_components is None:
        prune(state, stats, spec)
        broad = _broad(state)
    some = slice(None, None, -(-len(state.loadings) // ROTATED_ON))
    _turn(state, broad, varimax(state.noise_precision[some, None] ** 0.5 * state.loadings[some, broad]), KEPT_FROM)
    stats.refresh(state)


def add_directions(state: State, stats: Stats, rng: np.random.Generator) -> None:
    """Add dense factors in the directions in which samples differ by more than noise would have it.

    Of all directions that are at right angles to the scores there are: in units of the noise, D × N independent entries
    have singular values up to √D + √N. Changes ``state`` and the statistics. Cost O(D N).
    """
    n_features, n_samples = stats.data.shape
    taken = np.linalg.qr(np.column_stack([np.ones(n_samples), state.scores]))[0]
    width = min(DIRECTIONS, (n_samples - taken.shape[1]) // 2)
    if width < 1:
        return
    tau, product, holes = state.noise_precision[:, None], np.empty((n_features, width)), _fit_of_holes(state, stats)
    directions = rng.standard_normal((n_samples, width))
    for _ in range(_POWER_STEPS):
        directions = np.linalg.qr(directions - taken @ (taken.T @ directions))[0]
        stats.kernels.cross(stats.data, directions, product)
        product += holes @ directions
        before, directions = directions, stats.kernels.project(stats.data, product, state.noise_precision)[0]
        directions = directions + holes.T @ (tau * product)
    power, axes = np.linalg.eigh(product.T @ (tau * product))
    axes = axes[:, power > BEYOND_NOISE * (np.sqrt(n_features) + np.sqrt(n_samples)) ** 2]
    if axes.shape[1]:
        every = np.tile(np.arange(n_features), (axes.shape[1], 1))
        loadings, scores = product @ axes / np.sqrt(n_samples), before @ axes * np.sqrt(n_samples)
        first = state.n_factors
        state.add(every, loadings.T, scores.T, None)
        _turn(state, np.arange(first, state.n_factors), np.eye(axes.shape[1]))
        stats.refresh(state)


def _fit_of_holes(state: State, stats: Stats) -> Any:
    """What the model expects of the missing entries, as a sparse array (D, N); there the values are zero."""
    holes = stats.fit_of_holes(state)
    if holes is None:
        return sp.csr_array(stats.data.shape)
    if state.intercept is not None:
        holes.data += np.repeat(state.intercept, np.diff(holes.indptr))
    return holes


def _broad(state: State) -> Ints:
    return np.flatnonzero(state.usage >= max(BROAD * len(state.loadings), 2))


def _turn(state: State, which: Ints, rotation: Floats, kept_from: float = 0.0) -> None:
    """Rotate some factors; their loadings below ``kept_from`` standard errors go, and their slabs fit the others."""
    loadings = state.loadings[:, which] @ rotation
    square = loadings**2 * state.noise_precision[:, None]
    kept = square >= kept_from**2 / len(state.scores)
    # no factor may be empty
    kept[square.argmax(axis=0), np.arange(len(which))] = True
    state.scores[:, which] = state.scores[:, which] @ rotation
    state.loadings[:, which] = np.where(kept, loadings, 0.0)
    state.active[:, which] = kept
    state.usage[which] = kept.sum(axis=0)
    if state.loading_precision.ndim == 1:
        size = np.where(kept, square if state.relative else loadings**2, 0.0).sum(axis=0)
        state.loading_precision[which] = state.usage[which] / np.maximum(size, np.finfo(float).tiny)
