"""Where compiled code is kept between runs: in a folder named after everything it was compiled from.

numba compiles a function anew when its own file has changed, and not when a file it calls into has.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba

_config: Any = numba.config
_PREFIX = "nsfa-"
# How many folders of earlier sources stay beside the one in use: someone may be running them.
_EARLIER = 3


def kept(folder: Path | None, **options: Any) -> Callable[[Any], Any]:
    """A decorator like ``numba.njit(**options)`` that keeps what it compiles in a folder; None keeps nothing."""

    def decorate(function: Any) -> Any:
        if folder is None:
            return numba.njit(**options)(function)
        # numba settles where to keep a function when it is decorated; other packages' go where they went before
        before, _config.CACHE_DIR = _config.CACHE_DIR, str(folder)
        try:
            return numba.njit(cache=True, **options)(function)
        finally:
            _config.CACHE_DIR = before

    return decorate


def folder_for(sources: Path) -> Path | None:
    """A folder for what is compiled from the .py files in ``sources``: beside them, else in the user's cache.

    NUMBA_CACHE_DIR goes before both; None if nothing can be written anywhere.
    """
    name = _PREFIX + _digest(sources)
    places = [Path(_config.CACHE_DIR)] if _config.CACHE_DIR else [sources / "__pycache__", *_user_cache()]
    for place in places:
        try:
            (place / name).mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place / name).close()
        except OSError:
            continue
        if place.parent == sources:
            _clear(place, name)
        return place / name
    return None


def _digest(sources: Path) -> str:
    mark = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        mark.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return mark.hexdigest()[:16]


def _user_cache() -> Iterator[Path]:
    if sys.platform == "win32":
        place = os.environ.get("LOCALAPPDATA", "~")
    elif sys.platform == "darwin":
        place = "~/Library/Caches"
    else:
        place = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    path = Path(os.path.expanduser(place))
    # without a home the ~ stays
    if path.is_absolute():
        yield path / "nsfa"


def _clear(place: Path, name: str) -> None:
    """Remove what earlier sources left, but for the newest."""
    others = [path for path in place.glob(f"{_PREFIX}*") if path.name != name]
    for path in sorted(others, key=os.path.getmtime, reverse=True)[_EARLIER:]:
        shutil.rmtree(path, ignore_errors=True)
