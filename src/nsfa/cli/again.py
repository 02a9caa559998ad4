"""``nsfa resume`` and ``nsfa report``: go on with a run, or write its results anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from nsfa.cli import cluster, companions, compare
from nsfa.cli.errors import quiet_library
from nsfa.cli.fit import absolute_paths
from nsfa.cli.options import COMPANIONS, ReportOptions, VerdictOptions, WorkOptions, takes
from nsfa.cli.output import COMPARISON, DRAWS, half_compared
from nsfa.cli.run import complete
from nsfa.cli.settings import change_config, read_config, report_options

if TYPE_CHECKING:
    from nsfa.data import Observed

Run = Annotated[Path, Argument(metavar="OUT", help="Output directory of a run.", show_default=False)]


def draws_of(out: Path) -> Path:
    """The store in an output directory; ValueError if there is none."""
    if not (out / DRAWS).exists():
        if (out / COMPARISON).is_file():
            raise ValueError(f"{out} holds a finished comparison, {out / COMPARISON}: there is nothing to go on with.")
        what = "one without draws" if out.is_dir() else "a file" if out.exists() else "nothing of that name"
        raise ValueError(f"{out} must be the output directory of a run. Got {what}; start with nsfa fit.")
    return out / DRAWS


@takes(WorkOptions)
def resume(
    work: WorkOptions,
    out: Run,
    draws: Annotated[int | None, Option(min=1, help="Add so many draws per chain to a finished run.")] = None,
    scheduler: Annotated[
        str | None, Option(metavar="ADDRESS", help="Another Dask scheduler, for a run with --dask.")
    ] = None,
) -> None:
    """Go on with a run from where it stopped; or add draws to a finished one.

    What comes out is the same to the last bit as if the run had never stopped. An interrupted comparison goes on, too.

    [bold]Examples[/bold]

    nsfa resume results

    nsfa resume results --draws 1000

    nsfa resume results --scheduler tcp://other:8786
    """
    import nsfa
    from nsfa.draws.store import open_store

    if half_compared(out):
        if draws is not None:
            raise ValueError(f"--draws is for runs of nsfa fit. Got it with {out}, a comparison; leave it out.")
        compare.resume(out, work, scheduler)
        return
    store, config = draws_of(out), read_config(out)
    where = cluster.options_of(config, scheduler)

    def sampler(monitor: Any) -> Any:
        posterior = nsfa.resume(store, draws=draws, n_jobs=work.jobs, monitor=monitor, X=table)
        if posterior.resolved:
            change_config(out, {"sampling": posterior.resolved}, also=("estimator",))
        return posterior

    table = cluster.table_of(config, where)
    with cluster.connection(where):
        if scheduler is not None:
            change_config(out, {"cluster": {"scheduler": scheduler}})
        complete(out, sampler, open_store(store).settings.chains, report_options(config), work, table)


def keep_companions(out: Path, new: ReportOptions, data: Observed, quiet: bool) -> None:
    """Put annotations, gene sets and symbols that came later beside the draws."""
    samples, genes = companions.read_samples(out, data.shape[1]).index, data.names
    kept = companions.Companions(gene_names=companions.read_kept_names(out, genes))
    annotations, sets, names = companions.read_companions(new, samples, genes, kept, quiet)
    if annotations is not None:
        companions.write_samples(out, samples, annotations)
    companions.write_gene_lists(out, sets, names)


@takes(VerdictOptions)
def report(
    talk: VerdictOptions,
    out: Run,
    title: Annotated[str | None, Option(help="Another title.")] = None,
    impute: Annotated[bool, Option("--impute", help="Also write imputed.csv.")] = False,
    annotations: Annotated[Path | None, Option(help="Table of sample labels, in place of the run's.")] = None,
    gene_sets: Annotated[Path | None, Option(help="Gene sets (.gmt), in place of the run's.")] = None,
    gene_names: Annotated[Path | None, Option(help="Table of gene ids and symbols, in place of the run's.")] = None,
) -> None:
    """Write report.html, the tables and the figures of a run anew, from its draws.

    [bold]Examples[/bold]

    nsfa report results

    nsfa report results --title "Prostate, all samples" --impute

    nsfa report results --annotations samples.csv --gene-sets hallmark.gmt --gene-names symbols.csv
    """
    import nsfa

    store, before = draws_of(out), report_options(read_config(out))
    new = absolute_paths(ReportOptions(annotations, gene_sets, gene_names, impute=impute), *COMPANIONS)
    with quiet_library(talk.quiet):
        posterior = nsfa.load(store)
    if posterior.data.elsewhere:
        cluster.check_results(new)
    keep_companions(out, new, posterior.data, talk.quiet)
    wanted = replace(before, title=title or before.title, impute=impute or before.impute, report=True)
    change = {
        "title": title, "impute": impute or None, "report": None if before.report else True,
        **{name: getattr(new, name) for name in COMPANIONS},
    }  # fmt: skip
    change_config(out, {"results": {key: value for key, value in change.items() if value is not None}})
    complete(out, lambda monitor: posterior, 0, wanted, talk)
