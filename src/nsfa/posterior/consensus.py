"""Consensus factors: what the draws of all chains agree on, in the user's units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nsfa.arrays import Bools, Floats, Ints
from nsfa.draw import SUBSTANTIAL, Draw
from nsfa.kernels import Kernels
from nsfa.model.spec import is_number
from nsfa.posterior.align import Alignment, evenly
from nsfa.posterior.factors import IN_CHAIN, FactorChecks, check_factors, trace_factors
from nsfa.posterior.project import sample_moments
from nsfa.posterior.shares import EFFECT, Block, Shares, aligned_blocks

if TYPE_CHECKING:
    from nsfa.data import Observed

# Intervals use evenly spaced draws, as many as keep their loadings below this many bytes.
INTERVAL_BYTES = 200_000_000
# Aligned draws that together take no more than this are made once.
CACHE_BYTES = 50_000_000
# Averages of scores over this many evenly spaced draws are as good as over all; in large tables over fewer.
SCORE_DRAWS = 400
SCORE_ENTRIES = 200_000_000
# All draws are aligned in so many parts.
_PARTS = 20
# The false-discovery rate of gene lists that nobody asks for at another.
FDR = 0.05
# A factor below this share of the variance, or of no more genes than this, is minor.
MINOR_SHARE = 0.001
MINOR_GENES = 3
# A factor of whose squared scores two samples hold so much may be made of outliers.
OUTLYING = 0.5


@dataclass(frozen=True, repr=False)
class Consensus:
    """Factors that recur over draws and chains, ordered by the variance they explain.

    ``support`` says how often a factor is there; means, intervals and probabilities are over the draws that contain
    it. A factor's sign makes its largest mean loading, on the scaled data, positive.

    Attributes
    ----------
    loadings, lower, upper : (n_features, K)
        Posterior mean and central interval of probability ``level`` of each loading, in the user's units.
    inclusion : (n_features, K)
        Share of those draws in which the loading is active: P(z = 1).
    relevance : (n_features, K)
        Share of those draws in which the factor explains at least 5 % of the feature's variance: g² / (Σ_k g² + ψ) ≥
        0.05, with all factors of the draw in the sum.
    support : (K,)
        Share of all draws that contain the factor.
    chain_support : (chains, K)
        The same for each chain.
    variance_explained : (K,)
        Mean over draws of Σ_d g² / Σ_d (Σ_k g² + noise variance), on the model's scale: sums to at most 1.
    scores, scores_std : (n_samples, K)
        Posterior mean and standard deviation of the training samples' scores.
    feature_names : tuple of str
        Names of the columns of the table, or "feature 0", "feature 1", ...
    pivot, sign : (K,)
        Each factor's column of the alignment's pivot, and whether it was turned over.
    checks : FactorChecks or None
        How far the chains agree on each factor; None where that is not known.
    shares : Shares, optional
        The draws, from which ``probability`` takes shares of the variance other than 5 %.
    """

    loadings: Floats
    lower: Floats
    upper: Floats
    level: float
    inclusion: Floats
    relevance: Floats
    support: Floats
    chain_support: Floats
    variance_explained: Floats
    scores: Floats
    scores_std: Floats
    feature_names: tuple[str, ...]
    pivot: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sign: Floats = field(default_factory=lambda: np.zeros(0))
    checks: FactorChecks | None = None
    shares: Shares | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        sizes = f"{len(self.feature_names)} features × {len(self.scores)} samples"
        explained = f"{self.variance_explained.sum():.1%} of the variance".replace("%", " %")
        return (
            f"Consensus of {self.n_factors} factors ({self.n_substantial} substantial), {sizes}, {explained}\n"
            "  summary() has a row per factor, gene_table(factor) a row per gene"
        )

    @property
    def n_factors(self) -> int:
        """Number of consensus factors."""
        return int(self.loadings.shape[1])

    @property
    def sizes(self) -> Ints:
        """Number of features of each factor (K,): the mean over the draws that contain it, rounded."""
        out: Ints = np.rint(self.inclusion.sum(axis=0)).astype(np.int64)
        return out

    @property
    def n_substantial(self) -> int:
        """Number of substantial factors: those of five features or more."""
        return int((self.sizes >= SUBSTANTIAL).sum())

    @property
    def minor(self) -> Bools:
        """Which factors are minor (K,): below 0.1 % of the variance, or of three features or fewer."""
        return (self.variance_explained < MINOR_SHARE) | (self.sizes <= MINOR_GENES)

    @property
    def two_samples(self) -> Floats:
        """Share of each factor's squared scores that two samples hold (K,): above one half, outliers may make it up."""
        square = np.sort(self.scores**2, axis=0)
        out: Floats = square[-2:].sum(axis=0) / np.maximum(square.sum(axis=0), np.finfo(float).tiny)
        return out

    def probability(self, effect: float = EFFECT) -> Floats:
        """Probability (n_features, K) that a factor explains at least the share ``effect`` of a feature's variance.

        At 0.05 it is ``relevance``, and at 0 ``inclusion``: that the loading is not zero. Any other share takes a pass
        over all draws, O(n_features K draws); the last one asked for is kept.
        """
        if not is_number(effect) or not 0 <= effect < 1:
            raise ValueError(
                f"effect must be a share of the variance, at least 0 and below 1. Got {effect!r}; 5 % is 0.05."
            )
        if effect in (0, EFFECT):
            return self.relevance if effect else self.inclusion
        if self.shares is None:
            raise ValueError(
                f"effect must be 0 or {EFFECT} where there are no draws to take other shares from. Got {effect!r}; "
                "use the consensus of a posterior."
            )
        return self.shares.probability(effect)

    def genes(self, factor: int, fdr: float = FDR, effect: float = EFFECT) -> Ints:
        """Features of one factor at a Bayesian false-discovery rate, most certain first.

        Parameters
        ----------
        factor
            Number of the factor, from 0.
        fdr
            Expected share of wrong members, mean of (1 − probability); the longest such list by falling probability.
        effect
            Which members are right: those of whose variance the factor explains at least this share. 0.05 gives the
            factor's core, 0 everything whose loading is not zero. For other shares see ``probability``.
        """
        if not 0 < fdr < 1:
            raise ValueError(f"fdr must lie between 0 and 1. Got {fdr!r}.")
        probability = self.probability(effect)[:, factor]
        order = by_certainty(probability, self.loadings[:, factor])
        return order[: discoveries(probability[order], fdr)]

    def lists(self, factor: int) -> tuple[Ints, Ints]:
        """The core of a factor, and all its features, at 5 % FDR, most certain first."""
        return self.genes(factor), self.genes(factor, effect=0)

    def first(self, factor: int, n: int) -> Ints:
        """The first of its core, or of all its features where it has no core."""
        core, every = self.lists(factor)
        return (core if len(core) else every)[:n]

    def gene_table(self, factor: int, fdr: float = FDR, effect: float = EFFECT) -> Any:
        """A pandas DataFrame with a row, by its name, for each of the ``genes`` of a factor, most certain first.

        Columns: loading, its interval from lower to upper, relevance and inclusion, the probabilities of the two kinds
        of membership.
        """
        import pandas as pd

        genes = self.genes(factor, fdr, effect)
        parts = {"loading": self.loadings, "lower": self.lower, "upper": self.upper}
        parts |= {"relevance": self.relevance, "inclusion": self.inclusion}
        names = pd.Index([self.feature_names[d] for d in genes], name="feature", dtype=object)
        return pd.DataFrame({name: values[genes, factor] for name, values in parts.items()}, index=names)

    def summary(self) -> Any:
        """A pandas DataFrame with a row per factor. Printed, it shows the columns that fit 80 characters.

        Support; chains that have it; verdict, agreement, rhat and ess, see ``FactorChecks``; variance explained;
        whether the factor is minor; the share of its squared scores that two samples hold; ``n_core``, features of
        whose variance it explains at least 5 %, and ``n_features``, all of its own, both at 5 % FDR; the first of the
        core, or of all where there is no core.
        """
        import pandas as pd

        from nsfa.posterior.summary import Summary

        sizes = np.array([[len(genes) for genes in self.lists(k)] for k in range(self.n_factors)], int).reshape(-1, 2)
        top = [", ".join(self.feature_names[d] for d in self.first(k, 5)) for k in range(self.n_factors)]
        return Summary(
            {
                "support": self.support,
                "chains": (self.chain_support > IN_CHAIN).sum(axis=0),
                **({} if self.checks is None else vars(self.checks)),
                "variance_explained": self.variance_explained,
                "minor": self.minor,
                "two_samples": self.two_samples,
                "n_core": sizes[:, 0],
                "n_features": sizes[:, 1],
                "top_features": top,
            },
            index=pd.RangeIndex(self.n_factors, name="factor"),
        )


