"""Draws, tables and settings as trees for ``files.write_tree``, and back. New fields are carried along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from nsfa.data import Observed
from nsfa.draw import Draw, factor_counts
from nsfa.elsewhere import Elsewhere
from nsfa.kernels import Holes
from nsfa.model.spec import Gamma, ModelSpec, Priors

_OTHERWISE = ("shape", "scalars")
# What samples have in common was all they had: worth so many entries.
_ALIKE = 1e6


def pack_draws(draws: list[Draw]) -> dict[str, Any]:
    """Many draws as a few long arrays: each field's bytes one after another, with the draws' types and shapes."""
    names = [item.name for item in fields(Draw) if item.name not in _OTHERWISE]
    return {
        "count": len(draws),
        "shape": [draw.shape for draw in draws],
        "scalars": {
            name: [plain(draw.scalars[name]) for draw in draws] for name in (draws[0].scalars if draws else ())
        },
        "fields": {name: _join([getattr(draw, name) for draw in draws]) for name in names},
    }


def draw_bytes(draw: Draw) -> int:
    """Roughly what a draw takes, in memory and on disk."""
    return sum(getattr(getattr(draw, item.name), "nbytes", 0) for item in fields(Draw))


def unpack_draws(tree: dict[str, Any]) -> list[Draw]:
    """The draws of ``pack_draws``, each owning its arrays; those of earlier versions as this one would have them."""
    columns = {name: _split(column) for name, column in tree["fields"].items()}
    draws = [
        Draw(
            shape=tuple(tree["shape"][i]),
            scalars={name: values[i] for name, values in tree["scalars"].items()},
            **{name: next(column) for name, column in columns.items()},
        )
        for i in range(tree["count"])
    ]
    draws = [_with_shares(draw) for draw in draws]
    counted = "n_shared" in tree["scalars"]
    return draws if counted else [replace(d, scalars=d.scalars | factor_counts(d.usage())) for d in draws]


def _with_shares(draw: Draw) -> Draw:
    """The draw; where all samples had one and the same share of outliers, with that share for each of them."""
    share = draw.outlier_share
    if share is None or share.ndim == 2:
        return draw
    every = np.tile(share, (len(np.asarray(draw.drawn_scores)), 1)).astype(np.float32)
    return replace(draw, outlier_share=every, outlier_concentration=_ALIKE * share.astype(np.float64))


def plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _join(arrays: list[Any]) -> dict[str, Any]:
    kinds = [None if array is None else [array.dtype.str, array.shape] for array in arrays]
    content = b"".join(np.ascontiguousarray(array).data for array in arrays if array is not None)
    return {"kinds": kinds, "bytes": np.frombuffer(content, np.uint8)}


def _split(column: dict[str, Any]) -> Iterator[Any]:
    content, at = column["bytes"], 0
    for kind in column["kinds"]:
        if kind is None:
            yield None
            continue
        dtype, shape = np.dtype(kind[0]), tuple(kind[1])
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        # a copy: the long array can go, and odd offsets do not matter
        yield content[at : at + size].copy().view(dtype).reshape(shape)
        at += size


def pack_data(data: Observed) -> dict[str, Any]:
    """A table with all that is needed to sample on and to go back to the user's units."""
    tree = {item.name: getattr(data, item.name) for item in fields(Observed)}
    if data.elsewhere:
        values = data.values
        tree["values"] = {"shape": list(values.shape), "dtype": values.dtype, "nbytes": values.nbytes}
    return tree


def unpack_data(tree: dict[str, Any]) -> Observed:
    """The table of ``pack_data``."""
    values = {name: tree[name] for name in tree}
    for name in ("feature_holes", "pattern_holes"):
        values[name] = Holes(*values[name])
    if isinstance(values["values"], dict):
        where = values["values"]
        values["values"] = Elsewhere(tuple(where["shape"]), where["dtype"], where["nbytes"])
    for name, value in values.items():
        # lists of names were tuples
        values[name] = tuple(value) if isinstance(value, list) else value
    return Observed(**values)


def pack_spec(spec: ModelSpec) -> dict[str, Any]:
    """A model as plain values."""
    return asdict(spec)


def unpack_spec(tree: dict[str, Any]) -> ModelSpec:
    """The model of ``pack_spec``; what earlier versions did not have is off."""
    priors = {"relative": False, "intercept": False} | {name: _prior(value) for name, value in tree["priors"].items()}
    return ModelSpec(**{**tree, "priors": Priors(**priors)})


def _prior(value: Any) -> Any:
    if isinstance(value, dict):
        return Gamma(**value)
    return tuple(value) if isinstance(value, list) else value
