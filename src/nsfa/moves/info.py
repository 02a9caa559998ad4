"""What a move that may be refused reports."""

from __future__ import annotations

from typing import NamedTuple


class Info(NamedTuple):
    """How many proposals were accepted, out of how many."""

    accepted: int
    tried: int
