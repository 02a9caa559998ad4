"""``read_table``: a file of any known format as samples × genes, with what was noticed on the way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Ints
from nsfa.counts import check_count
from nsfa.readers import filters
from nsfa.readers.formats import checksum, read_sheet
from nsfa.readers.lists import named, read_genes
from nsfa.readers.names import complete, doubts
from nsfa.readers.notes import notes_on, tails
from nsfa.readers.sheet import Sheet, show_some


@dataclass(frozen=True)
class Table:
    """A table read from a file.

    Attributes
    ----------
    X
        Samples × genes, to be fitted: a DataFrame of float64 with NaN where a value is missing, or, when the file is
        sparse, a scipy ``csr_array`` (whose attribute ``columns`` has the names of the genes).
    sample_names, gene_names
        The names of its rows and columns, all different.
    notes
        What was noticed or changed while reading, a sentence each.
    checksum
        "sha256:…" of the file; of a 10x folder's matrix, features and barcodes, in this order.
    annotations
        What an .h5ad file knows about its samples (obs), a DataFrame in the order of ``sample_names``, or None.
    symbols
        Second names of the genes, by their first, where an .h5ad file has such a column (in var), or None.
    """

    X: Any = field(repr=False)
    sample_names: tuple[str, ...] = field(repr=False)
    gene_names: tuple[str, ...] = field(repr=False)
    notes: list[str]
    checksum: str
    annotations: Any = field(default=None, repr=False)
    symbols: dict[str, str] | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_samples, n_genes)."""
        return self.X.shape  # type: ignore[no-any-return]

    def frame(self) -> Any:
        """X as a DataFrame, also if it is sparse."""
        import pandas as pd

        if not sp.issparse(self.X):
            return self.X
        return pd.DataFrame(self.X.toarray(), index=list(self.sample_names), columns=list(self.gene_names))


def read_table(
    path: str | os.PathLike[str],
    *,
    samples_in_rows: bool = False,
    log2: bool = False,
    min_variance: float | None = None,
    top_genes: int | None = None,
    genes: str | os.PathLike[str] | Sequence[str] | None = None,
    layer: str | None = None,
) -> Table:
    """Read a table of expression values from a file.

    Parameters
    ----------
    path
        csv, tsv or other delimited text (also gzipped), parquet, AnnData .h5ad, a Matrix Market file or a 10x folder,
        .npy, .npz, or a GEO series matrix. The content decides, not the name.
    samples_in_rows
        Genes are in rows unless this is set. AnnData, 10x and GEO files know it themselves.
    log2
        Take log2(x + 1), for counts and intensities.
    min_variance
        Drop genes whose variance, after ``log2``, is smaller.
    top_genes
        Keep the so many most variable genes.
    genes
        Keep only these genes: their names, or the path of a file with one per line.
    layer
        The layer of an .h5ad file to read instead of its X.

    Returns
    -------
    A Table. ValueError or OSError, in one sentence, if there is none to be had.
    """
    path = Path(path)
    _check(min_variance, top_genes)
    wanted = read_genes(genes) if isinstance(genes, str | os.PathLike) else genes
    sheet = read_sheet(path, layer)
    cut = _oriented(sheet, samples_in_rows, path.name).without_empty(path.name)
    if wanted is not None:
        kept, notes = filters.listed(cut.genes, wanted)
        cut = replace(cut.keep(kept), notes=cut.notes + notes)
    cut = replace(cut, notes=cut.notes + notes_on(cut.values, cut.samples, cut.genes, log2))
    if log2:
        cut = replace(cut, values=filters.log2_of(cut.values, cut.samples, cut.genes))
    if min_variance is not None:
        kept = filters.varying(filters.variances(cut.values), min_variance)
        note = f"{len(kept):,} of {len(cut.genes):,} genes have a variance of at least {min_variance:g}."
        cut = replace(cut.keep(kept), notes=[*cut.notes, note])
    if top_genes is not None:
        if top_genes > len(cut.genes):
            note = f"There are only {len(cut.genes):,} genes, fewer than the {top_genes:,} to keep."
            cut = replace(cut, notes=[*cut.notes, note])
        cut = cut.keep(filters.most_varying(filters.variances(cut.values), top_genes))
    heavy = tails(cut.values)
    cut = cut if heavy is None else replace(cut, notes=[*cut.notes, heavy])
    return cut.table(sheet.checksum or checksum(path))


