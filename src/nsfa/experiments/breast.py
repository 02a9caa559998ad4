"""Section 5.4, Figure 8: the breast cancer data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nsfa.experiments import frames, heldout_results, style
from nsfa.experiments.claims import Finding
from nsfa.experiments.heldout import FAMILIES, PAPER, RunLength, Setting, table
from nsfa.tasks import Number, Task

DATA = ("breast",)
# the paper has ten; fewer tell all but the closest models apart
SPLITS = 3
WHOLE, WHOLE_PAPER = "NSFA, whole table", f"{PAPER}, whole table"


def plan(quick: bool) -> list[Task]:
    """The paper's models and sizes, larger ones up to where they predict best, peers, and long chains on all data."""
    from nsfa.model import Priors

    if quick:
        small = Setting("breast", 2, RunLength(120, 3, 15), genes=40)
        tasks = small.sized(["FA", "AFA", "SFA"], {5: 1.0, 20: 2.0}) + small.model("NSFA", 34.0)
        return tasks + small.peers({"mofapy2": {5: 1.0}, "soft-impute": {0: 1.0}})
    on = Setting("breast", SPLITS, RunLength(600, 3, 100))
    rates = {f"FOK K20 d={d:g}": Priors(loading_rate=d) for d in (1e-4, 1e-2, 1.0)}
    others = {
        "mofapy2": {20: 5.0, 40: 5.0}, "mofapy2-sparse": {20: 3.0, 40: 4.0}, "soft-impute": {0: 2.0},
        "factor-analysis": {10: 3.0, 20: 6.0, 40: 16.0}, "sparse-pca": {20: 17.0},
    }  # fmt: skip
    return [
        *on.sized(["FA", "AFA", "FOK"], {10: 2.5, 20: 4.0, 40: 8.0, 80: 22.0}),
        *(task for name, prior in rates.items() for task in on.model(name, 4.0, n_components=20, prior=prior)),
        *on.sized(["BFRM"], {10: 6.0, 20: 14.0}),
        *replace(on, length=RunLength(300, 2, 100)).sized(["BFRM"], {40: 26.0}),
        *on.sized(["SFA"], {10: 3.0, 15: 4.0, 20: 5.5, 40: 11.0, 80: 26.0, 120: 52.0}),
        *on.model("NSFA", 34.0),
        *on.model(PAPER, 4.0, prior="paper"),
        *on.peers(others),
        Task(WHOLE, 0, whole_table, {"prior": "default", "chains": 4, "sweeps": 2000}, 60.0),
        Task(WHOLE_PAPER, 0, whole_table, {"prior": "paper", "chains": 2, "sweeps": 8000}, 100.0),
    ]


