"""The bytes of a text file as UTF-8, whatever they were, or one sentence about why they are no text."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from pathlib import Path

# UTF-32 first: its mark begins with that of UTF-16
MARKS = (
    (codecs.BOM_UTF8, "UTF-8"),
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x19\x1c-\x1f]")


def unpacked(content: bytes, path: Path) -> bytes:
    """The content, decompressed if it is gzip's."""
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error):
        raise ValueError(
            f"{path.name} must be a whole gzip file. Got one cut short or damaged; copy it again."
        ) from None


def as_utf8(content: bytes, path: Path) -> tuple[bytes, tuple[str, ...]]:
    """The text in UTF-8 without a byte-order mark, and a note if its encoding had to be guessed."""
    mark, encoding = next((pair for pair in MARKS if content.startswith(pair[0])), (b"", "UTF-8"))
    notes: tuple[str, ...] = ()
    if encoding != "UTF-8":
        try:
            content = content.decode(encoding).encode()
        except UnicodeError:
            raise ValueError(f"{path.name} must be text. Got damaged {encoding}; save it as UTF-8.") from None
    elif mark:
        content = content[len(mark) :]
    if b"\0" in content:
        raise ValueError(f"{path.name} must be a text table. Got binary data; save it as csv in UTF-8.")
    if not content.isascii():
        content, notes = _checked(content, path)
    # old editors end a file with Ctrl-Z
    return content.rstrip(b"\x1a"), notes


def _checked(content: bytes, path: Path) -> tuple[bytes, tuple[str, ...]]:
    """Text that is not UTF-8 is taken for Western European; bytes that no text has are refused."""
    try:
        content.decode()
        return content, ()
    except UnicodeDecodeError:
        pass
    if _CONTROL.search(content):
        raise ValueError(f"{path.name} must be a text table. Got binary data; save it as csv in UTF-8.")
    note = f"{path.name} is not UTF-8: letters such as é were read as Western European (Windows-1252)."
    try:
        return content.decode("cp1252").encode(), (note,)
    except UnicodeDecodeError:
        return content.decode("latin-1").encode(), (note,)
