"""Which known gene sets are a factor's genes? Over-representation of its list, or ranks of its loadings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import false_discovery_control, hypergeom, pearson3, rankdata

from nsfa.arrays import Floats, Ints
from nsfa.counts import check_count
from nsfa.enrichment.sets import MIN_SIZE, GeneSets, Sets, row_sizes, select
from nsfa.model.spec import is_integer
from nsfa.posterior.consensus import FDR, Consensus
from nsfa.posterior.shares import EFFECT

METHODS = ("hypergeometric", "rank")
_EFFECTS = {"hypergeometric": "odds_ratio", "rank": "score"}
# a signed rank sum less certain than this says that members go both ways
_DIRECTION_LEVEL = 0.05
SET_FDR = 0.05
"""A gene set with a larger false-discovery rate stands out in no factor."""


def enrich(
    consensus: Consensus,
    gene_sets: GeneSets,
    *,
    method: str = "hypergeometric",
    fdr: float = FDR,
    effect: float = EFFECT,
    min_size: int = MIN_SIZE,
    max_size: int | None = None,
    symbols: Sequence[str] | None = None,
) -> Any:
    """Test every consensus factor against every gene set.

    Parameters
    ----------
    consensus
        The factors: ``est.posterior_.consensus()``.
    gene_sets
        Names and genes, or the path of a GMT file. Genes are matched to the features' names exactly; those that are
        not in the data do not count.
    method
        "hypergeometric": is the set over-represented among the factor's genes, all features of the table being the
        universe? Factors without genes are not tested. "rank": do the set's genes have larger absolute loadings than
        the others? A one-sided Mann–Whitney test. Sparse loadings have many ties, which skew its statistic: p comes
        from a Pearson type III curve with the exact mean, variance and skewness (the normal curve where none tie).
    fdr, effect
        The factor's gene list, ``consensus.genes(factor, fdr, effect)``: its Bayesian false-discovery rate, and the
        share of a gene's variance that the factor must explain. 0 takes every gene whose loading is not zero.
    min_size, max_size
        Test only sets with so many genes in the data.
    symbols
        Second names of the features, in their order: genes of the sets are matched by either name, and listed by these.
        Features with one symbol are one gene, in the list if any of them is, with the largest of their loadings.

    Returns
    -------
    A pandas DataFrame, a row per test, best first within each factor: factor (from 0), gene_set, overlap (genes of the
    list in the set), set_size (genes of the set in the data), list_size, odds_ratio or score, direction, p, fdr
    (Benjamini–Hochberg over all rows), genes (the overlap, most certain first, joined by commas). Its
    ``attrs["notes"]`` has sentences about the sets that were too small to be tested.

    direction: "hypergeometric" gives the sign of most loadings in the overlap, "both" in a tie. "rank" gives the side
    to which the members' signed loadings lean, "both" where they do not (p ≥ 0.05). score is the rank-biserial
    correlation: 1 if every member's loading is larger than every other's, 0 if they are alike.
    """
    _check(method, min_size, max_size)
    sets = select(gene_sets, consensus.feature_names, symbols, (min_size, max_size))
    table = _test(consensus, sets, _lists(consensus, fdr, effect), method)
    table.attrs["notes"] = sets.notes
    return table


def enrich_both(consensus: Consensus, gene_sets: GeneSets, symbols: Sequence[str] | None = None) -> Any:
    """Test every consensus factor against every gene set by both methods, with the settings of ``enrich``.

    Returns
    -------
    The rows of both tables of ``enrich``, with a first column method; fdr is over the rows of one method. Each factor's
    rows by core genes come before those by rank. odds_ratio and score are NaN in the rows of the other method.
    """
    import pandas as pd

    sets = select(gene_sets, consensus.feature_names, symbols, (MIN_SIZE, None))
    lists = _lists(consensus, FDR, EFFECT)
    tables = [_test(consensus, sets, lists, method) for method in METHODS]
    for table, method in zip(tables, METHODS, strict=True):
        table.insert(0, "method", method)
        for name in _EFFECTS.values():
            if name not in table:
                table[name] = np.nan
    columns = ["method", "factor", "gene_set", "overlap", "set_size", "list_size", *_EFFECTS.values(), "direction", "p"]
    # of two empty tables one is enough, and pandas has nothing to guess
    both = pd.concat([table for table in tables if len(table)] or tables[:1])[[*columns, "fdr", "genes"]]
    both = both.sort_values("factor", kind="stable", ignore_index=True)
    both.attrs["notes"] = sets.notes
    return both


def best_sets(table: Any, fdr: float = SET_FDR) -> Any:
    """The gene set that stands out most in each factor: a table of ``enrich_both`` by factor, a row each.

    The smallest fdr of either method; of equal ones the smallest p. A factor in which no set is within ``fdr`` has no
    row.
    """
    table = table[table["fdr"] <= fdr]
    return table.sort_values(["fdr", "p"], kind="stable").drop_duplicates("factor").set_index("factor").sort_index()


def _lists(consensus: Consensus, fdr: float, effect: float) -> list[Ints]:
    return [consensus.genes(k, fdr, effect) for k in range(consensus.n_factors)]


def _test(consensus: Consensus, sets: Sets, lists: list[Ints], method: str) -> Any:
    """The table of one method."""
    names, parts = np.asarray(sets.among.shown, dtype=object), []
    for k, features in enumerate(lists):
        if len(sets.name) and (len(features) or method == "rank"):
            genes, loading = sets.among.listed(features), sets.among.loading(consensus.loadings[:, k])
            tested = _rank(loading, sets) if method == "rank" else _hypergeometric(loading, genes, sets)
            parts.append({"factor": np.full(len(sets.name), k), **_overlaps(genes, names, sets), **tested})
    return _frame(parts, _EFFECTS[method])


def _check(method: str, min_size: int, max_size: int | None) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be {' or '.join(map(repr, METHODS))}. Got {method!r}.")
    check_count("min_size", min_size)
    if max_size is not None and (not is_integer(max_size) or max_size < min_size):
        raise ValueError(f"max_size must be None or an int >= min_size = {min_size}. Got {max_size!r}.")


def _overlaps(genes: Ints, names: Any, sets: Sets) -> dict[str, Any]:
    """What is counted whatever the test: overlap of the factor's list with each set, and who is in it."""
    inside = sets.member[:, genes].tocsr()
    inside.sort_indices()
    shared = [",".join(names[genes[row]]) for row in np.split(inside.indices, inside.indptr[1:-1])]
    return {
        "gene_set": sets.name,
        "overlap": row_sizes(inside),
        "set_size": sets.size,
        "list_size": np.full(len(sets.name), len(genes)),
        "genes": shared,
    }


