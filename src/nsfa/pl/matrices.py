"""The loadings as pictures: a heatmap of blocks, and Hinton diagrams."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from nsfa.arrays import Floats, Ints
from nsfa.display import block_order, consensus_of, likely_loadings
from nsfa.pl.shared import TICK_SIZE, axes_or_new, blank, factor_ticks, name_ticks, within

NOT_IN_FACTOR = "#e9e9e9"


def loadings(model: Any, *, max_features: int | None = None, threshold: float = 0.5, ax: Axes | None = None) -> Axes:
    """Heatmap of posterior mean loadings, features × factors, ordered so that blocks appear.

    Loadings whose inclusion probability is below ``threshold`` are left as plain background. Features stand by their
    strongest factor, then by their loading on it; those in no factor are left out.

    Parameters
    ----------
    model : fitted estimator, Posterior or Consensus
    max_features
        Rows at most; None means 200, or two per factor if that is more. Of more features, those with the largest
        loadings of each factor are taken in turn.
    threshold
        Inclusion probability from which a loading is coloured.
    ax
        Where to draw; None makes a new figure.
    """
    consensus = consensus_of(model)
    if consensus.n_factors == 0:
        return blank(ax)
    values = likely_loadings(consensus, threshold)
    rows = block_order(values, _limit(max_features, 200, values))
    if len(rows) == 0:
        return blank(ax, f"no loading with P(in factor) ≥ {threshold:g}")
    shown = np.ma.masked_equal(values[rows], 0.0)
    ax = axes_or_new(ax, within(4.5, 0.16 * values.shape[1] + 3, 13.0), within(3.0, 0.125 * len(rows) + 1.2, 11.0))
    # a few very large loadings must not pale all others
    limit = float(np.percentile(np.abs(shown.compressed()), 99))
    cmap = matplotlib.colormaps["RdBu_r"].with_extremes(bad=NOT_IN_FACTOR)
    image = ax.imshow(shown, cmap=cmap, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    factor_ticks(ax, n=values.shape[1])
    name_ticks(ax, [consensus.feature_names[d] for d in rows])
    top = "top " if len(rows) < np.count_nonzero(values.any(axis=1)) else ""
    title = f"Loadings, {top}{len(rows):,} of {len(values):,} features\n(grey: P(in factor) < {threshold:g})"
    ax.set_title(title, loc="left", fontsize=10)
    ends = "both" if np.abs(shown).max() > limit else "neither"
    bar = ax.figure.colorbar(image, ax=ax, extend=ends, pad=0.02, aspect=30, label="posterior mean loading")
    bar.ax.tick_params(labelsize=TICK_SIZE)
    return ax


def _limit(given: int | None, usual: int, values: Floats) -> int:
    if given is not None and given < 1:
        raise ValueError(f"max_features must be an int >= 1 or None. Got {given!r}.")
    return max(usual, 2 * values.shape[1]) if given is None else given


def hinton(
    model: Any,
    *,
    pattern: bool = False,
    left_order: bool = False,
    max_features: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Hinton diagram: squares whose area is the size of the entry.

    Signed matrices are white (positive) and black (negative) on grey; those without negative entries, such as a binary
    pattern Z, black on white.

    Parameters
    ----------
    model : fitted estimator, Posterior, Consensus, or 2-D array
        Of a model, the mean loadings with inclusion probability of at least 0.5, in the row order of ``loadings``.
    pattern
        Draw only which entries are nonzero.
    left_order
        Sort columns by their pattern read as a binary number, first row most significant, largest first: the
        left-ordered form of the Indian buffet process.
    max_features
        Rows of a model at most; None means 60, or two per factor if that is more.
    ax
        Where to draw; None makes a new figure.
    """
    values, names = _matrix(model, max_features)
    if values.size == 0:
        return blank(ax)
    if pattern:
        values = (values != 0).astype(float)
    columns = left_ordered(values) if left_order else np.arange(values.shape[1])
    ax = _draw_hinton(values[:, columns], ax)
    factor_ticks(ax, columns.tolist())
    if names is None:
        ax.set_xlabel("column")
    name_ticks(ax, names or [str(i) for i in range(len(values))])
    return ax


def _draw_hinton(values: Floats, ax: Axes | None) -> Axes:
    n_rows, n_columns = values.shape
    cell = within(0.06, 9.0 / max(n_rows, n_columns), 0.3)
    ax = axes_or_new(ax, within(3.0, cell * n_columns + 1.6, 14.0), within(2.0, cell * n_rows + 1.0, 14.0))
    signed = bool((values < 0).any())
    ax.set_facecolor("#a0a0a0" if signed else "white")
    ax.add_collection(_squares(values, signed))
    ax.set(xlim=(-0.5, n_columns - 0.5), ylim=(n_rows - 0.5, -0.5), aspect="equal")
    ax.apply_aspect()  # now, so that the ticks know their room
    ax.set_title("white: positive\nblack: negative" if signed else "black: active", fontsize=TICK_SIZE)
    return ax


def _matrix(model: Any, most: int | None) -> tuple[Floats, list[str] | None]:
    """Entries to draw, and the rows' names if they have some."""
    if isinstance(model, (np.ndarray, list, tuple)):
        values = np.asarray(model, dtype=float)
        if values.ndim != 2 or not np.isfinite(values).all():
            raise ValueError(f"a matrix must be 2-D and finite. Got shape {values.shape}, or NaN in it.")
        return values, None
    consensus = consensus_of(model)
    values = likely_loadings(consensus)
    if values.shape[1] == 0:
        return values, None
    rows = block_order(values, _limit(most, 60, values))
    return values[rows], [consensus.feature_names[d] for d in rows]


def left_ordered(values: Floats) -> Ints:
    """Columns by their binary pattern, first row most significant, largest first; equal ones keep their order."""
    out: Ints = np.lexsort((values == 0)[::-1])
    return out


def _squares(values: Floats, signed: bool) -> PolyCollection:
    row, column = np.nonzero(values)
    entry = values[row, column]
    half = 0.48 * np.sqrt(np.abs(entry) / np.abs(entry).max(initial=0.0))
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    centres = np.column_stack([column, row])
    outlines = centres[:, None, :] + half[:, None, None] * corners
    face = np.where(signed & (entry > 0), "white", "black")
    return PolyCollection(list(outlines), facecolors=face.tolist(), edgecolors="none")
