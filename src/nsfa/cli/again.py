"""``nsfa resume`` and ``nsfa report``: go on with a run, or write its results anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from nsfa.cli.options import ReportOptions, VerdictOptions, WorkOptions, takes
from nsfa.cli.output import DRAWS
from nsfa.cli.run import complete
from nsfa.cli.settings import change_config, read_config, report_options

Run = Annotated[Path, Argument(metavar="OUT", help="Output directory of a run.", show_default=False)]


def draws_of(out: Path) -> Path:
    """The store in an output directory; ValueError if there is none."""
    if not (out / DRAWS).exists():
        raise ValueError(f"{out} must be the output directory of a run. Got one without draws; start with nsfa fit.")
    return out / DRAWS


@takes(WorkOptions)
def resume(
    work: WorkOptions,
    out: Run,
    draws: Annotated[int | None, Option(min=1, help="Add so many draws per chain to a finished run.")] = None,
) -> None:
    """Go on with a run from where it stopped; or add draws to a finished one.

    What comes out is the same to the last bit as if the run had never stopped.

    [bold]Examples[/bold]

    nsfa resume results

    nsfa resume results --draws 1000
    """
    import nsfa

    store, config = draws_of(out), read_config(out)

    def sampler(monitor: Any) -> Any:
        posterior = nsfa.resume(store, draws=draws, n_jobs=work.jobs, monitor=monitor)
        change_config(out, {"sampling": {"draws": posterior.length.draws}})
        return posterior

    complete(out, sampler, config.get("sampling", {}).get("chains", 4), report_options(config), work)


@takes(VerdictOptions)
def report(
    talk: VerdictOptions,
    out: Run,
    title: Annotated[str | None, Option(help="Another title.")] = None,
    impute: Annotated[bool, Option("--impute", help="Also write imputed.csv.")] = False,
) -> None:
    """Write report.html, the tables and the figures of a run anew, from its draws.

    [bold]Examples[/bold]

    nsfa report results

    nsfa report results --title "Prostate, all samples" --impute
    """
    import nsfa

    store, before = draws_of(out), report_options(read_config(out))
    wanted = ReportOptions(before.annotations, before.gene_sets, title or before.title, impute or before.impute)
    change = {"title": title, "impute": impute or None}
    change_config(out, {"results": {key: value for key, value in change.items() if value is not None}})
    complete(out, lambda monitor: nsfa.load(store), 0, replace(wanted, report=True), talk)
