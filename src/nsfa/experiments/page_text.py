"""What the page says beside its numbers; numbers in the text are read from the frames too."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.experiments import frames, peers

INTRODUCTION = """# The paper's experiments

Every experiment of Knowles & Ghahramani (2011), Sections 2 and 5, run with the models of this package: which of the
paper's claims hold when inference is exact, which do not, and why. This page is written from the files that the
commands wrote, by `python -m nsfa.experiments page out/* -o docs`; each section links to its numbers.

A command takes `--quick` for a small version, shows its progress, and goes on where it was interrupted. The real data
come from `NSFA_DATA_DIR` or are downloaded. Other people's methods are in the figures where they are installed
(`pip install 'nsfa[experiments]'`).

Seeds: data set s is simulated with seed s and fitted with seed s; split s hides the entries that
`nsfa.compare(..., random_state=0)` hides in its split s, and is fitted with seed s. One chain per fit, as in the
paper. NSFA has the paper's priors where the error on simulated tables is measured, and ours
([which and why](model.md#the-default-priors-and-why)) elsewhere, unless its name says so; the others have ours."""


def convergence(frame: Any, quick: bool) -> str:
    """How the figure is to be read."""
    return (
        "K against the sweep, a line per chain. Dashed: 15 of the 16 true factors of the simulated data, or nine "
        "tenths of the K that the default chains end with on the breast data. Panels (a) to (c) have the paper's moves "
        "alone and start without factors. The paper does not say which data its figure shows."
    )


def synthetic(frame: Any, quick: bool) -> str:
    """What is measured."""
    return (
        "E_r is free of sign, averaged over the last ten sweeps. Methods without exact zeros count a loading as active "
        "if it explains more than 1 % of the gene's variance. SPCA's and the peers' loadings are for scores of unit "
        "variance. Those are point estimates, without the posterior's spread that single draws of our models carry and "
        "their consensus averages out. *True G, rotated* is a control: the true loadings times a random rotation of K "
        "factors, fitted to nothing."
    )


def ecoli(frame: Any, quick: bool) -> str:
    """The score, and the two ways to average."""
    return (
        "The score of a hidden entry is the log of its density *averaged over draws*. The average of the logs, which "
        f"the authors' program prints, is lower, the more so the more draws differ: by {_gaps(frame)}. It punishes "
        "models with many weakly determined factors, which is part of the overfitting in the paper's figures."
    )


def breast(frame: Any, quick: bool) -> str:
    """Why K is far above 15, and why FA does not overfit."""
    k = frames.mean(frame, "NSFA", "K_mean")
    return (
        f"{_splits(frame)} The posterior of K lies far above the paper's 15: NSFA's mean is {k:.0f}. The figure of "
        "scores against K shows why that is not a fault: predictions of hidden entries improve with K far beyond 15. "
        "Another one has both ways to average over draws: the mean of the logs says that FA and AFA overfit, the log "
        f"of the mean, which is the posterior's prediction, does not; they differ by {_gaps(frame)}. {_too_free(frame)}"
        f"{_methods()}"
    )


def _too_free(frame: Any) -> str:
    """What becomes of FOK, which has the most to adapt, at its largest K."""
    sized = frames.sized(frame, "mean_of_logs", "FOK")[-2:]
    level = [frames.mean(frame, name, "lppd") for name in sized]
    if len(sized) < 2 or level[1] >= level[0]:
        return ""
    return f"FOK, with a precision for every loading, does overfit: {sized[1]} is behind {sized[0]} in both. "


def prostate(frame: Any, quick: bool) -> str:
    """What the file lacks, and which methods were left out."""
    return (
        "The public file has 108 of the paper's 171 samples (the 63 of normal tissue next to a tumour are missing) and "
        f"12558 probes, and scores cannot be compared digit for digit. {_splits(frame)} Each model ran for 300 sweeps "
        "(FOK and BFRM, on two splits, for 100), every third of the last 120 is scored; NSFA starts with few factors, "
        "has to find the others, and is still growing then. None of the sweeps is warm-up, in which a default fit adds "
        "broad factors and after which it predicts better ([how well](controls.md)). "
        f"scikit-learn's SparsePCA was left out: it takes many minutes per fit on so many features. {_methods()}"
    )


def _splits(frame: Any) -> str:
    """On how many splits, where they are fewer than the paper's."""
    n = frame[frame.quantity == "lppd"].replicate.nunique()
    return f"The scores are of {n} splits, {'as in the paper' if n == 10 else 'where the paper has ten'}."


def _gaps(frame: Any) -> str:
    """How far the two averages are apart for FA, smallest and largest, and for NSFA."""
    sized = frames.sized(frame, "mean_of_logs", "FA")
    names = [sized[0], sized[-1], "NSFA"]
    gap = [frames.mean(frame, name, "lppd") - frames.mean(frame, name, "mean_of_logs") for name in names]
    return ", ".join(f"{value:.3f} for {name}" for name, value in zip(names, gap, strict=True))


def _methods() -> str:
    notes = " ".join(line.strip() for line in str(peers.__doc__).split("\n\n")[1].split("\n"))
    return f"Peers: {notes[0].lower()}{notes[1:]}"


NOTES = {
    "convergence": convergence,
    "synthetic": synthetic,
    "ecoli": ecoli,
    "breast": breast,
    "prostate": prostate,
}


def compare_section(frame: Any) -> str:
    """``nsfa compare`` on the E. coli table, with what it gave."""
    part = frame[frame.model == "nsfa.compare"]
    lines = [
        "## The same on your own data",
        "`nsfa compare` does to any table what was done here: hide a tenth of the entries, fit, and score, several "
        "times. On the E. coli table:",
        "    nsfa compare ecoli_expression.csv --models nsfa,sfa:5,fa:5 --splits 3 -o out/compare",
        "| model | lppd | rmse | K | seconds |\n|---|---|---|---|---|",
    ]
    for model in ("NSFA", "SFA 5", "FA 5"):
        mean = {
            q: np.mean(part[part.quantity == f"compare {model} {q}"].value) for q in ("lppd", "rmse", "K", "seconds")
        }
        lines[-1] += (
            f"\n| {model} | {mean['lppd']:.3f} | {mean['rmse']:.3f} | {mean['K']:.1f} | {mean['seconds']:.1f} |"
        )
    lines.append("In Python: `nsfa.compare(X, {'NSFA': NSFA(), 'SFA 5': SFA(5), 'FA 5': FA(5)}, splits=3)`.")
    return "\n\n".join(lines)
