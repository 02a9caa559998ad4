"""Plots of the chains: the number of factors, traces, and which chain found which factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nsfa.arrays import Floats, Ints
from nsfa.display import Bins, consensus_of, count_bins, percent, posterior_of
from nsfa.draw import SHARED, SUBSTANTIAL
from nsfa.pl.shared import BLUE, TICK_SIZE, axes_or_new, blank, colours, factor_ticks, inches, within
from nsfa.posterior.diagnostics import QUANTITIES

# drawn unless others are asked for
USUAL = ("log_joint", "n_factors", "n_active", "concentration")
# which factors are counted: the attribute of a posterior, the axis's label, and what a title calls so many
NUMBERS = {
    "substantial": (
        "n_substantial",
        f"number of factors with {SUBSTANTIAL} features or more",
        "{} substantial",
    ),
    "shared": ("n_shared", f"number of factors with {SHARED} features or more", "{} shared"),
    "all": ("n_factors", "number of factors K", "K = {}"),
}
MOST_NAMED_CHAINS = 8


def n_components(model: Any, *, count: str = "substantial", per_chain: bool = True, ax: Axes | None = None) -> Axes:
    """Posterior of the number of factors: the share of draws with each number, in %; of many numbers, in steps.

    Parameters
    ----------
    model : fitted estimator or Posterior
    count
        Which factors: "substantial" (five features or more), "shared" (two or more), or "all" (K, which also counts
        those of one feature).
    per_chain
        Mark each chain's own share too: where the marks lie far from the bars, the chains disagree.
    ax
        Where to draw; None makes a new figure.
    """
    if count not in NUMBERS:
        raise ValueError(f"count must be one of {', '.join(map(repr, NUMBERS))}. Got {count!r}.")
    attribute, label, words = NUMBERS[count]
    counts = getattr(posterior_of(model), attribute)
    bins = count_bins(counts)
    shares, width = bins.shares(counts), bins.width
    ax = axes_or_new(ax, within(4.0, 0.45 * len(shares) + 2, 9.0), 3.4)
    ax.bar(bins.middle, 100 * shares, width=0.8 * width, color=BLUE, alpha=0.75)
    if per_chain and len(counts) > 1:
        _mark_chains(ax, counts, bins)
    ax.xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.set_xlim(bins.middle[0] - 0.7 * width, bins.middle[-1] + 0.7 * width)
    ax.set_ylim(bottom=0)
    ax.set(xlabel=label if width == 1 else f"{label}, in steps of {width}", ylabel="share of draws (%)")
    often = f"Most often {words.format(bins.name(int(np.argmax(shares))))}: {percent(shares.max())} of draws"
    ax.set_title(often if counts.any() else "No such factors in any draw", loc="left", fontsize=10)
    return ax


def _mark_chains(ax: Axes, counts: Ints, bins: Bins) -> None:
    size = 4.0 if len(bins.starts) <= 25 else 2.5
    for i, chain in enumerate(counts):
        shares = bins.shares(chain)
        shares[shares == 0] = np.nan  # marks along the axis would hide the small bars
        label = "each chain" if i == 0 else None
        ax.plot(bins.middle, 100 * shares, "o", ms=size, mfc="white", mec="black", mew=0.7, label=label)
    ax.legend(frameon=False, fontsize=TICK_SIZE, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1)


def traces(model: Any, quantities: Sequence[str] | None = None, *, axes: Any = None) -> Any:
    """Traces of quantities that do not depend on how factors are numbered: a panel each, a line per chain.

    Chains that converged look like one another and drift nowhere.

    Parameters
    ----------
    model : fitted estimator or Posterior
    quantities
        Names as in ``Posterior.trace``. None takes those that vary of log_joint, n_factors, n_active and concentration.
    axes
        One Axes per quantity; None makes a new figure.

    Returns
    -------
    Array of Axes, one per quantity.
    """
    values = _read_traces(model, quantities)
    if axes is None:
        from matplotlib import pyplot as plt

        size = (7.0, 1.5 * len(values) + 0.7)
        axes = plt.subplots(len(values), sharex=True, squeeze=False, figsize=size, layout="constrained")[1][:, 0]
    panels = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if len(panels) != len(values):
        raise ValueError(f"axes must hold one Axes per quantity, {len(values)}. Got {len(panels)}.")
    for ax, (name, trace) in zip(panels, values.items(), strict=True):
        for i, (line, colour) in enumerate(zip(trace, colours(len(trace)), strict=True)):
            ax.plot(line, lw=0.7, color=colour, label=f"chain {i}")
        ax.set_ylabel(QUANTITIES[name].axis if name in QUANTITIES else name.replace("_", " "))
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=name.startswith("n_"), min_n_ticks=1))
        ax.ticklabel_format(axis="y", useOffset=False)
    panels[-1].set_xlabel("kept draw")
    if 1 < len(trace) <= MOST_NAMED_CHAINS:
        panels[0].legend(
            ncols=4, frameon=False, fontsize=TICK_SIZE, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2
        )
    return panels


def _read_traces(model: Any, quantities: Sequence[str] | None) -> dict[str, Floats]:
    posterior = posterior_of(model)
    names = USUAL if quantities is None else tuple(quantities)
    if isinstance(quantities, str) or not names:
        raise ValueError(f"quantities must be a list of names, such as ['log_joint']. Got {quantities!r}.")
    try:
        found = {name: posterior.trace(name) for name in names}
    except KeyError as missing:
        raise ValueError(f"quantities must name scalars of a draw, such as 'log_joint'. Got {missing}.") from None
    if quantities is None:
        # a number that the model fixes has no trace to judge
        found = {k: v for k, v in found.items() if k == "log_joint" or np.ptp(v) > 0}
    return found


def chain_agreement(model: Any, *, ax: Axes | None = None) -> Axes:
    """In which chains each factor is found: the share of every chain's draws that contain it.

    A column dark in all chains is a factor that all of them found; one dark in a single chain is that chain's own.

    Parameters
    ----------
    model : fitted estimator, Posterior or Consensus
    ax
        Where to draw; None makes a new figure.
    """
    support = consensus_of(model).chain_support
    n_chains, n_factors = support.shape
    if n_factors == 0:
        return blank(ax)
    ax = axes_or_new(ax, within(4.5, 0.42 * n_factors + 2, 12.0), within(2.2, 0.38 * n_chains + 1.4, 8.0))
    image = ax.imshow(support, cmap="cividis_r", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    width, height = inches(ax)
    if width / n_factors >= 0.26 and height / n_chains >= 0.16:
        _write_cells(ax, support)
    factor_ticks(ax, n=n_factors)
    ax.yaxis.set_major_locator(MaxNLocator(int(within(2, height * 4, 12)), integer=True, min_n_ticks=1))
    ax.set_ylim(n_chains - 0.5, -0.5)
    ax.tick_params(axis="y", labelsize=TICK_SIZE)
    ax.set_ylabel("chain")
    ax.set_title("Which chains found each factor", loc="left", fontsize=10)
    bar = ax.figure.colorbar(image, ax=ax, format=PercentFormatter(1.0, decimals=0, symbol=None), pad=0.02)
    bar.set_label("% of chain's draws", fontsize=TICK_SIZE + 1)
    bar.ax.tick_params(labelsize=TICK_SIZE)
    return ax


def _write_cells(ax: Axes, support: Floats) -> None:
    dark = matplotlib.colormaps["cividis_r"](support)[..., :3].mean(axis=-1) < 0.5
    for (chain, factor), share in np.ndenumerate(support):
        colour = "white" if dark[chain, factor] else "black"
        ax.text(factor, chain, f"{100 * share:.0f}", ha="center", va="center", fontsize=7.5, color=colour)
