"""Section 5.2, Figure 6: how soon a sensible number of factors is reached, for several proposals of new ones.

The paper's sampler is ``ModelSpec(moves="plain")`` from an empty start, which the estimators do not offer: chains are run
by ``nsfa.runner``, as the estimators do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nsfa.experiments import frames, style
from nsfa.experiments.claims import Claim, judge
from nsfa.experiments.synthetic import TRUE, simulate
from nsfa.experiments.tasks import Number, Task

TITLE = "Proposals of new factors (Section 5.2, Figure 6)"
# model: (π, s) of the proposal, and which moves
PROPOSALS: dict[str, tuple[float, float, str]] = {
    "prior": (0.0, 1.0, "plain"),
    "prior + 0.1": (0.1, 1.0, "plain"),
    "factor 50": (0.0, 50.0, "plain"),
    "nsfa default": (0.1, 1.0, "all"),
}
LABELS = {
    "prior": "(a) prior: π = 0, s = 1",
    "prior + 0.1": "(b) π = 0.1, s = 1",
    "factor 50": "(c) π = 0, s = 50",
    "nsfa default": "(d) this package: more moves",
}
KEPT_EARLY, EVERY = 200, 10


def plan(quick: bool) -> list[Task]:
    """A chain per proposal and data set."""
    sets, sweeps = (2, 300) if quick else (5, 6000)
    return [
        Task(name, seed, trace, {"name": name, "seed": seed, "sweeps": sweeps}, seconds=sweeps / 1000)
        for name in PROPOSALS
        for seed in range(sets)
    ]


def trace(name: str, seed: int, sweeps: int) -> Iterator[Number]:
    """K after sweeps (all early ones, then every tenth), and the seconds per sweep."""
    from nsfa.chain import Length
    from nsfa.data import observe
    from nsfa.model.presets import preset
    from nsfa.runner import sample

    spike, scale, moves = PROPOSALS[name]
    spec = preset("nsfa", concentration=1.0, spike=spike, birth_scale=scale, moves=moves)
    result = sample(observe(simulate(seed).X), spec, chains=1, length=Length(0, sweeps, 1), seed=seed, n_jobs=1)
    draws = result[0].draws
    for at, draw in enumerate(draws, 1):
        if at <= KEPT_EARLY or at % EVERY == 0:
            yield "K", at, draw.n_factors
    late = np.array([draw.n_factors for draw in draws[len(draws) // 2 :]])
    yield "K_step", 0, np.abs(np.diff(late)).mean()
    yield "sweeps_to_plateau", 0, reached(np.array([draw.n_factors for draw in draws]))
    yield "births_accepted", 0, np.mean([draw.scalars["births_accepted"] for draw in draws])
    yield "seconds_per_sweep", 0, draws[-1].scalars["seconds"] / sweeps


def reached(factors: Any, enough: int = TRUE - 1) -> float:
    """The first sweep from which the mean of 50 sweeps is ``enough`` factors; infinite if there is none."""
    window = min(50, len(factors))
    mean = np.convolve(factors, np.ones(window) / window, mode="valid")
    found = np.flatnonzero(mean >= enough)
    return float(found[0] + 1) if len(found) else np.inf


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """K against the sweep, a line per data set, on a logarithmic axis that shows the start."""
    names = frames.models(frame, "K")
    figure, axes = style.panels(1, len(names), 2.7, sharex=True, sharey=True)
    for ax, name in zip(axes[0], names, strict=True):
        part = frame[(frame.model == name) & (frame.quantity == "K")]
        for number, (_, chain) in enumerate(part.groupby("replicate")):
            ax.plot(chain["at"], chain.value, color=style.COLOURS[number % 6], linewidth=0.8, alpha=0.9)
        ax.axhline(TRUE, color="black", linestyle="--", linewidth=0.8)
        ax.set_title(LABELS[name].replace(": ", "\n", 1) if ": " in LABELS[name] else LABELS[name] + "\n", fontsize=8)
        ax.set(xscale="log", xlabel="sweep")
    axes[0, 0].set_ylabel("number of factors K")
    return {"figure_6_convergence": figure}


def claims(frame: Any, quick: bool) -> list[Claim]:
    """Section 5.2, and our own moves beside."""
    where = "Section 5.2, Figure 6"
    soon = {name: float(np.median(frames.values(frame, name, "sweeps_to_plateau"))) for name in PROPOSALS}
    step = {name: frames.mean(frame, name, "K_step") for name in PROPOSALS}
    cost = {name: 1e3 * frames.mean(frame, name, "seconds_per_sweep") for name in PROPOSALS}
    faster = soon["nsfa default"] <= soon["prior + 0.1"]
    out = [
        judge(
            "More moves reach the plateau in fewer sweeps than the paper's best proposal.", "this package", faster,
            _finite(soon), "Sweeps with the scores integrated out fill factors at once.",
        ),
    ]  # fmt: skip
    if quick:
        return out
    return [
        judge(
            "With the prior as proposal mixing is very slow: about 5000 sweeps to converge.", where,
            soon["prior"] > 2500, _finite({"median sweeps to 15 factors": soon["prior"]}),
            "Few new factors are proposed, α/D per gene and sweep.",
            "New factors are weighed with their scores integrated out, so that many of the few proposals are accepted.",
        ),
        judge(
            "With mass 0.1 added at one new factor the plateau is reached sooner, in about 1500 sweeps.", where,
            soon["prior + 0.1"] < soon["prior"], _finite(soon), "Ten times more births are proposed.",
        ),
        judge(
            "With s = 50 the number of factors jumps about much more.", where,
            step["factor 50"] > 1.5 * step["prior + 0.1"],
            {f"mean change of K per sweep, {n}": v for n, v in step.items()}, "More births and deaths are accepted.",
            "An exact acceptance ratio weighs the whole proposal in both directions, so that K varies as its posterior "
            "does, whatever the proposal.",
        ),
        judge(
            "With s = 50 a sweep costs significantly more.", where, cost["factor 50"] > 1.5 * cost["prior + 0.1"],
            {f"ms per sweep, {n}": v for n, v in cost.items()}, "Many proposals are made only to be rejected.",
            "A proposal is judged from one number per gene, with the new scores integrated out: proposals are cheap.",
        ),
        *out,
    ]  # fmt: skip


def _finite(figures: dict[str, float]) -> dict[str, float]:
    """JSON has no infinity: a plateau that was not reached is −1."""
    return {name: value if np.isfinite(value) else -1.0 for name, value in figures.items()}
