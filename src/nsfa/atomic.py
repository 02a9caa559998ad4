"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ENDING = ".tmp"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to, which takes its place in the end; after an error nothing is left of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}{_ENDING}")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def leftovers(folder: Path) -> list[Path]:
    """Files whose writing was cut off before they were put in place."""
    return sorted(folder.glob(f".*{_ENDING}"))


def clear_leftovers(folder: Path) -> None:
    """Remove them."""
    for path in leftovers(folder):
        path.unlink(missing_ok=True)
