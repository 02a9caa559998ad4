"""Tasks and their ledger: pure functions whose rows go into one tidy CSV as they finish, so that a run can be resumed.

Every number is a row of the same form: the task it is from, the model, the replicate (data set, split or seed), the
quantity, where in the run it was taken (``at``: sweep or draw number, else 0), and the value.
"""

from __future__ import annotations

import csv
import io
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from nsfa.atomic import replacing
from nsfa.counts import core_count
from nsfa.kernels.dask_blocks import connected, done
from nsfa.threads import no_warnings, one_thread

COLUMNS = ("task", "model", "replicate", "quantity", "at", "value")
# the last row of a task: without it the task was cut short and is done again
LAST = "task_seconds"

Number = tuple[str, Any, Any]
"""Quantity, at, value: the latter two any kind of number."""


@dataclass(frozen=True)
class Task:
    """One piece of work: ``function(**arguments)`` gives its numbers. ``seconds`` is a guess, for the time left.

    A ``digest`` of the arguments tells tasks of one model and replicate apart that are kept in one ledger. ``module``
    is another's package that it needs.
    """

    model: str
    replicate: int
    function: Callable[..., Iterable[Number]]
    arguments: dict[str, Any] = field(default_factory=dict)
    seconds: float = 1.0
    digest: str = ""
    module: str | None = None

    @property
    def key(self) -> str:
        """What the task's rows are found by."""
        return f"{self.model} #{self.replicate}" + (f" {self.digest}" if self.digest else "")

    @property
    def identity(self) -> str:
        """All that decides its numbers."""
        settings = ", ".join(f"{name}={value!r}" for name, value in sorted(self.arguments.items()))
        return f"{self.key}: {self.function.__module__}.{self.function.__qualname__}({settings})"


class Step(NamedTuple):
    """Where a run stands: tasks done of how many, the last one, and a guess at the seconds left."""

    done: int
    total: int
    label: str
    seconds_left: float


class Ledger:
    """The CSV that finished tasks are written to, numbers to so many digits; memory alone without a path."""

    def __init__(self, path: Path | None = None, digits: int = 8) -> None:
        self.path, self._digits = path, digits
        self.rows: dict[str, list[list[str]]] = {}
        if path is not None and path.exists():
            self.rows = _whole_tasks(path)
            # without what was torn, so that rows can be appended
            self._write_all(self.rows)

    def add(self, task: Task, numbers: list[Number]) -> None:
        """Append a task's rows, on disk before this returns."""
        rows = [
            [task.key, task.model, str(task.replicate), name, self._text(at), self._text(value)]
            for name, at, value in numbers
        ]
        if self.path is not None:
            header = [] if self.path.exists() else [COLUMNS]
            _write(self.path, "a", [*header, *rows])
        self.rows[task.key] = rows

    def finish(self, tasks: list[Task]) -> None:
        """Put the rows in the order of the plan, which the order of finishing has no part in."""
        self._write_all({task.key: self.rows[task.key] for task in tasks})

    def _write_all(self, rows: dict[str, list[list[str]]]) -> None:
        if self.path is not None:
            with replacing(self.path) as aside:
                _write(aside, "w", [COLUMNS, *(row for some in rows.values() for row in some)])

    def _text(self, value: float) -> str:
        """A number with the digits that matter."""
        return f"{value:.{self._digits}g}"


def run_tasks(
    tasks: list[Task],
    ledger: Ledger,
    progress: Callable[[Step], Any] | None = None,
    n_jobs: int | None = 1,
    shared: Mapping[str, Any] | None = None,
) -> None:
    """Run the tasks that the ledger lacks, the longest first, ``n_jobs`` at once in processes; None: on a cluster.

    ``shared`` are arguments of all functions beside each task's own: a cluster gets them once.
    """
    waiting = sorted((task for task in tasks if task.key not in ledger.rows), key=lambda task: -task.seconds)
    total = sum(task.seconds for task in waiting)
    done, started = 0.0, time.monotonic()
    # closed at once, also by an interrupt: it may have workers
    with closing(_results(waiting, n_jobs, dict(shared or {}))) as results:
        for task, numbers in results:
            ledger.add(task, numbers)
            done += task.seconds
            if progress is not None:
                left = (time.monotonic() - started) * (total - done) / done
                progress(Step(sum(t.key in ledger.rows for t in tasks), len(tasks), task.key, left))


def _results(tasks: list[Task], n_jobs: int | None, shared: dict[str, Any]) -> Generator[tuple[Task, list[Number]]]:
    if not tasks:
        return
    if n_jobs is None:
        with connected(cores=core_count()) as client:
            yield from ((tasks[i], numbers) for i, (_, numbers) in done(client, _do_there, shared, tasks))
        return
    if n_jobs == 1 or len(tasks) < 2:
        yield from ((task, _do(shared, task)[1]) for task in tasks)
        return
    from joblib import Parallel, delayed

    from nsfa.workers import followed

    by_key = {task.key: task for task in tasks}
    for key, numbers in Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")(
        delayed(followed)(os.getpid(), _do, shared, task) for task in tasks
    ):
        yield by_key[key], numbers


def _do_there(shared: dict[str, Any], task: Task) -> tuple[str, list[Number]]:
    # beside others of this worker, which end at other times
    with one_thread():
        return _do(shared, task)


def _do(shared: dict[str, Any], task: Task) -> tuple[str, list[Number]]:
    """One task, on one core; whether chains converged is among the numbers, not a warning."""
    import scipy.linalg  # noqa: F401  (its own BLAS must be there to be limited)
    from threadpoolctl import threadpool_limits

    started = time.perf_counter()
    with threadpool_limits(1), no_warnings(), _whole_or_interrupted():
        numbers = [(name, float(at), float(value)) for name, at, value in task.function(**shared, **task.arguments)]
    return task.key, [*numbers, (LAST, 0.0, time.perf_counter() - started)]


@contextmanager
def _whole_or_interrupted() -> Iterator[None]:
    """Ctrl-C is an interrupt whatever the task makes of it: a fit answers it with the draws it has, or an error.

    So is SIGTERM where somebody handles it.
    """
    pressed = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        both = ((number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM))
        handlers = {number: handler for number, handler in both if callable(handler)}

    def handle(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        handlers[number](number, frame)

    for number in handlers:
        signal.signal(number, handle)
    try:
        yield
    except RuntimeError:
        if not pressed:
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if pressed:
        raise KeyboardInterrupt


def _whole_tasks(path: Path) -> dict[str, list[list[str]]]:
    """The rows of tasks that were written to their end; a torn last line and what it belongs to are dropped."""
    rows: dict[str, list[list[str]]] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        text = file.read()
    header = ",".join(COLUMNS) + "\n"
    if not (text.startswith(header) or header.startswith(text)):
        raise ValueError(
            f"{path} must be a new file, or one that an earlier run kept its numbers in. Got another file; "
            "choose another name."
        )
    for row in csv.reader(io.StringIO(text[len(header) : text.rfind("\n") + 1], newline="")):
        if len(row) == len(COLUMNS):
            rows.setdefault(row[0], []).append(row)
    return {key: some for key, some in rows.items() if some[-1][3] == LAST}


def _write(path: Path, mode: str, rows: Iterable[Iterable[str]]) -> None:
    """Write or append rows, on disk before this returns."""
    with path.open(mode, newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
        file.flush()
        os.fsync(file.fileno())
