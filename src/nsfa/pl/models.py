"""The comparison of several models on held-out entries."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from nsfa.pl.shared import BLUE, axes_or_new, within

LABELS = {
    "lppd": "log predictive density per held-out entry (higher is better)",
    "rmse": "root mean squared error of held-out entries (lower is better)",
    "K": "number of factors",
    "seconds": "seconds per fit",
}


def compare(frame: Any, metric: str = "lppd", ax: Axes | None = None) -> Axes:
    """Box plot of ``nsfa.compare``'s table: a box per model over the splits, with every split as a dot.

    Models without a value of the metric are left out.
    """
    if metric not in LABELS:
        raise ValueError(f"metric must be one of {', '.join(map(repr, LABELS))}. Got {metric!r}.")
    names = [name for name in frame["model"].unique() if frame.loc[frame["model"] == name, metric].notna().any()]
    values = [frame.loc[frame["model"] == name, metric].dropna().to_numpy(dtype=float) for name in names]
    ax = axes_or_new(ax, 6.5, within(1.6, 0.8 + 0.35 * len(names), 12.0))
    # the first model on top
    places = list(range(len(names), 0, -1))
    ax.boxplot(values, positions=places, orientation="horizontal", widths=0.5, showfliers=False,
               medianprops={"color": BLUE, "linewidth": 2})  # fmt: skip
    for place, some in zip(places, values, strict=True):
        ax.plot(some, [place] * len(some), "o", color=BLUE, alpha=0.5, markersize=3)
    ax.set_yticks(places[::-1], names[::-1])
    ax.set_xlabel(LABELS[metric])
    ax.grid(axis="x", alpha=0.3)
    return ax
