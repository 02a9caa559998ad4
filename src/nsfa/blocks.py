"""A table in blocks of samples on the workers of a cluster, of which only sums come back.

Same seed, same draws, whatever the workers and the blocks: a unit's sums are made of arrays of the same shapes by one
thread, and added up in an order that is the table's alone (``nsfa.units``). Machines with another BLAS may round
otherwise.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Floats
from nsfa.block_devices import UnitOnDevice, give_back, missing
from nsfa.counts import core_count
from nsfa.data import Observed, centring, check_settings, observe, observe_discrete
from nsfa.discrete import check_likelihood_settings
from nsfa.elsewhere import Elsewhere
from nsfa.holes import no_holes
from nsfa.kernels import dask_blocks as cluster
from nsfa.kernels import get_kernels
from nsfa.model.spec import ModelSpec
from nsfa.passing import ObservedTable, Passed
from nsfa.table import check_power, check_shape
from nsfa.threads import one_thread
from nsfa.units import (
    Cut,
    Node,
    add_all,
    cuts,
    describe,
    finish_described,
    finish_sums,
    join_described,
    join_sums,
    joined,
    unit_size,
    units_of,
)

# Tables that take more than this share of the workers' memory are kept in files beside them, and read unit by unit.
_IN_MEMORY = 0.5


class Asked(NamedTuple):
    """A verb of ``nsfa.passing.Table``, what it takes, and whether devices do it: None for no, else by TF32 or not."""

    verb: str
    arguments: tuple[Any, ...]
    tf32: bool | None = None


class Piece:
    """Samples of whole units on a worker: in its memory, or in files beside it that end with the piece."""

    def __init__(self, first: int, unit: int, units: list[Observed], folder: str | None = None) -> None:
        self.first, self.unit, self._units = first, unit, units
        self._files: list[str] = []
        self._on_device: dict[bool, list[UnitOnDevice]] = {}
        if folder is not None:
            self._files = [_written(data, folder) for data in units]
            self._units = []
            weakref.finalize(self, _removed, self._files)

    def units(self) -> Iterator[tuple[int, Observed]]:
        """Each unit's number, and its samples."""
        yield from enumerate(map(_read, self._files) if self._files else self._units, self.first)

    def sums(self, asked: Asked) -> list[Node]:
        """What a verb sums over each unit, added up."""
        return joined((Node(i, 1, _sums(table, asked)) for i, table in self._tables(asked.tf32)), add_all)

    def _tables(self, tf32: bool | None) -> Iterator[tuple[int, Any]]:
        """Each unit's number, and a table of it, here or, unless ``tf32`` is None, on this worker's device."""
        if tf32 is None:
            kernels = get_kernels("numba")
            yield from ((i, ObservedTable(data, kernels, i * self.unit)) for i, data in self.units())
        elif self._files:
            # what passes through memory does so through the device's
            yield from ((i, UnitOnDevice(data, i * self.unit, tf32)) for i, data in self.units())
        else:
            if tf32 not in self._on_device:
                # another chain's pass may have come first
                there = [UnitOnDevice(data, i * self.unit, tf32) for i, data in self.units()]
                self._on_device.setdefault(tf32, there)
            yield from enumerate(self._on_device[tf32], self.first)

    def __reduce__(self) -> Any:
        # files stay where they are: another worker gets what is in them
        return Piece, (self.first, self.unit, [data for _, data in self.units()])

    def __sizeof__(self) -> int:
        return 1000 + sum(_bytes(data.values) for data in self._units)


def _bytes(values: Any) -> int:
    parts = (values.data, values.indices, values.indptr) if sp.issparse(values) else (values,)
    return sum(int(part.nbytes) for part in parts)


def _written(data: Observed, folder: str) -> str:
    handle, path = tempfile.mkstemp(dir=folder, prefix="nsfa-unit-")
    with os.fdopen(handle, "wb") as file:
        pickle.dump(data, file, protocol=5)
    return path


def _read(path: str) -> Observed:
    with open(path, "rb") as file:
        data: Observed = pickle.load(file)
    return data


