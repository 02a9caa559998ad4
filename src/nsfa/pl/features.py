"""Which features belong to a factor, and how surely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from nsfa.counts import check_count
from nsfa.display import check_factor, consensus_of
from nsfa.pl.shared import COLOURS, GREY, TICK_SIZE, axes_or_new, blank, colours, factor_colourmap, name_ticks, within
from nsfa.posterior.consensus import FDR, Consensus


def top_features(model: Any, factor: int, n: int = 20, *, ax: Axes | None = None) -> Axes:
    """The features with the largest loadings on one factor: means, intervals, and inclusion probability as colour.

    Parameters
    ----------
    model : fitted estimator, Posterior or Consensus
    factor
        Number of the factor, from 0.
    n
        Features at most; those whose loading is zero in every draw are left out.
    ax
        Where to draw; None makes a new figure.
    """
    consensus = consensus_of(model)
    if consensus.n_factors == 0:
        return blank(ax)
    factor = check_factor(factor, consensus.n_factors)
    check_count("n", n)
    mean = consensus.loadings[:, factor]
    top = np.argsort(-np.abs(mean), kind="stable")[:n]
    top = top[consensus.inclusion[top, factor] > 0]
    if len(top) == 0:
        return blank(ax, f"factor {factor} has no features")
    ax = axes_or_new(ax, 5.6, within(2.2, 0.2 * len(top) + 1.1, 14.0))
    place = np.arange(len(top))
    ax.axvline(0, color="0.75", lw=0.8, zorder=0)
    ax.hlines(place, consensus.lower[top, factor], consensus.upper[top, factor], color=GREY, lw=1.2, zorder=1)
    colour = consensus.inclusion[top, factor]
    dots = ax.scatter(mean[top], place, c=colour, cmap="cividis_r", vmin=0, vmax=1, s=34, ec="black", lw=0.6, zorder=2)
    ax.set_ylim(len(top) - 0.4, -0.6)
    name_ticks(ax, [consensus.feature_names[d] for d in top])
    ax.set_xlabel(f"loading: posterior mean and {100 * consensus.level:.0f} % interval")
    core, every = map(len, consensus.lists(factor))
    title = f"Factor {factor}: top {len(top)} features ({every:,} at {FDR:.0%} FDR, {core:,} core)"
    ax.set_title(title.replace("%", " %"), loc="left", fontsize=10)
    bar = ax.figure.colorbar(dots, ax=ax, pad=0.02, label="P(in factor)")
    bar.ax.tick_params(labelsize=TICK_SIZE)
    return ax


def inclusion_curve(model: Any, factors: Sequence[int] | None = None, *, ax: Axes | None = None) -> Axes:
    """Inclusion probabilities of every factor's features, sorted: a steep fall means a clear-cut set.

    A dot on each curve ends the list whose expected share of wrong members is 5 % (``Consensus.genes`` with effect=0).

    Parameters
    ----------
    model : fitted estimator, Posterior or Consensus
    factors
        Which factors to draw; None draws all.
    ax
        Where to draw; None makes a new figure.
    """
    consensus = consensus_of(model)
    if consensus.n_factors == 0:
        return blank(ax)
    wanted = range(consensus.n_factors) if factors is None else factors
    chosen = [check_factor(factor, consensus.n_factors) for factor in wanted]
    if not chosen:
        raise ValueError("factors must name at least one factor. Got none; None draws all.")
    ax = axes_or_new(ax, 6.0, 3.8)
    few = len(chosen) <= len(COLOURS)
    ax.axhline(0.5, color=GREY, lw=0.9, ls="--", label="P = 0.5")
    for factor, colour in zip(chosen, colours(len(chosen)), strict=True):
        _curve(ax, consensus, factor, colour, few)
    ax.plot([], [], "o", ms=4.5, mfc="white", mec="black", ls="none", label="5 % FDR cut")
    ax.set_ylim(-0.02, 1.04)
    ax.set_xlim(0.5, _last_rank(consensus, chosen) + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.set(xlabel="feature, most certain first", ylabel="P(in factor)")
    ax.set_title("How sure is each factor of its features", loc="left", fontsize=10)
    if few:
        ax.legend(frameon=False, fontsize=TICK_SIZE, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    else:
        ax.legend(framealpha=0.9, fontsize=TICK_SIZE, loc="upper right")
        in_order = ScalarMappable(Normalize(0, len(chosen) - 1), factor_colourmap())
        bar = ax.figure.colorbar(in_order, ax=ax, pad=0.02, label="factor" if factors is None else "place in factors")
        bar.ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
        bar.ax.tick_params(labelsize=TICK_SIZE)
    return ax


def _curve(ax: Axes, consensus: Consensus, factor: int, colour: Any, few: bool) -> None:
    falling = np.sort(consensus.inclusion[:, factor])[::-1]
    size = len(consensus.genes(factor, effect=0))
    label = f"factor {factor} ({size:,} features)" if few else None
    ax.plot(np.arange(1, len(falling) + 1), falling, color=colour, lw=1.6 if few else 0.7, label=label)
    if size:
        ax.plot(size, falling[size - 1], "o", ms=5.0 if few else 3.0, mfc="white", mec=colour, zorder=3)


def _last_rank(consensus: Consensus, factors: list[int]) -> int:
    """Where the last of the curves has come down to almost nothing."""
    longest = int((consensus.inclusion[:, factors] > 0.05).sum(axis=0).max())
    return min(max(round(1.15 * longest), 10), len(consensus.inclusion))