@dataclass(frozen=True)
class _Cut:
    """A table on its way: values (n_samples, n_genes), names and notes."""

    values: Any
    samples: list[str]
    genes: list[str]
    notes: list[str]
    annotations: Any = None
    symbols: dict[str, str] | None = None

    def keep(self, genes: Ints) -> _Cut:
        """Only the genes at these positions."""
        if len(genes) == len(self.genes):
            return self
        return replace(self, values=self.values[:, genes], genes=[self.genes[i] for i in genes])

    def without_empty(self, name: str) -> _Cut:
        """Only samples and genes that have a value, with a note about the others."""
        has = filters.observed(self.values)
        if not has[0].any():
            raise ValueError(f"{name} must hold values. Got only missing ones.")
        out = self
        for seen, kind, names in zip(has, ("sample", "gene"), (self.samples, self.genes), strict=True):
            if seen.all():
                continue
            gone = [names[i] for i in np.flatnonzero(~seen)]
            note = f"{len(gone)} {kind}(s) without any value were left out: {show_some(gone)}."
            out = replace(out, notes=[*out.notes, note])
        if out is self:
            return self
        samples, genes = (np.flatnonzero(seen) for seen in has)
        return replace(
            out,
            values=self.values[np.ix_(samples, genes)],
            samples=[self.samples[i] for i in samples],
            genes=[self.genes[i] for i in genes],
        )

    def table(self, digest: str) -> Table:
        """The finished table."""
        import pandas as pd

        if sp.issparse(self.values):
            X = sp.csr_array(self.values)
            # where the estimators look for the names of a table's features
            X.columns = pd.Index(self.genes)
        else:
            X = pd.DataFrame(self.values, index=self.samples, columns=self.genes, copy=False)
        annotations = None if self.annotations is None else self.annotations.loc[self.samples]
        symbols = None if self.symbols is None else {gene: self.symbols[gene] for gene in self.genes}
        return Table(X, tuple(self.samples), tuple(self.genes), self.notes, digest, annotations, symbols)


def _oriented(sheet: Sheet, samples_in_rows: bool, name: str) -> _Cut:
    """The sheet as samples × genes: as its format says, else as the caller does, with a note if that looks wrong."""
    notes, sideways = list(sheet.notes), sheet.samples_in_rows
    if sideways is None:
        sideways = samples_in_rows
        notes += doubts(sheet, sideways)
    elif samples_in_rows:
        notes.append(f"{name} says itself which way round it is: --samples-in-rows was not needed.")
    if sideways:
        values, samples, genes = sheet.values, sheet.rows, sheet.columns
    else:
        values, samples, genes = sheet.values.T, sheet.columns, sheet.rows
    sample_names, changed = complete(samples, values.shape[0], "sample")
    gene_names, also = complete(genes, values.shape[1], "gene")
    annotations = None if sheet.annotations is None else sheet.annotations.set_axis(sample_names)
    symbols = None if sheet.symbols is None else named(gene_names, sheet.symbols)
    return _Cut(values, sample_names, gene_names, notes + changed + also, annotations, symbols)


def _check(min_variance: float | None, top_genes: int | None) -> None:
    if min_variance is not None and not min_variance >= 0:
        raise ValueError(f"min_variance must be a number >= 0. Got {min_variance!r}.")
    if top_genes is not None:
        check_count("top_genes", top_genes, 2)