def whole_table(prior: str, chains: int, sweeps: int) -> Iterator[Number]:
    """K of every tenth sweep, and R-hat of K and of log p(Y | G, ψ) after warm-ups of 500 and of 1000 sweeps."""
    import nsfa

    model = nsfa.NSFA(chains=chains, n_jobs=1, tune=0, draws=sweeps // 2, thin=2, prior=prior, random_state=0)
    posterior = model.fit(table("breast", None)).posterior_
    for chain, factors in enumerate(posterior.n_factors):
        for at in range(4, len(factors), 5):
            yield f"K of chain {chain}", 2 * (at + 1), factors[at]
    for start in (500, 1000):
        part = replace(posterior, chains=tuple(chain[start // 2 : start] for chain in posterior.chains))
        for found in part.diagnostics(factors=False).table:
            if found.quantity in ("K", "log p(Y|G,ψ)"):
                yield f"rhat {'K' if found.quantity == 'K' else 'log evidence'}", start, found.rhat
    yield "K_mean", 0, np.mean(posterior.n_factors[:, len(posterior.n_factors[0]) // 2 :])


def _chains(frame: Any, model: str) -> list[Any]:
    """K of each chain on the whole table."""
    rows = frame[(frame.model == model) & frame.quantity.str.startswith("K of chain")]
    return [chain for _, chain in rows.groupby("quantity")]


def long_chains(frame: Any) -> Any:
    """K against the sweep on the whole table, with our priors and with the paper's."""
    figure, axes = style.panels(1, 1, 2.6)
    ax = axes[0, 0]
    for name, shade in ((WHOLE, style.COLOURS[0]), (WHOLE_PAPER, style.COLOURS[1])):
        for number, run in enumerate(_chains(frame, name)):
            ax.plot(run["at"], run.value, color=shade, linewidth=0.8, label=None if number else name)
    ax.axhline(15, color="black", linestyle="--", linewidth=0.8, label="the paper's")
    ax.set(xlabel="sweep", ylabel="number of factors K")
    style.log_x(ax)
    ax.legend(fontsize=8)
    return figure


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """Scores; cost; K during the run; scores against K; the two ways to average."""
    out = {
        "figure_8a_scores": heldout_results.scores(frame),
        "figure_8bc_cost": heldout_results.costs(frame),
        "figure_8d_scores_by_size": heldout_results.score_by_size(frame, FAMILIES),
        "figure_8e_number_of_factors": heldout_results.factors_during_run(frame, ["NSFA", PAPER], 15.0),
        "figure_8f_log_of_mean": heldout_results.log_of_mean(frame),
    }
    return out if quick else out | {"figure_8g_long_chains": long_chains(frame)}


def findings(frame: Any, quick: bool) -> Iterator[Finding]:
    """Section 5.4, claim by claim."""
    if not quick:
        yield from _by_size(frame)
        yield from _against_sfa(frame)
        yield _converged(frame)
        yield from _cost(frame)
    yield heldout_results.nsfa_first(frame, within_noise=quick)


def _by_size(frame: Any) -> Iterator[Finding]:
    """FA, AFA and SFA as K grows."""
    s, logs = frames.means(frame, "lppd"), frames.means(frame, "mean_of_logs")
    fa, sfa = frames.sized(s, "FA"), frames.sized(s, "SFA")
    figures = {**fa, **logs[fa.index].add_prefix("mean of logs, ")}
    yield "fa-overfits", s["FA K40"] < s["FA K20"], figures
    ard = s["AFA K20"] > s["FA K20"] and s["AFA K40"] > s["AFA K20"] - 0.05
    yield "ard", ard, s[["FA K20", "AFA K20", "FA K40", "AFA K40"]]
    better = s["SFA K40"] > s["AFA K40"] and abs(s["SFA K10"] - s["AFA K10"]) < 0.03
    yield "sfa-beside-afa", better, s[[f"{name} K{k}" for k in (10, 20, 40) for name in ("AFA", "SFA")]]
    yield "sensitive-to-k", sfa.max() - sfa.min() > 0.05, sfa


def _against_sfa(frame: Any) -> Iterator[Finding]:
    """NSFA, FOK and BFRM beside the best SFA."""
    s = frames.means(frame, "lppd")
    top = frames.sized(s, "SFA").idxmax()
    gap, error = frames.difference(frame, "lppd", "NSFA", top)
    yield "nsfa-like-sfa", gap > -error, {**s[["NSFA", top]], f"NSFA − {top}": gap, "±": error}
    yield "fifteen-factors", s["SFA K15"] >= s[top] - 0.01, _numbers_of_factors(frame, s, top)
    fok = s.filter(like="FOK K20 d=")
    sensitive = fok.max() - fok.min() > 0.05 and fok.idxmax() == fok.index[0]
    yield "fok-rate", sensitive, s[[*fok.index, "FOK K20", top, "NSFA"]]
    worse = all(s[f"BFRM K{k}"] < s[f"SFA K{k}"] for k in (20, 40))
    yield "bfrm-worse", worse, s[["BFRM K20", "SFA K20", "BFRM K40", "SFA K40"]]


def _numbers_of_factors(frame: Any, s: Any, top: str) -> dict[str, float]:
    """What predicts best, and what the chains hold, early and late."""
    # the best may be K = 15 itself
    figures = {f"lppd, {name}": s[name] for name in ("SFA K15", top, "NSFA", PAPER)}
    figures |= {**frames.means(frame, "K_mean")[["NSFA", PAPER, WHOLE]].add_prefix("mean K, ")}
    # the chain that starts without factors
    chain = min(_chains(frame, WHOLE_PAPER), key=lambda chain: chain.value.iloc[0])
    for at in (300, 1000, 3000, int(chain["at"].max())):
        figures[f"K after {at} sweeps, {WHOLE_PAPER}"] = chain.iloc[(chain["at"] - at).abs().argmin()].value
    return figures


def _converged(frame: Any) -> Finding:
    rows = frame[(frame.model == WHOLE) & frame.quantity.str.startswith("rhat ")]
    rhat = rows.groupby(["quantity", "at"]).value.first()
    figures = {f"R-hat of {what[5:]}, sweeps {at:g} to {2 * at:g}": value for (what, at), value in rhat.items()}
    return "converged", rhat[:, 1000].max() < 1.1, figures


def _cost(frame: Any) -> Iterator[Finding]:
    """Computational cost, in ms per sweep and per sweep and factor."""
    sweep, each = (1e3 * frames.means(frame, f"seconds_per_sweep{what}") for what in ("", "_and_factor"))
    some = each[["FA K20", "AFA K20", "FOK K20", "SFA K20", "BFRM K20", "NSFA"]]
    yield "fa-fastest", some.idxmin() == "FA K20", some
    yield "fa-by-k", each["FA K40"] > each["FA K10"], frames.sized(each, "FA")
    ratio = sweep / sweep["FA K20"]
    yield "ard-cost", abs(ratio["AFA K20"] - 1) < 0.25, sweep[["FA K20", "AFA K20", "FA K40", "AFA K40"]]
    yield "sfa-cost", 1.5 < ratio["SFA K20"] < 3, sweep[["FA K20", "SFA K20", "FA K40", "SFA K40"]]
    yield "sfa-by-k", each["SFA K40"] < each["SFA K10"], frames.sized(each, "SFA")
    yield "nsfa-per-factor", each["NSFA"] > each["SFA K15"], each[["SFA K15", "SFA K80", "SFA K120", "NSFA"]]
    sizes = sweep[["SFA K15", "SFA K20", "SFA K40", "SFA K120", "NSFA"]]
    yield "nsfa-per-sweep", sweep["NSFA"] < sweep["SFA K20"], sizes
    like = 0.5 < sweep["FOK K20"] / sweep["SFA K20"] < 2 and sweep["FOK K20 d=0.0001"] > 1.1 * sweep["FOK K20"]
    yield "fok-cost", like, {**sweep[["SFA K20", "FOK K20"]], **sweep.filter(like="FOK K20 d=")}
    costly = sweep["BFRM K20"] > 1.5 * sweep["SFA K20"]
    yield "bfrm-cost", costly, sweep[["SFA K20", "BFRM K20", "SFA K40", "BFRM K40"]]
