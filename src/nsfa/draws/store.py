"""A run on disk: its settings, its table, and per chain the draws and the points from which to go on (docs/files.md).

A chain's draws depend on table, model, seed and chain number alone, so a file is right wherever it is whole: readers
take draws in order up to the first gap, writers go on from there, and what is damaged is drawn again, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.atomic import clear_leftovers, leftovers
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.draws import codec, lock
from nsfa.draws.files import (
    DamagedFileError,
    StoreError,
    digest,
    read_outline,
    read_tree,
    sync_folder,
    write_bytes,
    write_tree,
)
from nsfa.length import Length
from nsfa.model.spec import ModelSpec
from nsfa.version import __version__

FORMAT, VERSION = "nsfa store", 1
HEADER, TABLE = "store.json", "data.npz"
# Seconds between two checkpoints of a chain.
EVERY = 5.0
_AS_THEY_ARE = ("seed", "chains", "backend", "tf32", "resumable", "cut_short")
_DAMAGED_HEADER = "{} is damaged. Put back a copy of it; the draws beside it are untouched."


@dataclass(frozen=True)
class Settings:
    """What a run is, beside its table.

    ``backend`` is the one the chains run on, "auto" being decided; draws of another agree to rounding only.
    ``resumable`` is False for draws that were saved without their chains, ``cut_short`` True if those had been stopped.
    """

    spec: ModelSpec
    length: Length
    seed: int
    chains: int
    backend: str = "cpu"
    tf32: bool = False
    resumable: bool = True
    cut_short: bool = False
    written_by: str = __version__


@dataclass(frozen=True)
class Store:
    """A run's folder. ``run`` marks all files that belong together."""

    path: Path
    run: str
    settings: Settings
    every: float = EVERY

    def data(self) -> Observed:
        """The table of the run."""
        tree = self.read(self.path / TABLE, kind="table")
        if tree is None:
            raise StoreError(
                f"{self.path / TABLE} must hold the table of the run. Got a missing or damaged file; put back a copy "
                "of it, or fit again."
            )
        return codec.unpack_data(tree)

    def read(self, path: Path, reader: Callable[[Path], Any] = read_tree, **expected: Any) -> dict[str, Any] | None:
        """A file of this run, None if it is missing or damaged; StoreError if it belongs elsewhere."""
        try:
            tree: dict[str, Any] = reader(path)
        except (DamagedFileError, FileNotFoundError):
            return None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}. Check its permissions and the disk.") from None
        if any(tree.get(name) != value for name, value in {"run": self.run, **expected}.items()):
            raise StoreError(f"{path} belongs to another run or another place. Move it out of {self.path}.")
        content: dict[str, Any] = tree["content"]
        return content

    def folder(self, chain: int) -> Path:
        """Where a chain's files are."""
        return self.path / f"chain-{chain}"

    def block(self, chain: int, first: int) -> Path:
        """The file of the draws from number ``first`` on."""
        return self.folder(chain) / f"draws-{first:08d}.npz"

    def state(self, chain: int, sweep: int) -> Path:
        """The file of a chain's state after a sweep."""
        return self.folder(chain) / f"state-{sweep:08d}.npz"

    def blocks(self, chain: int, reader: Callable[[Path], Any] = read_tree) -> Iterator[dict[str, Any]]:
        """A chain's blocks of draws, in order, up to the first that is missing or damaged."""
        first, marks = 0, {"kind": "draws", "chain": chain}
        while (tree := self.read(self.block(chain, first), reader, first=first, **marks)) and tree["count"]:
            yield tree
            first += tree["count"]

    def n_draws(self, chain: int) -> int:
        """How many draws a chain has, by what its files say of themselves; quick however many there are."""
        return sum(tree["count"] for tree in self.blocks(chain, read_outline))

    def whole_draws(self, chain: int) -> int:
        """How many draws ``draws`` would return: those in files without damage, every byte of which is looked at."""
        return sum(tree["count"] for tree in self.blocks(chain, partial(read_outline, whole=True)))

    @property
    def finished(self) -> bool:
        """Whether every chain has all its draws, by what the files say of themselves."""
        return all(self.has_all(self.n_draws(chain)) for chain in range(self.settings.chains))

    @property
    def intact(self) -> bool:
        """Whether every chain has all its draws, in files without damage."""
        return all(self.has_all(self.whole_draws(chain)) for chain in range(self.settings.chains))

    def has_all(self, n_draws: int) -> bool:
        """Whether so many draws are all that a chain was to make."""
        return n_draws >= self.settings.length.draws and not self.settings.cut_short

    def draws(self, chain: int) -> list[Draw]:
        """A chain's draws, with a warning if there are more behind a gap."""
        out: list[Draw] = []
        for tree in self.blocks(chain):
            out += codec.unpack_draws(tree)
        later = [path for path in self.folder(chain).glob("draws-*.npz") if file_number(path) >= len(out)]
        if later:
            warnings.warn(
                f"{self.block(chain, len(out))} is missing or damaged: draws of chain {chain} after the first "
                f"{len(out)} are left out. nsfa.resume({str(self.path)!r}) draws them again.",
                UserWarning,
                stacklevel=4,
            )
        return out

    def extended(self, draws: int) -> Store:
        """The same run with more draws per chain; on disk, too. Needs the lock."""
        length = replace(self.settings.length, draws=self.settings.length.draws + draws, preview=False)
        longer = replace(self, settings=replace(self.settings, length=length))
        _write_header(longer)
        return longer


