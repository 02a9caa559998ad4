"""The full versions without their sampling: every figure and every claim, from made-up numbers for the whole plan."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsfa.experiments import NAMES, ibp, style
from nsfa.experiments.claims import HOLDS, UNTESTED, judge, words
from nsfa.experiments.experiment import load
from nsfa.tasks import COLUMNS

RECORDED = Path(__file__).parent.parent.parent / "docs" / "reproduction"
DRAWS = [10, 100, 1000]
SHAPES = {
    "synthetic.fit": {"E_r": [991, 1000], "precision": [1000], "recall": [1000], "K": DRAWS, "seconds_per_sweep": [0]},
    "synthetic.rotate_truth": {"E_r_control": [1, 10]},
    "synthetic.fit_peer": {"E_r": [0], "precision": [0], "recall": [0]},
    "convergence.trace": {"K": DRAWS, "K_step": [0], "births_accepted": [0], "seconds_per_sweep": [0]},
    "heldout.fit": {
        "K": DRAWS, "K_mean": [0], "active_mean": [0], "lppd": [0], "mean_of_logs": [0], "rmse": [0],
        "seconds_per_sweep": [0], "seconds_per_sweep_and_factor": [0],
    },
    "heldout.fit_peer": {"K_mean": [0], "lppd": [0], "rmse": [0]},
    "ecoli.compare": {f"compare {m} {q}": [0] for m in ("NSFA", "SFA 5", "FA 5") for q in ("lppd", "rmse", "K", "seconds")},
    "breast.whole_table": {"K of chain 0": DRAWS, "rhat K": [500, 1000], "rhat log evidence": [500, 1000], "K_mean": [0]},
}  # fmt: skip


def made_up(tasks, rng):
    rows = []
    for task in tasks:
        kind = f"{task.function.__module__.split('.')[-1]}.{task.function.__qualname__}"
        for quantity, places in SHAPES[kind].items():
            low = 5 if quantity.startswith("K") else 0.1
            rows += [(task.key, task.model, task.replicate, quantity, at, low * (1 + rng.random())) for at in places]
        rows.append((task.key, task.model, task.replicate, "task_seconds", 0, 1.0))
    return pd.DataFrame(rows, columns=list(COLUMNS))


@pytest.fixture(params=[name for name in NAMES if name != "ibp"])
def case(request, rng):
    experiment = load(request.param)
    tasks = experiment.plan(False)
    return experiment, tasks, made_up(tasks, rng)


def test_every_claim_gets_a_verdict(case):
    experiment, _, frame = case
    claims = judge(experiment.__name__.split(".")[-1], experiment.findings(frame, False))
    assert len(claims) > 4 and len({claim.claim for claim in claims}) == len(claims)
    for claim in claims:
        assert all(np.isfinite(value) for value in claim.figures.values()), claim
        assert claim.claim.endswith(".") and claim.why.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_in_words_is_judged_and_the_other_way_round(name, rng):
    experiment, shared = load(name), set(words("heldout")["claims"])
    tasks = experiment.plan(False)
    frame = pd.read_csv(RECORDED / "ibp.csv") if name == "ibp" else made_up(tasks, rng)
    found = [key for key, _, _ in experiment.findings(frame, False)]
    own = words(name)["claims"]
    assert [key for key in found if key not in shared] == list(own)
    assert bool(shared & set(found)) == (name in ("ecoli", "breast", "prostate"))
    for text in own.values():
        assert {"claim", "why"} <= set(text) <= {"claim", "where", "why", "why_not"}


def test_words_follow_the_verdict():
    text = words("ecoli")["claims"]["five-factors"]
    findings = [("five-factors", np.bool_(True), {"best K": 5}), ("five-factors", False, {})]
    right, wrong = judge("ecoli", findings)
    (same,) = judge("prostate", [("sensitive-to-k", False, {})])
    assert (right.verdict, right.why, right.figures) == (HOLDS, text["why"], {"best K": 5.0})
    assert wrong.why == text["why_not"] != text["why"] and wrong.where == words("ecoli")["where"]
    # one reason does for both
    assert same.why == words("prostate")["claims"]["sensitive-to-k"]["why"]
    assert judge("prostate", [("published-table", None, {})])[0].verdict == UNTESTED


def test_k_15_may_be_the_best_of_the_sparse_models(rng):
    breast = load("breast")
    frame = made_up(breast.plan(False), rng)
    frame.loc[(frame.model == "SFA K15") & (frame.quantity == "lppd"), "value"] = 9.0
    (found,) = [found for found in breast.findings(frame, False) if found[0] == "fifteen-factors"]
    assert found[1] and found[2]["lppd, SFA K15"] == 9.0


def test_every_figure_is_drawn(case):
    from matplotlib import pyplot as plt

    experiment, _, frame = case
    with plt.rc_context(style.SETTINGS):
        figures = experiment.figures(frame, False)
        for figure in figures.values():
            figure.canvas.draw()
    assert figures
    plt.close("all")


def test_tasks_have_names_of_their_own_and_the_plan_fits_the_time(case):
    _, tasks, _ = case
    assert len({task.key for task in tasks}) == len(tasks)
    assert all(task.seconds > 0 for task in tasks)
    assert case[0].plan(True)[0].identity not in {task.identity for task in tasks}


def test_the_plan_s_seconds_and_the_documented_minutes_are_those_of_the_recorded_runs():
    """Planned seconds order the tasks and give the time left: right within a factor, and rather too long."""
    minutes = 0.0
    for name in NAMES:
        rows = pd.read_csv(RECORDED / f"{name}.csv")
        taken = rows[rows["quantity"] == "task_seconds"].set_index("task")["value"]
        planned = {task.key: task.seconds for task in load(name).plan(False)}
        both = [key for key in planned if key in taken.index]
        assert len(both) > len(planned) / 2, name
        assert 1 <= sum(planned[key] for key in both) / taken[both].sum() < 5, name
        minutes += taken.sum() / 2 / 60
    assert 15 < minutes < 25


def test_poisson_fit_sees_a_difference(rng):
    right, wrong = rng.poisson(18.0, 4000), rng.poisson(18.6, 4000)
    p = [ibp.fit(*map(np.asarray, np.unique(x, return_counts=True)), 18.0)["p"] for x in (right, wrong)]
    assert p[0] > 0.01 > p[1]
