"""Progress of the chains: a live line each on a terminal, a line now and then in a log, silence when quiet."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

if TYPE_CHECKING:
    from nsfa.monitor import Monitor
    from nsfa.monitor import Progress as Report

# Where progress, notes and errors go: all through one console, so that notes do not break into live lines.
err = Console(stderr=True, highlight=False, soft_wrap=True)

COMPILING = "Compiling for this machine, once after installation: a minute or two."
# In a log: a line each tenth of the way, but not more often than this many seconds, and after so many in any case.
STEP, AT_LEAST, AT_MOST = 0.1, 2.0, 30.0
# Speed is that of the last so many seconds.
WINDOW = 20.0
# The first sweeps of a process may wait for a compiler: of so many, or so many seconds, nothing is told of the speed,
# where there is nothing compiled yet; else for the shorter time, which sweeps of large tables take.
EARLY, LONG, SHORT = 20, 300.0, 30.0


@contextmanager
def watch(chains: int, quiet: bool) -> Iterator[Monitor]:
    """A monitor that shows where the chains stand."""
    if quiet:
        yield lambda report: None
    elif err.is_terminal and not err.is_dumb_terminal:
        with _bars() as progress:
            yield _Live(progress, chains, not_compiled()).update
    else:
        yield _Log(not_compiled()).update


@contextmanager
def beside(chains: int, monitor: Monitor | None) -> Iterator[Monitor]:
    """The display of the command for a fit from Python, and the caller's monitor beside it."""
    if not_compiled():
        err.print(COMPILING, markup=False)
    with watch(chains, quiet=False) as display:
        yield display if monitor is None else lambda report: (display(report), monitor(report))[1]


def not_compiled() -> bool:
    """Whether the kernels have yet to be compiled."""
    from nsfa.kernels.compiled import CACHE

    return CACHE is None or not any(CACHE.rglob("*.nbi"))


class _Pace:
    """Speed of one chain over the last seconds: sweeps grow slower as factors are born.

    The first sweeps are not counted: ``compiling`` says that they wait for a compiler, until they are past.
    """

    def __init__(self, compiling: bool = False) -> None:
        self.compiling, self._begun = compiling, (math.nan, 0)
        self._seen: deque[tuple[float, int]] = deque()

    def speed(self, report: Report, now: float) -> float:
        """Sweeps per second; NaN when too early to say."""
        if math.isnan(self._begun[0]):
            self._begun = now, report.done
        then, done = self._begun
        if not self._seen and report.done - done < EARLY and now - then < (LONG if self.compiling else SHORT):
            return math.nan
        self.compiling = False
        self._seen.append((now, report.done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW:
            self._seen.popleft()
        then, done = self._seen[0]
        return (report.done - done) / (now - then) if now - then > 0.2 and report.done > done else math.nan


def describe(report: Report, speed: float, compiling: bool = False) -> str:
    """K, log joint, acceptance, speed and time left of a chain, in a short line; or that it is ``compiling`` still."""
    parts = [f"K {report.n_factors}"]
    if math.isfinite(report.log_joint):
        parts.append(f"log joint {report.log_joint:.1f}")
    if math.isfinite(report.acceptance):
        parts.append(f"births {report.acceptance:.0%}")
    if math.isfinite(speed):
        parts.append(f"{speed:.{0 if speed >= 10 else 1}f} sweeps/s")
        if report.done < report.total:
            parts.append(f"{duration((report.total - report.done) / speed)} left")
    elif compiling and report.done < report.total:
        parts.append("compiling")
    return "  ".join(parts)


def phase(report: Report) -> str:
    """What a chain is doing."""
    return "done" if report.done >= report.total else "warm-up" if report.warming_up else "sampling"


def duration(seconds: float) -> str:
    """Seconds as 0:07 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _bars() -> Progress:
    return Progress(
        TextColumn("chain {task.fields[chain]} {task.description:<8}"),
        BarColumn(bar_width=12),
        TextColumn("{task.completed:.0f}/{task.fields[sweeps]}"),
        TextColumn("{task.fields[text]}"),
        console=err,
    )


class _Live:
    """A line per chain that changes in place."""

    def __init__(self, progress: Progress, chains: int, compiling: bool = False) -> None:
        self._progress = progress
        self._pace: dict[int, _Pace] = defaultdict(partial(_Pace, compiling))
        text = "compiling" if compiling else ""
        self._tasks = [progress.add_task("waiting", total=None, chain=i, sweeps="–", text=text) for i in range(chains)]

    def update(self, report: Report) -> None:
        """Show where a chain stands."""
        pace = self._pace[report.chain]
        speed = pace.speed(report, time.monotonic())
        self._progress.update(
            self._tasks[report.chain],
            description=phase(report),
            completed=report.done,
            total=report.total,
            sweeps=report.total,
            text=describe(report, speed, pace.compiling),
        )


class _Log:
    """Plain lines, few enough for a log file."""

    def __init__(self, compiling: bool = False) -> None:
        self._lock = threading.Lock()
        self._pace: dict[int, _Pace] = defaultdict(partial(_Pace, compiling))
        self._last: dict[int, tuple[float, int]] = {}

    def update(self, report: Report) -> None:
        """Write a line if the chain has come far enough, or been silent for long."""
        with self._lock:
            now = time.monotonic()
            pace = self._pace[report.chain]
            speed = pace.speed(report, now)
            then, done = self._last.setdefault(report.chain, (now, -1))
            if done == report.total:
                return
            waited, far = now - then, report.done - done >= STEP * report.total
            if report.done == report.total or (far and waited >= AT_LEAST) or waited >= AT_MOST:
                self._last[report.chain] = (now, report.done)
                where = f"{phase(report):<8}  {f'{report.done}/{report.total}':>11}"
                err.print(f"chain {report.chain}  {where}  {describe(report, speed, pace.compiling)}", markup=False)
