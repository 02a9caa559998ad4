"""One BLAS thread while tasks of several threads need it: what they sum does not depend on how many there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_limited: list[Any] = []


@contextmanager
def one_thread() -> Iterator[None]:
    """One BLAS thread, since their number can change the last bit; the former again once no task needs it."""
    with _lock:
        _limited.append(None if _limited else threadpool_limits(1))
    try:
        yield
    finally:
        with _lock:
            if len(_limited) == 1:
                _limited.pop().restore_original_limits()
            else:
                # the first one has what to go back to
                _limited.pop()
