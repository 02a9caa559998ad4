"""The loadings for the page: a list of genes per factor, and the rows of the heatmap."""

from __future__ import annotations

from typing import Any

import numpy as np

from nsfa.arrays import Floats, Ints
from nsfa.display import block_order, likely_loadings
from nsfa.posterior import Posterior
from nsfa.posterior.consensus import Consensus, by_certainty, discoveries
from nsfa.report import pack

# A gene less probable than this in a factor, or in its core, is not listed for it.
LEAST_INCLUSION = 0.05
# Entries (gene, factor) in the page at most: about 8 MB.
MOST_ENTRIES = 500_000
MOST_ROWS = 2000
RATES = (0.01, 0.05, 0.1, 0.2)


def gene_lists(consensus: Consensus, spread: Floats) -> dict[str, Any]:
    """Every factor's genes, most certain first; ``complete`` says whether none were dropped to keep the page small.

    The order is that of ``Consensus.genes`` with effect 0, so that the list at a false-discovery rate is the beginning
    of it; ``cuts`` says where each ends. ``core`` has the same for core genes, as places in the factor's list. Loadings
    are rounded in units of each gene's deviation, ``spread`` (n_features,): those of one factor may have any units.
    """
    core = [_certain(consensus, k, consensus.relevance) for k in range(consensus.n_factors)]
    lists = [_certain(consensus, k, consensus.inclusion) for k in range(consensus.n_factors)]
    kept = _kept(consensus, lists, core)
    start = np.cumsum([0, *map(len, kept)])
    unit = np.where(spread > 0, spread, 1.0)[:, None]
    values = [v / unit for v in (consensus.loadings, consensus.lower, consensus.upper)]
    step = np.array([max(pack.step_of(v[:, k]) for v in values) for k in range(consensus.n_factors)])
    gene = np.concatenate([np.zeros(0, np.int64), *kept])
    factor = np.repeat(np.arange(len(kept)), np.diff(start))
    loading, lower, upper = (pack.array(pack.steps(v[gene, factor], step[factor]), "int16") for v in values)
    return {
        "start": start.tolist(),
        "gene": pack.indices(gene, len(consensus.feature_names)),
        "loading": loading,
        "lower": lower,
        "upper": upper,
        "inclusion": pack.shares(consensus.inclusion[gene, factor]),
        "relevance": pack.shares(consensus.relevance[gene, factor]),
        "step": step.tolist(),
        "cuts": _cuts(consensus.inclusion, lists, kept),
        "core": _places(consensus, core, kept),
        "complete": len(gene) == sum(map(len, lists)),
    }


def _certain(consensus: Consensus, k: int, probability: Floats) -> Ints:
    """Genes of one factor by falling probability (n_features, K): all that are not improbable.

    Every list is the beginning of that. Whoever is in the core is in the factor, at least as probably.
    """
    order = by_certainty(probability[:, k], consensus.loadings[:, k])
    return order[: np.count_nonzero(probability[:, k] >= LEAST_INCLUSION)]


def _cuts(probability: Floats, lists: list[Ints], kept: list[Ints]) -> dict[str, list[int]]:
    """How many of every factor's kept genes are in its list at each false-discovery rate."""
    out = {}
    for rate in RATES:
        found = [own[: discoveries(probability[own, k], rate)] for k, own in enumerate(lists)]
        out[f"{rate:g}"] = [int(np.isin(own, some).sum()) for own, some in zip(found, kept, strict=True)]
    return out


def _places(consensus: Consensus, core: list[Ints], kept: list[Ints]) -> dict[str, Any]:
    """Core genes of every factor, most certain first, as places among its kept genes."""
    places = []
    for own, some in zip(core, kept, strict=True):
        place = np.full(len(consensus.feature_names), -1)
        place[some] = np.arange(len(some))
        places.append(place[own][place[own] >= 0])
    size = max(map(len, kept), default=0)
    return {
        "start": np.cumsum([0, *map(len, places)]).tolist(),
        "place": pack.indices(np.concatenate([np.zeros(0, np.int64), *places]), size),
        "cuts": _cuts(consensus.relevance, core, kept),
    }


def _kept(consensus: Consensus, lists: list[Ints], core: list[Ints]) -> list[Ints]:
    """The genes of each list to keep: of too many in all, core genes, then the most certain, then the strongest."""
    if sum(map(len, lists)) <= MOST_ENTRIES:
        return lists
    size = np.abs(consensus.loadings)
    # certainty first: draws are too few to tell inclusions apart that differ by less than this
    rank = consensus.inclusion + 1e-6 * size / np.maximum(size.max(axis=0), np.finfo(float).tiny)
    for k, own in enumerate(core):
        rank[own[: discoveries(consensus.relevance[own, k], RATES[-1])], k] += 1.0
    ranks = [rank[own, k] for k, own in enumerate(lists)]
    least = np.partition(np.concatenate(ranks), -MOST_ENTRIES)[-MOST_ENTRIES]
    return [own[enough >= least] for own, enough in zip(lists, ranks, strict=True)]


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
    if posterior.spec.latent:
        return _latent_spread(posterior)
    return data.to_user(np.sqrt(data.power / data.count))


def _latent_spread(posterior: Posterior) -> Floats:
    """The same of the Gaussian values where the table only hints at them, by what factors and noise make of it."""
    draws = posterior.draws[:: max(len(posterior.draws) // 100, 1)]
    variance = [(draw.loadings() ** 2).sum(axis=1) + 1.0 / draw.noise_precision for draw in draws]
    return posterior.data.to_user(np.sqrt(np.mean(variance, axis=0)))


def shared_variance(posterior: Posterior, spread: Floats) -> dict[str, Any]:
    """Histogram of the share of each varying gene's variance that factors explain: 20 bins from 0 to 1."""
    varying = spread > 0
    noise = posterior.noise_variance()[varying] / spread[varying] ** 2
    share = np.clip(1.0 - noise, 0.0, 1.0)
    counts, edges = np.histogram(share, bins=20, range=(0.0, 1.0))
    return {"counts": counts.tolist(), "edges": edges.tolist(), "median": float(np.median(share))}
