"""The report in words: the verdict, what was found, what to do next, the methods sentence, and what to cite."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nsfa.arrays import Ints
from nsfa.display import count_shares, percent
from nsfa.draw import SUBSTANTIAL
from nsfa.model import Priors
from nsfa.model.spec import NAMED_PRIORS
from nsfa.posterior import Posterior
from nsfa.posterior.consensus import Consensus
from nsfa.posterior.diagnostics import Diagnostics, settled_words
from nsfa.posterior.factors import FACTOR_ESS, FACTOR_RHAT, LEAST_AGREEMENT, LEAST_SUPPORT, on_few_samples
from nsfa.version import __version__

PAPER = {
    "authors": "Knowles, D. and Ghahramani, Z.",
    "year": "2011",
    "title": "Nonparametric Bayesian sparse factor models with application to gene expression modeling",
    "journal": "The Annals of Applied Statistics",
    "volume": "5(2B)",
    "pages": "1534–1552",
    "doi": "10.1214/10-AOAS435",
}
# So many samples that look bad are named.
MOST_POOR = 5
SOFTWARE = "nsfa: Bayesian sparse factor analysis for Python"
TITLES = {
    "nsfa": "nonparametric sparse factor analysis (NSFA)",
    "sfa": "sparse factor analysis (SFA)",
    "bfrm": "Bayesian factor regression modelling (BFRM)",
    "fa": "factor analysis (FA)",
    "afa": "factor analysis with a precision per factor (AFA)",
    "fok": "factor analysis with a precision per loading (FOK)",
}


class Measure(NamedTuple):
    """What loadings and variances are of, in words: a loading, one per deviation, what it says, and whose variance."""

    loading: str
    scaled: str
    change: str
    variance: str
    of_gene: str
    behind: str


# by likelihood
MEASURES = {
    "gaussian": Measure(
        loading="loading, in the table's units",
        scaled="loading per standard deviation of the gene",
        change="change of the gene when the factor's score rises by 1, in the table's units",
        variance="the scaled table",
        of_gene="each gene's variance",
        behind="",
    ),
    "counts": Measure(
        loading="loading, of the log rate",
        scaled="loading per standard deviation of the gene's log rate",
        change="change of the gene's log rate when the factor's score rises by 1; 0.69 doubles its rate",
        variance="the genes' log rates",
        of_gene="the variance of each gene's log rate",
        behind="The table is of counts: loadings and variances are those of the genes' log rates, natural logarithms.",
    ),
    "binary": Measure(
        loading="loading, of the probit value",
        scaled="loading per standard deviation of the gene's probit value",
        change="change of the gene's probit value when the factor's score rises by 1; noise of variance one comes on "
        "top, and a one is seen where the sum is above zero",
        variance="the genes' probit values",
        of_gene="the variance of each gene's probit value",
        behind="The table is of zeros and ones: loadings and variances are those of the genes' probit values, which "
        "are normal and above zero where a one was seen.",
    ),
}


class Verdict(NamedTuple):
    """Whether the results can be relied on: "good", "partly" or "caution", a headline, and why."""

    tone: str
    headline: str
    sentences: list[str]


def verdict(posterior: Posterior, diagnostics: Diagnostics) -> Verdict:
    """The convergence verdict in plain words, with what to do next, and which factors rest on one or two samples."""
    found = _converged(posterior, diagnostics)
    few = posterior.consensus().outlying.tolist()
    if not few:
        return found
    robust = None if posterior.spec.latent else "noise='robust' (--noise robust)"
    look = f"look at these samples before you read {'it' if len(few) == 1 else 'them'}"
    return found._replace(sentences=[*found.sentences, on_few_samples(few, look, robust)])


def _converged(posterior: Posterior, diagnostics: Diagnostics) -> Verdict:
    """Whether the chains agree, and what to do next."""
    n_chains, n_draws = posterior.n_factors.shape
    stopped = []
    if not posterior.finished:
        stopped = [
            f"The run was stopped before its end: {n_draws:,} of {posterior.length.draws:,} draws per chain are here. "
            "Resume it to complete them."
        ]
    told = [*stopped, diagnostics.verdict, *([] if diagnostics.advice is None else [diagnostics.advice.for_report()])]
    if posterior.length.preview:
        return Verdict("caution", "A preview: a first look at the data.", told)
    if n_chains == 1:
        return Verdict("caution", "One chain only: nothing to compare it with.", [*stopped, *_alone(diagnostics)])
    if diagnostics.partly_converged:
        which = settled_words(diagnostics.settled, diagnostics.n_factors)
        headline = f"{which[:1].upper()}{which[1:]} settled and can be read; take the rest as provisional."
        return Verdict("partly", headline, told)
    if not diagnostics.converged:
        known = not diagnostics.verdict.startswith("Not assessed")
        headline = "The chains have not converged: take these results as provisional." if known else "Too few draws."
        return Verdict("caution", headline, told)
    if stopped:
        return Verdict("caution", "Stopped early, but the chains agree so far.", told)
    return Verdict("good", "The chains agree: the results can be read as one answer.", told)


def _alone(diagnostics: Diagnostics) -> list[str]:
    halves = "agree" if diagnostics.converged else "do not agree well, or are too short to tell"
    return [
        "R-hat compares chains, so there is none for a single chain, and no factor can be called settled. "
        f"The first and the second half of this one {halves}.",
        *([] if diagnostics.advice is None else [diagnostics.advice.for_report()]),
    ]


def findings(posterior: Posterior, consensus: Consensus, samples: Sequence[str]) -> list[str]:
    """How many factors, how much they explain, and which samples, by their names, look bad."""
    n = consensus.n_factors
    out = [_count(posterior, consensus)]
    if posterior.spec.pattern != "dense":
        out.append(f"The number of substantial factors was {_likely(posterior.n_substantial)}")
    if posterior.spec.n_components is None:
        out.append(f"With those of fewer genes K was {_likely(posterior.n_factors)}")
    if n:
        total = percent(min(float(consensus.variance_explained.sum()), 1.0))
        of = MEASURES[posterior.spec.likelihood].variance
        out.append(f"{'Together they explain' if n > 1 else 'It explains'} {total} of the variance of {of}.")
    if posterior.spec.noise == "robust":
        share = percent(float(posterior.trace("outliers").mean()))
        out.append(
            f"{share} of the entries deviate by more than ordinary noise; outliers.csv (in Python, "
            "posterior_.outliers()) lists those that are outliers with a probability of one half or more."
        )
        out += _quality(posterior, samples)
    return out


def _quality(posterior: Posterior, samples: Sequence[str]) -> list[str]:
    """What shares of outliers say of the samples, and which of these stand out."""
    share = np.asarray(posterior.outlier_shares())
    least, most = (percent(float(end)) for end in np.quantile(share, [0.0, 1.0]))
    told = [f"In the samples it is {least} to {most}, which says how good each of them is."]
    poor = posterior.poor_samples()
    if not len(poor):
        return [*told, "No sample clearly has more of them than the others."]
    some = ", ".join(f"{samples[n]} ({percent(share[n])})" for n in poor[:MOST_POOR])
    more = f" and {len(poor) - MOST_POOR} more" if len(poor) > MOST_POOR else ""
    usual = percent(float(np.median(share)))
    which = f"{len(poor)} samples clearly have" if len(poor) > 1 else "One sample clearly has"
    told.append(f"{which} more of them than the usual {usual}, and may have been measured badly: {some}{more}.")
    return told


def _likely(counts: Ints) -> str:
    """The most frequent number, and the range of most of them."""
    values, share = count_shares(counts)
    low, high = np.percentile(counts, [5, 95], method="nearest")
    within = f"90 % of the draws have {low}" + (f" to {high}." if high > low else ".")
    return f"most often {values[share.argmax()]} ({percent(share.max())} of draws); {within}"


def _count(posterior: Posterior, consensus: Consensus) -> str:
    fixed, n, large = posterior.spec.n_components, consensus.n_factors, consensus.n_substantial
    if n == 0:
        return (
            "No factor was found in more than half of the draws: either no genes vary together beyond noise, or the "
            "draws do not agree on any factor yet."
        )
    if fixed is None:
        smaller = f", and {n - large} smaller," if n > large else ""
        if not large:
            smaller = f"{n} smaller {'was' if n == 1 else 'were'} found in more than half of the draws."
            return f"There are no substantial factors ({SUBSTANTIAL} genes or more); {smaller}"
        factors = f"{large} substantial factor{'s' if large != 1 else ''} ({SUBSTANTIAL} genes or more){smaller}"
        return f"{factors} {'was' if n == 1 else 'were'} found in more than half of the draws."
    kind = "" if posterior.spec.pattern == "dense" else f", {large} of them substantial ({SUBSTANTIAL} genes or more)"
    return (
        f"The model was given {fixed} factor{'s' if fixed > 1 else ''}; {n} recur in more than half of the draws{kind}."
    )


def facts(posterior: Posterior, consensus: Consensus, diagnostics: Diagnostics) -> list[tuple[str, str]]:
    """The figures of the first screen: (value, what it is)."""
    n_chains, n_draws = posterior.n_factors.shape
    dense = posterior.spec.pattern == "dense"
    number = consensus.n_factors if dense else consensus.n_substantial
    judged = consensus.checks is not None and n_chains > 1 and not posterior.length.preview
    return [
        (f"{number}", f"{'' if dense else 'substantial '}factor{'' if number == 1 else 's'}"),
        *([(f"{diagnostics.settled} of {consensus.n_factors}", "factors settled")] if judged else []),
        (f"{posterior.data.shape[1]:,}", "samples"),
        (f"{posterior.data.n_features:,}", "genes"),
        (percent(missing_share(posterior)), "missing"),
        (f"{n_chains} × {n_draws:,}", "chains × draws"),
        (how_long(_seconds(posterior)), "longest chain"),
    ]


def missing_share(posterior: Posterior) -> float:
    """Share of the modelled table's entries that are missing."""
    missing = posterior.data.missing
    return 0.0 if missing is None else float(missing.mean())


