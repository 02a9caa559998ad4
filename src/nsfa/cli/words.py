"""What the command says: results on standard output; progress, notes and errors on standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from nsfa.progress import err

# where they write is looked up when they write
out = Console(highlight=False, soft_wrap=True)


def survive_narrow_encodings() -> None:
    """Write what a terminal's encoding lacks as an escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def plain(text: str) -> str:
    """Text of unknown origin, made safe for a terminal: control characters are shown as escapes."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def say(text: str, style: str = "") -> None:
    """A line of the result."""
    out.print(Text(plain(text), style))


def note(text: str) -> None:
    """A line beside the result: something noticed, something to know."""
    err.print(Text.assemble(("Note: ", "yellow"), plain(text)))


def tell_progress(text: str) -> None:
    """A line about how far things are."""
    err.print(Text(plain(text)))


def fail(text: str) -> None:
    """Why it did not work, in a sentence."""
    err.print(Text.assemble(("Error: ", "bold red"), plain(text)))


def say_json(found: dict[str, Any]) -> None:
    """The result as one JSON object."""
    sys.stdout.write(json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n")
