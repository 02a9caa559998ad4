"""``python -m nsfa.experiments NAME -o OUT [--quick]``, and ``page OUT… -o DOCS`` for the page about all of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nsfa.experiments import NAMES, run
from nsfa.tasks import Step


def main() -> int:
    """Run one experiment, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m nsfa.experiments", description=str(__doc__))
    parser.add_argument("name", choices=[*NAMES, "plan", "page"])
    parser.add_argument("results", nargs="*", type=Path, help="for page: the directories of finished runs")
    parser.add_argument("-o", "--out", type=Path, help="directory to write to")
    parser.add_argument("--quick", action="store_true", help="a small version, in seconds")
    parser.add_argument("--jobs", type=int, help="tasks at once; by default one per core")
    given = parser.parse_args()
    if given.name == "plan":
        return _say(_plan(given.quick))
    if given.out is None:
        parser.error("-o OUT is needed")
    try:
        if given.name == "page":
            from nsfa.experiments.page import write_page

            write_page(given.results, given.out)
        else:
            run(given.name, given.out, given.quick, _show, given.jobs)
    except (ValueError, RuntimeError, OSError, ImportError) as error:
        sys.stderr.write(f"\nError: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. The same command goes on from here.\n")
        return 130
    return 0


def _show(step: Step) -> None:
    minutes, seconds = divmod(round(step.seconds_left), 60)
    line = f"{step.done} of {step.total} tasks, about {minutes}:{seconds:02d} left; last: {step.label}"
    sys.stderr.write(f"\r{line:<110}" if sys.stderr.isatty() else f"{line}\n")
    if sys.stderr.isatty() and step.done == step.total:
        sys.stderr.write("\n")
    sys.stderr.flush()


def _plan(quick: bool) -> str:
    """Tasks and guessed seconds of every experiment."""
    from nsfa.experiments.experiment import load

    lines, total = [f"{'experiment':<14}{'tasks':>7}{'core seconds':>14}"], 0.0
    for name in NAMES:
        tasks = load(name).plan(quick)
        seconds = sum(task.seconds for task in tasks)
        total += seconds
        lines.append(f"{name:<14}{len(tasks):>7}{seconds:>14.0f}")
    return "\n".join([*lines, f"{'all':<14}{'':>7}{total:>14.0f}"])


def _say(text: str) -> int:
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