@contextmanager
def created(path: str | PathLike[str], data: Observed, settings: Settings) -> Iterator[Store]:
    """A new store, locked. If it cannot be written, nothing of it is left behind."""
    path = Path(path)
    try:
        _check_vacant(path)
        new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be made: {error.strerror}. Choose another place.") from None
    with lock.locked(path):
        # again: another process may have been faster
        _check_vacant(path)
        try:
            # absolute: a worker process may have been started in another directory
            store = Store(path.absolute(), _fingerprint(data, settings), settings, EVERY)
            write_tree(path / TABLE, {"run": store.run, "kind": "table", "content": codec.pack_data(data)})
            # last: a folder without it is not a store yet
            _write_header(store)
            sync_folder(path.parent)
        except OSError as error:
            _clear(path, new)
            raise StoreError(
                f"The store {path} cannot be written: {error.strerror}. Nothing was started; make room, or choose "
                "another place."
            ) from None
        yield store


def open_store(path: str | PathLike[str]) -> Store:
    """An existing store, for reading."""
    path = Path(path)
    tree = _read_header(path)
    header, version = path / HEADER, tree.get("version")
    if tree.get("format") != FORMAT:
        raise StoreError(
            f"{header} must be of format {FORMAT!r}. Got {tree.get('format')!r}: another program wrote it."
        )
    # before the checksum, which a newer version may take otherwise
    if isinstance(version, int) and version > VERSION:
        raise StoreError(
            f"{path} must be a store of version {VERSION} or older. Got version {version}, written by nsfa "
            f"{tree.get('nsfa')}; update nsfa, this is {__version__}."
        )
    if tree.pop("checksum", None) != _checksum(tree):
        raise StoreError(_DAMAGED_HEADER.format(header))
    return Store(path.absolute(), tree["run"], _unpack_settings(tree), EVERY)


def _read_header(path: Path) -> dict[str, Any]:
    header = path / HEADER
    try:
        if not header.is_file():
            seen = f"a folder without {HEADER}" if path.is_dir() else "a file" if path.exists() else "nothing there"
            raise StoreError(f"{path} must be a folder that a fit with store=... or Posterior.save wrote. Got {seen}.")
        tree = json.loads(header.read_bytes())
    except OSError as error:
        raise StoreError(f"{header} cannot be read: {error.strerror}. Check its permissions and the disk.") from None
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise StoreError(_DAMAGED_HEADER.format(header))
    return tree


def _check_vacant(path: Path) -> None:
    if (path / HEADER).exists():
        raise StoreError(f"{path} already holds a run; use nsfa.resume({str(path)!r}), or another path.")
    if path.is_dir():
        ours = {lock.NAME, TABLE, *(left.name for left in leftovers(path))}
        others = sorted(item.name for item in path.iterdir() if item.name not in ours)
        if others:
            raise StoreError(f"{path} must be empty or new. Got a folder with {others[0]} in it; choose another path.")
    elif path.exists():
        raise StoreError(f"{path} must be empty or new. Got a file; choose another path.")


def _clear(path: Path, new: bool) -> None:
    """Take away what a failed creation made."""
    clear_leftovers(path)
    with suppress(OSError):
        for name in (TABLE, HEADER, lock.NAME):
            (path / name).unlink(missing_ok=True)
        if new:
            path.rmdir()


def file_number(path: Path) -> int:
    """The number in the name of a block or state; −1 if there is none."""
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdigit() else -1


def _write_header(store: Store) -> None:
    settings = store.settings
    tree = {
        "format": FORMAT,
        "version": VERSION,
        "nsfa": settings.written_by,
        "run": store.run,
        "spec": codec.pack_spec(settings.spec),
        "length": asdict(settings.length),
        **{name: getattr(settings, name) for name in _AS_THEY_ARE},
    }
    write_bytes(store.path / HEADER, _text({**tree, "checksum": _checksum(tree)}, indent=1))


def _unpack_settings(tree: dict[str, Any]) -> Settings:
    return Settings(
        spec=codec.unpack_spec(tree["spec"]),
        length=Length(**tree["length"]),
        written_by=tree["nsfa"],
        # what a store of an earlier version does not say is as the default is
        **{name: tree[name] for name in _AS_THEY_ARE if name in tree},
    )


def _checksum(tree: dict[str, Any]) -> str:
    return digest(_text(tree, sort_keys=True)).decode()


def _text(tree: dict[str, Any], **style: Any) -> bytes:
    return json.dumps(tree, default=codec.plain, **style).encode()


def _fingerprint(data: Observed, settings: Settings) -> str:
    """What the draws depend on, in 32 digits: the number of chains and of draws is not part of it."""
    length = asdict(settings.length)
    del length["draws"], length["preview"]
    what = [codec.pack_spec(settings.spec), length, settings.seed, settings.backend, settings.tf32]
    mark = hashlib.sha256(_text({"what": what}))
    # of values that are elsewhere their sums of squares say enough
    values: Any = data.power if data.elsewhere else data.values
    for part in (values.data, values.indices, values.indptr) if sp.issparse(values) else (values,):
        mark.update(np.ascontiguousarray(part).data)
    for part in (data.center, data.scale, data.kept, data.count, data.feature_holes.entry):
        mark.update(np.ascontiguousarray(part).data)
    if data.exposure is not None:
        mark.update(np.ascontiguousarray(data.exposure).data)
    return mark.hexdigest()[:32]
