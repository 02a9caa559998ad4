"""Signals that wait while processes are started which are not to see them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back(*numbers: int) -> Iterator[None]:
    """Keep these signals waiting, also from whatever is started meanwhile, and for good there unless it asks."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
