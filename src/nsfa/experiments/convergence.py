"""Section 5.2, Figure 6: how soon a sensible number of factors is reached, for several proposals of new ones.

The paper does not say on which data, so it is done on the simulated and on the breast data.
The paper's sampler is ``ModelSpec(moves="plain")`` from an empty start, which the estimators do not offer: chains are
run by ``nsfa.runner``, as the estimators do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nsfa.experiments import frames, style
from nsfa.experiments.claims import Finding
from nsfa.experiments.synthetic import TRUE, simulate
from nsfa.tasks import Number, Task

DATA = ("ecoli", "breast")
# model: (π, s) of the proposal, which moves, and what the figure says
PROPOSALS: dict[str, tuple[float, float, str, str]] = {
    "prior": (0.0, 1.0, "plain", "(a) π = 0, s = 1: the prior"),
    "prior + 0.1": (0.1, 1.0, "plain", "(b) π = 0.1, s = 1"),
    "factor 50": (0.0, 50.0, "plain", "(c) π = 0, s = 50"),
    "nsfa default": (0.1, 1.0, "all", "(d) this package"),
}
KEPT_EARLY, EVERY = 200, 10
BREAST = ", breast data"


def plan(quick: bool) -> list[Task]:
    """A chain per proposal and data set."""
    sets, sweeps = (2, 300) if quick else (5, 6000)
    tables = [("simulated", "", sets, sweeps, 1.0), ("breast", BREAST, 0 if quick else 2, 5000, 4.0)]
    return [
        Task(
            name + suffix, seed, trace, {"name": name, "data": data, "seed": seed, "sweeps": sweeps}, sweeps * ms / 1e3
        )
        for data, suffix, seeds, sweeps, ms in tables
        for name in PROPOSALS
        for seed in range(seeds)
    ]


def trace(name: str, data: str, seed: int, sweeps: int) -> Iterator[Number]:
    """K after sweeps (all early ones, then every tenth), how much it changes per sweep, and the seconds per sweep."""
    from nsfa.data import observe
    from nsfa.datasets import fetch_breast
    from nsfa.length import Length
    from nsfa.model.presets import preset
    from nsfa.runner import sample

    spike, scale, moves, _ = PROPOSALS[name]
    # the simulated data as in Figure 5, where the paper fixes α
    settings: dict[str, Any] = {"concentration": 1.0} if data == "simulated" else {}
    spec = preset("nsfa", spike=spike, birth_scale=scale, moves=moves, **settings)
    X = fetch_breast().X if data == "breast" else simulate(seed).X
    draws = sample(observe(X), spec, chains=1, length=Length(0, sweeps, 1), seed=seed, n_jobs=1)[0].draws
    factors = np.array([draw.n_factors for draw in draws])
    for at, n_factors in enumerate(factors, 1):
        if at <= KEPT_EARLY or at % EVERY == 0:
            yield "K", at, n_factors
    yield "K_step", 0, np.abs(np.diff(factors[len(factors) // 2 :])).mean()
    yield "births_accepted", 0, np.mean([draw.scalars["births_accepted"] for draw in draws])
    yield "seconds_per_sweep", 0, draws[-1].scalars["seconds"] / sweeps


def plateau(frame: Any, suffix: str) -> float:
    """K that a chain must reach: 15 of the true 16, or nine tenths of where the default chains end."""
    if not suffix:
        return TRUE - 1.0
    rows = frames.part(frame, f"nsfa default{suffix}", "K")
    return 0.9 * float(rows[rows["at"] > 0.8 * rows["at"].max()].value.mean())


def sweeps_to(frame: Any, name: str, enough: float) -> float:
    """Median over chains of the first sweep with so many factors; infinite where half of them never have."""
    runs = frames.part(frame, name, "K").groupby("replicate")
    first = [run[run.value >= enough]["at"].min() for _, run in runs]
    return float(np.median(np.nan_to_num(first, nan=np.inf)))


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """K against the sweep, a line per chain, on a logarithmic axis that shows the start."""
    suffixes = ("",) if quick else ("", BREAST)
    figure, axes = style.panels(len(suffixes), len(PROPOSALS), 2.5 * len(suffixes), sharey="row")
    for row, suffix in zip(axes, suffixes, strict=True):
        for ax, name in zip(row, PROPOSALS, strict=True):
            style.runs(ax, frames.part(frame, name + suffix, "K"), alpha=0.9)
            ax.axhline(plateau(frame, suffix), color="black", linestyle="--", linewidth=0.8)
            style.log_x(ax)
        row[0].set_ylabel(f"K, {'breast' if suffix else 'simulated'} data")
    for top, bottom, name in zip(axes[0], axes[-1], PROPOSALS, strict=True):
        top.set_title(PROPOSALS[name][-1], fontsize=8)
        bottom.set_xlabel("sweep")
    return {"figure_6_convergence": figure}


def findings(frame: Any, quick: bool) -> Iterator[Finding]:
    """Section 5.2, and our own moves beside."""
    yield from _speed(frame, "", quick)
    if quick:
        return
    yield from _speed(frame, BREAST, quick)
    step, cost = (frames.means(frame, quantity)[[*PROPOSALS]] for quantity in ("K_step", "seconds_per_sweep"))
    yield "jumps", step["factor 50"] > 1.5 * step["prior + 0.1"], step.add_prefix("mean change of K per sweep, ")
    yield "s-50-costs", cost["factor 50"] > 1.5 * cost["prior + 0.1"], (1e3 * cost).add_prefix("ms per sweep, ")


def _speed(frame: Any, suffix: str, quick: bool) -> Iterator[Finding]:
    """How many sweeps the proposals need, on one of the two tables; −1: not reached."""
    data, enough = "breast" if suffix else "simulated", plateau(frame, suffix)
    soon = {name: sweeps_to(frame, name + suffix, enough) for name in PROPOSALS}
    figures = {f"sweeps to {enough:.0f} factors, {n}": v if np.isfinite(v) else -1.0 for n, v in soon.items()}
    if not quick:
        yield f"prior-slow-{data}", soon["prior"] > 2500, figures
        yield f"mass-added-{data}", soon["prior + 0.1"] < soon["prior"], figures
    yield f"more-moves-{data}", soon["nsfa default"] <= soon["prior + 0.1"], figures
