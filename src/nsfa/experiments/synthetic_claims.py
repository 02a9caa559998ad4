"""What the simulated data say about the claims of Section 5.1."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.experiments import frames
from nsfa.experiments.claims import Claim, judge

WHERE, TRUE = "Section 5.1, Figure 4", 16
SPARSE = ("SFA K16", "NSFA a1", "NSFA")


def _errors(frame: Any, *names: str) -> dict[str, float]:
    return {name: frames.mean(frame, name, "E_r") for name in names}


def finite_models(frame: Any) -> list[Claim]:
    """FA, AFA, SPCA, FOK, BFRM and SFA against each other."""
    return [*_dense(frame), *_sparse(frame)]


def _dense(frame: Any) -> list[Claim]:
    fa, afa, fok = ([f"{family} K{k}" for k in (10, 16, 20)] for family in ("FA", "AFA", "FOK"))
    e = _errors(frame, *fa, *afa, *fok)
    others = [n for n in frames.models(frame, "E_r") if n.endswith(" K20") and "sklearn" not in n and "mofa" not in n]
    rotated = frames.models(frame, "E_r_control")
    spread = {name: float(frames.by_replicate(frame, name, "E_r").std()) for name in (*fa, *afa)}
    at20 = _errors(frame, *others)
    return [
        judge(
            "Plain factor analysis does worst.", WHERE, max(at20, key=lambda n: at20[n]) == "FA K20", at20,
            "Its loadings are known up to a rotation only, and every draw has another one.",
        ),
        judge(
            "FA overfits: its error grows with K.", WHERE, e[fa[0]] < e[fa[1]] < e[fa[2]],
            {n: e[n] for n in fa} | {n: frames.mean(frame, n, "E_r_control") for n in rotated},
            "Superfluous factors take part in the rotation.",
            "The error is that of a random rotation: the true loadings themselves, rotated at random among K factors, "
            "have nearly FA's errors, and these fall with K too, because the more factors share the same variance, the "
            "smaller each is, and the less it is wrong by where it belongs nowhere. What FA gets wrong beyond the "
            "rotation is the small difference between the two.",
        ),
        judge(
            "The spread of FA's error is very high at K = 20.", WHERE,
            spread["FA K20"] > 2 * max(spread["FA K10"], spread["FA K16"]), {n: spread[n] for n in fa},
            "Superfluous factors fit noise.",
            "With the error averaged over draws, and signs left out of account, data sets differ about equally.",
        ),
        judge(
            "A precision per factor (AFA) improves on FA.", WHERE,
            all(e[f"AFA K{k}"] < e[f"FA K{k}"] for k in (16, 20)), {n: e[n] for n in (*fa, *afa)},
            "Precisions of their own tell factors of different size apart, which removes part of the rotation.",
        ),
        judge(
            "AFA does not overfit: its error is no larger at K = 20 than at 16.", WHERE, e["AFA K20"] <= e["AFA K16"],
            {n: e[n] for n in afa}, "Superfluous factors are shrunk, and E_r does not count them.",
        ),
        judge(
            "FOK is only marginally better than AFA.", WHERE, e["FOK K16"] < e["AFA K16"] < 2 * e["FOK K16"],
            {n: e[n] for n in (*afa, *fok)},
            "Heavy tails favour sparse loadings, but weakly: at K = 16 the error is more than half of AFA's.",
            "A Student-t prior on each loading also prefers a sparse rotation, and chains that mix find it.",
        ),
        judge(
            "FOK overfits: its error grows with K.", WHERE, e["FOK K20"] > e["FOK K16"], {n: e[n] for n in fok},
            "Superfluous factors are not shrunk as a whole.",
            "Superfluous factors take little from the true ones, and E_r does not count them.",
        ),
    ]  # fmt: skip


def _sparse(frame: Any) -> list[Claim]:
    bfrm = [f"BFRM K{k}" for k in (10, 16, 20)]
    e = _errors(frame, *bfrm, *SPARSE, "FA K16", "AFA K16", "SPCA K16", "SFA K20", "AFA K20", "NSFA sc", "NSFA a1 sc")
    e |= {f"median {name}": float(frames.by_replicate(frame, name, "E_r").median()) for name in ("SFA K16", "BFRM K16")}
    bayes = [e[n] for n in (*SPARSE, "BFRM K16")]
    return [
        judge(
            "Sparse PCA is better than the dense models, not as good as the Bayesian sparse ones.", WHERE,
            max(bayes) < e["SPCA K16"] < min(e["FA K16"], e["AFA K16"]),
            {n: e[n] for n in ("FA K16", "AFA K16", "SPCA K16", "BFRM K16", *SPARSE)},
            "It finds a sparse rotation, without a model of noise.",
            "Its components are orthogonal directions of large variance, which these overlapping factors are not.",
        ),
        judge(
            "Sparse factor analysis (SFA) does very well.", WHERE,
            e["SFA K16"] < 0.5 * min(e["FA K16"], e["AFA K16"], e["SPCA K16"]),
            {n: e[n] for n in ("SFA K16", "SFA K20", "FA K16", "AFA K16", "SPCA K16")}, "Exact zeros fix the rotation.",
        ),
        judge(
            "BFRM is significantly better than AFA, not as good as SFA.", WHERE,
            e["SFA K16"] < e["BFRM K16"] < e["AFA K16"],
            {n: e[n] for n in ("AFA K16", "BFRM K16", "SFA K16", "median BFRM K16", "median SFA K16")},
            "It is sparse too, with a prior that is too sparse here.",
            "It is far better than AFA, and no worse than SFA: exact zeros fix the rotation for both.",
        ),
        judge(
            "BFRM's error falls with K.", WHERE, e[bfrm[0]] > e[bfrm[1]] > e[bfrm[2]], {n: e[n] for n in bfrm},
            "More factors are more chances to find the true ones.",
            "It falls up to the true 16; beyond, nothing is left to find, and the rest is what data sets differ by.",
        ),
    ]  # fmt: skip


def our_model(frame: Any, quick: bool) -> list[Claim]:
    """NSFA beside SFA, and its variants."""
    e = _errors(frame, *SPARSE, "FA K16", "AFA K16")
    out = [
        judge(
            "NSFA does as well as SFA with the true K (within 1.3 times its error).", WHERE,
            e["NSFA a1"] <= 1.3 * e["SFA K16"], {n: e[n] for n in SPARSE}, "It finds the K that SFA is told.",
        ),
        judge(
            "The sparse models SFA and NSFA are far better than the dense ones.", WHERE,
            max(e[n] for n in SPARSE) < 0.5 * min(e["FA K16"], e["AFA K16"]), e, "Exact zeros fix the rotation.",
        ),
        judge(
            "NSFA with α = 1 and with α inferred do very similarly.", WHERE,
            max(e["NSFA a1"], e["NSFA"]) <= 2 * min(e["NSFA a1"], e["NSFA"]),
            {n: e[n] for n in ("NSFA a1", "NSFA")},
            "α changes how many weak extra factors there are, which E_r ignores.",
        ),
    ]  # fmt: skip
    if quick:
        return out
    pairs = (("NSFA a1", "NSFA a1 sc"), ("NSFA", "NSFA sc"))
    spread = {name: _within(frame, name) for pair in pairs for name in pair}
    return [
        *out,
        judge(
            "Sharing power between noise variances (sc) makes the sampler's error vary less.", WHERE,
            all(spread[shared] < spread[plain] for plain, shared in pairs),
            {f"sd of E_r over draws, {n}": v for n, v in spread.items()},
            "The noise is the same everywhere here, and sc learns that.",
            "Not in both pairs: a hundred samples tell a gene's noise well enough; what varies is the loadings.",
        ),
        _consistent(frame),
    ]  # fmt: skip


def _within(frame: Any, name: str) -> float:
    """Standard deviation of E_r over the draws of a data set, averaged over data sets."""
    part = frame[(frame.model == name) & (frame.quantity == "E_r")]
    return float(part.groupby("replicate").value.std().mean())


def _consistent(frame: Any) -> Claim:
    from scipy.stats import spearmanr

    names = [n for n in frames.models(frame, "E_r") if n.endswith(" K16") or n in ("NSFA a1", "NSFA")]
    error = [frames.mean(frame, name, "E_r") for name in names]
    figures = {
        f"rank correlation of E_r and {q}": float(spearmanr(error, [frames.mean(frame, n, q) for n in names])[0])
        for q in ("precision", "recall")
    }
    return judge(
        "Precision and recall of Z agree with the reconstruction error.", "Supplement", max(figures.values()) < -0.5,
        figures, "Models with a small error find the pattern.",
        "Recall is high for all that keep small loadings; precision follows the error.",
    )  # fmt: skip


def number_of_factors(frame: Any, quick: bool) -> list[Claim]:
    """Figure 5: K with α = 1 and with α inferred."""
    where = "Section 5.1, Figure 5"
    one, free = (frames.values(frame, name, "K") for name in ("NSFA a1", "NSFA"))
    fixed = {"mean": one.mean(), "sd": one.std(), "paper's mean": 16.1, "paper's sd": 1.46}
    inferred = {"mean": free.mean(), "sd": free.std(), "paper's mean": 18.3, "paper's sd": 2.0}
    out = [
        judge(
            "With α = 1 the number of factors is centred at the true 16.", where, abs(one.mean() - TRUE) < 1.0, fixed,
            "The spread is smaller than the paper's where chains no longer stick at a wrong K.",
        ),
        judge(
            "With α inferred there are more factors, and skew.", where, bool(free.mean() > one.mean()),
            inferred | {"mean with α = 1": one.mean()},
            "Each gene may spend a factor of its own on its noise; a larger α makes that cheap.",
        ),
    ]  # fmt: skip
    if quick:
        return out
    ones = frames.values(frame, "NSFA a1, G = Z", "K")
    return [
        *out,
        judge(
            "Where all active loadings are 1, at least 16 factors are always found, and sometimes spurious ones.",
            where,
            bool(np.quantile(ones, 0.01) >= TRUE and ones.max() > TRUE),
            {"least": ones.min(), "most": ones.max(), "mean": ones.mean(), "share below 16": (ones < TRUE).mean()},
            "No factor is hidden by small loadings.",
            "Some draws lack a factor although none is hidden by small loadings.",
        ),
    ]  # fmt: skip
