"""Section 5.4, Figure 8: the breast cancer data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nsfa.experiments import heldout_figures
from nsfa.experiments.claims import Claim
from nsfa.experiments.heldout import Length, Model, Setting, family, table
from nsfa.experiments.heldout import plan as plan_models
from nsfa.experiments.tasks import Number, Task

TITLE = "Breast cancer data (Section 5.4, Figure 8)"
PAPER = "NSFA, paper's priors"
RATES = (1e-4, 1e-2, 1.0)


def models(quick: bool) -> list[Model]:
    """The paper's models and sizes, and larger ones up to where their predictions are best."""
    from nsfa.model import Priors

    ours = [Model("NSFA", "NSFA", {}, 45.0)]
    if quick:
        return [model for name in ("FA", "AFA", "SFA") for model in family(name, {5: 1.0, 20: 2.0})] + ours
    dense = {10: 4.0, 20: 6.0, 40: 12.0, 80: 32.0}
    rates = [
        Model(f"FOK K20 d={d:g}", "FOK", {"n_components": 20, "prior": Priors(loading_rate=d)}, 7.0) for d in RATES
    ]
    return [
        *family("FA", dense),
        *family("AFA", dense),
        *family("FOK", dense),
        *rates,
        *family("BFRM", {10: 10.0, 20: 22.0, 40: 72.0}),
        *family("SFA", {10: 5.0, 15: 7.0, 20: 10.0, 40: 20.0, 80: 40.0, 120: 70.0}),
        *ours,
        Model(PAPER, "NSFA", {"prior": "paper"}, 35.0),
    ]


def plan(quick: bool) -> list[Task]:
    """Models and peers on every split, and four chains on the whole table."""
    if quick:
        setting = Setting("breast", 2, Length(200, 4, 20), genes=40)
        return plan_models(setting, models(quick), {"mofapy2": {5: 1.0}, "soft-impute": {0: 1.0}})
    others = {
        "mofapy2": {20: 5.0, 40: 5.0}, "mofapy2-sparse": {20: 3.0, 40: 4.0}, "soft-impute": {0: 2.0},
        "factor-analysis": {10: 3.0, 20: 6.0, 40: 16.0}, "sparse-pca": {20: 17.0, 40: 17.0},
    }  # fmt: skip
    tasks = plan_models(Setting("breast", 10, Length(1000, 5, 100)), models(quick), others)
    return [*tasks, Task("NSFA, four chains", 0, agree, {"sweeps": 2000}, 60.0)]


def agree(sweeps: int) -> Iterator[Number]:
    """R-hat of K and of log p(Y | G, ψ), after warm-ups of 500 and of 1000 sweeps, on the whole table."""
    import nsfa

    model = nsfa.NSFA(chains=4, n_jobs=1, tune=0, draws=sweeps // 2, thin=2, random_state=0)
    posterior = model.fit(table("breast", None)).posterior_
    for chain, factors in enumerate(posterior.n_components):
        for at in range(4, len(factors), 5):
            yield f"K of chain {chain}", 2 * (at + 1), factors[at]
    for start in (500, 1000):
        part = replace(posterior, chains=tuple(chain[start // 2 : start] for chain in posterior.chains))
        for found in part.diagnostics().table:
            if found.quantity in ("K", "log p(Y|G,ψ)"):
                yield f"rhat {'K' if found.quantity == 'K' else 'log evidence'}", start, found.rhat
    yield "K_mean", 0, np.mean(posterior.n_components[:, sweeps // 4 :])


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """Scores; cost; K during the run; scores against K; the two ways to average."""
    families = ["FA", "AFA", "FOK", "BFRM", "SFA"]
    return {
        "figure_8a_scores": heldout_figures.scores(frame),
        "figure_8bc_cost": heldout_figures.costs(frame),
        "figure_8d_scores_by_size": heldout_figures.score_by_size(frame, families),
        "figure_8e_number_of_factors": heldout_figures.factors_during_run(frame, ["NSFA", PAPER], 15.0),
        "figure_8f_log_of_mean": heldout_figures.log_of_mean(frame),
    }


def claims(frame: Any, quick: bool) -> list[Claim]:
    """Section 5.4, claim by claim."""
    from nsfa.experiments.breast_claims import cost, predictions
    from nsfa.experiments.heldout_claims import against_all

    if quick:
        return [against_all(frame, within_noise=True)]
    return [*predictions(frame), *cost(frame), against_all(frame, within_noise=False)]
