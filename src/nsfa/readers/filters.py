"""Which genes and samples of a table to keep, and log2: functions of values (n_samples, n_genes), dense or sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Bools, Floats, Ints
from nsfa.readers.sheet import show, show_some

_BLOCK = 1000


def observed(values: Any) -> tuple[Bools, Bools]:
    """Which samples and which genes have a value at all; a sparse table's zeros are values."""
    if sp.issparse(values):
        return np.ones(values.shape[0], np.bool_), np.ones(values.shape[1], np.bool_)
    samples, genes = np.zeros(values.shape[0], np.bool_), np.zeros(values.shape[1], np.bool_)
    for block in _blocks(values):
        seen = ~np.isnan(values[:, block])
        samples |= seen.any(axis=1)
        genes[block] = seen.any(axis=0)
    return samples, genes


def log2_of(values: Any, samples: Sequence[str], genes: Sequence[str]) -> Any:
    """log2(x + 1) of counts or intensities, in place where possible; ValueError naming a negative one."""
    negative = _first_negative(values)
    if negative:
        row, column = negative
        raise ValueError(
            f"log2(x + 1) must be of values >= 0. Got {values[row, column]:.6g} for gene {show(genes[column])}, sample "
            f"{show(samples[row])}; leave out log2 if these are logarithms already, or write NA if it is missing."
        )
    target = values.data if sp.issparse(values) else values
    np.log1p(target, out=target)
    target /= np.log(2.0)
    return values


def listed(genes: Sequence[str], wanted: Sequence[str]) -> tuple[Ints, list[str]]:
    """Positions of the wanted genes, in the table's order, and a note about those it does not have."""
    found = set(wanted) & set(genes)
    if not found:
        raise ValueError(
            f"the list of genes must name genes of the table. Got none of it: the list has "
            f"{show_some(wanted)}, the table {show_some(genes)}."
        )
    absent = [name for name in dict.fromkeys(wanted) if name not in found]
    notes = [f"{len(absent)} gene(s) of the list are not in the table: {show_some(absent)}."] if absent else []
    return np.array([i for i, name in enumerate(genes) if name in found], dtype=np.int64), notes


def varying(variance: Floats, least: float) -> Ints:
    """Positions of the genes with at least this variance."""
    kept = np.flatnonzero(variance >= least)
    if len(kept) < 2:
        raise ValueError(
            f"min_variance must leave at least 2 genes. Got {least:g}, which leaves {len(kept)}; the largest "
            f"variance is {variance.max():.3g}."
        )
    return kept


def most_varying(variance: Floats, count: int) -> Ints:
    """Positions of the ``count`` most variable genes, in the table's order; the first of equals."""
    return np.sort(np.argsort(-variance, kind="stable")[:count])


def variances(values: Any) -> Floats:
    """Variance of each gene over its observed values."""
    with np.errstate(all="ignore"):
        if sp.issparse(values):
            table = sp.csc_array(values)
            out: Floats = _sparse_variance(table, np.asarray(table.mean(axis=0)).ravel())
        else:
            out = np.concatenate([np.nanvar(values[:, block], axis=0) for block in _blocks(values)])
    # an infinite value has no variance: left in, so that it is named later
    return np.where(np.isnan(out), np.inf, out)


def _blocks(values: Floats) -> list[slice]:
    """Some genes at a time, so that a large table is not copied as a whole."""
    return [slice(start, start + _BLOCK) for start in range(0, values.shape[1], _BLOCK)]


def _first_negative(values: Any) -> tuple[int, int] | None:
    if sp.issparse(values):
        table = sp.coo_array(values)
        stored = np.flatnonzero(table.data < 0)
        return (int(table.row[stored[0]]), int(table.col[stored[0]])) if len(stored) else None
    for block in _blocks(values):
        found = np.argwhere(values[:, block] < 0)
        if len(found):
            return int(found[0, 0]), int(found[0, 1]) + block.start
    return None


def _sparse_variance(table: Any, mean: Floats) -> Floats:
    """Column variances about the mean: stored entries one by one, the zeros all alike."""
    deviation = table.data - np.repeat(mean, np.diff(table.indptr))
    stored = np.add.reduceat(np.append(deviation**2, 0.0), table.indptr[:-1])
    n_stored = np.diff(table.indptr)
    out: Floats = (np.where(n_stored > 0, stored, 0.0) + (table.shape[0] - n_stored) * mean**2) / table.shape[0]
    return out
