"""Gene sets: read from a file, and found among the features of a table, by name or by symbol."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Floats, Ints
from nsfa.readers.sheet import show_some

# Sets with fewer genes in the table are not tested unless asked for.
MIN_SIZE = 3

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


class Sets(NamedTuple):
    """The sets to test: names, which genes belong to each, (sets, genes) sparse of ones, and notes on the rest."""

    name: list[str]
    member: Any
    notes: list[str]
    among: Genes

    @property
    def size(self) -> Ints:
        """Genes in each set."""
        return row_sizes(self.member)


class Genes(NamedTuple):
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


def row_sizes(member: Any) -> Ints:
    """Stored entries in each row of a sparse matrix."""
    out: Ints = np.diff(member.indptr).astype(np.int64)
    return out


def select(
    gene_sets: GeneSets, names: Sequence[str], symbols: Sequence[str] | None, size: tuple[int, int | None]
) -> Sets:
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
    return Sets(list(kept), member, _small(members, least), among)


def _genes_of(names: Sequence[str], symbols: Sequence[str] | None) -> Genes:
    if symbols is None:
        return Genes(np.arange(len(names)), names)
    if len(symbols) != len(names):
        raise ValueError(f"symbols must have one name per feature, {len(names)}. Got {len(symbols)}.")
    # a feature without a symbol is a gene of its own
    called = [symbol or name for name, symbol in zip(names, symbols, strict=True)]
    number = {name: i for i, name in enumerate(dict.fromkeys(called))}
    return Genes(np.array([number[name] for name in called], dtype=np.int64), list(number))


def _members(gene_sets: GeneSets, names: Sequence[str], among: Genes) -> tuple[dict[str, Ints], dict[str, list[str]]]:
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
    return _small(_members(gene_sets, names, _genes_of(names, symbols))[0], MIN_SIZE)


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
