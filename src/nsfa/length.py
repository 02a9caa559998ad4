"""How long a chain runs, given or by the table's size."""

from __future__ import annotations

from dataclasses import dataclass

from nsfa.data import Observed

# Sweeps per kept draw where the user does not say: ``LEAST_THIN`` up to ``CHEAP`` entries, one from half of ``LARGE``
# on, at most twelve in between.
SMALL, LARGE, GROWTH = 14_000, 700_000, 1.8
LEAST_THIN, CHEAP = 4, 50_000
# Warm-up where the user does not say: ``TUNE`` sweeps; ``SMALL_TUNE`` in small tables; in those with more than ``WORK``
# / ``TUNE`` entries as many as go through ``WORK`` entries, but at least ``LEAST_TUNE``.
TUNE, SMALL_TUNE, LEAST_TUNE, WORK = 500, 150, 100, 1_000_000_000
# A preview keeps one draw where the run would keep so many.
PREVIEW = 20


@dataclass(frozen=True)
class Length:
    """How long a chain runs: ``tune`` warm-up sweeps, then ``draws`` kept draws, every ``thin``-th sweep.

    ``preview`` marks a length that is not meant to converge.
    """

    tune: int = 500
    draws: int = 500
    thin: int = 1
    preview: bool = False

    @classmethod
    def of(cls, data: Observed, tune: int | None, draws: int, thin: int | None) -> Length:
        """The length for a table, ``None`` standing for what its size suggests."""
        return cls(default_tune(data) if tune is None else tune, draws, default_thin(data) if thin is None else thin)

    def shortened(self) -> Length:
        """A tenth of the sweeps, half or more of them warm-up: enough for a first look."""
        draws = preview_draws(self.draws)
        return Length(self.tune // 10 + draws * self.thin, draws, self.thin, preview=True)

    @property
    def sweeps(self) -> int:
        """Sweeps in all."""
        return self.tune + self.draws * self.thin


def preview_draws(draws: int) -> int:
    """Kept draws of the preview of a run with ``draws``."""
    return max(1, draws // PREVIEW)


def default_tune(data: Observed) -> int:
    """Warm-up sweeps by the table's size: fewer in small ones, in very large ones what takes less than a minute."""
    entries = max(1, data.shape[0] * data.shape[1])
    return SMALL_TUNE if entries <= SMALL else min(TUNE, max(LEAST_TUNE, WORK // entries))


def default_thin(data: Observed) -> int:
    """Sweeps per kept draw that give a fit with default length a fair chance to converge, by the table's size.

    In small tables sweeps cost next to nothing; larger ones have more factors, which change more slowly; in very large
    ones a sweep takes so long that the choice is left to the user. With missing entries it takes two to three times as
    long: a third as many, but in small tables.
    """
    entries = max(1, data.shape[0] * data.shape[1])
    least = LEAST_THIN if entries <= CHEAP else 1
    return max(least, int(min((entries / SMALL) ** GROWTH, LARGE / entries) / (1 if data.complete else 3)))
