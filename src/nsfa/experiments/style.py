"""How the figures look: one width, one type size, colours that stay apart for colour-blind readers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.pl.shared import COLOURS as COLOURS
from nsfa.pl.shared import GREY

WIDTH = 7.2
# one colour per family of models, the same in all figures
FAMILY = {
    "NSFA": COLOURS[0], "SFA": COLOURS[4], "BFRM": COLOURS[3], "FOK": COLOURS[5], "AFA": COLOURS[2], "FA": COLOURS[1],
    "SPCA": COLOURS[6],
}  # fmt: skip


# one look for all of them
SETTINGS: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": False, "legend.frameon": False, "svg.hashsalt": "nsfa", "figure.dpi": 100,
}  # fmt: skip


def panels(rows: int, columns: int, height: float, **settings: Any) -> tuple[Any, Any]:
    """A figure of the common width and its Axes, as an array of shape (rows, columns)."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, height), layout="constrained", squeeze=False, **settings)
    return figure, axes


def colour(model: str) -> str:
    """The colour of a model's family; grey for other people's methods."""
    return FAMILY.get(model.split()[0].rstrip(","), GREY)


def boxes(tables: dict[str, Any], log: bool = False) -> tuple[Any, Any]:
    """A panel per table, by its label: a horizontal box per model, a row, the first on top, with its values as dots."""
    figure, axes = panels(1, len(tables), 0.9 + 0.21 * len(next(iter(tables.values()))), sharey=True)
    for ax, (label, found) in zip(axes[0], tables.items(), strict=True):
        for place, (name, row) in zip(range(len(found), 0, -1), found.iterrows(), strict=True):
            shade, some = colour(name), row.dropna().to_numpy()
            line = {"color": shade}
            ax.boxplot(
                [some], positions=[place], orientation="horizontal", widths=0.6, showfliers=False, boxprops=line,
                whiskerprops=line, capprops=line, medianprops=line | {"linewidth": 2.5}, manage_ticks=False,
            )  # fmt: skip
            ax.plot(some, np.full(len(some), place), "o", color=shade, alpha=0.35, markersize=2.5, markeredgewidth=0)
        name_rows(ax, found.index)
        ax.set_ylim(0.3, len(found) + 0.7)
        ax.set_xlabel(label)
        if log:
            log_x(ax)
    return figure, axes[0]


def name_rows(ax: Any, names: Any) -> None:
    """The rows' names at the left, the first on top."""
    ax.set_yticks(range(len(names), 0, -1), names, fontsize=8)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.25)


def runs(ax: Any, found: Any, alpha: float = 0.8) -> None:
    """A line per replicate, of its values against where they were taken."""
    for number, (_, run) in enumerate(found.groupby("replicate")):
        ax.plot(run["at"], run.value, color=COLOURS[number % 6], linewidth=0.8, alpha=alpha)


def log_x(ax: Any) -> None:
    """A logarithmic axis with plain numbers, as many as there is room for."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    low, high = ax.get_xlim()
    wide = np.log10(high / low) > 1.7
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
