"""Which known gene sets are a factor's genes? Over-representation of its list, or ranks of its loadings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr
from scipy.stats import false_discovery_control, hypergeom, pearson3, rankdata

from nsfa.arrays import Floats, Ints
from nsfa.model.spec import is_integer
from nsfa.posterior.consensus import FDR, Consensus
from nsfa.posterior.shares import EFFECT
from nsfa.readers.sheet import show_some

METHODS = ("hypergeometric", "rank")
_EFFECTS = {"hypergeometric": "odds_ratio", "rank": "score"}
# a signed rank sum less certain than this says that members go both ways
_DIRECTION_LEVEL = 0.05
_MIN_SIZE = 3
SET_FDR = 0.05
"""A gene set with a larger false-discovery rate stands out in no factor."""

GeneSets = Mapping[str, Iterable[str]] | str | os.PathLike[str]


def read_gmt(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read gene sets from a GMT file: on each line a name, a description and the genes, separated by tabs.

    Blank lines are skipped and a gene that is listed twice in a set counts once.
    """
    sets: dict[str, list[str]] = {}
    try:
        with open(path, encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    name, genes = _parse(line, number, path)
                    if name in sets:
                        raise ValueError(
                            f"Gene sets must have different names. Got {name!r} again on line {number} of {path}; "
                            "rename it or delete the line."
                        )
                    sets[name] = genes
    except UnicodeDecodeError:
        raise ValueError(
            f"A GMT file must be plain UTF-8 text. Got other bytes in {path}; unpack or re-save it."
        ) from None
    return sets


def _parse(line: str, number: int, path: Any) -> tuple[str, list[str]]:
    cells = [cell.strip() for cell in line.rstrip("\r\n").split("\t")]
    if len(cells) < 2 or not cells[0]:
        shown = line.strip()
        raise ValueError(
            f"Each line of a GMT file must be a name, a description and genes, separated by tabs. Got "
            f"{shown if len(shown) <= 60 else shown[:57] + '...'!r} on line {number} of {path}; correct that line."
        )
    return cells[0], [gene for gene in dict.fromkeys(cells[2:]) if gene]


class _Sets(NamedTuple):
    """The sets to test: names, which genes belong to each, (sets, genes) sparse of ones, and notes on the rest."""

    name: list[str]
    member: Any
    notes: list[str]
    among: _Genes

    @property
    def size(self) -> Ints:
        """Genes in each set."""
        return _counts(self.member)


class _Genes(NamedTuple):
    """What is counted: the gene of every feature (features,), and the genes as the table of results names them.

    Features with one symbol, as probes have, are one gene; without symbols every feature is one.
    """

    of: Ints
    shown: Sequence[str]

    def loading(self, loading: Floats) -> Floats:
        """Each gene's loading: the largest of its features', signs aside."""
        out, order = np.zeros(len(self.shown)), np.argsort(np.abs(loading), kind="stable")
        out[self.of[order]] = loading[order]
        return out

    def listed(self, features: Ints) -> Ints:
        """The genes of a list of features, each once, in its order."""
        return np.array(list(dict.fromkeys(self.of[features].tolist())), dtype=np.int64)


def _counts(member: Any) -> Ints:
    """Stored entries in each row of a sparse matrix."""
    out: Ints = np.diff(member.indptr).astype(np.int64)
    return out


def enrich(
    consensus: Consensus,
    gene_sets: GeneSets,
    *,
    method: str = "hypergeometric",
    fdr: float = FDR,
    effect: float = EFFECT,
    min_size: int = _MIN_SIZE,
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
    sets = _select(gene_sets, consensus.feature_names, symbols, (min_size, max_size))
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

    sets = _select(gene_sets, consensus.feature_names, symbols, (_MIN_SIZE, None))
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


def _test(consensus: Consensus, sets: _Sets, lists: list[Ints], method: str) -> Any:
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
    if not is_integer(min_size) or min_size < 1:
        raise ValueError(f"min_size must be an int >= 1. Got {min_size!r}.")
    if max_size is not None and (not is_integer(max_size) or max_size < min_size):
        raise ValueError(f"max_size must be None or an int >= min_size = {min_size}. Got {max_size!r}.")


def _select(
    gene_sets: GeneSets, names: Sequence[str], symbols: Sequence[str] | None, size: tuple[int, int | None]
) -> _Sets:
    """Find the sets' genes among the features, by either name, and keep the sets of the wanted size."""
    among = _genes_of(names, symbols)
    members, listed = _members(gene_sets, names, among)
    if any(listed.values()) and not any(map(len, members.values())):
        warnings.warn(
            "No gene of any set is a feature of the data; check that both use the same kind of name.",
            UserWarning,
            stacklevel=3,
        )
    least, most = size
    kept = {k: v for k, v in members.items() if least <= len(v) <= (most or len(v))}
    pointer = np.cumsum([0, *map(len, kept.values())])
    entry = np.concatenate([np.zeros(0, np.int64), *kept.values()])
    member = sp.csr_array((np.ones(len(entry)), entry, pointer), shape=(len(kept), len(among.shown)))
    return _Sets(list(kept), member, _small(members, least), among)


def _genes_of(names: Sequence[str], symbols: Sequence[str] | None) -> _Genes:
    if symbols is None:
        return _Genes(np.arange(len(names)), names)
    if len(symbols) != len(names):
        raise ValueError(f"symbols must have one name per feature, {len(names)}. Got {len(symbols)}.")
    # a feature without a symbol is a gene of its own
    called = [symbol or name for name, symbol in zip(names, symbols, strict=True)]
    number = {name: i for i, name in enumerate(dict.fromkeys(called))}
    return _Genes(np.array([number[name] for name in called], dtype=np.int64), list(number))


def _members(gene_sets: GeneSets, names: Sequence[str], among: _Genes) -> tuple[dict[str, Ints], dict[str, list[str]]]:
    """Positions of every set's genes among those of the table, and the genes as they are listed."""
    if isinstance(gene_sets, (str, os.PathLike)):
        gene_sets = read_gmt(gene_sets)
    if not isinstance(gene_sets, Mapping):
        raise ValueError(
            f"gene_sets must be a dict of names and genes, or the path of a GMT file. Got {type(gene_sets).__name__}."
        )
    position: dict[str, list[int]] = {}
    for either, genes in ((names, among.of.tolist()), (among.shown, range(len(among.shown)))):
        for name, i in zip(either, genes, strict=True):
            position.setdefault(name, []).append(i)
    listed = {str(name): _genes(name, genes) for name, genes in gene_sets.items()}
    return {name: _positions(genes, position) for name, genes in listed.items()}, listed


def set_notes(gene_sets: GeneSets, names: Sequence[str], symbols: Sequence[str] | None = None) -> list[str]:
    """Sentences about the gene sets that cannot be tested against features of these names."""
    return _small(_members(gene_sets, names, _genes_of(names, symbols))[0], _MIN_SIZE)


def _small(members: Mapping[str, Ints], least: int) -> list[str]:
    """Sentences about the sets without a gene in the table, and with too few."""
    if not members:
        return ["There are no gene sets to test."]
    absent = [name for name, own in members.items() if not len(own)]
    few = [name for name, own in members.items() if 0 < len(own) < least]
    kinds = ((absent, "no gene"), (few, f"fewer than {least} genes"))
    return [
        f"{len(names):,} of {len(members):,} gene sets have {what} in the table and are not tested: {show_some(names)}."
        for names, what in kinds
        if names
    ]


def _genes(name: str, genes: Iterable[str]) -> list[str]:
    if isinstance(genes, str):
        raise ValueError(
            f"Each gene set must be a list of genes. Got the text {genes!r} for {name!r}; use [{genes!r}]."
        )
    return list(genes)


def _positions(genes: list[str], position: dict[str, list[int]]) -> Ints:
    return np.unique(np.array([i for gene in genes for i in position.get(gene, ())], dtype=np.int64))


def _overlaps(genes: Ints, names: Any, sets: _Sets) -> dict[str, Any]:
    """What is counted whatever the test: overlap of the factor's list with each set, and who is in it."""
    inside = sets.member[:, genes].tocsr()
    inside.sort_indices()
    shared = [",".join(names[genes[row]]) for row in np.split(inside.indices, inside.indptr[1:-1])]
    return {
        "gene_set": sets.name,
        "overlap": _counts(inside),
        "set_size": sets.size,
        "list_size": np.full(len(sets.name), len(genes)),
        "genes": shared,
    }


def _hypergeometric(loading: Floats, genes: Ints, sets: _Sets) -> dict[str, Any]:
    """P(overlap at least as large) when a list of this length is drawn at random from all genes."""
    n_all, n_list, size = len(loading), len(genes), sets.size
    overlap = _counts(sets.member[:, genes].tocsr())
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


def _rank(loading: Floats, sets: _Sets) -> dict[str, Any]:
    """Mann–Whitney test of |loading|, members above others; direction from the same test of the signed loadings."""
    above, z, skew = _rank_sum(np.abs(loading), sets, one_sided=True)
    _, signed, _ = _rank_sum(loading, sets, one_sided=False)
    lean = np.where(2 * ndtr(-np.abs(signed)) < _DIRECTION_LEVEL, signed, 0.0)
    return {"score": above, "direction": _direction(lean), "p": np.clip(pearson3.sf(z, skew), 0.0, 1.0)}


def _rank_sum(value: Floats, sets: _Sets, *, one_sided: bool) -> tuple[Floats, Floats, Floats]:
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
