"""Section 2, Figure 2: draws from the Indian Buffet Process, and how many dishes are taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nsfa.experiments import style
from nsfa.experiments.claims import Claim, judge
from nsfa.tasks import Number, Task

TITLE = "Draws from the Indian Buffet Process (Section 2, Figure 2)"
DATA: tuple[str, ...] = ()
CONCENTRATIONS = (4.0, 8.0)
ROWS = 50
FINITE = (50, 1000)
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
    factors, first, last, entries = [], [], [], []
    for number in range(draws):
        pattern = draw_buffet(rng, ROWS, alpha) if size is None else draw_finite(rng, ROWS, size, alpha)
        pattern = pattern[:, pattern.any(axis=0)]
        if number == 0:
            for row, column in np.argwhere(_in_order(pattern)):
                yield "active_column", row, column
        factors.append(pattern.shape[1])
        first.append(int(pattern[0].sum()))
        last.append(int(pattern[-1].sum()))
        entries.append(int(pattern.sum()))
    for what, values in (("K", factors), ("first_row", first), ("last_row", last)):
        for value, count in zip(*np.unique(values, return_counts=True), strict=True):
            yield f"{what}_count", value, count
    yield "entries_mean", 0, np.mean(entries)
    yield "entries_standard_error", 0, np.std(entries) / np.sqrt(draws)


def _in_order(pattern: Any) -> Any:
    """Columns by the first row that uses them, then by the next, as in the paper's picture."""
    return pattern[:, np.lexsort(~pattern[::-1])]


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """The two draws, and the distribution of K₊ beside the Poisson one."""
    from scipy.stats import poisson

    figure, axes = style.panels(2, 2, 5.2, height_ratios=[1.25, 1])
    for ax, below, alpha in zip(axes[0], axes[1], CONCENTRATIONS, strict=True):
        part = frame[frame.model == name(None, alpha)]
        cells = part[part.quantity == "active_column"]
        image = np.zeros((ROWS, int(cells.value.max()) + 1))
        image[cells["at"].astype(int), cells.value.astype(int)] = 1
        ax.imshow(image, aspect="auto", cmap="Greys", interpolation="none", vmax=1.2)
        ax.set(title=f"α = {alpha:g}", xlabel="factor (dish)", ylabel="feature (customer)")
        rate = alpha * harmonic()
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


def harmonic() -> float:
    """H_D."""
    return float(np.sum(1.0 / np.arange(1, ROWS + 1)))


def histogram(frame: Any, model: str, quantity: str) -> tuple[Any, Any]:
    """Values and counts."""
    part = frame[(frame.model == model) & (frame.quantity == quantity)]
    return part["at"].to_numpy(dtype=float), part.value.to_numpy(dtype=float)


def fit(value: Any, count: Any, rate: float) -> dict[str, float]:
    """Mean and variance of a histogram, and the p-value of Pearson's test against Poisson(rate)."""
    from scipy.stats import chi2, poisson

    total = count.sum()
    mean = float((value * count).sum() / total)
    expected = total * poisson.pmf(value, rate)
    common = expected >= 5
    # what is rare goes into one bin
    seen = np.append(count[common], count[~common].sum())
    hoped = np.append(expected[common], total - expected[common].sum())
    statistic = float(((seen - hoped) ** 2 / np.maximum(hoped, 1e-9)).sum())
    spread = float((value**2 * count).sum() / total - mean**2)
    return {"mean": mean, "variance": spread, "p": float(chi2.sf(statistic, len(seen) - 1))}


def claims(frame: Any, quick: bool) -> list[Claim]:
    """Three statements about the process and one about the limit that defines it."""
    same = "Pearson's test finds no difference."
    total: dict[str, float] = {}
    rows, limit, entries = dict(total), dict(total), dict(total)
    near = True
    for alpha in CONCENTRATIONS:
        found = fit(*histogram(frame, name(None, alpha), "K_count"), alpha * harmonic())
        total |= {f"α={alpha:g}, {what}": value for what, value in {"αH_D": alpha * harmonic(), **found}.items()}
        for row in ("first", "last"):
            found = fit(*histogram(frame, name(None, alpha), f"{row}_row_count"), alpha)
            rows |= {f"α={alpha:g}, {row} feature, {what}": found[what] for what in ("mean", "p")}
        for size in FINITE:
            value, count = histogram(frame, name(size, alpha), "K_count")
            short = 1 - float((value * count).sum() / count.sum()) / (alpha * harmonic())
            limit[f"α={alpha:g}, K={size}, share lacking"] = short
        part = frame[frame.model == name(None, alpha)].set_index("quantity").value
        entries |= {f"α={alpha:g}, mean": part["entries_mean"], f"α={alpha:g}, Dα": ROWS * alpha}
        near &= abs(part["entries_mean"] - ROWS * alpha) < 3 * part["entries_standard_error"]
    few, many = ([limit[f"α={alpha:g}, K={size}, share lacking"] for alpha in CONCENTRATIONS] for size in FINITE)
    closer = max(map(abs, many)) < min(0.05, *few)
    return [
        judge("The number of active factors is Poisson with mean αH_D.", "Section 2.1", _fits(total), total, same),
        judge(
            "The process is the limit of finite models as their K grows.", "Section 2.1", closer, limit,
            f"With K = {FINITE[0]} fewer factors are active than αH_D, with K = {FINITE[1]} nearly as many.",
        ),
        judge(
            "Features are exchangeable: each has Poisson(α) factors, the first and the last alike.", "Section 2.1",
            _fits(rows), rows, same,
        ),
        judge(
            "The expected number of entries of Z is Dα.", "Section 2.1", bool(near), entries,
            "The mean is within three standard errors.",
        ),
    ]  # fmt: skip


def _fits(figures: dict[str, float]) -> bool:
    return all(value > DOUBT for what, value in figures.items() if what.endswith(" p"))
