"""What a chain reports while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where one chain stands: sweeps done of how many, whether still warming up, and its number of factors.

    ``acceptance`` is the share of features that took a changed set of own factors, over the sweeps of this process (NaN
    for models without births); ``seconds`` is since the chain's start, earlier processes included.
    """

    chain: int
    done: int
    total: int
    warming_up: bool
    n_factors: int
    log_joint: float = math.nan
    acceptance: float = math.nan
    seconds: float = 0.0


Monitor = Callable[[Progress], None]
