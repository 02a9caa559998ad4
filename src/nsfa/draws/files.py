"""Files that are either whole or not there: trees of arrays as .npz with a checksum, put in place by a rename."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.atomic import replacing

_DIGEST = 32
# the member with the tree as text; its arrays are numbered members beside it
_TREE = "tree"
_SPECIAL = ("array", "scalar", "csr")


class StoreError(RuntimeError):
    """A store cannot be written, read or continued; the message says which file, why, and what to do."""


class DamagedFileError(Exception):
    """A file is not what was written: cut short, changed, or not one of ours."""


def write_tree(path: Path, tree: Any) -> None:
    """Write nested dicts and lists of plain values, arrays and sparse matrices. Raises OSError."""
    arrays: list[Any] = []
    text = json.dumps(_flatten(tree, arrays))
    buffer = io.BytesIO()
    members: dict[str, Any] = {f"a{i}": array for i, array in enumerate(arrays)}
    members[_TREE] = np.frombuffer(text.encode(), np.uint8)
    np.savez(buffer, **members)
    # the checksum is the archive's comment, so that the file stays an .npz for anyone
    buffer.seek(-2, io.SEEK_END)
    buffer.write(_DIGEST.to_bytes(2, "little"))
    write_bytes(path, buffer.getbuffer(), digest(buffer.getbuffer()))


def read_tree(path: Path) -> Any:
    """What ``write_tree`` wrote. Raises DamagedFileError, or OSError where the file cannot be read at all."""
    content = _checked(path)
    with np.load(io.BytesIO(content), allow_pickle=False) as members:
        return _rebuild(json.loads(members[_TREE].tobytes()), members)


def read_outline(path: Path, whole: bool = False) -> Any:
    """The tree with numbers where its arrays are; ``whole`` sees first that all bytes are as they were written.

    Without it, this is quick however long the arrays are. Raises what ``read_tree`` does.
    """
    with io.BytesIO(_checked(path)) if whole else open(path, "rb") as source:
        try:
            with np.load(source, allow_pickle=False) as members:
                return json.loads(members[_TREE].tobytes())
        except Exception:  # noqa: BLE001  (a damaged archive may raise anything)
            raise DamagedFileError(path.name) from None


def _checked(path: Path) -> bytes:
    with open(path, "rb") as file:
        content = file.read()
    whole = memoryview(content)
    if len(whole) < _DIGEST or digest(whole[:-_DIGEST]) != bytes(whole[-_DIGEST:]):
        raise DamagedFileError(path.name)
    return content


def write_bytes(path: Path, *parts: Any) -> None:
    """Write a file under another name, have it on the disk, and only then put it in its place."""
    with replacing(path) as aside, open(aside, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have a folder's list of names on the disk; some systems do this by themselves and cannot be asked."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(content: Any) -> bytes:
    """A checksum of 32 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()[:_DIGEST].encode()


def _flatten(tree: Any, arrays: list[Any]) -> Any:
    """A tree that JSON can hold; its arrays go into a list and leave their numbers."""

    def keep(array: Any) -> int:
        arrays.append(array)
        return len(arrays) - 1

    if isinstance(tree, dict):
        return {str(key): _flatten(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_flatten(value, arrays) for value in tree]
    if sp.issparse(tree):
        table = sp.csr_array(tree)
        parts = [keep(part) for part in (table.data, table.indices, table.indptr)]
        return {"$": "csr", "of": parts, "shape": list(table.shape)}
    if isinstance(tree, np.ndarray | np.generic):
        kind = "array" if isinstance(tree, np.ndarray) else "scalar"
        return {"$": kind, "of": [keep(np.asarray(tree))]}
    return tree


def _rebuild(tree: Any, members: Any) -> Any:
    if isinstance(tree, list):
        return [_rebuild(value, members) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("$") not in _SPECIAL:
        return {key: _rebuild(value, members) for key, value in tree.items()}
    parts = [members[f"a{i}"] for i in tree["of"]]
    if tree["$"] == "csr":
        return sp.csr_array(tuple(parts), shape=tuple(tree["shape"]))
    return parts[0] if tree["$"] == "array" else parts[0][()]
