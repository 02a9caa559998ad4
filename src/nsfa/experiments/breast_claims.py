"""What the breast cancer data say about the claims of Section 5.4."""

from __future__ import annotations

from typing import Any

from nsfa.experiments import frames
from nsfa.experiments.claims import Claim, judge
from nsfa.experiments.heldout_claims import scores

WHERE = "Section 5.4, Figure 8"
COST = "Section 5.4, Figure 8(b, c)"
PAPER, WHOLE, WHOLE_PAPER = "NSFA, paper's priors", "NSFA, whole table", "NSFA, paper's priors, whole table"


def predictions(frame: Any) -> list[Claim]:
    """Predictive performance."""
    s = scores(frame, frames.models(frame, "lppd"))
    fa, sfa = (frames.sized(frame, "lppd", name) for name in ("FA", "SFA"))
    top = frames.best(frame, "lppd", sfa)
    gap, error = frames.difference(frame, "lppd", "NSFA", top)
    fok = [name for name in s if name.startswith("FOK K20 d=")]
    return [
        judge(
            "FA overfits as K goes from 20 to 40.", WHERE, s["FA K40"] < s["FA K20"],
            {n: s[n] for n in fa} | {f"mean of logs, {n}": frames.mean(frame, n, "mean_of_logs") for n in fa},
            "The shared precision lets factors fit noise.",
            "The average over draws of the log density falls from K = 20 to 40, the log of the average density, which "
            "is what the posterior predicts, rises: single draws overfit, their average does not.",
        ),
        judge(
            "ARD improves on FA at K = 20 and prevents overfitting: K = 40 is only slightly worse.", WHERE,
            s["AFA K20"] > s["FA K20"] and s["AFA K40"] > s["AFA K20"] - 0.05,
            {n: s[n] for n in ("FA K20", "AFA K20", "FA K40", "AFA K40")}, "Superfluous factors are shrunk.",
            "There are no superfluous factors among 20 or 40 to shrink, so that ARD changes little.",
        ),
        judge(
            "SFA predicts better than AFA where K is large enough, and about as well at K = 10.", WHERE,
            s["SFA K40"] > s["AFA K40"] and abs(s["SFA K10"] - s["AFA K10"]) < 0.03,
            {n: s[n] for n in ("AFA K10", "SFA K10", "AFA K20", "SFA K20", "AFA K40", "SFA K40")},
            "Zeros save what dense loadings waste on noise; with too few factors none can be spared.",
        ),
        judge(
            "The fixed-K models, SFA among them, are sensitive to K.", WHERE,
            s[top] - min(s[n] for n in sfa) > 0.05, {n: s[n] for n in sfa}, "Too few factors cost most.",
        ),
        judge(
            "NSFA predicts as well as SFA with an appropriate K.", WHERE, gap > -error,
            {"NSFA": s["NSFA"], top: s[top], f"NSFA − {top}": gap, "±": error}, "It finds K by itself.",
            "It finds K by itself, and is behind the best fixed K by more than the noise of the splits.",
        ),
        _fifteen(frame, s, top),
        judge(
            "FOK depends strongly on its hyperparameter d, with the best results at d = 10⁻⁴.", WHERE,
            max(s[n] for n in fok) - min(s[n] for n in fok) > 0.05 and max(fok, key=lambda n: s[n]) == fok[0],
            {n: s[n] for n in [*fok, "FOK K20", top, "NSFA"]},
            "d sets the size of a typical loading; too large a d makes all of them large.",
            "Loadings count in units of a gene's noise here, and d = 10⁻⁴ makes typical ones a hundredth: too small.",
        ),
        judge(
            "BFRM predicts noticeably worse than the other sparse models.", WHERE,
            all(s[f"BFRM K{k}"] < s[f"SFA K{k}"] for k in (20, 40)),
            {n: s[n] for n in ("BFRM K20", "SFA K20", "BFRM K40", "SFA K40")},
            "Samples share scores in clusters, too coarse for these data, and its sparsity prior is strong.",
        ),
        _converged(frame),
    ]  # fmt: skip


def _fifteen(frame: Any, s: dict[str, float], top: str) -> Claim:
    """The number of factors: what predicts best, and what the chains hold, early and late."""
    figures = {
        "lppd, SFA K15": s["SFA K15"],
        f"lppd, {top}": s[top],
        "lppd, NSFA": s["NSFA"],
        f"lppd, {PAPER}": s[PAPER],
    }
    figures |= {f"mean K, {name}": frames.mean(frame, name, "K_mean") for name in ("NSFA", PAPER, WHOLE)}
    part = frame[(frame.model == WHOLE_PAPER) & frame.quantity.str.startswith("K of chain")]
    # the chain that starts without factors
    part = part[part.quantity == part[part["at"] == part["at"].min()].sort_values("value").quantity.iloc[0]]
    for at in (300, 1000, 3000, int(part["at"].max())):
        figures[f"K after {at} sweeps, {WHOLE_PAPER}"] = float(part.iloc[(part["at"] - at).abs().argmin()].value)
    return judge(
        "An appropriate number of factors is about 15.", WHERE, s["SFA K15"] >= s[top] - 0.01, figures,
        "SFA predicts best there.",
        "Hidden entries are predicted better with every further factor up to many more. With the paper's priors a "
        "chain that starts without factors passes through 15 at once and goes on growing for more than a thousand "
        "sweeps; with ours it reaches its plateau, at many more, within 300.",
    )  # fmt: skip


