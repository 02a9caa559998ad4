"""Consensus factors: what the draws of all chains agree on, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nsfa.arrays import Bools, Floats, Ints
from nsfa.draw import SUBSTANTIAL
from nsfa.model.spec import is_number
from nsfa.posterior.factors import IN_CHAIN, OUTLYING, FactorChecks
from nsfa.posterior.shares import EFFECT, Shares

# The false-discovery rate of gene lists that nobody asks for at another.
FDR = 0.05
# No gene list has members that are less likely than this, however many certain ones make up for them.
LEAST_LISTED = 0.5
# A factor below this share of the variance, or of no more genes than this, is minor.
MINOR_SHARE = 0.001
MINOR_GENES = 3


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
        if not len(self.scores):
            # of a table in blocks they are not known
            return np.full(self.n_factors, np.nan)
        square = np.sort(self.scores**2, axis=0)
        out: Floats = square[-2:].sum(axis=0) / np.maximum(square.sum(axis=0), np.finfo(float).tiny)
        return out

    @property
    def outlying(self) -> Ints:
        """The numbers of the factors of whose squared scores one or two samples hold more than half."""
        return np.flatnonzero(self.two_samples > OUTLYING)

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
            Expected share of wrong members, mean of (1 − probability); the longest such list by falling probability, as
            far as members are more likely to be right than wrong.
        effect
            Which members are right: those of whose variance the factor explains at least this share. 0.05 gives the
            factor's core, 0 everything whose loading is not zero. For other shares see ``probability``.
        """
        if not 0 <= factor < self.n_factors:
            raise ValueError(f"factor must be a number from 0 to {self.n_factors - 1}. Got {factor!r}.")
        if not 0 < fdr < 1:
            raise ValueError(f"fdr must lie between 0 and 1. Got {fdr!r}.")
        probability = self.probability(effect)[:, factor]
        # falling; only those that are in the list, and ties with its last, have to be put in order
        ordered = -np.sort(-probability)
        n = discoveries(ordered, fdr)
        if n == 0:
            return np.zeros(0, dtype=np.int64)
        some = np.flatnonzero(probability >= ordered[n - 1])
        return some[by_certainty(probability[some], self.loadings[some, factor])[:n]]

    def lists(self, factor: int) -> tuple[Ints, Ints]:
        """The core of a factor, and all its features, at 5 % FDR, most certain first."""
        return self.genes(factor), self.genes(factor, effect=0)

    def first(self, factor: int, n: int) -> Ints:
        """The first of its core, or of all its features where it has no core."""
        return _first(*self.lists(factor), n)

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

        lists = [self.lists(k) for k in range(self.n_factors)]
        sizes = np.array([[len(genes) for genes in both] for both in lists], int).reshape(-1, 2)
        top = [", ".join(self.feature_names[d] for d in _first(*both, 5)) for both in lists]
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


def _first(core: Ints, every: Ints, n: int) -> Ints:
    return (core if len(core) else every)[:n]


def by_certainty(probability: Floats, loadings: Floats) -> Ints:
    """All features, by falling probability; of equal ones the larger loading comes first."""
    return np.lexsort((-np.abs(loadings), -probability))


def discoveries(probability: Floats, fdr: float) -> int:
    """How many of these probabilities, which fall, a list has whose expected share of errors is at most ``fdr``.

    None below one half: many certain members would else leave room for some that are certainly none.
    """
    error = np.cumsum(1.0 - probability) / np.arange(1, len(probability) + 1)
    return int(min(np.searchsorted(error, fdr, side="right"), np.count_nonzero(probability >= LEAST_LISTED)))
