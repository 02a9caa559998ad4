"""What every format's reader hands on: the values as they lie in the file, and how to speak of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sheet:
    """Values (n_rows, n_columns), dense or sparse, with the names the file has for them.

    ``samples_in_rows`` is None unless the format itself says which way round it is; ``corner`` is what stands above the
    row names, and ``checksum`` that of the file where its bytes were at hand. ``annotations`` is a DataFrame with a row
    per sample, and ``symbols`` has a second name for each gene, where the format has such a thing.
    """

    values: Any
    rows: Sequence[str] | None
    columns: Sequence[str] | None
    notes: tuple[str, ...] = ()
    samples_in_rows: bool | None = None
    corner: str = ""
    checksum: str = ""
    annotations: Any = None
    symbols: Sequence[str] | None = None


def show(text: object, most: int = 40) -> str:
    """A name or a cell as it may appear in a sentence: quoted, on one line, not too long."""
    word = str(text)
    return repr(word if len(word) <= most else word[: most - 1] + "…")


def show_some(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(show(name) for name in names[:most]) + more


@contextmanager
def readable(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a library says about a damaged file into one sentence."""
    try:
        yield
    except ImportError:
        raise
    except MemoryError:
        raise ValueError(
            f"{path.name} must fit into memory. Got a larger table; take fewer genes or samples."
        ) from None
    except Exception as error:  # noqa: BLE001 - h5py, zipfile, NumPy and Arrow raise nearly anything
        words = " ".join(str(error).split())[:100] or type(error).__name__
        raise ValueError(
            f"{path.name} must be a readable {kind} file. Got a damaged or different one ({words})."
        ) from None
