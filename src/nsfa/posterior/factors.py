"""Can a factor be read? Each one is judged by itself: some are settled long before everything else agrees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nsfa.arrays import Bools, Floats, Ints
from nsfa.draw import Draw
from nsfa.posterior.diagnostics import (
    ESS_LIMIT,
    NOT_JUDGED,
    SETTLED,
    SOME_CHAINS,
    TOO_FEW_DRAWS,
    UNSETTLED,
    ess_bulk,
    split_rhat,
)
from nsfa.posterior.shares import EFFECT, Block, Counts

# A chain has a factor that more than this share of its draws contain; a settled one is in the larger share of every
# chain's: of those nearer to one half, another fit may find that fewer than half of its draws contain them.
IN_CHAIN = 0.5
LEAST_SUPPORT = 0.8
# Every two chains' own mean loadings of a settled factor have at least this cosine.
LEAST_AGREEMENT = 0.95
# Limits of R-hat and effective draws for one factor; a picture of it needs less agreement than averages of all draws.
FACTOR_RHAT, FACTOR_ESS = 1.1, ESS_LIMIT
# A factor of whose squared scores two samples hold more than this may be made of outliers; so many are named.
OUTLYING = 0.5
_NAMED = 8


class Traces(NamedTuple):
    """What one pass over the aligned draws leaves of each factor.

    Sums of its loadings per chain (chains, D, K); how often each loading is active, and how often the factor explains
    5 % of the feature's variance (D, K); per draw (chains, draws, K), whether the factor is there, its share of the
    variance, and its size, the number of features that use it.
    """

    sums: Floats
    active: Counts
    relevant: Counts
    there: Bools
    share: Floats
    size: Ints


@dataclass(frozen=True)
class FactorChecks:
    """How far the chains agree on each factor, and a word for it.

    A factor is "settled" if every chain has it in at least 80 % of its draws, the chains' own mean loadings have a
    cosine of at least 0.95, and its share of the variance and its size have an R-hat of at most 1.1 and 100 effective
    draws or more. It is in "some chains" if some have it in half of their draws or fewer, and "unsettled" otherwise.
    Previews, single chains and fewer than four draws are "not judged".

    Attributes
    ----------
    verdict : tuple of str
        One of the words above for each factor.
    agreement : (K,)
        The least cosine between the mean loadings of two chains that contain the factor.
    rhat, ess : (K,)
        The larger R-hat and the smaller effective sample size of its share and its size, 0 in draws without it.
    """

    verdict: tuple[str, ...]
    agreement: Floats
    rhat: Floats
    ess: Floats

    @property
    def settled(self) -> int:
        """Number of settled factors."""
        return self.verdict.count(SETTLED)

    def taken(self, order: Ints) -> FactorChecks:
        """The same of the factors ``order``."""
        words = tuple(self.verdict[k] for k in order)
        return FactorChecks(words, self.agreement[order], self.rhat[order], self.ess[order])


def trace_factors(draws: Sequence[Draw], n_chains: int, n_factors: int, aligned: Iterable[Block]) -> Traces:
    """Gather the traces of all factors, block by block; blocks are in the order of the draws."""
    n_draws, n_features = len(draws) // n_chains, draws[0].shape[0]
    sums = np.zeros((n_chains, n_features, n_factors))
    active, relevant = np.zeros((2, n_features, n_factors), dtype=np.int32)
    there = np.zeros((len(draws), n_factors), dtype=np.bool_)
    share, size = np.zeros(there.shape), np.zeros(there.shape, dtype=np.int64)
    for block in aligned:
        own = block.which
        total = [draws[i].scalars["loading_power"] + (1.0 / draws[i].noise_precision).sum() for i in own]
        there[own], size[own] = block.there, block.sizes()
        share[own] = block.power() / np.array(total)[:, None]
        block.count_active(active)
        block.count_reaching(relevant, EFFECT)
        # a block may end in another chain than it began in
        block.add_to(sums, own // n_draws)
    shape = (n_chains, n_draws, n_factors)
    return Traces(sums, active, relevant, there.reshape(shape), share.reshape(shape), size.reshape(shape))


def check_factors(traces: Traces, preview: bool = False) -> FactorChecks:
    """Judge every factor by its traces. Cost O(K · draws log draws)."""
    n_chains, n_draws, n_factors = traces.there.shape
    pairs = [(traces.share[..., k], traces.size[..., k].astype(float)) for k in range(n_factors)]
    rhat = np.array([max(map(split_rhat, pair)) for pair in pairs])
    ess = np.array([min(map(ess_bulk, pair)) for pair in pairs])
    agreement = _agreement(traces)
    least = traces.there.mean(axis=1).min(axis=0, initial=1.0)
    everywhere, often = least > IN_CHAIN, least >= LEAST_SUPPORT
    agree = often & (agreement >= LEAST_AGREEMENT) & (rhat <= FACTOR_RHAT) & (ess >= FACTOR_ESS)
    if preview or n_chains < 2 or n_draws < TOO_FEW_DRAWS:
        words: Any = np.full(n_factors, NOT_JUDGED)
    else:
        words = np.where(~everywhere, SOME_CHAINS, np.where(agree, SETTLED, UNSETTLED))
    return FactorChecks(tuple(words.tolist()), agreement, rhat, ess)


def _agreement(traces: Traces) -> Floats:
    """The least cosine between two chains' sums of loadings (K,), of those that contain the factor; 1 for one chain."""
    out = np.ones(traces.there.shape[2])
    for k in range(len(out)):
        sums = traces.sums[traces.there[..., k].any(axis=1), :, k]
        norm = np.linalg.norm(sums, axis=1)
        if len(sums) > 1:
            out[k] = (sums @ sums.T / np.maximum(np.outer(norm, norm), np.finfo(float).tiny)).min()
    return out


def on_few_samples(factors: Sequence[int], then: str, robust: str | None = None) -> str:
    """Which factors rest on one or two samples, in a sentence that says what ``then`` to do.

    ``robust`` is how to ask for robust noise; None where outliers are no measurements', or are taken care of.
    """
    n = len(factors)
    some = ", ".join(str(k) for k in factors[:_NAMED]) + (", …" if n > _NAMED else "")
    which = f"1 factor rests on one or two samples (factor {some})"
    if n > 1:
        which = f"{n} factors rest on one or two samples (factors {some})"
    cure = (
        "" if robust is None else f" If outliers make {'it' if n == 1 else 'them'}, {robust} takes these as they are."
    )
    return f"{which}: {then}.{cure}"