def _seconds(posterior: Posterior) -> float:
    """Time of the slowest chain."""
    return max(chain[-1].scalars.get("seconds", 0.0) for chain in posterior.chains)


def how_long(seconds: float) -> str:
    """A time as one would say it."""
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 5970:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def methods(posterior: Posterior, consensus: Consensus, diagnostics: Diagnostics) -> str:
    """A paragraph that can be pasted into a paper."""
    length, spec = posterior.length, posterior.spec
    n_chains, n_draws = posterior.n_factors.shape
    holes = missing_share(posterior)
    kept = "" if length.thin == 1 else f" (one of every {length.thin} sweeps)"
    rhat = f"rank-normalised split R-hat (at most {max(d.rhat for d in diagnostics.table):.3f}) and "
    ess = min(d.ess_bulk for d in diagnostics.table)
    judged = (
        f"Convergence was judged by {rhat if n_chains > 1 else ''}effective sample size (at least {ess:.0f}) of "
        "quantities that do not depend on factor labels (Vehtari et al., 2021)."
    )
    exposure = posterior.data.exposure
    sizes = " and size factors per sample" if exposure is not None and exposure.any() else ""
    seen = {
        "counts": "Counts were taken as Poisson given log rates that are Gaussian, with over-dispersion per "
        f"gene{sizes}.",
        "binary": "Zeros and ones were modelled by a probit.",
        "gaussian": "Entries could be outliers with deviations of their own." if spec.noise == "robust" else "",
    }[spec.likelihood]
    sentences = [
        f"We fitted {TITLES.get(spec.name, spec.name)} with nsfa {__version__} (Knowles and Ghahramani, 2011) to "
        f"{posterior.data.shape[1]:,} samples × {posterior.data.n_features:,} genes"
        + (f" ({percent(holes)} of entries missing and integrated out)." if holes else "."),
        *([seen] if seen else []),
        f"We ran {n_chains} Markov chain{'s' if n_chains > 1 else ''} of {length.warm_up} warm-up sweeps and "
        f"{n_draws:,} kept draws{kept}{' each' if n_chains > 1 else ''} (seed {posterior.seed}).",
        "This was a preview, too short to judge convergence." if length.preview else judged,
        f"Factors were matched over draws; {_kept(consensus.n_factors)} found in more than half of the draws.",
    ]
    if diagnostics.settled:
        sentences.append(
            f"Of these, {diagnostics.settled} were settled: in at least {percent(LEAST_SUPPORT)} of the draws of every "
            f"chain, with a cosine of at least {LEAST_AGREEMENT} between the chains' mean loadings, and with R-hat ≤ "
            f"{FACTOR_RHAT} and {FACTOR_ESS:.0f} or more effective draws of their size and share of the variance."
        )
    if spec.pattern != "dense" and consensus.n_factors:
        sentences.append(
            "Genes were assigned to factors at a Bayesian false-discovery rate of 5 %, those with a probability of at "
            "least one half; a factor's core genes are those for which it explains at least 5 % of the gene's variance."
        )
    return " ".join(sentences)


def _kept(n: int) -> str:
    return f"we kept the {n}" if n else "none was"


def _priors(priors: Priors) -> str:
    return next((name for name, known in NAMED_PRIORS.items() if known == priors), str(priors))


def settings_table(posterior: Posterior, settings: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What was run: the caller's settings first, then those of the fit."""
    spec, length = posterior.spec, posterior.length
    own = {
        "model": spec.name.upper(),
        "number of factors": "inferred" if spec.n_components is None else spec.n_components,
        **({} if spec.pattern == "dense" else {"concentration α": spec.concentration}),
        "noise": spec.noise,
        **({} if spec.likelihood == "gaussian" else {"likelihood": spec.likelihood}),
        "chains": len(posterior.chains),
        "tune": length.warm_up if length.most else length.tune,
        "draws": length.draws,
        "thin": length.thin,
        "seed": posterior.seed,
        "priors": _priors(spec.priors),
        "versions": f"nsfa {__version__}, NumPy {np.__version__}, Python {platform.python_version()}",
    }
    given = {str(name): value for name, value in (settings or {}).items()}
    return [(name, str(value)) for name, value in {**given, **{k: v for k, v in own.items() if k not in given}}.items()]
