"""One chain of a store, open for writing: draws and checkpoints as the chain goes, and where to go on from."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Protocol

from nsfa.atomic import clear_leftovers
from nsfa.chain import Chain
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.draws import codec, lock
from nsfa.draws.files import StoreError, write_tree
from nsfa.draws.store import Settings, Store, created, file_number

# How many times longer than its writing a checkpoint must last.
_PATIENCE = 50.0
# Bytes of draws that are written without waiting for the next checkpoint.
LARGEST_BLOCK = 1 << 25


class Keeper(Protocol):
    """Where a chain's draws go: memory, or a store."""

    draws: list[Draw]

    @property
    def complete(self) -> bool:
        """Whether the chain has all its draws."""

    def restore(self, chain: Chain) -> None:
        """Set a fresh chain to where it was, if it was anywhere."""

    def add(self, draw: Draw) -> None:
        """Take a draw."""

    def checkpoint(self, chain: Chain, now: bool = False) -> None:
        """Make draws and chain safe, if it is time or ``now``."""


class Memory:
    """Keeps draws in a list."""

    complete = False

    def __init__(self) -> None:
        self.draws: list[Draw] = []

    def restore(self, chain: Chain) -> None:
        """Nothing to go on from."""

    def add(self, draw: Draw) -> None:
        """Take a draw."""
        self.draws.append(draw)

    def checkpoint(self, chain: Chain, now: bool = False) -> None:
        """Nothing to write."""


class ChainLog:
    """One chain of a store, open for writing: the draws it has, and the newest state to go on from."""

    def __init__(self, store: Store, chain: int) -> None:
        self._store, self._chain = store, chain
        self._pending: list[Draw] = []
        self._weight = 0
        self._due = 0.0
        self._last = 0
        self.draws: list[Draw] = []
        # what is on disk, and the number of draws the running chain has made
        self.safe = store.whole_draws(chain)
        self._made = self.safe

    @property
    def complete(self) -> bool:
        """Whether the chain has all its draws."""
        return self._store.has_all(self.safe)

    def restore(self, chain: Chain) -> None:
        """Set a chain to the newest state whose draws are all here; without one it starts from its beginning."""
        self._set_aside(self._store.block(self._chain, self.safe))
        self._made = 0
        for path in sorted(self._store.folder(self._chain).glob("state-*.npz"), reverse=True):
            tree = self._store.read(path, kind="state", chain=self._chain, sweep=file_number(path))
            if tree is None:
                self._set_aside(path)
            elif tree["draws"] <= self.safe:
                chain.restore(tree["state"])
                self._made, self._last = tree["draws"], chain.number
                break
        self._due = time.monotonic() + self._store.every

    def add(self, draw: Draw) -> None:
        """Take a draw; those that are on disk already are passed over."""
        self._made += 1
        if self._made > self.safe:
            self._pending.append(draw)
            self._weight += codec.draw_bytes(draw)

    def checkpoint(self, chain: Chain, now: bool = False) -> None:
        """Write draws and state if it is time, or ``now``. The very first draw does not wait."""
        first = self._pending and not self.safe
        due = now or first or time.monotonic() >= self._due
        try:
            if self._pending and (due or self._weight > LARGEST_BLOCK):
                write_draws(self._store, self._chain, self.safe, self._pending)
                self.safe += len(self._pending)
                self._pending, self._weight = [], 0
            if due and chain.number != self._last:
                started = time.monotonic()
                self._write_state(chain)
                ended = time.monotonic()
                self._due = ended + max(self._store.every, _PATIENCE * (ended - started))
        except OSError as error:
            raise _failed(self._store, self._chain, error, self.safe) from None

    def _write_state(self, chain: Chain) -> None:
        store, number = self._store, self._chain
        state = {"draws": self._made, "state": chain.snapshot()}
        marks = {"run": store.run, "kind": "state", "chain": number, "sweep": chain.number}
        write_tree(store.state(number, chain.number), {**marks, "content": state})
        for path in store.folder(number).glob("state-*.npz"):
            # the one before stays, and so do later ones, whose draws are being made again
            if file_number(path) < self._last:
                path.unlink(missing_ok=True)
        self._last = chain.number

    def _set_aside(self, path: Path) -> None:
        """Rename a damaged file: it will be written anew, and someone may want to look at the old one."""
        if not path.exists():
            return
        aside = path.with_name(path.name + ".damaged")
        for i in range(1, 1000):
            if not aside.exists():
                break
            aside = path.with_name(f"{path.name}.damaged-{i}")
        try:
            path.rename(aside)
        except OSError as error:
            raise _failed(self._store, self._chain, error, self.safe) from None


@contextmanager
def open_log(store: Store, chain: int) -> Iterator[ChainLog]:
    """A chain's log, locked: a worker of a process that was killed may still be about to end."""
    folder = store.folder(chain)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise _failed(store, chain, error, 0) from None
    with lock.locked(folder):
        try:
            clear_leftovers(folder)
        except OSError as error:
            raise _failed(store, chain, error, 0) from None
        yield ChainLog(store, chain)


def _failed(store: Store, chain: int, error: OSError, safe: int) -> StoreError:
    return StoreError(
        f"Writing to {store.path} failed: {error.strerror}. The run was stopped; {safe} draws of chain {chain} and "
        "those written by the other chains are safe. Make room or give access, then go on with "
        f"nsfa.resume({str(store.path)!r})."
    )


def write_draws(store: Store, chain: int, first: int, draws: list[Draw]) -> None:
    """Write a block of draws."""
    marks = {"run": store.run, "kind": "draws", "chain": chain, "first": first}
    write_tree(store.block(chain, first), {**marks, "content": codec.pack_draws(draws)})


def save_chains(
    path: str | PathLike[str], data: Observed, settings: Settings, chains: tuple[tuple[Draw, ...], ...]
) -> None:
    """Write whole chains of draws, without states, to a new store."""
    with created(path, data, settings) as store:
        try:
            for number, draws in enumerate(chains):
                store.folder(number).mkdir(exist_ok=True)
                at_once = max(1, LARGEST_BLOCK // max(map(codec.draw_bytes, draws)))
                for first in range(0, len(draws), at_once):
                    write_draws(store, number, first, list(draws[first : first + at_once]))
        except OSError as error:
            # its folder was new
            shutil.rmtree(store.path, ignore_errors=True)
            raise StoreError(
                f"Writing to {store.path} failed: {error.strerror}. Nothing was saved; make room, or choose another "
                "place."
            ) from None
