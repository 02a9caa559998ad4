"""``nsfa reproduce``: the figures and tables of the paper."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Option

from nsfa.cli.errors import quiet_library
from nsfa.cli.fit import Output
from nsfa.cli.options import TalkOptions, takes
from nsfa.cli.words import err, plain, say, say_json


@takes(TalkOptions)
def reproduce(
    talk: TalkOptions,
    name: Annotated[
        str,
        Argument(metavar="NAME", help="synthetic, convergence, ecoli, breast, prostate or ibp.", show_default=False),
    ],
    output: Output,
    quick: Annotated[bool, Option("--quick", help="A small version that ends in minutes.")] = False,
) -> None:
    """Repeat an experiment of Knowles & Ghahramani (2011), and write its tables and figures.

    [bold]Examples[/bold]

    nsfa reproduce synthetic -o synthetic --quick

    nsfa reproduce ecoli -o ecoli
    """
    from nsfa import experiments

    def show(text: Any) -> None:
        if not talk.quiet:
            err.print(plain(str(text)), markup=False)

    with quiet_library(talk.quiet):
        experiments.run(name, output, quick=quick, progress=show)
    if talk.json:
        say_json({"experiment": name, "output": str(output), "files": sorted(p.name for p in output.iterdir())})
    elif not talk.quiet:
        say(f"Written: {output}")
