"""``nsfa resume`` and ``nsfa report``: go on with a run, or write its results anew."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from nsfa.cli.errors import quiet_library
from nsfa.cli.fit import absolute_paths, read_companions
from nsfa.cli.options import ReportOptions, VerdictOptions, WorkOptions, takes
from nsfa.cli.output import DRAWS
from nsfa.cli.results import read_samples, write_samples
from nsfa.cli.run import complete, write_gene_sets
from nsfa.cli.settings import change_config, read_config, report_options

Run = Annotated[Path, Argument(metavar="OUT", help="Output directory of a run.", show_default=False)]


def draws_of(out: Path) -> Path:
    """The store in an output directory; ValueError if there is none."""
    if not (out / DRAWS).exists():
        what = "one without draws" if out.is_dir() else "a file" if out.exists() else "nothing of that name"
        raise ValueError(f"{out} must be the output directory of a run. Got {what}; start with nsfa fit.")
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
    from nsfa.draws.store import open_store

    store, config = draws_of(out), read_config(out)

    def sampler(monitor: Any) -> Any:
        posterior = nsfa.resume(store, draws=draws, n_jobs=work.jobs, monitor=monitor)
        if not posterior.length.preview:
            change_config(out, {"sampling": asdict(posterior.length)}, also=("estimator",))
        return posterior

    complete(out, sampler, open_store(store).settings.chains, report_options(config), work)


def keep_companions(out: Path, new: ReportOptions, n_samples: int, quiet: bool) -> None:
    """Put annotations and gene sets that came later beside the draws."""
    names = read_samples(out, n_samples).index
    annotations, sets = read_companions(new, names, quiet)
    if annotations is not None:
        write_samples(out, names, annotations)
    if sets is not None:
        write_gene_sets(out, sets)


@takes(VerdictOptions)
def report(
    talk: VerdictOptions,
    out: Run,
    title: Annotated[str | None, Option(help="Another title.")] = None,
    impute: Annotated[bool, Option("--impute", help="Also write imputed.csv.")] = False,
    annotations: Annotated[Path | None, Option(help="Table of sample labels, in place of the run's.")] = None,
    gene_sets: Annotated[Path | None, Option(help="Gene sets (.gmt), in place of the run's.")] = None,
) -> None:
    """Write report.html, the tables and the figures of a run anew, from its draws.

    [bold]Examples[/bold]

    nsfa report results

    nsfa report results --title "Prostate, all samples" --impute

    nsfa report results --annotations samples.csv --gene-sets hallmark.gmt
    """
    import nsfa

    store, before = draws_of(out), report_options(read_config(out))
    new = absolute_paths(ReportOptions(annotations, gene_sets), "annotations", "gene_sets")
    with quiet_library(talk.quiet):
        posterior = nsfa.load(store)
    keep_companions(out, new, posterior.data.shape[1], talk.quiet)
    wanted = ReportOptions(
        new.annotations or before.annotations, new.gene_sets or before.gene_sets, title or before.title,
        impute or before.impute,
    )  # fmt: skip
    change = {
        "title": title, "impute": impute or None, "annotations": new.annotations, "gene_sets": new.gene_sets,
        "report": None if before.report else True,
    }  # fmt: skip
    change_config(out, {"results": {key: value for key, value in change.items() if value is not None}})
    complete(out, lambda monitor: posterior, 0, replace(wanted, report=True), talk)
