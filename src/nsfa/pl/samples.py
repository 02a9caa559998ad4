"""Scores of the samples, and how much of the data each factor explains."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from nsfa.arrays import Floats, Ints
from nsfa.display import OTHERS, UNLABELLED, check_factor, consensus_of, group_codes, percent
from nsfa.pl.shared import BLUE, COLOURS, GREY, TICK_SIZE, axes_or_new, blank, factor_ticks, name_ticks, shorten, within

MARKERS = "os^Dv"


def scores(
    model: Any,
    factor: int = 0,
    *,
    factors: tuple[int, int] | None = None,
    groups: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Posterior mean scores of the samples: one factor by group, or two factors against each other.

    Parameters
    ----------
    model : fitted estimator, Posterior or Consensus
    factor
        Number of the factor, from 0: every sample's score, with median and quartiles of each group.
    factors
        A pair, instead: the first against the second, coloured by group.
    groups : array-like of length n_samples, optional
        Labels of the samples; missing ones are drawn in grey. Of more than 20 groups the smallest are drawn as one.
    ax
        Where to draw; None makes a new figure.
    """
    consensus = consensus_of(model)
    if consensus.n_factors == 0:
        return blank(ax)
    names, codes = group_codes(groups, len(consensus.scores))
    named = [shorten(name) for name in names], codes
    if factors is None:
        factor = check_factor(factor, consensus.n_factors)
        return _strips(consensus.scores[:, factor], factor, *named, ax)
    if len(factors) != 2:
        raise ValueError(f"factors must be a pair, such as (0, 1). Got {factors!r}; use factor for one.")
    i, j = (check_factor(f, consensus.n_factors) for f in factors)
    return _scatter(consensus.scores[:, i], consensus.scores[:, j], (i, j), *named, ax)


def _style(names: list[str], group: int) -> tuple[str, str]:
    """Colour and marker of a group: colours repeat with another marker."""
    if names and names[group] in (UNLABELLED, OTHERS):
        return GREY, "X" if names[group] == UNLABELLED else "o"
    return COLOURS[group % len(COLOURS)], MARKERS[group // len(COLOURS) % len(MARKERS)]


def _strips(score: Floats, factor: int, names: list[str], codes: Ints, ax: Axes | None) -> Axes:
    n_groups = max(len(names), 1)
    ax = axes_or_new(ax, 6.0, within(1.8, 0.42 * n_groups + 1.2, 10.0))
    jitter = np.random.default_rng(0).uniform(-0.28, 0.28, len(score))
    size = within(3.0, 3000 * n_groups / len(score), 22.0)
    ax.axvline(0, color="0.8", lw=0.8, zorder=0)
    for group in range(n_groups):
        inside = codes == group
        colour, marker = _style(names, group)
        ax.scatter(score[inside], group + jitter[inside], s=size, color=colour, marker=marker, alpha=0.6, ec="none")
        low, middle, high = np.percentile(score[inside], [25, 50, 75])
        ax.barh(group, high - low, left=low, height=0.68, fc="none", ec="black", lw=0.9, zorder=3)
        ax.vlines(middle, group - 0.34, group + 0.34, color="black", lw=2.0, zorder=3)
    ax.set_ylim(n_groups - 0.5, -0.5)
    counts = np.bincount(codes, minlength=n_groups)
    name_ticks(ax, [f"{name} ({n:,})" for name, n in zip(names, counts, strict=False)], short=True)
    ax.set_xlabel(f"score on factor {factor}")
    by_group = " by group" if names else ""
    ax.set_title(f"Scores on factor {factor}{by_group} (box: median and quartiles)", loc="left", fontsize=10)
    return ax


def _scatter(x: Floats, y: Floats, pair: tuple[int, int], names: list[str], codes: Ints, ax: Axes | None) -> Axes:
    columns = 1 if len(names) <= 14 else 2
    ax = axes_or_new(ax, 5.0 + (1.8 * columns if names else 0.0), 4.4)
    size = within(4.0, 6000 / len(x), 30.0)
    ax.axhline(0, color="0.85", lw=0.8, zorder=0)
    ax.axvline(0, color="0.85", lw=0.8, zorder=0)
    for group in range(max(len(names), 1)):
        inside = codes == group
        colour, marker = _style(names, group) if names else (BLUE, "o")
        label = f"{names[group]} ({inside.sum():,})" if names else None
        ax.scatter(x[inside], y[inside], s=size, color=colour, marker=marker, alpha=0.75, label=label, ec="none")
    ax.set(xlabel=f"score on factor {pair[0]}", ylabel=f"score on factor {pair[1]}")
    ax.set_title(f"Scores on factors {pair[0]} and {pair[1]}", loc="left", fontsize=10)
    if names:
        legend = ax.legend(
            ncols=columns, frameon=False, fontsize=TICK_SIZE, loc="upper left", bbox_to_anchor=(1.01, 1.0),
            borderaxespad=0.0,
        )  # fmt: skip
        for handle in legend.legend_handles:
            handle.set(alpha=1.0, sizes=[28.0])  # type: ignore[union-attr]
    return ax


def variance_explained(model: Any, *, ax: Axes | None = None) -> Axes:
    """Share of the data's variance that each factor explains, in %, on the model's scale; the total is in the title.

    Parameters
    ----------
    model : fitted estimator, Posterior or Consensus
    ax
        Where to draw; None makes a new figure.
    """
    consensus = consensus_of(model)
    n_factors = consensus.n_factors
    if n_factors == 0:
        return blank(ax)
    ax = axes_or_new(ax, within(4.0, 0.3 * n_factors + 2, 9.0), 3.4)
    shares = np.clip(consensus.variance_explained, 0.0, 1.0)
    ax.bar(np.arange(n_factors), 100 * shares, width=0.8, color=BLUE)
    ax.set_xlim(-0.7, n_factors - 0.3)
    # the axis ends at 100 even where a tallest bar asks for more room above it
    ax.set_ylim(0, min(100.0, max(108 * shares.max(), 1e-3)))
    factor_ticks(ax, n=n_factors)
    ax.set_ylabel("variance explained (%)")
    total = percent(min(float(shares.sum()), 1.0))
    what = "1 factor explains" if n_factors == 1 else f"{n_factors} factors explain"
    ax.set_title(f"{what} {total} of the variance", loc="left", fontsize=10)
    return ax
