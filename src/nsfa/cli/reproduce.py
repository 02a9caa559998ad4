"""``nsfa reproduce``: the figures and tables of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Exit, Option

from nsfa.cli import cluster
from nsfa.cli.errors import INTERRUPTED, quiet_library
from nsfa.cli.options import TalkOptions, TaskOptions, takes
from nsfa.cli.words import note, say, say_json, tell_progress
from nsfa.progress import duration

PLAN, PAGE = "plan", "page"


@takes(TalkOptions, TaskOptions)
def reproduce(
    talk: TalkOptions,
    where: TaskOptions,
    name: Annotated[
        str, Argument(metavar="NAME", help="synthetic, convergence, ecoli, breast, prostate or ibp; plan or page.")
    ],
    runs: Annotated[list[Path] | None, Argument(metavar="RUN", help="For page: directories of results.")] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Directory for the results; new, or of the same experiment.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="A small version, a minute or two.")] = False,
    jobs: Annotated[int | None, Option("--jobs", "-j", help="Tasks that run at once.")] = None,
) -> None:
    """Repeat an experiment of Knowles & Ghahramani (2011), and write its tables and figures.

    The same command goes on with an interrupted one. In place of an experiment, plan lists what each of them costs, and
    page writes a page about finished ones, reproduction.md, into a folder of documentation.

    [bold]Examples[/bold]

    nsfa reproduce synthetic -o synthetic --quick

    nsfa reproduce ecoli -o ecoli

    nsfa reproduce breast -o breast --dask --scheduler tcp://head:8786

    nsfa reproduce page synthetic ecoli -o docs
    """
    if runs and name != PAGE:
        raise BadParameter(f"only page takes directories of results. Got {str(runs[0])!r}.")
    if name == PLAN:
        _tell_plan(talk, quick)
        return
    if output is None:
        raise BadParameter("a directory to write to is needed.", param_hint="'-o' / '--output'")
    if name == PAGE:
        _write_page(talk, runs or [], output)
        return
    cluster.check_tasks(where, jobs)
    _run(talk, name, output, quick, jobs, where)
    files = sorted(path.name for path in output.iterdir())
    _tell_written(talk, {"experiment": name, "output": str(output), "files": files}, output)


def _run(talk: TalkOptions, name: str, output: Path, quick: bool, jobs: int | None, where: TaskOptions) -> None:
    from nsfa import experiments

    def show(step: Any) -> None:
        if not talk.quiet:
            tell_progress(f"{step.done}/{step.total}  {step.label}  {_left(step.seconds_left)}")

    try:
        with quiet_library(talk.quiet), cluster.connection(where):
            n_jobs = cluster.jobs_of(where, jobs)
            experiments.run(name, output, quick=quick, progress=show, n_jobs=n_jobs)
    except KeyboardInterrupt:
        note("Interrupted. The same command goes on.")
        raise Exit(INTERRUPTED) from None


def _write_page(talk: TalkOptions, runs: list[Path], docs: Path) -> None:
    from nsfa.experiments.page import write_page

    page = write_page(runs, docs)
    _tell_written(talk, {"page": str(page)}, page)


def _tell_plan(talk: TalkOptions, quick: bool) -> None:
    """Tasks and guessed core seconds of every experiment."""
    from nsfa.experiments import cost

    plans = cost(quick)
    if talk.json:
        say_json(plans)
        return
    total = {what: sum(plan[what] for plan in plans.values()) for what in ("tasks", "seconds")}
    say(f"{'experiment':<14}{'tasks':>7}{'core seconds':>14}")
    for name, plan in {**plans, "all": total}.items():
        say(f"{name:<14}{plan['tasks']:>7}{plan['seconds']:>14.0f}")


def _tell_written(talk: TalkOptions, found: dict[str, Any], path: Path) -> None:
    if talk.json:
        say_json(found)
    elif not talk.quiet:
        say(f"Written: {path}")


def _left(seconds: float) -> str:
    return f"{duration(seconds)} left" if seconds > 0 else ""
