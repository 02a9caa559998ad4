"""One BLAS thread, and no warnings, while tasks of several threads need it: both are settings of the whole process."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_limited: list[Any] = []
_silent: list[Any] = []


@contextmanager
def one_thread() -> Iterator[None]:
    """One BLAS thread, since their number can change the last bit; the former again once no task needs it."""
    with _counted(_limited, lambda: threadpool_limits(1), lambda first: first.restore_original_limits()):
        yield


@contextmanager
def no_warnings() -> Iterator[None]:
    """No warnings; the former filters again once no task needs it: each one's own would bring back another's."""

    def silence() -> Any:
        filters = warnings.catch_warnings()
        filters.__enter__()
        warnings.simplefilter("ignore")
        return filters

    with _counted(_silent, silence, lambda first: first.__exit__()):
        yield


@contextmanager
def _counted(entered: list[Any], begin: Callable[[], Any], end: Callable[[Any], None]) -> Iterator[None]:
    """Begin with the first who enters, end with the last who leaves, by what the first has to go back to."""
    with _lock:
        entered.append(None if entered else begin())
    try:
        yield
    finally:
        with _lock:
            first = entered.pop()
            if not entered:
                end(first)