def _removed(files: list[str]) -> None:
    for path in files:
        try:
            os.unlink(path)
        except OSError:
            # with the worker's folder, or another's to take away
            continue


def make_piece(cut: Cut, chunks: list[Any], outline: Observed, in_files: bool) -> Piece:
    """The samples of a cut, centred and scaled as the whole table is."""
    units = []
    for table in units_of(cut, chunks):
        data = outline.like(table)
        data = replace(data, values=data.values.astype(outline.values.dtype, copy=False))
        # summed once: it stays with the unit
        _ = data.total
        units.append(data)
    return Piece(cut.first, cut.unit, units, cluster.scratch_folder() if in_files else None)


def sum_group(pieces: list[Piece], asked: Asked) -> list[Node]:
    """Sums over all samples of neighbouring pieces, of the tuple that a verb of a ``Table`` gives."""
    with one_thread():
        return join_sums([piece.sums(asked) for piece in pieces])


def _sums(table: Any, asked: Asked) -> tuple[Any, ...]:
    if asked.verb == "moments":
        return table.total, table.power
    found = getattr(table, asked.verb)(*asked.arguments)
    return tuple(found) if isinstance(found, tuple) else (found,)


class BlockTable:
    """A ``nsfa.passing.Table`` whose samples are with the workers of a Dask client; the verbs are sums over them."""

    def __init__(self, pieces: cluster.Kept, shape: tuple[int, int]) -> None:
        self.shape, self._pieces = shape, pieces
        self._tf32: bool | None = None
        self._on_devices = False
        self.count = np.full(shape[0], float(shape[1]))
        self.total, self.power = self._summed("moments")

    def _summed(self, verb: str, *arguments: Any) -> tuple[Any, ...]:
        asked = Asked(verb, arguments, self._tf32)
        out: tuple[Any, ...] = cluster.reduced(self._pieces, sum_group, asked, join_sums, finish_sums)
        return out

    def on_devices(self, tf32: bool) -> BlockTable:
        """The same table, its passes done by the workers' devices."""
        self._on_devices = True
        out = copy(self)
        out._tf32 = tf32
        return out

    def no_device(self) -> str | None:
        """Why the passes cannot be done by devices, as a sentence, or None."""
        found = cluster.asked(self._pieces.client, missing)
        return next((f"On the worker {where}: {why}" for where, why in found.items() if why is not None), None)

    def pass_scores(self, loadings: Floats, noise_precision: Floats, intercept: Floats | None, key: int) -> Passed:
        """Draw all scores, of which nothing is kept; see ``Table``. D K numbers go to each worker, and as many back."""
        return Passed(*self._summed("pass_scores", np.ascontiguousarray(loadings), noise_precision, intercept, key))

    def close(self) -> None:
        """Let the workers forget the table, and give back what it took of their devices."""
        self._pieces.forget()
        if self._on_devices:
            cluster.told(self._pieces.client, give_back)

    def second(self, right: Floats) -> Floats:
        """Y (Yᵀ right); see ``Table``."""
        out: Floats = self._summed("second", np.ascontiguousarray(right))[0]
        return out


