"""Section 5.3, Figure 7: the E. coli time course."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nsfa.experiments import frames, heldout_figures
from nsfa.experiments.claims import Claim, judge
from nsfa.experiments.heldout import SEED, SHARE, Length, Model, Setting, family, table
from nsfa.experiments.heldout import plan as plan_models
from nsfa.experiments.heldout_claims import against_all, scores
from nsfa.tasks import Number, Task

TITLE = "E. coli time course (Section 5.3, Figure 7)"
DATA = ("ecoli",)
WHERE = "Section 5.3, Figure 7"
PAPER = "NSFA, paper's priors"
SIZES = (3, 5, 10, 20)
FAMILIES = ("FA", "AFA", "FOK", "BFRM", "SFA")


def models(quick: bool) -> list[Model]:
    """The paper's models, and NSFA with the paper's priors beside ours."""
    names = ("FA", "AFA", "SFA") if quick else FAMILIES
    fixed = [model for name in names for model in family(name, dict.fromkeys((3, 20) if quick else SIZES, 2.0))]
    return [*fixed, Model("NSFA", "NSFA", {}, 3.0), Model(PAPER, "NSFA", {"prior": "paper"}, 2.0)]


def plan(quick: bool) -> list[Task]:
    """Models and peers on every split, and ``nsfa.compare`` as a user calls it."""
    setting = Setting("ecoli", 2, Length(200, 2, 25)) if quick else Setting("ecoli", 10, Length(1500, 5, 100))
    others: dict[str, dict[int, float]] = {"mofapy2": {5: 0.5}, "soft-impute": {0: 0.5}}
    if not quick:
        sizes = dict.fromkeys((3, 5, 10), 1.0)
        others |= {"mofapy2": sizes, "mofapy2-sparse": sizes, "factor-analysis": sizes}
        others |= {"sparse-pca": dict.fromkeys((3, 5), 5.0)}
    tasks = plan_models(setting, models(quick), others)
    return tasks if quick else [*tasks, Task("nsfa.compare", 0, compare, {"splits": 3}, 40.0)]


def compare(splits: int) -> Iterator[Number]:
    """What a user would run: ``nsfa.compare`` with three models at their defaults."""
    import nsfa

    found = nsfa.compare(
        table("ecoli", None), {"NSFA": nsfa.NSFA(), "SFA 5": nsfa.SFA(5), "FA 5": nsfa.FA(5)},
        holdout=SHARE, splits=splits, random_state=SEED, n_jobs=1, progress=False,
    )  # fmt: skip
    for row in found.itertuples():
        for quantity in ("lppd", "rmse", "K", "seconds"):
            yield f"compare {row.model} {quantity}", row.split, getattr(row, quantity)


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """Scores; K during the run; scores against K; the two ways to average."""
    out = {
        "figure_7a_scores": heldout_figures.scores(frame),
        "figure_7b_number_of_factors": heldout_figures.factors_during_run(frame, ["NSFA", PAPER], 4.0),
        "figure_7c_scores_by_size": heldout_figures.score_by_size(frame, list(FAMILIES)),
    }
    return out if quick else out | {"figure_7d_log_of_mean": heldout_figures.log_of_mean(frame)}


def claims(frame: Any, quick: bool) -> list[Claim]:
    """Section 5.3, claim by claim."""
    out = [_four_factors(frame), against_all(frame, within_noise=True)]
    return out if quick else [*_finite(frame), *out]


def _finite(frame: Any) -> list[Claim]:
    sized = {name: frames.sized(frame, "lppd", name) for name in FAMILIES}
    top = {name: frames.best(frame, "lppd", some) for name, some in sized.items()}
    gap, error = frames.difference(frame, "lppd", top["SFA"], top["FA"])
    drop = {name: frames.mean(frame, top[name], "lppd") - frames.mean(frame, sized[name][-1], "lppd") for name in top}
    best_sizes = {f"best K of {name}": float(frames.size_of(some)) for name, some in top.items()}
    return [
        judge(
            "Sparsity does not improve predictions on this simple data set.", WHERE, gap < error,
            scores(frame, [top["FA"], top["SFA"]]) | {"SFA − FA": gap, "±": error},
            "SFA and FA, each at its best K, are within noise of each other.",
            "SFA at its best K is ahead of FA at its own, by little.",
        ),
        judge(
            "Too many factors damage FA's predictions.", WHERE, drop["FA"] > 0,
            scores(frame, sized["FA"])
            | {f"mean of logs, {n}": frames.mean(frame, n, "mean_of_logs") for n in sized["FA"]},
            "The shared precision lets superfluous factors fit noise.",
            "The average over draws of the log density falls with K, the log of the average density, which is what the "
            "posterior predicts, does not: single draws overfit, their average does not.",
        ),
        judge(
            "An ARD or a sparse prior alleviates the damage.", WHERE, max(drop["AFA"], drop["SFA"]) < drop["FA"],
            {f"lppd lost from the best K to {SIZES[-1]}, {name}": drop[name] for name in ("FA", "AFA", "SFA")},
            "Superfluous factors are shrunk or left empty.",
            "FA loses nothing that could be saved." if drop["FA"] == 0 else "They lose as much as FA does.",
        ),
        judge(
            "Five is a sensible number of factors for the fixed-K models.", WHERE,
            all(top[name] == f"{name} K5" for name in ("FA", "AFA", "SFA")), best_sizes,
            "K = 5 predicts best.",
            "Ten predict better than five: with less prior noise per gene than the paper's, more factors are visible.",
        ),
    ]  # fmt: skip


def _four_factors(frame: Any) -> Claim:
    late = {name: _late(frame, name) for name in ("NSFA", PAPER)}
    figures = {f"median K, {name}": float(np.median(k)) for name, k in late.items()}
    figures |= {f"lppd, {name}": frames.mean(frame, name, "lppd") for name in late}
    return judge(
        "NSFA infers a median of 4 factors, sometimes 5.", WHERE, 4 <= figures[f"median K, {PAPER}"] <= 5, figures,
        "With the paper's priors, Gamma(1, 1) on the noise precisions of scaled genes. Ours weigh less: they find more "
        "factors, which predict the hidden entries better.",
        "Not with the paper's priors, Gamma(1, 1) on the noise precisions: under these K depends on the units, and the "
        "paper does not say in which it gave the table; ours are genes of unit variance. Our own priors weigh less: "
        "they find more factors, which predict the hidden entries better.",
    )  # fmt: skip


def _late(frame: Any, name: str) -> Any:
    """K in the second half of every run."""
    part = frame[(frame.model == name) & (frame.quantity == "K")]
    return part[part["at"] > part["at"].max() / 2].value.to_numpy()