def _converged(frame: Any) -> Claim:
    part = frame[frame.model == WHOLE]
    figures = {
        f"R-hat of {what}, sweeps {start} to {2 * start}": float(
            part[(part.quantity == f"rhat {what}") & (part["at"] == start)].value.iloc[0]
        )
        for what in ("K", "log evidence")
        for start in (500, 1000)
    }
    return judge(
        "The samplers have converged after about 1000 sweeps.", WHERE,
        all(value < 1.1 for name, value in figures.items() if "1000 to" in name), figures,
        "Four chains agree on these two, with R-hat below 1.1; on single covariances they may not yet.",
        "Four chains do not agree on the slowest quantities yet: the number of weak, broad factors changes over "
        "hundreds of sweeps.",
    )  # fmt: skip


def cost(frame: Any) -> list[Claim]:
    """Computational cost, in ms per sweep and per sweep and factor."""
    names = frames.models(frame, "seconds_per_sweep")
    sweep = {n: 1e3 * frames.mean(frame, n, "seconds_per_sweep") for n in names}
    each = {n: 1e3 * frames.mean(frame, n, "seconds_per_sweep_and_factor") for n in names}
    sfa = [n for n in names if n.startswith("SFA K")]
    return [
        judge(
            "FA is the fastest per sweep and factor.", COST,
            min(("FA K20", "AFA K20", "FOK K20", "SFA K20", "BFRM K20", "NSFA"), key=lambda n: each[n]) == "FA K20",
            {n: each[n] for n in ("FA K20", "AFA K20", "FOK K20", "SFA K20", "BFRM K20", "NSFA")},
            "Dense rows are drawn in one piece.",
            "On sufficient statistics a sweep no longer goes through the samples for every loading, and its cost lies "
            "elsewhere.",
        ),
        judge(
            "FA's cost per factor grows slightly with K.", COST, each["FA K40"] > each["FA K10"],
            {n: each[n] for n in names if n.startswith("FA K")}, "Factorising K × K matrices costs K² per factor.",
            "Up to here the fixed cost of a sweep is spread over more factors.",
        ),
        judge(
            "The cost of ARD is negligible.", COST, abs(sweep["AFA K20"] / sweep["FA K20"] - 1) < 0.25,
            {n: sweep[n] for n in ("FA K20", "AFA K20", "FA K40", "AFA K40")}, "K more Gamma draws.",
        ),
        judge(
            "A sweep of SFA costs just over twice one of FA.", COST, 1.5 < sweep["SFA K20"] / sweep["FA K20"] < 3,
            {n: sweep[n] for n in ("FA K20", "SFA K20", "FA K40", "SFA K40")},
            "Loadings are drawn one by one, and in some sweeps once more with the scores integrated out.",
        ),
        judge(
            "SFA's cost per factor falls with K.", COST, each["SFA K40"] < each["SFA K10"], {n: each[n] for n in sfa},
            "More factors are sparser, and zeros cost little.",
            "Sweeps with the scores integrated out cost K² per gene, which outweighs what sparsity saves.",
        ),
        judge(
            "NSFA costs somewhat more per factor than SFA, for births and deaths.", COST,
            each["NSFA"] > each["SFA K15"],
            {n: each[n] for n in ("SFA K15", "SFA K80", "SFA K120", "NSFA")}, "Births and deaths come on top.",
            "Births are judged with the new scores integrated out and cost next to nothing.",
        ),
        judge(
            "A sweep of NSFA costs little more than one of SFA at K = 15, and less than at K = 20 or 40.", COST,
            sweep["NSFA"] < sweep["SFA K20"],
            {n: sweep[n] for n in ("SFA K15", "SFA K20", "SFA K40", "SFA K120", "NSFA")},
            "NSFA has about as many factors.", "NSFA has many more factors here than 15, because the data do.",
        ),
        judge(
            "FOK costs about as much as SFA, more at d = 10⁻⁴.", COST,
            0.5 < sweep["FOK K20"] / sweep["SFA K20"] < 2 and sweep["FOK K20 d=0.0001"] > 1.1 * sweep["FOK K20"],
            {n: sweep[n] for n in ("SFA K20", "FOK K20", *(m for m in names if m.startswith("FOK K20 d=")))},
            "Dense rows, and a precision per loading.",
            "Dense rows are drawn in one piece, whatever d is.",
        ),
        judge(
            "BFRM pays a considerable cost for its priors.", COST, sweep["BFRM K20"] > 1.5 * sweep["SFA K20"],
            {n: sweep[n] for n in ("SFA K20", "BFRM K20", "SFA K40", "BFRM K40")},
            "Every sample weighs all clusters of scores.",
        ),
    ]  # fmt: skip
