"""Exit codes, and errors as one sentence: what scripts and people can rely on."""

from __future__ import annotations

import ast
import errno
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from nsfa.cli.words import fail, note, survive_narrow_encodings

USER_ERROR, NOT_CONVERGED, PARTLY_CONVERGED, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143
# joblib's tracker, a process of its own, cleans up after a command that ends at once: no need to hear of it
_TRACKER = "ignore::UserWarning:joblib.externals.loky.backend.resource_tracker"
# how the library names what this program calls ``nsfa resume``
_RESUME = re.compile(r"nsfa\.resume\(('[^']*'|\"[^\"]*\")\)")
# how the library names settings that are options here, and what only Python can do
_SETTING = re.compile(
    r"\b(noise|likelihood|scale|size_factors|prior|dtype|backend|layer|tune|log2|samples_in_rows|tf32)=(True|'[^']*')"
)
_IN_PYTHON = re.compile(r" \(\w+=(True|False|'[^']*')\)")
_PHRASES = {
    "use X.toarray(), or other noise": "save the table as a dense one, such as csv, or take other noise",
    "needs priors with intercept=True. Got False; use prior='default', or Priors(intercept=True, ...)": (
        "needs priors with unknown means. Got others; use --prior default"
    ),
}
# what the framework says of a value that is none of those there are, or not the number there should be
_CHOICES = re.compile(r"(?:Value error, )?('.*') is not one of (.*?)\.?")
_NUMBERS = re.compile(r"Input should be (?:a valid (integer|number).*|greater than or equal to (\S+))")
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
        before = os.environ.get("PYTHONWARNINGS", "")
        if _TRACKER not in before:
            os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [before, _TRACKER]))
        with sentences(), usage_errors(), _signal(signal.SIGTERM, signal.SIG_DFL, _terminate):
            return super().invoke(ctx)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Give wrong options the exit code of a user's error."""
    try:
        yield
    except UsageError as error:
        error.exit_code = USER_ERROR  # type: ignore[attr-defined]
        error.message = what_must_hold(str(getattr(error, "message", error)))  # type: ignore[attr-defined]
        raise


def what_must_hold(text: str) -> str:
    """What the framework says of an option's value, in the words in which everything else is said."""
    if found := _CHOICES.fullmatch(text):
        given, choices = found.groups()
        names = choices.replace("'", "")
        return f"must be one of {names}. Got {given}."
    text = re.sub(r"^Value error, ", "", text)
    if found := _NUMBERS.fullmatch(text):
        kind, bound = found.groups()
        return f"must be >= {bound}." if bound else f"must be {'an int' if kind == 'integer' else 'a number'}."
    return text


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
        return (
            "Not enough memory. Use --top-genes, fewer --draws, --chains or --jobs, or nsfa fit --dask for h5ad and "
            "zarr files."
        )
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename}" if error.filename else ""
        return f"Cannot read or write{where}: {error.strerror}."
    if isinstance(error, (ValueError, OSError, RuntimeError, ImportError)) and str(error):
        return in_command_words(str(error))
    kind = type(error).__name__
    return f"This should not have happened ({kind}: {error}). NSFA_DEBUG=1 shows where; please report it."


def in_command_words(text: str) -> str:
    """What the library says, with this program's commands and options in place of Python's."""

    def command(call: re.Match[str]) -> str:
        # the draws are a folder in the output directory
        return f"nsfa resume {shlex.quote(str(Path(ast.literal_eval(call[1])).parent))}"

    def option(setting: re.Match[str]) -> str:
        flag = "--" + setting[1].replace("_", "-")
        return flag if setting[2] == "True" else f"{flag} {shlex.quote(setting[2][1:-1])}"

    for python, ours in _PHRASES.items():
        text = text.replace(python, ours)
    return _RESUME.sub(command, _SETTING.sub(option, _IN_PYTHON.sub("", text)))


@contextmanager
def quiet_library(quiet: bool = False) -> Iterator[None]:
    """Show the library's advice as notes, and hide what is said elsewhere or meant for programmers."""
    from sklearn.exceptions import ConvergenceWarning

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if not quiet:
            note(in_command_words(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.showwarning = show
        yield


class Interrupts:
    """Ctrl-C or SIGTERM once raises KeyboardInterrupt, which chains answer with their draws; twice ends at once.

    ``code`` is the exit code that says so, 0 while there was none.
    """

    def __init__(self, last_words: str, collected: str = "draws") -> None:
        self.last_words, self.collected, self.code = last_words, collected, 0
        self._handlers = ExitStack()

    def __enter__(self) -> Interrupts:
        # background jobs of a shell ignore Ctrl-C, and then so do we
        self._handlers.enter_context(_signal(signal.SIGINT, signal.default_int_handler, self._handle))
        self._handlers.enter_context(_signal(signal.SIGTERM, _terminate, self._handle))
        return self

    def __exit__(self, *_: object) -> None:
        self._handlers.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, terminated = bool(self.code), number == signal.SIGTERM
        self.code = TERMINATED if terminated else INTERRUPTED
        if again:
            fail(self.last_words)
            sys.stderr.flush()
            # worker processes end when this one does
            os._exit(self.code)
        what, again_ends = ("Terminated", "A second SIGTERM") if terminated else ("Interrupted", "Ctrl-C again")
        note(f"{what}: collecting the {self.collected} made so far. {again_ends} ends at once.")
        raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    """End a command that has nothing to collect. A fit within it would answer KeyboardInterrupt by going on."""
    fail("Terminated.")
    raise SystemExit(TERMINATED)


@contextmanager
def _signal(number: int, usual: Any, handler: Any) -> Iterator[None]:
    """Handle a signal, unless someone has set another handler than the usual one, or this is not the main thread."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(number) is usual
    before = signal.signal(number, handler) if ours else None
    try:
        yield
    finally:
        if ours:
            signal.signal(number, before)
