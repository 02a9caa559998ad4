"""Exit codes, and errors as one sentence: what scripts and people can rely on."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from nsfa.cli.words import fail, note, survive_narrow_encodings

DONE, USER_ERROR, NOT_CONVERGED, PARTLY_CONVERGED, INTERRUPTED = 0, 1, 2, 3, 130
# a wrong option or argument; the framework's own code for it is 2, which here means "not converged"
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class CommandGroup(TyperGroup):
    """The commands, with every failure turned into a sentence and an exit code."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options before the command's name."""
        survive_narrow_encodings()
        with usage_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with sentences(), usage_errors():
            return super().invoke(ctx)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Give wrong options the exit code of a user's error."""
    try:
        yield
    except UsageError as error:
        error.exit_code = USER_ERROR  # type: ignore[attr-defined]
        raise


@contextmanager
def sentences() -> Iterator[None]:
    """Turn exceptions into a sentence on standard error and an exit code; NSFA_DEBUG=1 lets them through."""
    if os.environ.get("NSFA_DEBUG"):
        yield
        return
    try:
        yield
    except (typer.Exit, typer.Abort, UsageError):
        raise
    except KeyboardInterrupt:
        fail("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        # whoever reads the output may have gone; the framework ends quietly then
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise
        fail(sentence(error))
        raise typer.Exit(USER_ERROR) from None


def sentence(error: Exception) -> str:
    """An exception in words."""
    if isinstance(error, MemoryError):
        return "Not enough memory. Use --top-genes, or fewer --draws, --chains or --jobs."
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename}" if error.filename else ""
        return f"Cannot read or write{where}: {error.strerror}."
    if isinstance(error, (ValueError, OSError, RuntimeError, ImportError)) and str(error):
        return str(error)
    kind = type(error).__name__
    return f"This should not have happened ({kind}: {error}). NSFA_DEBUG=1 shows where; please report it."


@contextmanager
def quiet_library(quiet: bool = False) -> Iterator[None]:
    """Show the library's advice as notes, and hide what is said elsewhere or meant for programmers."""
    from sklearn.exceptions import ConvergenceWarning

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if not quiet:
            note(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.showwarning = show
        yield


class Interrupts:
    """Ctrl-C once raises KeyboardInterrupt, which chains answer with the draws they have; twice ends at once."""

    def __init__(self, last_words: str) -> None:
        self.last_words, self.count = last_words, 0
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        ours = threading.current_thread() is threading.main_thread()
        # background jobs of a shell ignore it, and then so do we
        if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            note("Interrupted: collecting the draws made so far. Ctrl-C again ends at once.")
            raise KeyboardInterrupt
        fail(self.last_words)
        sys.stderr.flush()
        _end_workers()
        os._exit(INTERRUPTED)


def _end_workers() -> None:
    """End the worker processes: they ignore Ctrl-C and would go on to the end of their chain."""
    module = sys.modules.get("joblib.externals.loky.reusable_executor")
    pool = getattr(module, "_executor", None)
    for pid in list(getattr(pool, "_processes", None) or ()):
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError:
            continue
