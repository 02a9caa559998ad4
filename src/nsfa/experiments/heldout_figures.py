"""Figures that the three real data sets share."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.experiments import frames, style

SCORE = "lppd: log predictive density per hidden entry (higher is better)"


def scores(frame: Any, quantity: str = "lppd", label: str = SCORE) -> Any:
    """A box per model over the splits, those of one family together; far outliers are named at the edge."""
    names = frames.models(frame, quantity)
    figure, axes = style.panels(1, 1, 0.9 + 0.21 * len(names))
    ax = axes[0, 0]
    found = {name: frames.by_replicate(frame, name, quantity).to_numpy() for name in names}
    style.boxes(ax, found)
    ax.set_xlabel(label)
    if quantity == "lppd":
        _cut_off_far(ax, found)
    ours = float(np.median(found["NSFA"]))
    ax.axvline(ours, color=style.colour("NSFA"), linewidth=0.8, linestyle=":")
    return figure


def _cut_off_far(ax: Any, found: dict[str, Any]) -> None:
    """Keep the models apart that are near each other: a far one is written at the edge instead."""
    medians = np.array([np.median(some) for some in found.values()])
    top, middle = max(np.max(some) for some in found.values()), float(np.median(medians))
    # what lies more than three times as far below the best as the median model does
    edge = medians.max() - 3.0 * (medians.max() - middle) - 0.05
    if edge <= min(np.min(some) for some in found.values()):
        return
    ax.set_xlim(edge, top + 0.03 * (top - edge))
    for place, (name, some) in zip(range(len(found), 0, -1), found.items(), strict=True):
        if np.median(some) < edge:
            ax.annotate(
                f"◀ {np.median(some):.2f}", (edge, place), (3, 0), textcoords="offset points", va="center", fontsize=7,
                color=style.colour(name), bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )  # fmt: skip


def factors_during_run(frame: Any, names: list[str], paper: float) -> Any:
    """K against the sweep: a line per split, a panel per model."""
    names = [name for name in names if name in set(frame.model)]
    figure, axes = style.panels(1, len(names), 2.6, sharey=True)
    for ax, name in zip(axes[0], names, strict=True):
        part = frame[(frame.model == name) & (frame.quantity == "K")]
        for number, (_, run) in enumerate(part.groupby("replicate")):
            ax.plot(run["at"], run.value, linewidth=0.8, color=style.COLOURS[number % 6], alpha=0.8)
        ax.axhline(paper, color="black", linestyle="--", linewidth=0.8)
        ax.set(title=name, xlabel="sweep")
        style.log_x(ax)
        ax.annotate("the paper's", (ax.get_xlim()[0], paper), (3, 3), textcoords="offset points", fontsize=7)
    axes[0, 0].set_ylabel("number of factors K")
    axes[0, 0].set_ylim(bottom=0)
    return figure


def score_by_size(frame: Any, families: list[str]) -> Any:
    """Mean lppd against K, a line per family, and NSFA where its K lies."""
    figure, axes = style.panels(1, 1, 3.0)
    ax = axes[0, 0]
    for name in families:
        found = [n for n in frames.sized(frame, "lppd", name) if len(n.split()) == 2]
        if len(found) > 1:
            sizes, level = [frames.size_of(n) for n in found], [frames.mean(frame, n, "lppd") for n in found]
            ax.plot(sizes, level, "o-", color=style.colour(name), label=name, markersize=4, linewidth=1.2)
    for name in [n for n in frames.models(frame, "lppd") if n.startswith("NSFA")]:
        k, level = frames.by_replicate(frame, name, "K_mean"), frames.by_replicate(frame, name, "lppd")
        marker = "D" if name == "NSFA" else "s"
        ax.errorbar(
            k.mean(), level.mean(), xerr=k.std(), fmt=marker, color=style.colour("NSFA"), label=name, markersize=5,
            markerfacecolor=style.colour("NSFA") if name == "NSFA" else "white",
        )  # fmt: skip
    ax.set(xscale="log", xlabel="number of factors K", ylabel="lppd, mean over splits")
    ticks = sorted({frames.size_of(n) for f in families for n in frames.sized(frame, "lppd", f)})
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.grid(alpha=0.25)
    return figure


def costs(frame: Any) -> Any:
    """Milliseconds per sweep, and per sweep and factor."""
    names = frames.models(frame, "seconds_per_sweep")
    figure, axes = style.panels(1, 2, 0.9 + 0.21 * len(names), sharey=True)
    for ax, quantity, label in zip(
        axes[0],
        ("seconds_per_sweep", "seconds_per_sweep_and_factor"),
        ("ms per sweep", "ms per sweep and factor"),
        strict=True,
    ):
        style.boxes(ax, {name: 1e3 * frames.by_replicate(frame, name, quantity).to_numpy() for name in names})
        ax.set_xlabel(label)
        style.log_x(ax)
    return figure


def log_of_mean(frame: Any) -> Any:
    """The log of the mean density beside the mean of the logs, a row per model."""
    names = frames.models(frame, "mean_of_logs")
    figure, axes = style.panels(1, 1, 0.9 + 0.19 * len(names))
    ax = axes[0, 0]
    places = np.arange(len(names), 0, -1)
    for place, name in zip(places, names, strict=True):
        low, high = frames.mean(frame, name, "mean_of_logs"), frames.mean(frame, name, "lppd")
        shade = style.colour(name)
        ax.plot([low, high], [place, place], color=shade, linewidth=1)
        ax.plot(low, place, "o", color=shade, markerfacecolor="white", markersize=5)
        ax.plot(high, place, "o", color=shade, markersize=5)
    ax.plot([], [], "ko", markerfacecolor="white", label="mean over draws of the log density")
    ax.plot([], [], "ko", label="log of the mean density (lppd)")
    ax.legend(fontsize=7, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    ax.set_yticks(places, names, fontsize=8)
    ax.set_xlabel("nats per hidden entry, mean over splits")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.25)
    return figure
