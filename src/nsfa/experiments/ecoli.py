"""Section 5.3, Figure 7: the E. coli time course."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nsfa.experiments import frames, heldout_results
from nsfa.experiments.claims import Finding
from nsfa.experiments.heldout import FAMILIES, PAPER, SEED, SHARE, RunLength, Setting, table
from nsfa.tasks import Number, Task

DATA = ("ecoli",)
SIZES = (3, 5, 10, 20)


def plan(quick: bool) -> list[Task]:
    """The paper's models, NSFA with its priors beside ours, peers, and ``nsfa.compare`` as a user calls it."""
    on = Setting("ecoli", 2, RunLength(200, 2, 25)) if quick else Setting("ecoli", 10, RunLength(1500, 5, 100))
    names, sizes = (("FA", "AFA", "SFA"), (3, 20)) if quick else (FAMILIES, SIZES)
    tasks = on.sized(names, dict.fromkeys(sizes, 2.0)) + on.model("NSFA", 3.0) + on.model(PAPER, 2.0, prior="paper")
    if quick:
        return tasks + on.peers({"mofapy2": {5: 0.5}, "soft-impute": {0: 0.5}})
    others = dict.fromkeys(("mofapy2", "mofapy2-sparse", "factor-analysis"), dict.fromkeys((3, 5, 10), 1.0))
    others |= {"sparse-pca": dict.fromkeys((3, 5), 5.0), "soft-impute": {0: 0.5}}
    return [*tasks, *on.peers(others), Task("nsfa.compare", 0, compare, {"splits": 3}, 40.0)]


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
        "figure_7a_scores": heldout_results.scores(frame),
        "figure_7b_number_of_factors": heldout_results.factors_during_run(frame, ["NSFA", PAPER], 4.0),
        "figure_7c_scores_by_size": heldout_results.score_by_size(frame, FAMILIES),
    }
    return out if quick else out | {"figure_7d_log_of_mean": heldout_results.log_of_mean(frame)}


def findings(frame: Any, quick: bool) -> Iterator[Finding]:
    """Section 5.3, claim by claim."""
    if not quick:
        yield from _finite(frame)
    median = {name: frames.late_factors(frame, name).median() for name in ("NSFA", PAPER)}
    score = frames.means(frame, "lppd")
    figures = {f"median K, {name}": k for name, k in median.items()} | {f"lppd, {name}": score[name] for name in median}
    yield "four-factors", 4 <= median[PAPER] <= 5, figures
    yield heldout_results.nsfa_first(frame, within_noise=True)


def _finite(frame: Any) -> Iterator[Finding]:
    score = frames.means(frame, "lppd")
    sized = {name: frames.sized(score, name) for name in FAMILIES}
    top = {name: some.idxmax() for name, some in sized.items()}
    gap, error = frames.difference(frame, "lppd", top["SFA"], top["FA"])
    yield "sparsity", gap < error, {**score[[top["FA"], top["SFA"]]], "SFA − FA": gap, "±": error}
    drop = {name: sized[name].max() - sized[name].iloc[-1] for name in ("FA", "AFA", "SFA")}
    logs = frames.sized(frames.means(frame, "mean_of_logs"), "FA").rename(lambda name: f"mean of logs, {name}")
    yield "too-many-factors", drop["FA"] > 0, {**sized["FA"], **logs}
    lost = {f"lppd lost from the best K to {SIZES[-1]}, {name}": value for name, value in drop.items()}
    yield "alleviated", max(drop["AFA"], drop["SFA"]) < drop["FA"], lost
    best = {f"best K of {name}": frames.size_of(some) for name, some in top.items()}
    yield "five-factors", all(top[name] == f"{name} K5" for name in drop), best