class Named(NamedTuple):
    """A dask array (samples, features) and the names of its features."""

    array: Any
    columns: tuple[str, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """(samples, features)."""
        return tuple(self.array.shape)


def in_blocks(X: Any) -> Named | None:
    """A dask array or frame, with its names if it has any; None for anything else."""
    if isinstance(X, Named):
        return X
    if not cluster.is_dask(X):
        return None
    if hasattr(X, "to_dask_array"):
        return Named(X.to_dask_array(lengths=True), tuple(str(name) for name in X.columns))
    return Named(X)


@contextmanager
def opened(X: Any, spec: ModelSpec, scale: str | None, dtype: str, size_factors: Any = "total") -> Iterator[Observed]:
    """Any table as the model takes it: of one in blocks the values are on workers, and stay there until this ends."""
    check_settings(scale, dtype)
    check_likelihood_settings(spec.likelihood, scale, size_factors)
    named = in_blocks(X)
    if named is None:
        gaussian = spec.likelihood == "gaussian"
        yield observe(X, scale, dtype=dtype) if gaussian else observe_discrete(X, spec.likelihood, size_factors, dtype)
        return
    no_blocks_for(spec)
    if spec.scores != "gaussian":
        raise ValueError(
            f"Tables in blocks are for models with normal scores. Got {spec.name}, whose scores are clustered; "
            "use another model, or a table in memory."
        )
    with cluster.connected(cores=core_count()) as client:
        data = observe_blocks(client, named, scale, dtype=dtype)
        try:
            yield data
        finally:
            data.values.table.close()
            data.values.table = None


def no_blocks_for(spec: ModelSpec) -> None:
    """Raise ValueError about a model whose Gaussian values are drawn: these stay with a table in memory."""
    if spec.latent:
        raise ValueError(
            f"Tables in blocks are for Gaussian noise and likelihood. Got {spec.latent_setting}; use a table in memory."
        )


@contextmanager
def reopened(X: Any, data: Observed) -> Iterator[Observed]:
    """The table that a run in blocks had, on workers again: centred and scaled as it was. ValueError for another."""
    named = in_blocks(X)
    if named is None:
        raise ValueError(f"X must be the dask array of the run. Got a {type(X).__name__}.")
    with cluster.connected(cores=core_count()) as client:
        if named.shape != (data.shape[1], data.n_features):
            raise ValueError(f"X must be the table of the run, {data.shape[1]} × {data.n_features}. Got {named.shape}.")
        table = _kept(client, _sources(named), data)
        if not np.array_equal(table.power, data.power):
            raise ValueError("X must be the table of the run. Got one with other values.")
        try:
            yield replace(data, values=Elsewhere(data.shape, data.values.dtype, data.values.nbytes, table))
        finally:
            table.close()


def observe_blocks(
    client: Any, X: Named, scale: str | None = "feature", center: bool = True, dtype: str = "float64"
) -> Observed:
    """``observe`` of a table in blocks: centred and scaled on the workers of ``client``, which keep it.

    Blocks are read twice, for the moments and to be kept; sparse ones stay sparse.
    """
    check_settings(scale, dtype)
    sources = _sources(X)
    n_samples, n_features = X.shape
    columns, size, problem = cluster.read_reduced(client, describe, sources, join_described, finish_described)
    if columns is None:
        raise ValueError(problem)
    mean, kept, divisor = centring(columns, scale, center, X.columns)
    outline = Observed(
        values=Elsewhere((len(kept), n_samples), dtype, size // (2 if dtype == "float32" else 1)),
        offset=None,
        power=np.zeros(len(kept)),
        count=np.full(len(kept), float(n_samples)),
        feature_holes=no_holes(len(kept)),
        pattern=np.zeros(0, dtype=np.int64),
        pattern_holes=no_holes(1),
        center=mean * columns.unit,
        scale=divisor,
        kept=kept,
        n_features=n_features,
        feature_names=X.columns,
    )
    table = _kept(client, sources, outline)
    check_power(table.power)
    values = Elsewhere(outline.shape, dtype, outline.values.nbytes, table)
    return replace(outline, values=values, power=table.power)


def _sources(X: Named) -> list[tuple[Cut, list[Any]]]:
    """The cuts of a table, each with its chunks; ValueError where there are none to be had."""
    array = X.array
    if array.ndim != 2:
        raise ValueError(f"X must be a 2-D table, samples × features. Got a dask array of shape {array.shape}.")
    if np.isnan(array.shape).any():
        raise ValueError("X must have known sizes. Got a dask array without; call X.compute_chunk_sizes() first.")
    check_shape(*array.shape)
    array = array.rechunk({1: -1})
    chunks = cluster.chunks_of(array)
    return [(cut, [chunks[i] for i in some]) for cut, some in cuts(array.chunks[0], unit_size(array.shape[1]))]


def _kept(client: Any, sources: list[tuple[Cut, list[Any]]], outline: Observed) -> BlockTable:
    in_files = outline.values.nbytes > _IN_MEMORY * cluster.memory(client)
    return BlockTable(cluster.kept(client, make_piece, sources, outline, in_files), outline.shape)
