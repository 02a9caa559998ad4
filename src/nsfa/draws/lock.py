"""One process at a time: a lock that the system gives back when its holder ends, however it ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nsfa.draws.files import StoreError

NAME = "lock"
# file systems without locks: going without is safe, since two writers of one run write the same bytes
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, or raise StoreError if another process does."""
    try:
        handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(f"{folder} must be writable. Got: {error.strerror}; check its permissions.") from None
    try:
        _take(handle, folder)
        yield
    finally:
        # closing releases it
        os.close(handle)


def _take(handle: int, folder: Path) -> None:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return
        raise StoreError(
            f"{folder} is in use: another process is writing to it. Wait for it to end, or stop it."
        ) from None
