"""``nsfa reproduce``: the figures and tables of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from nsfa.cli.errors import INTERRUPTED, quiet_library
from nsfa.cli.options import TalkOptions, takes
from nsfa.cli.words import note, say, say_json, tell_progress
from nsfa.progress import duration


@takes(TalkOptions)
def reproduce(
    talk: TalkOptions,
    name: Annotated[
        str,
        Argument(metavar="NAME", help="synthetic, convergence, ecoli, breast, prostate or ibp.", show_default=False),
    ],
    output: Annotated[
        Path, Option("-o", "--output", help="Directory for the results; new, or of the same experiment.")
    ],
    quick: Annotated[bool, Option("--quick", help="A small version, a minute or two.")] = False,
    jobs: Annotated[int | None, Option("--jobs", "-j", "--threads", help="Tasks that run at once.")] = None,
) -> None:
    """Repeat an experiment of Knowles & Ghahramani (2011), and write its tables and figures.

    The same command goes on with an interrupted one.

    [bold]Examples[/bold]

    nsfa reproduce synthetic -o synthetic --quick

    nsfa reproduce ecoli -o ecoli
    """
    from nsfa import experiments

    def show(step: Any) -> None:
        if not talk.quiet:
            tell_progress(f"{step.done}/{step.total}  {step.label}  {_left(step.seconds_left)}")

    try:
        with quiet_library(talk.quiet):
            experiments.run(name, output, quick=quick, progress=show, n_jobs=jobs)
    except KeyboardInterrupt:
        note("Interrupted. The same command goes on.")
        raise Exit(INTERRUPTED) from None
    if talk.json:
        files = sorted(path.name for path in output.iterdir())
        say_json({"experiment": name, "output": str(output), "files": files})
    elif not talk.quiet:
        say(f"Written: {output}")


def _left(seconds: float) -> str:
    return f"{duration(seconds)} left" if seconds > 0 else ""
