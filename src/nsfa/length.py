"""How long a chain runs, given or by the table's size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nsfa.arrays import Floats
from nsfa.data import Observed

# Sweeps per kept draw where the user does not say: at most twelve, and at least ``LEAST_THIN`` up to ``BIG`` entries,
# ``BIG_THIN`` up to ``LONG``, and one beyond that; of counts, whose sweeps take longer, ``COUNTS_THIN`` from ``CHEAP``
# to ``LONG``.
SMALL, LARGE, GROWTH = 14_000, 700_000, 1.8
CHEAP, BIG, LONG = 50_000, 1_000_000, 2_000_000
LEAST_THIN, BIG_THIN, COUNTS_THIN = 4, 3, 2
# Warm-up where the user does not say: ``TUNE`` sweeps; ``SMALL_TUNE`` in small tables; in those with more than ``WORK``
# / ``TUNE`` entries as many as go through ``WORK`` entries, but at least ``LEAST_TUNE``.
TUNE, SMALL_TUNE, LEAST_TUNE, WORK = 500, 150, 100, 1_000_000_000
# Chains of counts take so many times as long to find their last factor.
COUNTS_TUNES = 2
# A warm-up that ends by itself lasts so many times as long at most, and is looked at so often in the time of the usual.
MOST_TUNES, LOOKS = 8, 2
# It ends where the means of a trace's quarters before the last and of the last are this near, in standard deviations.
NEAR = 0.65
# A preview keeps one draw where the run would keep so many.
PREVIEW = 20


@dataclass(frozen=True)
class Length:
    """How long a chain runs: ``tune`` warm-up sweeps, then ``draws`` kept draws, every ``thin``-th sweep.

    ``preview`` marks a length that is not meant to converge. Where ``most`` is not 0, the warm-up goes on until the
    chain has arrived, for ``most`` sweeps at most.
    """

    tune: int = 500
    draws: int = 500
    thin: int = 1
    preview: bool = False
    most: int = 0

    @classmethod
    def of(cls, data: Observed, tune: int | str | None, draws: int, thin: int | None) -> Length:
        """The length for a table: None stands for what its size suggests, "auto" for a warm-up that ends by itself."""
        if isinstance(tune, str) and tune != "auto":
            raise ValueError(f"tune must be an int >= 0, 'auto', or None. Got {tune!r}.")
        usual: Any = default_tune(data) if tune is None or tune == "auto" else tune
        thin = default_thin(data) if thin is None else thin
        return cls(usual, draws, thin, most=MOST_TUNES * usual if tune == "auto" else 0)

    def shortened(self) -> Length:
        """A tenth of the sweeps, half or more of them warm-up: enough for a first look."""
        draws = preview_draws(self.draws)
        return Length(self.tune // 10 + draws * self.thin, draws, self.thin, preview=True)

    @property
    def sweeps(self) -> int:
        """Sweeps in all, at most."""
        return max(self.tune, self.most) + self.draws * self.thin

    @property
    def warm_up(self) -> str:
        """The warm-up's sweeps in words."""
        return f"{self.tune:,} to {self.most:,}" if self.most else f"{self.tune:,}"

    def looks(self, number: int) -> bool:
        """Whether to look after warm-up sweep ``number``, where the warm-up ends by itself, if it may end."""
        return number >= self.tune and (number - self.tune) % max(1, self.tune // LOOKS) == 0


def arrived(trace: Floats) -> bool:
    """Whether a chain's own trace (sweeps, quantities) goes nowhere any more: its second half stays where it was.

    The means of that half's two parts then differ by less than ``NEAR`` of the standard deviations within them, which
    is a split R-hat below 1.1. Quantities that are not finite have no say.
    """
    quarter = len(trace) // 4
    if quarter < 2:
        return False
    early, late = trace[-2 * quarter : -quarter], trace[-quarter:]
    within = 0.5 * (early.var(axis=0) + late.var(axis=0))
    gone = (late.mean(axis=0) - early.mean(axis=0)) ** 2 > NEAR**2 * within
    return not (gone & np.isfinite(trace).all(axis=0)).any()


def preview_draws(draws: int) -> int:
    """Kept draws of the preview of a run with ``draws``."""
    return max(1, draws // PREVIEW)


def default_tune(data: Observed) -> int:
    """Warm-up sweeps by the table's size: fewer in small ones, in very large ones what takes less than a minute."""
    entries, times = max(1, data.shape[0] * data.shape[1]), COUNTS_TUNES if data.likelihood == "counts" else 1
    return times * (SMALL_TUNE if entries <= SMALL else min(TUNE, max(LEAST_TUNE, WORK // entries)))


def default_thin(data: Observed) -> int:
    """Sweeps per kept draw that give a fit with default length a fair chance to converge, by the table's size.

    In small tables sweeps cost next to nothing; larger ones have more factors, which change more slowly; in very large
    ones a sweep takes so long that the choice is left to the user. With missing entries it takes two to three times as
    long: a third as many, but in small tables.
    """
    entries = max(1, data.shape[0] * data.shape[1])
    least = LEAST_THIN if entries <= CHEAP else 1
    if CHEAP < entries <= LONG and data.complete and data.likelihood != "binary":
        least = LEAST_THIN if entries <= BIG else BIG_THIN
        least = COUNTS_THIN if data.likelihood == "counts" else least
    return max(least, int(min((entries / SMALL) ** GROWTH, LARGE / entries) / (1 if data.complete else 3)))
