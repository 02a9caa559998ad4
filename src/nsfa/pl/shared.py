"""What the plots share: axes, colours, and tick labels that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

# Okabe & Ito's colours, less the yellow that white paper swallows
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
BLUE, GREY = COLOURS[0], "#8c8c8c"
MOST_TICKS = 40
TICK_SIZE = 8.0


def axes_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """``ax``, or the Axes of a new figure of that size in inches."""
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt  # here, so that importing this module chooses no backend

    new: Axes = plt.subplots(figsize=(width, height), layout="constrained")[1]
    return new


def blank(ax: Axes | None, text: str = "no factors") -> Axes:
    """Axes that say in words why there is nothing to see."""
    ax = axes_or_new(ax, 4.0, 2.0)
    ax.text(0.5, 0.5, text, ha="center", va="center", color="0.4", transform=ax.transAxes)
    ax.set_axis_off()
    return ax


def within(low: float, value: float, high: float) -> float:
    """``value``, kept between two bounds."""
    return min(max(value, low), high)


def inches(ax: Axes) -> tuple[float, float]:
    """Width and height of the Axes."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def colours(n: int) -> list[Any]:
    """``n`` colours that stay apart for colour-blind readers: named ones for a few, else steps of cividis."""
    if n <= len(COLOURS):
        return list(COLOURS[:n])
    return list(factor_colourmap()(np.linspace(0.0, 1.0, n)))


def factor_colourmap() -> Any:
    """Cividis without its palest end, which is hard to see as a thin line on white."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(matplotlib.colormaps["cividis"](np.linspace(0.0, 0.9, 256)))


def factor_ticks(ax: Axes, factors: Sequence[int] | None = None, *, n: int = 0) -> None:
    """Number the factors along x at 0, 1, 2, ...: every one, or every second, fifth, ... where all do not fit."""
    labels = list(range(n)) if factors is None else list(factors)
    digits = len(str(max(labels, default=0)))
    room = min(MOST_TICKS, inches(ax)[0] * 72 / ((0.6 * digits + 0.6) * TICK_SIZE))
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, len(labels)) if len(labels) <= s * room)
    at = np.arange(0, len(labels), step)
    ax.set_xticks(at, [str(labels[i]) for i in at], fontsize=TICK_SIZE)
    ax.set_xlabel("factor")


def name_ticks(ax: Axes, names: Sequence[str], *, short: bool = False) -> None:
    """Write a name at y = 0, 1, 2, ..., as small as needed, or none where they do not fit; ``short`` ones whole."""
    size = min(TICK_SIZE, 0.85 * inches(ax)[1] * 72 / max(len(names), 1))
    if size < 4.5:
        ax.set_yticks([])
    else:
        ax.set_yticks(np.arange(len(names)), list(names) if short else [shorten(name) for name in names], fontsize=size)


def shorten(name: Any, longest: int = 28) -> str:
    """The text of a label, cut where it would push the plot off the page; a dollar sign starts no formula."""
    text = str(name)
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return cut.replace("$", r"\$")
