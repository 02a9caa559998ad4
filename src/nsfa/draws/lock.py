"""One process at a time: a lock that the system gives back when its holder ends, however it ends."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nsfa.draws.files import StoreError

NAME = "lock"
# Seconds to wait for a holder that may be about to end: one that was killed, and its workers.
PATIENCE = 5.0
_PAUSE = 0.1
# file systems without locks: going without is safe, since two writers of one run write the same bytes
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, or raise StoreError if another process does and goes on doing so."""
    handle = _opened(folder)
    deadline = time.monotonic() + PATIENCE
    try:
        while not _taken(handle):
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{folder} is in use: another process is writing to it. Wait for it to end, or stop it."
                )
            time.sleep(_PAUSE)
            # anew: its holder may take the file away in the end
            before, handle = handle, _opened(folder)
            os.close(before)
        yield
    finally:
        # closing releases it
        os.close(handle)


def _opened(folder: Path) -> int:
    try:
        return os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(f"{folder} must be writable. Got: {error.strerror}; check its permissions.") from None


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder's lock now."""
    try:
        # for reading: the folder may be a colleague's
        handle = os.open(folder / NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _taken(handle, shared=True)
    finally:
        os.close(handle)


def _taken(handle: int, shared: bool = False) -> bool:
    """Take a lock, which any number may share if all ask for that; False if someone else has it."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS
    return True
