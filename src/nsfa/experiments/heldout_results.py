"""Figures, and a claim of our own, that the three real data sets share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nsfa.experiments import frames, peers, style
from nsfa.experiments.claims import Finding

SCORE = "lppd: log predictive density per hidden entry (higher is better)"


def nsfa_first(frame: Any, within_noise: bool) -> Finding:
    """NSFA beside every fixed-K model and every peer: figures of the best of both kinds, and of all that are ahead."""
    score = frames.means(frame, "lppd")
    is_peer = score.index.str.startswith(tuple(peer.label for peer in peers.PEERS.values()))
    rivals = [score[~is_peer & ~score.index.str.startswith("NSFA")], score[is_peer]]
    gaps = {name: frames.difference(frame, "lppd", "NSFA", name) for some in rivals for name in some.index}
    ahead = [name for name, (gap, error) in gaps.items() if gap < (-error if within_noise else 0.0)]
    figures = {"NSFA": score["NSFA"]}
    for name in dict.fromkeys([*(some.idxmax() for some in rivals if len(some)), *ahead]):
        gap, error = gaps[name]
        figures |= {name: score[name], f"NSFA − {name}": gap, f"± {name}": error}
    return "nsfa-first-within-noise" if within_noise else "nsfa-first", not ahead, figures


def scores(frame: Any) -> Any:
    """A box per model over the splits, those of one family together; far outliers are named at the edge."""
    found = frames.by_replicate(frame, "lppd")
    figure, (ax,) = style.boxes({SCORE: found})
    _cut_off_far(ax, found)
    ax.axvline(found.loc["NSFA"].median(), color=style.colour("NSFA"), linewidth=0.8, linestyle=":")
    return figure


def _cut_off_far(ax: Any, found: Any) -> None:
    """Keep the models apart that are near each other: a far one is written at the edge instead."""
    medians, top = found.median(axis=1), found.max(axis=None)
    # what lies more than three times as far below the best as the median model does
    edge = medians.max() - 3.0 * (medians.max() - medians.median()) - 0.05
    if edge <= found.min(axis=None):
        return
    ax.set_xlim(edge, top + 0.03 * (top - edge))
    for place, (name, middle) in zip(range(len(medians), 0, -1), medians.items(), strict=True):
        if middle < edge:
            where = {"textcoords": "offset points", "va": "center", "fontsize": 7, "color": style.colour(name)}
            where["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            ax.annotate(f"◀ {middle:.2f}", (edge, place), (3, 0), **where)


def factors_during_run(frame: Any, names: Iterable[str], paper: float) -> Any:
    """K against the sweep: a line per split, a panel per model."""
    names = [name for name in names if name in set(frame.model)]
    figure, axes = style.panels(1, len(names), 2.6, sharey=True)
    for ax, name in zip(axes[0], names, strict=True):
        style.runs(ax, frames.part(frame, name, "K"))
        ax.axhline(paper, color="black", linestyle="--", linewidth=0.8)
        ax.set(title=name, xlabel="sweep")
        style.log_x(ax)
        ax.annotate("the paper's", (ax.get_xlim()[0], paper), (3, 3), textcoords="offset points", fontsize=7)
    axes[0, 0].set_ylabel("number of factors K")
    axes[0, 0].set_ylim(bottom=0)
    return figure


def score_by_size(frame: Any, families: Iterable[str]) -> Any:
    """Mean lppd against K, a line per family, and NSFA where its K lies."""
    figure, axes = style.panels(1, 1, 3.0)
    ax, score, factors, ticks = axes[0, 0], frames.means(frame, "lppd"), frames.by_replicate(frame, "K_mean"), set()
    for family in families:
        level = frames.sized(score, family)
        sizes = [frames.size_of(name) for name in level.index]
        ticks |= set(sizes)
        if len(level) > 1:
            ax.plot(sizes, level, "o-", color=style.colour(family), label=family, markersize=4, linewidth=1.2)
    for name, level in score.filter(regex="^NSFA").items():
        k, shade = factors.loc[name], style.colour("NSFA")
        marker, fill = ("D", shade) if name == "NSFA" else ("s", "white")
        marks = {"fmt": marker, "color": shade, "markersize": 5, "markerfacecolor": fill}
        ax.errorbar(k.mean(), level, xerr=k.std(), label=name, **marks)
    ax.set(xscale="log", xlabel="number of factors K", ylabel="lppd, mean over splits")
    ax.set_xticks(sorted(ticks), [str(tick) for tick in sorted(ticks)])
    ax.minorticks_off()
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.grid(alpha=0.25)
    return figure


def costs(frame: Any) -> Any:
    """Milliseconds per sweep, and per sweep and factor."""
    sweep, each = (1e3 * frames.by_replicate(frame, f"seconds_per_sweep{what}") for what in ("", "_and_factor"))
    return style.boxes({"ms per sweep": sweep, "ms per sweep and factor": each}, log=True)[0]


def log_of_mean(frame: Any) -> Any:
    """The log of the mean density beside the mean of the logs, a row per model."""
    low = frames.means(frame, "mean_of_logs")
    high = frames.means(frame, "lppd")
    figure, axes = style.panels(1, 1, 0.9 + 0.19 * len(low))
    ax = axes[0, 0]
    for place, name in zip(range(len(low), 0, -1), low.index, strict=True):
        shade = style.colour(name)
        ax.plot([low[name], high[name]], [place, place], color=shade, linewidth=1)
        ax.plot(low[name], place, "o", color=shade, markerfacecolor="white", markersize=5)
        ax.plot(high[name], place, "o", color=shade, markersize=5)
    ax.plot([], [], "ko", markerfacecolor="white", label="mean over draws of the log density")
    ax.plot([], [], "ko", label="log of the mean density (lppd)")
    ax.legend(fontsize=7, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    style.name_rows(ax, low.index)
    ax.set_xlabel("nats per hidden entry, mean over splits")
    return figure