def by_certainty(probability: Floats, loadings: Floats) -> Ints:
    """All features, by falling probability; of equal ones the larger loading comes first."""
    return np.lexsort((-np.abs(loadings), -probability))


def discoveries(probability: Floats, fdr: float) -> int:
    """How many of these probabilities, which fall, a list has whose expected share of errors is at most ``fdr``."""
    error = np.cumsum(1.0 - probability) / np.arange(1, len(probability) + 1)
    return int(np.searchsorted(error, fdr, side="right"))


def build(
    data: Observed,
    chains: Sequence[Sequence[Draw]],
    alignment: Alignment,
    kernels: Kernels,
    min_support: float = 0.5,
    level: float = 0.9,
    preview: bool = False,
) -> Consensus:
    """Consensus of the factors found in more than ``min_support`` of the draws. Cost: a few passes over the draws."""
    draws = [draw for chain in chains for draw in chain]
    support = alignment.support()
    keep = np.flatnonzero(support.mean(axis=0) > min_support)
    aligned: Iterable[Block] = aligned_blocks(draws, np.arange(len(draws)), alignment, keep)
    if 8 * len(draws) * draws[0].shape[0] * (len(keep) + 1) <= CACHE_BYTES:
        aligned = list(aligned)
    traces = trace_factors(draws, len(chains), len(keep), aligned)
    count = traces.there.sum(axis=(0, 1))
    mean, inclusion, relevance = (part / count for part in (traces.sums.sum(axis=0), traces.active, traces.relevant))
    share = traces.share.mean(axis=(0, 1))
    # the largest mean loading is positive, and the factor that explains most comes first
    sign = np.where(mean[np.abs(mean).argmax(axis=0), np.arange(len(keep))] < 0, -1.0, 1.0)
    order = np.argsort(-share, kind="stable")
    tail = (1 - level) / 2
    some = evenly(len(draws), max(INTERVAL_BYTES // (4 * max(int((inclusion > tail).sum()), 1)), 50))
    if len(some) < len(draws) or not isinstance(aligned, list):
        aligned = aligned_blocks(draws, some, alignment, keep)
    lower, upper = _intervals(aligned, len(some), inclusion, tail)
    # adding 0 makes −0 a plain zero
    lower, upper = np.where(sign > 0, lower, -upper) + 0.0, np.where(sign > 0, upper, -lower) + 0.0
    scores, deviation = score_means(data, draws, alignment, keep, kernels)
    return Consensus(
        loadings=data.to_user(mean * sign + 0.0)[:, order],
        lower=data.to_user(lower)[:, order],
        upper=data.to_user(upper)[:, order],
        level=level,
        inclusion=data.to_user(inclusion, power=0)[:, order],
        relevance=data.to_user(relevance, power=0)[:, order],
        support=traces.there.mean(axis=(0, 1))[order],
        chain_support=traces.there.mean(axis=1)[:, order],
        variance_explained=share[order],
        scores=(scores * sign)[:, order],
        scores_std=deviation[:, order],
        feature_names=data.names,
        pivot=keep[order],
        sign=sign[order],
        checks=check_factors(traces, preview).taken(order),
        shares=Shares(data, draws, alignment, keep[order]),
    )


def _intervals(aligned: Iterable[Block], n_draws: int, inclusion: Floats, tail: float) -> tuple[Floats, Floats]:
    """Central interval of every loading given the factor; [0, 0] where the loading is almost surely inactive."""
    rows, columns = np.nonzero(inclusion > tail)
    lower, upper = np.zeros(inclusion.shape), np.zeros(inclusion.shape)
    if len(rows) == 0:
        return lower, upper
    values, present = np.empty((n_draws, len(rows)), dtype=np.float32), np.empty((n_draws, inclusion.shape[1]), bool)
    first = 0
    for block, g, there, _ in aligned:
        last = first + len(block)
        values[first:last], present[first:last] = g[rows, :, columns].T, there
        first = last
    for k in np.unique(columns):
        own, there = columns == k, present[:, k]
        # rare factors may be in none of the draws
        if there.any():
            bounds = np.quantile(values[np.ix_(there, own)], [tail, 1 - tail], axis=0, method="weibull")
            lower[rows[own], k], upper[rows[own], k] = bounds
    return lower, upper


def aligned_draws(
    data: Observed, draws: Sequence[Draw], alignment: Alignment, consensus: Consensus, dtype: Any = np.float64
) -> NDArray[Any]:
    """Loadings of every draw on the consensus factors, (draws, n_features, K), in the user's units."""
    out = np.empty((len(draws), data.n_features, consensus.n_factors), dtype)
    # a few draws at a time: on the way they take several times their place
    for some in np.array_split(np.arange(len(draws)), min(_PARTS, len(draws))):
        for block, g, _, _ in aligned_blocks(draws, some, alignment, consensus.pivot):
            out[block] = data.to_user(g * consensus.sign).transpose(1, 0, 2)
    return out


def score_means(
    data: Observed, draws: Sequence[Draw], alignment: Alignment, keep: Ints, kernels: Kernels
) -> tuple[Floats, Floats]:
    """Posterior mean and standard deviation (N, K) of the samples' scores on the pivot's columns ``keep``.

    Over the draws that contain the factor: in the others it has no scores.
    """
    shape = data.shape[1], len(keep)
    mean, square, count = np.zeros(shape), np.zeros(shape), np.zeros(shape[1])
    size = max(len(draws[0].noise_precision) * max(draw.n_factors for draw in draws), 1)
    for i in evenly(len(draws), min(SCORE_DRAWS, max(SCORE_ENTRIES // size, 100))):
        own, where, sign = alignment.columns(i, keep)
        moments = sample_moments(data, draws[i], kernels, alignment.rotation[i])
        mean[:, where] += moments.mean[:, own] * sign
        square[:, where] += moments.variance[:, own] + moments.mean[:, own] ** 2
        count[where] += 1
    count = np.maximum(count, 1)
    mean /= count
    return mean, np.sqrt(np.maximum(square / count - mean**2, 0.0))
