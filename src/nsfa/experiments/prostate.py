"""Section 5.5, Figure 9: the prostate cancer data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nsfa.experiments import frames, heldout_results
from nsfa.experiments.claims import Finding
from nsfa.experiments.heldout import RunLength, Setting
from nsfa.tasks import Task

DATA = ("prostate",)
# the paper has ten; a split takes minutes
SPLITS = 3


def plan(quick: bool) -> list[Task]:
    """AFA, SFA, NSFA and peers on every split; FOK and BFRM, which the paper found too slow, on two, to time them."""
    if quick:
        small = Setting("prostate", 2, RunLength(90, 3, 10), genes=100)
        tasks = small.sized(["AFA", "SFA"], {3: 1.0, 10: 2.0}) + small.model("NSFA", 3.0)
        return tasks + small.peers({"mofapy2": {10: 1.0}, "soft-impute": {0: 1.0}})
    on = Setting("prostate", SPLITS, RunLength(300, 3, 40))
    short = replace(on, splits=2, length=RunLength(100, 2, 20))
    # scikit-learn's SparsePCA takes many minutes on a table of this length
    others = {
        "mofapy2": {15: 6.0, 40: 22.0}, "mofapy2-sparse": {15: 20.0}, "soft-impute": {0: 8.0},
        "factor-analysis": {5: 17.0, 15: 24.0},
    }  # fmt: skip
    return [
        *on.sized(["AFA"], {5: 15.0, 10: 23.0, 20: 43.0, 40: 90.0}),
        *short.sized(["FOK", "BFRM"], {10: 9.0}),
        *on.sized(["SFA"], {5: 15.0, 10: 21.0, 20: 32.0, 40: 53.0}),
        *on.model("NSFA", 45.0),
        *on.peers(others),
    ]


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """Scores; K during the run; scores against K; cost."""
    return {
        "figure_9a_scores": heldout_results.scores(frame),
        "figure_9b_number_of_factors": heldout_results.factors_during_run(frame, ["NSFA"], 12.0),
        "figure_9c_scores_by_size": heldout_results.score_by_size(frame, ["AFA", "SFA"]),
        "figure_9d_cost": heldout_results.costs(frame),
    }


def findings(frame: Any, quick: bool) -> Iterator[Finding]:
    """Section 5.5, claim by claim."""
    if not quick:
        yield from _predictions(frame)
        names = ["NSFA", "AFA K10", "SFA K10", "FOK K10", "BFRM K10"]
        hours = frames.means(frame, "seconds_per_sweep")[names] * 1000 / 3600
        named = hours.add_prefix("hours for 1000 sweeps, ")
        yield "eight-hours", hours["NSFA"] < 8, named
        yield "bfrm-fok-slow", hours[["FOK K10", "BFRM K10"]].min() > 8, named
    yield heldout_results.nsfa_first(frame, within_noise=True)


def _predictions(frame: Any) -> Iterator[Finding]:
    score = frames.means(frame, "lppd")
    afa, sfa = frames.sized(score, "AFA"), frames.sized(score, "SFA")
    both, best = {**afa, **sfa}, {"AFA": afa.idxmax(), "SFA": sfa.idxmax()}
    yield "published-table", None, {}
    sizes = {f"best K of {name}": frames.size_of(top) for name, top in best.items()}
    yield "ten-factors", max(sizes.values()) <= 10, {**both, "NSFA": score["NSFA"], **sizes}
    k = frames.late_factors(frame, "NSFA").median()
    yield "twelve-factors", 8 <= k <= 16, {"median K": k}
    yield "sfa-below-afa", sfa.max() < afa.max(), both
    yield "sensitive-to-k", min(some.max() - some.min() for some in (afa, sfa)) > 0.02, both
    yield "nsfa-better", score["NSFA"] > max(both.values()), score[["NSFA", *best.values()]]
