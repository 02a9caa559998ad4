"""Shorter ways to the posterior for the warm-up: no moves of the posterior.

In long tables factors grow from one feature on, others joining one by one, and chains that hold the same space of broad
factors in different rotations have no short way to each other. In all tables a start with too many factors can spread
one fit over several of them, none of which could be missed alone.
"""

from __future__ import annotations

import numpy as np

from nsfa.arrays import Floats, Ints, beside, to_host
from nsfa.model.rotate import varimax
from nsfa.model.spec import ModelSpec
from nsfa.moves.prune import prune
from nsfa.samples import Samples
from nsfa.state import State

# Factors of at least this share of the features are turned.
BROAD = 0.002
# Of the turned loadings those are kept that are so many standard errors from zero; varimax sees so many features.
KEPT_FROM = 2.0
ROTATED_ON = 2000
# Share of zero loadings that look clear by chance; so many times as many clear ones are not simple structure.
BY_CHANCE, WORSE = 0.0455, 1.25
# At most so many factors come from the residual at a time, where it exceeds what noise gives by this factor.
DIRECTIONS = 40
BEYOND_NOISE = 1.05
# Scores whose power in some direction is below this share of the largest say nothing of their own there.
SAME = 1e-3


def simplify(state: State, samples: Samples, spec: ModelSpec) -> None:
    """Rotate the broad factors to simple structure, wherever in their space they were, without what is not needed.

    Where the chain has found a simpler one than varimax would, as with many samples, factors that nothing asks for are
    dropped and no more. Else they become the principal axes of their fit G Xᵀ in units of the noise, with uncorrelated
    scores, which are the same for all chains that hold the same fit, whatever the number of factors that share it. Axes
    that nothing asks for are dropped, varimax turns the others, and small loadings go.
    Changes the scores, ``loadings``, ``active``, ``usage``, ``loading_precision`` and the statistics. Cost O(D K²).
    """
    broad = _broad(state)
    if len(broad) == 0:
        return
    if _simple_already(state, samples, broad):
        if spec.n_components is None:
            prune(state, samples, spec)
        return
    if spec.n_components is None:
        condense(state, samples, spec)
        broad = _broad(state)
    else:
        _to_principal_axes(state, samples, broad)
    some = slice(None, None, -(-len(state.loadings) // ROTATED_ON))
    simple = varimax(to_host(state.noise_precision[some, None] ** 0.5 * state.loadings[some, broad]))
    _turn(state, samples, broad, simple, KEPT_FROM)


def _simple_already(state: State, samples: Samples, which: Ints) -> bool:
    """Whether turning some factors to principal axes and by varimax would make more loadings clear than are now.

    Of loadings that are zero after turning, a share of ``BY_CHANCE`` looks clear.
    """
    least, unit = KEPT_FROM / np.sqrt(samples.n_samples), np.sqrt(state.noise_precision)[:, None]
    turned = unit * (state.loadings[:, which] @ beside(_principal_axes(state, samples, which)[1], unit))
    rotation = varimax(to_host(turned[:: -(-len(turned) // ROTATED_ON)]))
    after = float((np.abs(turned @ beside(rotation, turned)) >= least).sum()) - BY_CHANCE * turned.size
    return bool(after > WORSE * float((np.abs(unit * state.loadings[:, which]) >= least).sum()))


def condense(state: State, samples: Samples, spec: ModelSpec) -> None:
    """As many broad factors as their fit asks for, wherever in its space they were: those of its principal axes.

    Changes the scores, ``loadings``, ``active``, ``usage``, ``loading_precision``, K and the statistics. Cost O(D K²).
    """
    broad = _broad(state)
    if len(broad):
        _to_principal_axes(state, samples, broad)
        # what is left of scores that were copies of others
        power = samples.gram.diagonal()[broad]
        samples.keep(state.drop(broad[power < 0.5 * samples.n_samples]))
        prune(state, samples, spec)


def add_directions(state: State, samples: Samples, rng: np.random.Generator) -> None:
    """Add dense factors in the directions in which samples differ by more than noise would have it.

    Changes the state, the scores and the statistics. Cost O(D N).
    """
    loadings = samples.add_directions(state, DIRECTIONS, BEYOND_NOISE, rng)
    if loadings is not None:
        append(state, samples, loadings, 0.0)


def append(state: State, samples: Samples, loadings: Floats, least: float) -> None:
    """Add factors whose scores the samples have already, with loadings (D, new) of at least ``least`` noise units."""
    first, number = state.n_factors, loadings.shape[1]
    state.add(np.tile(np.arange(len(loadings)), (number, 1)), loadings.T, None)
    _keep_clear(state, np.arange(first, first + number), loadings, least)
    samples.refresh(state)


def _broad(state: State) -> Ints:
    broad = np.flatnonzero(state.usage >= max(BROAD * len(state.loadings), 2))
    # factors of which something is known stay as they are
    out: Ints = broad[broad >= state.prior_offset.shape[1]]
    return out


def _to_principal_axes(state: State, samples: Samples, which: Ints) -> None:
    """Some factors' fit as orthogonal scores of power N each, the largest first."""
    forward, back = _principal_axes(state, samples, which)
    loadings = state.loadings[:, which] @ beside(back, state.loadings)
    samples.turn(forward, which)
    _keep_clear(state, which, loadings, 0.0)


def _principal_axes(state: State, samples: Samples, which: Ints) -> tuple[Floats, Floats]:
    """The maps (K, K) of some factors' scores and loadings to the principal axes of their fit.

    With S = A E Aᵀ, the scores X A E^{−½} are orthonormal and G A E^{½} goes with them; both are then turned to the
    eigenvectors of the latter's inner products. Directions in which the scores have next to no power keep it small.
    """
    power, axes = np.linalg.eigh(samples.gram[np.ix_(which, which)])
    root = np.sqrt(np.maximum(power, SAME * power[-1]))
    forward, back = axes / root, axes * root
    weighted = np.sqrt(state.noise_precision)[:, None] * (state.loadings[:, which] @ beside(back, state.loadings))
    turn = np.linalg.eigh(to_host(weighted.T @ weighted))[1][:, ::-1]
    # eigenvectors have no sign: such as makes the large loadings positive
    turn = turn * np.where(to_host(((weighted @ beside(turn, weighted)) ** 3).sum(axis=0)) < 0, -1.0, 1.0)
    size = np.sqrt(samples.n_samples)
    return forward @ turn * size, back @ turn / size


def _turn(state: State, samples: Samples, which: Ints, rotation: Floats, kept_from: float = 0.0) -> None:
    """Rotate some factors; of their loadings only the clear ones stay."""
    samples.turn(rotation, which)
    _keep_clear(
        state,
        which,
        state.loadings[:, which] @ beside(rotation, state.loadings),
        kept_from / np.sqrt(samples.n_samples),
    )


def _keep_clear(state: State, which: Ints, loadings: Floats, least: float) -> None:
    """Give some factors loadings (D, new), less those below ``least`` in units of the noise; slabs fit the others."""
    square = loadings**2 * state.noise_precision[:, None]
    kept = square >= least**2
    # no factor may be empty
    kept[square.argmax(axis=0), beside(np.arange(len(which)), kept)] = True
    state.loadings[:, which] = np.where(kept, loadings, 0.0)
    state.active[:, which] = kept
    state.usage[which] = to_host(kept.sum(axis=0))
    if state.loading_precision.ndim == 1:
        size = to_host(np.where(kept, square if state.relative else loadings**2, 0.0).sum(axis=0))
        state.loading_precision[which] = state.usage[which] / np.maximum(size, np.finfo(float).tiny)
