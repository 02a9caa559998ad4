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
from nsfa.experiments.claims import Claim, judge
from nsfa.experiments.synthetic import TRUE, simulate
from nsfa.tasks import Number, Task

WHERE = "Section 5.2, Figure 6"
TITLE = "Proposals of new factors (Section 5.2, Figure 6)"
DATA = ("ecoli", "breast")
# model: (π, s) of the proposal, and which moves
PROPOSALS: dict[str, tuple[float, float, str]] = {
    "prior": (0.0, 1.0, "plain"),
    "prior + 0.1": (0.1, 1.0, "plain"),
    "factor 50": (0.0, 50.0, "plain"),
    "nsfa default": (0.1, 1.0, "all"),
}
LABELS = {
    "prior": "(a) π = 0, s = 1: the prior",
    "prior + 0.1": "(b) π = 0.1, s = 1",
    "factor 50": "(c) π = 0, s = 50",
    "nsfa default": "(d) this package",
}
KEPT_EARLY, EVERY = 200, 10
BREAST = ", breast data"


def plan(quick: bool) -> list[Task]:
    """A chain per proposal and data set."""
    sets, sweeps = (2, 300) if quick else (5, 6000)
    tasks = [_task(name, "simulated", seed, sweeps, 1.0) for name in PROPOSALS for seed in range(sets)]
    if not quick:
        tasks += [_task(name, "breast", seed, 5000, 4.0) for name in PROPOSALS for seed in range(2)]
    return tasks


def _task(name: str, data: str, seed: int, sweeps: int, milliseconds: float) -> Task:
    arguments = {"name": name, "data": data, "seed": seed, "sweeps": sweeps}
    label = name + (BREAST if data == "breast" else "")
    return Task(label, seed, trace, arguments, seconds=sweeps * milliseconds / 1000)


def trace(name: str, data: str, seed: int, sweeps: int) -> Iterator[Number]:
    """K after sweeps (all early ones, then every tenth), how much it changes per sweep, and the seconds per sweep."""
    from nsfa.chain import Length
    from nsfa.data import observe
    from nsfa.datasets import fetch_breast
    from nsfa.model.presets import preset
    from nsfa.runner import sample

    spike, scale, moves = PROPOSALS[name]
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
    part = frame[(frame.model == "nsfa default" + suffix) & (frame.quantity == "K")]
    return 0.9 * float(part[part["at"] > 0.8 * part["at"].max()].value.mean())


def sweeps_to(frame: Any, name: str, enough: float) -> float:
    """Median over chains of the first sweep with so many factors; infinite where half of them never have."""
    part = frame[(frame.model == name) & (frame.quantity == "K")]
    first = [run[run.value >= enough]["at"].min() for _, run in part.groupby("replicate")]
    return float(np.median(np.nan_to_num(first, nan=np.inf)))


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """K against the sweep, a line per chain, on a logarithmic axis that shows the start."""
    suffixes = ("",) if quick else ("", BREAST)
    figure, axes = style.panels(len(suffixes), len(PROPOSALS), 2.5 * len(suffixes), sharey="row")
    for row, suffix in zip(axes, suffixes, strict=True):
        for ax, name in zip(row, PROPOSALS, strict=True):
            part = frame[(frame.model == name + suffix) & (frame.quantity == "K")]
            for number, (_, chain) in enumerate(part.groupby("replicate")):
                ax.plot(chain["at"], chain.value, color=style.COLOURS[number % 6], linewidth=0.8, alpha=0.9)
            ax.axhline(plateau(frame, suffix), color="black", linestyle="--", linewidth=0.8)
            style.log_x(ax)
        row[0].set_ylabel(f"K, {'breast' if suffix else 'simulated'} data")
    for ax, name in zip(axes[0], PROPOSALS, strict=True):
        ax.set_title(LABELS[name], fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("sweep")
    return {"figure_6_convergence": figure}


def claims(frame: Any, quick: bool) -> list[Claim]:
    """Section 5.2, and our own moves beside."""
    out = _speed(frame, "", quick)
    if quick:
        return out
    cost = {name: 1e3 * frames.mean(frame, name, "seconds_per_sweep") for name in PROPOSALS}
    step = {name: frames.mean(frame, name, "K_step") for name in PROPOSALS}
    return [
        *out,
        *_speed(frame, BREAST, quick),
        judge(
            "With s = 50 the number of factors jumps about much more.", WHERE,
            step["factor 50"] > 1.5 * step["prior + 0.1"],
            {f"mean change of K per sweep, {n}": v for n, v in step.items()}, "More births and deaths are accepted.",
            "An exact acceptance ratio weighs the whole proposal in both directions, so that more proposals do not "
            "make K vary more.",
        ),
        judge(
            "With s = 50 a sweep costs significantly more.", WHERE, cost["factor 50"] > 1.5 * cost["prior + 0.1"],
            {f"ms per sweep, {n}": v for n, v in cost.items()}, "Many proposals are made only to be rejected.",
            "A proposal is judged from one number per gene, with the new scores integrated out: proposals are cheap.",
        ),
    ]  # fmt: skip


def _speed(frame: Any, suffix: str, quick: bool) -> list[Claim]:
    """How many sweeps the proposals need, on one of the two tables."""
    on = f" ({'breast' if suffix else 'simulated'} data)"
    enough = plateau(frame, suffix)
    soon = {name: sweeps_to(frame, name + suffix, enough) for name in PROPOSALS}
    figures = {f"sweeps to {enough:.0f} factors, {n}": v if np.isfinite(v) else -1.0 for n, v in soon.items()}
    ours = judge(
        "More moves need no more sweeps than the paper's best proposal" + on + ".", "this package",
        soon["nsfa default"] <= soon["prior + 0.1"], figures,
        "Chains start with factors, too many or too few, and sweeps with the scores integrated out drop or fill them.",
    )  # fmt: skip
    if quick:
        return [ours]
    return [
        judge(
            "With the prior as proposal mixing is very slow: about 5000 sweeps to converge" + on + ".", WHERE,
            soon["prior"] > 2500, figures, "Few new factors are proposed, α/D per gene and sweep (−1: not reached).",
            "New factors are weighed with their scores integrated out, so that many of the few proposals are accepted.",
        ),
        judge(
            "With mass 0.1 added at one new factor the number of factors is reached sooner" + on + ".", WHERE,
            soon["prior + 0.1"] < soon["prior"], figures, "Many more births are proposed (−1: not reached).",
            "The births that count are accepted early on either way; what takes sweeps is that factors gather genes.",
        ),
        ours,
    ]  # fmt: skip
