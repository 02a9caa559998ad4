"""Section 5.4, Figure 8: the breast cancer data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nsfa.experiments import heldout_figures, style
from nsfa.experiments.claims import Claim
from nsfa.experiments.heldout import Length, Model, Setting, family, table
from nsfa.experiments.heldout import plan as plan_models
from nsfa.tasks import Number, Task

TITLE = "Breast cancer data (Section 5.4, Figure 8)"
DATA = ("breast",)
PAPER = "NSFA, paper's priors"
WHOLE, WHOLE_PAPER = "NSFA, whole table", "NSFA, paper's priors, whole table"
RATES = (1e-4, 1e-2, 1.0)
# the paper has ten; fewer tell all but the closest models apart
SPLITS = 3


def models(quick: bool) -> list[Model]:
    """The paper's models and sizes, and larger ones up to where their predictions are best."""
    from nsfa.model import Priors

    ours = [Model("NSFA", "NSFA", {}, 34.0)]
    if quick:
        return [model for name in ("FA", "AFA", "SFA") for model in family(name, {5: 1.0, 20: 2.0})] + ours
    dense = {10: 2.5, 20: 4.0, 40: 8.0, 80: 22.0}
    rates = [
        Model(f"FOK K20 d={d:g}", "FOK", {"n_components": 20, "prior": Priors(loading_rate=d)}, 4.0) for d in RATES
    ]
    large = Model("BFRM K40", "BFRM", {"n_components": 40}, 26.0, Length(300, 2, 100))
    return [
        *family("FA", dense),
        *family("AFA", dense),
        *family("FOK", dense),
        *rates,
        *family("BFRM", {10: 6.0, 20: 14.0}),
        large,
        *family("SFA", {10: 3.0, 15: 4.0, 20: 5.5, 40: 11.0, 80: 26.0, 120: 52.0}),
        *ours,
        Model(PAPER, "NSFA", {"prior": "paper"}, 4.0),
    ]


def plan(quick: bool) -> list[Task]:
    """Models and peers on every split, and long chains on the whole table."""
    if quick:
        setting = Setting("breast", 2, Length(120, 3, 15), genes=40)
        return plan_models(setting, models(quick), {"mofapy2": {5: 1.0}, "soft-impute": {0: 1.0}})
    others = {
        "mofapy2": {20: 5.0, 40: 5.0}, "mofapy2-sparse": {20: 3.0, 40: 4.0}, "soft-impute": {0: 2.0},
        "factor-analysis": {10: 3.0, 20: 6.0, 40: 16.0}, "sparse-pca": {20: 17.0},
    }  # fmt: skip
    return [
        *plan_models(Setting("breast", SPLITS, Length(600, 3, 100)), models(quick), others),
        Task(WHOLE, 0, whole_table, {"prior": "default", "chains": 4, "sweeps": 2000}, 60.0),
        Task(WHOLE_PAPER, 0, whole_table, {"prior": "paper", "chains": 2, "sweeps": 8000}, 100.0),
    ]


def whole_table(prior: str, chains: int, sweeps: int) -> Iterator[Number]:
    """K of every tenth sweep, and R-hat of K and of log p(Y | G, ψ) after warm-ups of 500 and of 1000 sweeps."""
    import nsfa

    model = nsfa.NSFA(chains=chains, n_jobs=1, tune=0, draws=sweeps // 2, thin=2, prior=prior, random_state=0)
    posterior = model.fit(table("breast", None)).posterior_
    for chain, factors in enumerate(posterior.n_components):
        for at in range(4, len(factors), 5):
            yield f"K of chain {chain}", 2 * (at + 1), factors[at]
    for start in (500, 1000):
        part = replace(posterior, chains=tuple(chain[start // 2 : start] for chain in posterior.chains))
        for found in part.diagnostics(factors=False).table:
            if found.quantity in ("K", "log p(Y|G,ψ)"):
                yield f"rhat {'K' if found.quantity == 'K' else 'log evidence'}", start, found.rhat
    yield "K_mean", 0, np.mean(posterior.n_components[:, len(posterior.n_components[0]) // 2 :])


def long_chains(frame: Any) -> Any:
    """K against the sweep on the whole table, with our priors and with the paper's."""
    figure, axes = style.panels(1, 1, 2.6)
    ax = axes[0, 0]
    for name, shade in ((WHOLE, style.COLOURS[0]), (WHOLE_PAPER, style.COLOURS[1])):
        part = frame[(frame.model == name) & frame.quantity.str.startswith("K of chain")]
        for number, (_, run) in enumerate(part.groupby("quantity")):
            ax.plot(run["at"], run.value, color=shade, linewidth=0.8, label=None if number else name)
    ax.axhline(15, color="black", linestyle="--", linewidth=0.8, label="the paper's")
    ax.set(xlabel="sweep", ylabel="number of factors K")
    style.log_x(ax)
    ax.legend(fontsize=8)
    return figure


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """Scores; cost; K during the run; scores against K; the two ways to average."""
    families = ["FA", "AFA", "FOK", "BFRM", "SFA"]
    out = {
        "figure_8a_scores": heldout_figures.scores(frame),
        "figure_8bc_cost": heldout_figures.costs(frame),
        "figure_8d_scores_by_size": heldout_figures.score_by_size(frame, families),
        "figure_8e_number_of_factors": heldout_figures.factors_during_run(frame, ["NSFA", PAPER], 15.0),
        "figure_8f_log_of_mean": heldout_figures.log_of_mean(frame),
    }
    return out if quick else out | {"figure_8g_long_chains": long_chains(frame)}


def claims(frame: Any, quick: bool) -> list[Claim]:
    """Section 5.4, claim by claim."""
    from nsfa.experiments.breast_claims import cost, predictions
    from nsfa.experiments.heldout_claims import against_all

    if quick:
        return [against_all(frame, within_noise=True)]
    return [*predictions(frame), *cost(frame), against_all(frame, within_noise=False)]
