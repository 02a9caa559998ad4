"""Have the chains converged? R-hat and effective sample sizes (Vehtari et al. 2021) on label-free quantities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri
from scipy.stats import rankdata

from nsfa.arrays import Floats
from nsfa.length import Length
from nsfa.posterior.advice import Advice
from nsfa.posterior.moves import MoveUse

RHAT_LIMIT = 1.05
ESS_LIMIT = 100.0
# The verdicts on a factor.
SETTLED, UNSETTLED, SOME_CHAINS, NOT_JUDGED = "settled", "unsettled", "some chains", "not judged"
# Chains with fewer draws are not judged.
TOO_FEW_DRAWS = 4
# Chains that disagree get so many more draws at least; rough averages at most so many times the draws they have.
LEAST_MORE = 1000
MOST_TIMES = 20
# Distances are told apart to one part in so many.
_TIES = 1e9
PREVIEW = "Preview: too short to tell whether the chains agree; a full fit does."


class Quantity(NamedTuple):
    """How tables, axes and sentences call a scalar of a draw."""

    label: str
    axis: str
    words: str


# What does not depend on how factors are numbered, by the names of ``Posterior.trace``.
QUANTITIES = {
    "log_joint": Quantity("log joint", "log joint", "the log joint density"),
    "log_evidence": Quantity("log p(Y|G,ψ)", "log p(Y | G, ψ)", "the likelihood"),
    "n_factors": Quantity("K", "factors K", "the number of factors K"),
    "n_shared": Quantity("shared factors", "shared factors", "the number of shared factors"),
    "n_substantial": Quantity("substantial factors", "substantial factors", "the number of substantial factors"),
    "n_active": Quantity("active loadings", "active loadings", "the number of active loadings"),
    "concentration": Quantity("concentration", "concentration α", "the concentration α"),
    "stickiness": Quantity("stickiness", "stickiness β", "the stickiness β"),
    "outliers": Quantity("share of outliers", "share of outliers", "the share of outliers"),
    "loading_power": Quantity("ΣG²", "ΣG²", "the size of the loadings"),
    "covariance_norm": Quantity("‖GGᵀ‖", "covariance ‖GGᵀ‖", "the size of the covariance"),
}


@dataclass(frozen=True)
class Diagnostic:
    """One quantity: its mean, R-hat, and effective sample sizes of its bulk and its tails."""

    quantity: str
    mean: float
    rhat: float
    ess_bulk: float
    ess_tail: float


@dataclass(frozen=True, repr=False)
class Diagnostics:
    """A table of diagnostics, and the verdict in words.

    Attributes
    ----------
    table : tuple of Diagnostic
        One for each quantity.
    converged : bool
        Whether the chains agree on all of them.
    verdict : str
        What that means, in a sentence.
    trouble : tuple of two str
        If not converged: the worst quantity in words, and what is wrong with it.
    n_factors, settled : int
        Number of consensus factors, and of those among them that are settled: these can be read even if not everything
        has converged. See ``nsfa.posterior.factors.FactorChecks``.
    advice : Advice or None
        What to run next.
    moves : tuple of MoveUse
        The moves of a sweep: when each has its turn, what share of its proposals was accepted, and which are not used,
        with the reason.
    """

    table: tuple[Diagnostic, ...]
    converged: bool
    verdict: str
    trouble: tuple[str, str] = ("", "")
    n_factors: int = 0
    settled: int = 0
    advice: Advice | None = None
    moves: tuple[MoveUse, ...] = ()

    @property
    def partly_converged(self) -> bool:
        """Whether some factors are settled although not everything has converged."""
        return not self.converged and self.settled > 0

    def of_preview(self) -> Diagnostics:
        """The same table, without a judgement."""
        return replace(self, converged=False, verdict=PREVIEW)

    def with_factors(self, words: Sequence[str]) -> Diagnostics:
        """The same with the verdict on every consensus factor taken into the sentence."""
        n, settled = len(words), sum(word == SETTLED for word in words)
        found = replace(self, n_factors=n, settled=settled)
        if n == 0 or NOT_JUDGED in words:
            return found
        which = settled_words(settled, n)
        if self.converged:
            return replace(found, verdict=f"{self.verdict[:-1]}; {which} settled.")
        if settled == 0:
            none = f"none of the {n} factors is" if n > 1 else "the factor is not"
            return replace(found, verdict=f"{self.verdict[:-1]}, and {none} settled.")
        rest = {0: "", 1: " and the other factor"}.get(n - settled, f" and the other {n - settled}")
        subject, wrong = self.trouble
        sentence = f"{which} settled and can be read; {subject} ({wrong}){rest} {'are' if rest else 'is'} not."
        return replace(found, verdict=f"Partly converged: {sentence}")

    def __repr__(self) -> str:
        head = f"{'quantity':<20}{'mean':>12}{'R-hat':>8}{'ESS bulk':>10}{'ESS tail':>10}"
        rows = [
            f"{d.quantity:<20}{d.mean:>12.4g}{d.rhat:>8.3f}{d.ess_bulk:>10.0f}{d.ess_tail:>10.0f}" for d in self.table
        ]
        return "\n".join([head, *rows, self.verdict, *([self.advice.for_python()] if self.advice else [])])


def settled_words(settled: int, n: int) -> str:
    """So many of n factors are, as the beginning of a sentence about the settled ones."""
    if settled < n:
        return f"{settled} of {n} factors {'is' if settled == 1 else 'are'}"
    return {1: "the factor is", 2: "both factors are"}.get(n, f"all {n} factors are")


def diagnose(traces: dict[str, Floats], words: dict[str, str] | None = None) -> Diagnostics:
    """Diagnose named traces, each (chains, draws); ``words`` says more of some in the verdict."""
    table = tuple(
        Diagnostic(name, _mean(trace), split_rhat(trace), ess_bulk(trace), ess_tail(trace))
        for name, trace in traces.items()
    )
    n_chains, n_draws = next(iter(traces.values())).shape
    if n_draws < TOO_FEW_DRAWS:
        return Diagnostics(table, False, f"Not assessed: {n_draws} draw(s) per chain are too few.")
    alone = " With one chain no factor can be called settled." if n_chains == 1 else ""
    trouble = _trouble(table, {each.label: each.words for each in QUANTITIES.values()} | (words or {}))
    if trouble is not None:
        what, size, wanted = trouble
        return Diagnostics(table, False, f"Not converged: {what} has {size} ({wanted}).{alone}", (what, size))
    rhat, ess = max(d.rhat for d in table), min(d.ess_bulk for d in table)
    chains = f"{n_chains} chains agree" if n_chains > 1 else "1 chain agrees with itself"
    return Diagnostics(
        table, True, f"Converged: {chains}, R-hat ≤ {rhat:.3f}, at least {ess:.0f} effective draws.{alone}"
    )


def _trouble(table: tuple[Diagnostic, ...], words: dict[str, str]) -> tuple[str, str, str] | None:
    """The quantity that keeps the chains from having converged, what is wrong with it, and what should be; or None."""
    broken = [d for d in table if not np.isfinite(d.mean)]
    worst, thinnest = max(table, key=lambda d: d.rhat), min(table, key=lambda d: d.ess_bulk)
    if broken:
        found = broken[0], "values that are not finite", "check the table for copied features or extreme values"
    elif worst.rhat > RHAT_LIMIT:
        # two digits could look like the limit itself
        found = worst, f"R-hat {worst.rhat:.{2 if worst.rhat > 1.1 else 3}f}", f"limit {RHAT_LIMIT}"
    elif thinnest.ess_bulk < ESS_LIMIT:
        found = thinnest, f"{thinnest.ess_bulk:.0f} effective draws", f"{ESS_LIMIT:.0f} or more wanted"
    else:
        return None
    return words.get(found[0].quantity, found[0].quantity), *found[1:]


def advise(found: Diagnostics, length: Length, n_chains: int, made: int, still_warming: bool = False) -> Advice | None:
    """What to run after chains of ``made`` draws each; None if all is well, or if no more draws would help.

    ``still_warming`` says that the warm-up of some chain, which would have ended by itself, was cut at its maximum.
    """
    if length.preview:
        why = (
            "Strong factors and predictions are near those of a full fit; the number of factors, weak factors and "
            f"probabilities may change. More draws would keep this preview's warm-up, {length.tune} sweeps."
        )
        return Advice("Full run", 0, {"preview": False}, why)
    if n_chains == 1:
        return Advice("Run several chains", 0, {"chains": 4}, "One chain has nothing to agree with.")
    if found.converged or not all(math.isfinite(d.mean) for d in found.table):
        return None
    if made < TOO_FEW_DRAWS or max(d.rhat for d in found.table) > RHAT_LIMIT:
        more = max(LEAST_MORE, 2 * made)
        if still_warming:
            why = f"Some chain still moved on after {length.most:,} sweeps of warm-up; more draws do not mend that."
            return Advice("Warm up longer", 0, {"tune": 2 * length.most}, why)
        again = {"draws": made + more}
        if not length.most:
            again = {"tune": 2 * max(length.tune, 100), **again}
        return Advice("Run longer", more, again, "Until the chains agree, what is not settled may still change.")
    times = min(max(2, math.ceil(ESS_LIMIT / max(min(d.ess_bulk for d in found.table), 1.0))), MOST_TIMES)
    why = "The chains agree, but their averages are still rough."
    return Advice("Run longer", (times - 1) * made, {"draws": times * made}, why)


def split_rhat(trace: Floats) -> float:
    """Rank-normalised split R-hat: the larger of that of the values and that of their distance from the median.

    Infinite where a value is not finite: chains that have such values agree on nothing.
    """
    halves = _split(trace)
    if not np.isfinite(trace).all():
        return math.inf
    if _constant(halves):
        return 1.0
    folded = np.abs(halves - np.median(halves))
    # the two values next to the median are equally far from it, whatever the rounding says: ranks must be, too
    folded = np.rint(folded * (_TIES / max(folded.max(), np.finfo(float).tiny)))
    # of two values, each in half of the draws, all distances are the same
    parts = [halves] if _constant(folded) else [halves, folded]
    return max(_rhat(_rank_normalise(part)) for part in parts)


def ess_bulk(trace: Floats) -> float:
    """Effective sample size of the rank-normalised values; 0 where one is not finite."""
    halves = _split(trace)
    if not np.isfinite(trace).all():
        return 0.0
    return float(trace.size) if _constant(halves) else _ess(_rank_normalise(halves))


def ess_tail(trace: Floats) -> float:
    """The smaller effective sample size of the 5 % and 95 % quantiles; 0 where a value is not finite."""
    halves = _split(trace)
    if not np.isfinite(trace).all():
        return 0.0
    sizes = []
    for level in (0.05, 0.95):
        below = (halves <= np.quantile(halves, level)).astype(float)
        sizes.append(float(trace.size) if _constant(below) else _ess(below))
    return min(sizes)


def _mean(trace: Floats) -> float:
    """The mean; infinite as its values are, NaN where they are so on both sides."""
    infinite = np.unique(trace[~np.isfinite(trace)])
    if not len(infinite):
        return float(trace.mean())
    return float(infinite[0]) if len(infinite) == 1 else math.nan


def _split(trace: Floats) -> Floats:
    trace = np.atleast_2d(np.asarray(trace, dtype=float))
    half = trace.shape[1] // 2
    return np.concatenate([trace[:, :half], trace[:, trace.shape[1] - half :]]) if half else trace


def _constant(x: Floats) -> bool:
    return bool(x.size == 0 or x.shape[1] < 2 or np.ptp(x) == 0)


def _rank_normalise(x: Floats) -> Floats:
    out: Floats = ndtri((rankdata(x).reshape(x.shape) - 0.375) / (x.size + 0.25))
    return out


def _rhat(x: Floats) -> float:
    n = x.shape[1]
    between, within = n * x.mean(axis=1).var(ddof=1), x.var(axis=1, ddof=1).mean()
    return float(np.sqrt((between / within + n - 1) / n)) if within > 0 else float("inf")


def _ess(x: Floats) -> float:
    """Effective sample size over chains by Geyer's initial monotone sequence."""
    n_chains, n = x.shape
    centred = x - x.mean(axis=1, keepdims=True)
    spectrum = rfft(centred, next_fast_len(2 * n), axis=1)
    autocovariance = irfft(spectrum * np.conj(spectrum), next_fast_len(2 * n), axis=1)[:, :n].mean(axis=0) / n
    within = autocovariance[0] * n / (n - 1)
    total = within * (n - 1) / n + (x.mean(axis=1).var(ddof=1) if n_chains > 1 else 0.0)
    rho = 1 - (within - autocovariance * n / (n - 1)) / total
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    positive = np.concatenate([pairs, [-1.0]])
    pairs = np.minimum.accumulate(positive[: int(np.argmax(positive < 0))])
    time = max(2 * pairs.sum() - 1, 1 / np.log10(n_chains * n)) if len(pairs) else 1.0
    return float(n_chains * n / time)
