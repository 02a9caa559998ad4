"""How the figures look: one width, one type size, colours that stay apart for colour-blind readers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
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
PEER = GREY


@contextlib.contextmanager
def in_style() -> Iterator[None]:
    """Figures made inside look alike, and need no display."""
    import matplotlib

    settings: Any = {
        "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": False, "legend.frameon": False, "svg.hashsalt": "nsfa", "figure.dpi": 100,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        yield


def save(figure: Any, stem: Path) -> None:
    """PNG for reading and SVG for print; the figure is closed."""
    from matplotlib import pyplot as plt

    figure.savefig(stem.with_name(stem.name + ".png"), dpi=160)
    figure.savefig(stem.with_name(stem.name + ".svg"), metadata={"Date": None})
    plt.close(figure)


def panels(rows: int, columns: int, height: float, **settings: Any) -> tuple[Any, Any]:
    """A figure of the common width and its Axes, as an array of shape (rows, columns)."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, height), layout="constrained", squeeze=False, **settings)
    return figure, axes


def colour(model: str) -> str:
    """The colour of a model's family; grey for other people's methods."""
    return FAMILY.get(model.split()[0].rstrip(","), PEER)


def boxes(ax: Any, values: Mapping[str, Sequence[float]]) -> None:
    """A horizontal box per model, the first on top, with its values as dots."""
    places = np.arange(len(values), 0, -1)
    for place, (name, some) in zip(places, values.items(), strict=True):
        shade = colour(name)
        ax.boxplot(
            [np.asarray(some)], positions=[place], orientation="horizontal", widths=0.6, showfliers=False,
            boxprops={"color": shade}, whiskerprops={"color": shade}, capprops={"color": shade},
            medianprops={"color": shade, "linewidth": 2.5}, manage_ticks=False,
        )  # fmt: skip
        ax.plot(some, np.full(len(some), place), "o", color=shade, alpha=0.35, markersize=2.5, markeredgewidth=0)
    ax.set_yticks(places, list(values), fontsize=8)
    ax.set_ylim(0.3, len(values) + 0.7)
    ax.grid(axis="x", alpha=0.25)
    ax.tick_params(axis="y", length=0)


def log_x(ax: Any) -> None:
    """A logarithmic axis with plain numbers, as many as there is room for."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    low, high = ax.get_xlim()
    wide = np.log10(high / low) > 1.7
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
