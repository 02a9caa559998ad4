"""Which moves a chain made, how often, and which of their proposals were accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsfa import schedule
from nsfa.backends import abilities_on
from nsfa.chain import accepted_share
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.model.spec import ModelSpec


class MoveUse(NamedTuple):
    """A move: when it has its turn, or why never; the share of its proposals that was accepted, if it makes any."""

    name: str
    when: str
    accepted: float | None = None


def moves_of(
    spec: ModelSpec, data: Observed, chains: Sequence[Sequence[Draw]] = (), backend: str = "cpu"
) -> tuple[MoveUse, ...]:
    """The moves that a model makes on a table, and what draws of it say of their acceptance; the unused ones last."""
    plan = schedule.build(spec, data.shape[0], abilities_on(backend, data, spec))
    found = {}
    for move in plan.moves:
        if move.name == "refresh":
            # book-keeping
            continue
        shares = [chain[-1].scalars.get(accepted_share(move.name)) for chain in chains] if move.reports else []
        known = [share for share in shares if share is not None]
        # some come twice in a sweep; the second time is the more frequent one
        found[move.name] = MoveUse(move.name, move.when, float(np.mean(known)) if known else None)
    return (*found.values(), *(MoveUse(name, f"not used, {why}") for name, why in plan.unused))
