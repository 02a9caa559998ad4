"""Numbers and names on their way into the page: compact, and never read as markup."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from nsfa.arrays import Floats

# what the page's decoder calls each dtype
_KINDS = {"uint8": "u1", "uint16": "u2", "uint32": "u4", "int16": "i2", "float64": "f8"}
_LEVELS = 32767


def array(values: Any, kind: str) -> dict[str, str]:
    """A flat array as base64 of little-endian numbers of the named dtype."""
    flat = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).ravel()
    return {"kind": _KINDS[kind], "base64": base64.b64encode(flat.tobytes()).decode("ascii")}


def indices(values: Any, size: int) -> dict[str, str]:
    """Positions below ``size``, in 16 bits where they fit."""
    return array(values, "uint16" if size <= 2**16 else "uint32")


def shares(values: Any) -> dict[str, str]:
    """Numbers from 0 to 1 in steps of 1/65,535."""
    return array(np.rint(65535 * np.clip(values, 0.0, 1.0)), "uint16")


def step_of(values: Floats) -> float:
    """The step in which 16-bit integers hold these numbers; an error of half a step is 1/65,534 of the largest."""
    largest = float(np.abs(values).max(initial=0.0))
    return largest / _LEVELS or 1.0


def steps(values: Floats, step: Any) -> Any:
    """Numbers as whole multiples of a step."""
    return np.rint(values / step).astype(np.int16)


def to_json(data: Any) -> str:
    """JSON that can stand inside a script element: no character of it can end the element or start a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
