"""Section 2, Figure 2: draws from the Indian Buffet Process, and how many dishes are taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nsfa.experiments import frames, style
from nsfa.experiments.claims import Finding
from nsfa.tasks import Number, Task

DATA: tuple[str, ...] = ()
CONCENTRATIONS = (4.0, 8.0)
ROWS, FINITE = 50, (50, 1000)
HARMONIC = float(np.sum(1.0 / np.arange(1, ROWS + 1)))
DOUBT = 0.01  # a fit is doubted when its p-value is below


def plan(quick: bool) -> list[Task]:
    """One task per concentration for the process, and for finite models in its place."""
    draws = 400 if quick else 10_000
    return [
        Task(name(size, alpha), 0, draw, {"alpha": alpha, "size": size, "draws": draws}, seconds=draws / 3000)
        for size in (None, *FINITE)
        for alpha in CONCENTRATIONS
    ]


def name(size: int | None, alpha: float) -> str:
    """What a model is called: "IBP α=4", or "K=50 α=4" for the finite one with that many factors."""
    return f"{'IBP' if size is None else f'K={size}'} α={alpha:g}"


def draw(alpha: float, size: int | None, draws: int) -> Iterator[Number]:
    """Histograms of K₊, of the entries of the first and of the last row, and the pattern of the first draw."""
    from nsfa.model.priors import draw_buffet, draw_finite

    rng = np.random.default_rng([int(alpha), size or 0])
    seen = []
    for number in range(draws):
        pattern = draw_buffet(rng, ROWS, alpha) if size is None else draw_finite(rng, ROWS, size, alpha)
        pattern = pattern[:, pattern.any(axis=0)]
        if number == 0:
            # columns by the first row that uses them, then by the next, as in the paper's picture
            for row, column in np.argwhere(pattern[:, np.lexsort(~pattern[::-1])]):
                yield "active_column", row, column
        seen.append((pattern.shape[1], pattern[0].sum(), pattern[-1].sum(), pattern.sum()))
    *counted, entries = np.array(seen).T
    for what, values in zip(("K", "first_row", "last_row"), counted, strict=True):
        for value, count in zip(*np.unique(values, return_counts=True), strict=True):
            yield f"{what}_count", value, count
    yield "entries_mean", 0, entries.mean()
    yield "entries_standard_error", 0, entries.std() / np.sqrt(draws)


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """The two draws, and the distribution of K₊ beside the Poisson one."""
    from scipy.stats import poisson

    figure, axes = style.panels(2, 2, 5.2, height_ratios=[1.25, 1])
    for ax, below, alpha in zip(axes[0], axes[1], CONCENTRATIONS, strict=True):
        cells = frames.part(frame, name(None, alpha), "active_column")
        image = np.zeros((ROWS, int(cells.value.max()) + 1))
        image[cells["at"].astype(int), cells.value.astype(int)] = 1
        ax.imshow(image, aspect="auto", cmap="Greys", interpolation="none", vmax=1.2)
        ax.set(title=f"α = {alpha:g}", xlabel="factor (dish)", ylabel="feature (customer)")
        rate = alpha * HARMONIC
        value, count = histogram(frame, name(None, alpha), "K_count")
        below.bar(value, count / count.sum(), width=0.85, color=style.COLOURS[4], label="Indian Buffet Process")
        for size, shade in zip(FINITE, (style.COLOURS[1], style.COLOURS[2]), strict=True):
            value, count = histogram(frame, name(size, alpha), "K_count")
            below.plot(value, count / count.sum(), color=shade, linewidth=1.2, label=f"finite model, K = {size}")
        at = np.arange(*poisson.interval(0.9999, rate))
        below.plot(at, poisson.pmf(at, rate), "k.-", linewidth=0.8, markersize=3, label=f"Poisson({rate:.1f})")
        below.set(xlabel="number of factors K₊", ylabel="probability")
    axes[1, 0].legend(fontsize=7, loc="upper left", bbox_to_anchor=(0.6, 1.05))
    return {"figure_2_ibp": figure}


def histogram(frame: Any, model: str, quantity: str) -> tuple[Any, Any]:
    """Values and counts."""
    rows = frames.part(frame, model, quantity)
    return rows["at"].to_numpy(dtype=float), rows.value.to_numpy(dtype=float)


def fit(value: Any, count: Any, rate: float) -> dict[str, float]:
    """Mean and variance of a histogram, and the p-value of Pearson's test against Poisson(rate)."""
    from scipy.stats import chi2, poisson

    total, mean = count.sum(), np.average(value, weights=count)
    expected = total * poisson.pmf(value, rate)
    common = expected >= 5
    # what is rare goes into one bin
    seen = np.append(count[common], count[~common].sum())
    hoped = np.append(expected[common], total - expected[common].sum())
    statistic = float(((seen - hoped) ** 2 / np.maximum(hoped, 1e-9)).sum())
    variance = np.average(value**2, weights=count) - mean**2
    return {"mean": mean, "variance": variance, "p": float(chi2.sf(statistic, len(seen) - 1))}


def findings(frame: Any, quick: bool) -> Iterator[Finding]:
    """Three statements about the process and one about the limit that defines it."""
    mean, error = (frames.means(frame, f"entries_{what}") for what in ("mean", "standard_error"))
    total: dict[str, float] = {}
    rows, limit, entries, near = dict(total), dict(total), dict(total), True
    for alpha in CONCENTRATIONS:
        process, rate = name(None, alpha), alpha * HARMONIC
        found = {"αH_D": rate, **fit(*histogram(frame, process, "K_count"), rate)}
        total |= {f"α={alpha:g}, {what}": value for what, value in found.items()}
        for size in FINITE:
            value, count = histogram(frame, name(size, alpha), "K_count")
            limit[f"α={alpha:g}, K={size}, share lacking"] = 1 - np.average(value, weights=count) / rate
        for row in ("first", "last"):
            found = fit(*histogram(frame, process, f"{row}_row_count"), alpha)
            rows |= {f"α={alpha:g}, {row} feature, {what}": found[what] for what in ("mean", "p")}
        entries |= {f"α={alpha:g}, mean": mean[process], f"α={alpha:g}, Dα": ROWS * alpha}
        near &= abs(mean[process] - ROWS * alpha) < 3 * error[process]
    few, many = ([short for what, short in limit.items() if f"K={size}," in what] for size in FINITE)
    yield "poisson", _fits(total), total
    yield "limit", max(map(abs, many)) < min(0.05, *few), limit
    yield "exchangeable", _fits(rows), rows
    yield "entries", near, entries


def _fits(figures: dict[str, float]) -> bool:
    return all(value > DOUBT for what, value in figures.items() if what.endswith(" p"))
