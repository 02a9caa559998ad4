"""Tables that are read by workers, a block of samples at a time: zarr arrays, and AnnData's .h5ad and .zarr."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from nsfa.blocks import Named
from nsfa.kernels.dask_blocks import from_rows
from nsfa.readers.frames import symbols_of
from nsfa.readers.lists import named
from nsfa.readers.names import complete
from nsfa.readers.pipeline import Table
from nsfa.readers.sheet import show_some
from nsfa.units import unit_size

# Bytes that a block should have.
_BLOCK = 32_000_000
_KINDS = "a zarr array, or AnnData's .h5ad or .zarr"


class Place(NamedTuple):
    """Where the values are: a file, the way to them in it, and whether its rows are samples."""

    path: str
    inside: str
    samples_in_rows: bool
    log2: bool


def read_lazily(path: Path, samples_in_rows: bool = False, log2: bool = False, layer: str | None = None) -> Table:
    """``read_table`` of a file that is too large: its values are left where they are, its samples without names."""
    root = _opened(path)
    notes: list[str] = []
    genes: list[str] | None = None
    symbols: dict[str, str] | None = None
    if _is_group(root):
        inside = _inside(root, path, layer)
        genes, symbols, notes = _genes(root["var"])
        place = Place(str(path.absolute()), inside, True, log2)
        if samples_in_rows:
            notes.append(f"{path.name} says itself which way round it is: --samples-in-rows was not needed.")
    elif layer is not None:
        raise ValueError(f"layer applies to AnnData files only. Got layer={layer!r} for {path.name}; leave it out.")
    else:
        place = Place(str(path.absolute()), "", samples_in_rows, log2)
    shape, row_bytes = _size(root, place)
    rows = unit_size(shape[1]) * max(1, int(_BLOCK / (unit_size(shape[1]) * max(row_bytes, 1.0))))
    array = from_rows(partial(read_rows, place), shape, rows, sparse=_is_sparse(root, place))
    names = None if genes is None else tuple(genes)
    return Table(Named(array, names), (), names or (), notes, "not taken", None, symbols)


def read_rows(place: Place, start: int, stop: int) -> Any:
    """Samples ``start`` to ``stop`` (samples, genes), an array or sparse; done on a worker."""
    root = _opened(Path(place.path))
    node = root[place.inside] if place.inside else root
    if _is_group(node):
        from anndata.io import sparse_dataset

        part = sp.csr_array(sparse_dataset(node)[start:stop])
        if place.log2:
            part.data = np.log2(part.data + 1.0)
        return part
    values = np.asarray(node[start:stop] if place.samples_in_rows else node[:, start:stop].T)
    return np.log2(values + 1.0) if place.log2 else values


def _opened(path: Path) -> Any:
    """The root of a file: a zarr array, or a group of zarr or HDF5; ValueError or OSError in one sentence."""
    if not path.exists():
        raise FileNotFoundError(f"the table must be an existing file. Got {str(path)!r}, which does not exist.")
    try:
        if path.is_file():
            import h5py  # type: ignore[import-untyped]

            return h5py.File(path)
        import zarr

        return zarr.open(path, mode="r")
    except ImportError as error:
        raise ImportError(f"Reading {path.name} by blocks needs more: pip install 'nsfa[dask,anndata]'.") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"With --dask the table must be {_KINDS}. Got {path.name}, which is neither.") from error


def _is_group(node: Any) -> bool:
    return not hasattr(node, "dtype")


def _is_sparse(root: Any, place: Place) -> bool:
    return bool(place.inside) and _is_group(root[place.inside])


def _inside(root: Any, path: Path, layer: str | None) -> str:
    """The way to X or a layer."""
    has = list(root["layers"]) if "layers" in root else []
    inside = "X" if layer is None else f"layers/{layer}"
    if "var" not in root or (layer is None and "X" not in root):
        raise ValueError(f"With --dask the table must be {_KINDS}. Got {path.name}, which has no X and var.")
    if layer is not None and layer not in has:
        raise ValueError(f"{path.name} must have the layer {layer!r}. Got the layers: {show_some(has) or 'none'}.")
    node = root[inside]
    if _is_group(node) and node.attrs.get("encoding-type") != "csr_matrix":
        raise ValueError(
            f"{path.name} must keep its values by samples, as arrays or csr. Got {node.attrs.get('encoding-type')}; "
            "write it as csr."
        )
    return inside


def _genes(node: Any) -> tuple[list[str], dict[str, str] | None, list[str]]:
    """Names of the genes, all different, their symbols where there are some, and notes on both."""
    from anndata.io import read_elem

    frame = read_elem(node)
    names, notes = complete([str(name) for name in frame.index], len(frame), "gene")
    column, symbols = symbols_of(frame, names)
    notes += [f"Symbols of the genes (var): {column}."] if symbols else []
    return names, None if symbols is None else named(names, symbols), notes


def _size(root: Any, place: Place) -> tuple[tuple[int, int], float]:
    """(samples, genes), and the bytes of a sample in double precision."""
    node = root[place.inside] if place.inside else root
    if _is_group(node):
        n_samples, n_genes = (int(n) for n in node.attrs["shape"])
        return (n_samples, n_genes), 12.0 * node["data"].shape[0] / max(n_samples, 1)
    if len(node.shape) != 2 or node.dtype.kind not in "buif":
        raise ValueError(f"The table must be 2-D and hold real values. Got {node.dtype} of shape {tuple(node.shape)}.")
    n_samples, n_genes = node.shape if place.samples_in_rows else node.shape[::-1]
    return (int(n_samples), int(n_genes)), 8.0 * n_genes
