"""Kept draws: their sparse record and where they are stored."""

from nsfa.draws.draw import Draw, record

__all__ = ["Draw", "record"]
