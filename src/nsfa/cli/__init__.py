"""The ``nsfa`` command: a thin caller of the library."""

from __future__ import annotations

from typing import Annotated

import typer

from nsfa.cli import again, compare, demo, fit, info, reproduce, transform
from nsfa.cli.errors import CommandGroup
from nsfa.cli.options import takes
from nsfa.cli.words import say
from nsfa.version import __version__

__all__ = ["app"]

app = typer.Typer(
    name="nsfa",
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"nsfa {__version__}")
        raise typer.Exit


@app.callback()
@takes()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Bayesian sparse factor analysis: how many hidden factors, which genes belong to each, and how sure we are.

    Results go to standard output, progress and errors to standard error. Exit codes: 0 done, 1 an error that the
    message explains, 2 or 3 not converged (with --require-convergence), 130 interrupted, 143 terminated (SIGTERM).

    [bold]Examples[/bold]

    nsfa demo

    nsfa fit expression.csv -o results

    nsfa resume results --draws 1000
    """


for command in (
    demo.demo, fit.fit, again.resume, again.report, transform.transform, compare.compare, reproduce.reproduce,
    info.info,
):  # fmt: skip
    app.command()(command)
