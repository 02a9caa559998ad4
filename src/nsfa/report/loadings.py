"""The loadings for the page: a list of genes per factor, and the rows of the heatmap."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.kernels import Floats, Ints
from nsfa.posterior import Posterior
from nsfa.posterior.consensus import Consensus
from nsfa.reading import block_order, likely_loadings
from nsfa.report import pack

# A gene less probable than this in a factor is not listed for it.
LEAST_INCLUSION = 0.05
# Entries (gene, factor) in the page at most: about 7 MB.
MOST_ENTRIES = 500_000
MOST_ROWS = 2000
RATES = (0.01, 0.05, 0.1, 0.2)


def gene_lists(consensus: Consensus) -> dict[str, Any]:
    """Every factor's genes, most certain first; ``complete`` says whether none were dropped to keep the page small.

    The order is that of ``Consensus.genes``, so that the list at a false-discovery rate is the beginning of it;
    ``cuts`` says where each ends.
    """
    lists = [_certain(consensus, k) for k in range(consensus.n_factors)]
    length = _lengths(consensus, lists)
    complete = length == [len(own) for own in lists]
    lists = [own[:n] for own, n in zip(lists, length, strict=True)]
    values = [consensus.loadings, consensus.lower, consensus.upper]
    step = np.array([max(pack.step_of(v[:, k]) for v in values) for k in range(consensus.n_factors)])
    gene = np.concatenate([np.zeros(0, np.int64), *lists])
    factor = np.repeat(np.arange(len(lists)), length)
    loading, lower, upper = (pack.array(pack.steps(v[gene, factor], step[factor]), "int16") for v in values)
    return {
        "start": np.cumsum([0, *length]).tolist(),
        "gene": pack.indices(gene, len(consensus.feature_names)),
        "loading": loading,
        "lower": lower,
        "upper": upper,
        "inclusion": pack.shares(consensus.inclusion[gene, factor]),
        "step": step.tolist(),
        "cuts": {f"{rate:g}": [_cut(consensus, k, own, rate) for k, own in enumerate(lists)] for rate in RATES},
        "complete": complete,
    }


def _certain(consensus: Consensus, k: int) -> Ints:
    """Genes of one factor by falling certainty: all that are not improbable, and all of the longest list."""
    inclusion = consensus.inclusion[:, k]
    order = np.lexsort((-np.abs(consensus.loadings[:, k]), -inclusion))
    return order[: max(_cut(consensus, k, order, RATES[-1]), np.count_nonzero(inclusion >= LEAST_INCLUSION))]


def _cut(consensus: Consensus, k: int, genes: Ints, rate: float) -> int:
    """How many genes, in the order of certainty, a list at this false-discovery rate has."""
    error = np.cumsum(1.0 - consensus.inclusion[genes, k]) / np.arange(1, len(genes) + 1)
    return int(np.searchsorted(error, rate, side="right"))


def _lengths(consensus: Consensus, lists: list[Ints]) -> list[int]:
    """How many genes of each list to keep: of too many in all, the most certain and then the strongest."""
    if sum(map(len, lists)) <= MOST_ENTRIES:
        return [len(own) for own in lists]
    size = np.abs(consensus.loadings)
    # certainty first: draws are too few to tell inclusions apart that differ by less than this
    rank = consensus.inclusion + 1e-6 * size / np.maximum(size.max(axis=0), np.finfo(float).tiny)
    ranks = [rank[own, k] for k, own in enumerate(lists)]
    least = np.partition(np.concatenate(ranks), -MOST_ENTRIES)[-MOST_ENTRIES]
    return [int(np.count_nonzero(own >= least)) for own in ranks]


def heatmap(consensus: Consensus, spread: Floats) -> dict[str, Any]:
    """Rows of the heatmap in two orders: by strongest factor, and by similarity. ``spread``: each gene's deviation."""
    likely = likely_loadings(consensus)
    scaled = likely / np.where(spread > 0, spread, 1.0)[:, None]
    rows = block_order(scaled, max(MOST_ROWS, consensus.n_factors))
    size = len(consensus.feature_names)
    return {
        "n": len(rows),
        "of": int(np.count_nonzero(likely.any(axis=1))),
        "blocks": pack.indices(rows, size),
        "clusters": pack.indices(rows[_leaves(scaled[rows])], size),
        "limit": _limit(likely[rows]),
        "scaled_limit": _limit(scaled[rows]),
        "spread": pack.array(spread, "float64"),
    }


def _leaves(values: Floats) -> Ints:
    """Order of rows by average linkage of their cosine distances; rows are few enough for all pairs."""
    if len(values) < 3:
        return np.arange(len(values))
    from scipy.cluster.hierarchy import leaves_list, linkage

    out: Ints = leaves_list(linkage(values, "average", metric="cosine"))
    return out


def _limit(values: Floats) -> float:
    """End of the colour scale: a few very large loadings must not pale all others."""
    nonzero = np.abs(values[values != 0])
    return float(np.percentile(nonzero, 99)) if len(nonzero) else 1.0


def spread_of(posterior: Posterior) -> Floats:
    """Standard deviation of every gene's observed values (n_features,), in the user's units."""
    data = posterior.data
    return data.to_user(np.sqrt(data.power / data.count))


def shared_variance(posterior: Posterior, spread: Floats) -> dict[str, Any]:
    """Histogram of the share of each varying gene's variance that factors explain: 20 bins from 0 to 1."""
    varying = spread > 0
    noise = posterior.noise_variance()[varying] / spread[varying] ** 2
    share = np.clip(1.0 - noise, 0.0, 1.0)
    counts, edges = np.histogram(share, bins=20, range=(0.0, 1.0))
    return {"counts": counts.tolist(), "edges": edges.tolist(), "median": float(np.median(share))}