def _hypergeometric(loading: Floats, genes: Ints, sets: Sets) -> dict[str, Any]:
    """P(overlap at least as large) when a list of this length is drawn at random from all genes."""
    n_all, n_list, size = len(loading), len(genes), sets.size
    overlap = row_sizes(sets.member[:, genes].tocsr())
    won = overlap * (n_all - n_list - size + overlap).astype(float)
    lost = (n_list - overlap) * (size - overlap).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = won / lost
    lean = sets.member[:, genes] @ np.sign(loading[genes])
    return {
        "odds_ratio": odds,
        "direction": _direction(lean),
        "p": hypergeom.sf(overlap - 1, n_all, size, n_list),
    }


def _rank(loading: Floats, sets: Sets) -> dict[str, Any]:
    """Mann–Whitney test of |loading|, members above others; direction from the same test of the signed loadings."""
    above, z, skew = _rank_sum(np.abs(loading), sets, one_sided=True)
    _, signed, _ = _rank_sum(loading, sets, one_sided=False)
    lean = np.where(2 * ndtr(-np.abs(signed)) < _DIRECTION_LEVEL, signed, 0.0)
    return {"score": above, "direction": _direction(lean), "p": np.clip(pearson3.sf(z, skew), 0.0, 1.0)}


def _rank_sum(value: Floats, sets: Sets, *, one_sided: bool) -> tuple[Floats, Floats, Floats]:
    """Rank-biserial correlation of each set, and z (continuity-corrected) and skewness of its rank sum.

    Moments are those of n ranks drawn at random without replacement, ties included: Var = n(N−n)/(N−1) m₂ and
    μ₃ = n(N−n)(N−2n)/((N−1)(N−2)) m₃, with m the central moments of all N ranks. Without ties m₃ is 0.
    """
    total, inside = float(len(value)), sets.size.astype(float)
    outside, ranks = total - inside, rankdata(value)
    centred = ranks - ranks.mean()
    half, excess = 0.5 * inside * outside, sets.member @ centred
    variance = inside * outside / max(total - 1, 1) * np.mean(centred**2)
    third = inside * outside * (outside - inside) / max((total - 1) * (total - 2), 1) * np.mean(centred**3)
    step = 0.5 if one_sided else np.sign(excess) * np.minimum(0.5, np.abs(excess))
    # no spread: all loadings alike, or every feature a member; nothing speaks for the set
    spread, nothing = variance > 1e-9, np.zeros(len(inside))
    z = np.divide(excess - step, np.sqrt(variance), out=nothing - (np.inf if one_sided else 0.0), where=spread)
    skew = np.divide(third, variance**1.5, out=nothing.copy(), where=spread)
    return np.divide(excess, half, out=nothing.copy(), where=half > 0), z, skew


def _direction(lean: Any) -> list[str]:
    return [{1: "+", -1: "-", 0: "both"}[int(sign)] for sign in np.sign(lean)]


def _frame(parts: list[dict[str, Any]], effect: str) -> Any:
    """One table of all factors, with Benjamini–Hochberg over all its rows."""
    import pandas as pd

    kinds = {"factor": int, "gene_set": object, "overlap": int, "set_size": int, "list_size": int, effect: float,
             "direction": object, "p": float, "fdr": float, "genes": object}  # fmt: skip
    table = pd.concat([pd.DataFrame(part) for part in parts]) if parts else pd.DataFrame(columns=list(kinds))
    table["fdr"] = false_discovery_control(table["p"]) if parts else []
    table = table[list(kinds)].astype(kinds)
    return table.sort_values(["factor", "p", "gene_set"], ignore_index=True)
