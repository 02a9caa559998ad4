"""Tasks and their ledger: pure functions whose rows go into one tidy CSV as they finish, so that a run can be resumed.

Every number of every experiment is a row of the same form: the task it is from, the model, the replicate (data set,
split or seed), the quantity, where in the run it was taken (``at``: sweep or draw number, else 0), and the value.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

COLUMNS = ("task", "model", "replicate", "quantity", "at", "value")
# the last row of a task: without it the task was cut short and is done again
LAST = "task_seconds"

Number = tuple[str, Any, Any]
"""Quantity, at, value: the latter two any kind of number."""


@dataclass(frozen=True)
class Task:
    """One piece of work: ``function(**arguments)`` gives its numbers. ``seconds`` is a guess, for the time left."""

    model: str
    replicate: int
    function: Callable[..., Iterable[Number]]
    arguments: dict[str, Any] = field(default_factory=dict)
    seconds: float = 1.0

    @property
    def key(self) -> str:
        """What the task's rows are found by."""
        return f"{self.model} #{self.replicate}"

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
    """The CSV that finished tasks are written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = _whole_tasks(path) if path.exists() else {}
        self._write_all(self.rows)

    def add(self, task: Task, numbers: list[Number]) -> None:
        """Append a task's rows, on disk before this returns."""
        rows = [
            [task.key, task.model, str(task.replicate), name, _text(at), _text(value)] for name, at, value in numbers
        ]
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
            file.flush()
            os.fsync(file.fileno())
        self.rows[task.key] = rows

    def finish(self, tasks: list[Task]) -> None:
        """Put the rows in the order of the plan, which the order of finishing has no part in."""
        self._write_all({task.key: self.rows[task.key] for task in tasks})

    def _write_all(self, rows: dict[str, list[list[str]]]) -> None:
        aside = self.path.with_suffix(".part")
        with aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for some in rows.values():
                writer.writerows(some)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path)


def run_tasks(
    tasks: list[Task], ledger: Ledger, progress: Callable[[Step], Any] | None = None, n_jobs: int = 1
) -> None:
    """Run the tasks that the ledger lacks, the longest first, ``n_jobs`` at once in processes."""
    waiting = sorted((task for task in tasks if task.key not in ledger.rows), key=lambda task: -task.seconds)
    total = sum(task.seconds for task in waiting)
    done, started = 0.0, time.monotonic()
    for task, numbers in _results(waiting, n_jobs):
        ledger.add(task, numbers)
        done += task.seconds
        if progress is not None:
            left = (time.monotonic() - started) * (total - done) / done
            progress(Step(len(ledger.rows), len(tasks), task.key, left))


def _results(tasks: list[Task], n_jobs: int) -> Iterator[tuple[Task, list[Number]]]:
    if n_jobs == 1 or len(tasks) < 2:
        yield from map(_do, tasks)
        return
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")(
        delayed(_do)(task) for task in tasks
    )


def _do(task: Task) -> tuple[Task, list[Number]]:
    """One task, on one core; whether chains converged is among the numbers, not a warning."""
    import warnings

    import scipy.linalg  # noqa: F401  (its own BLAS must be there to be limited)
    from threadpoolctl import threadpool_limits

    started = time.perf_counter()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = [(name, float(at), float(value)) for name, at, value in task.function(**task.arguments)]
    return task, [*numbers, (LAST, 0.0, time.perf_counter() - started)]


def _whole_tasks(path: Path) -> dict[str, list[list[str]]]:
    """The rows of tasks that were written to their end; a torn last line and what it belongs to are dropped."""
    rows: dict[str, list[list[str]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        text = file.read()
    for row in list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))[1:]:
        if len(row) == len(COLUMNS):
            rows.setdefault(row[0], []).append(row)
    return {key: some for key, some in rows.items() if some[-1][3] == LAST}


def _text(value: float) -> str:
    """A number with the digits that matter."""
    return f"{value:.8g}"
