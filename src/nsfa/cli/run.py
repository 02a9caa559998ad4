"""The course of a run, the same for ``fit``, ``demo``, ``resume`` and ``report``: sample, write, say, exit."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nsfa.cli.errors import INTERRUPTED, NOT_CONVERGED, PARTLY_CONVERGED, Interrupts, quiet_library
from nsfa.cli.options import ReportOptions, RunOptions, VerdictOptions
from nsfa.cli.output import DRAWS, GENE_SETS, REPORT, TABLE, claim, files, write_csv, write_text
from nsfa.cli.progress import duration, not_compiled, watch
from nsfa.cli.results import summary, write_results, write_samples
from nsfa.cli.settings import Sections, change_config, read_config, section, write_config
from nsfa.cli.words import note, say, say_json, tell_progress

if TYPE_CHECKING:
    from nsfa.posterior import Posterior
    from nsfa.readers import Table
    from nsfa.runner import Monitor

Sampler = Callable[["Monitor"], "Posterior"]


@dataclass(frozen=True)
class Plan:
    """What a new run needs: the estimator, the table, and what to write down about both."""

    estimator: Any
    table: Table
    command: str
    sections: Sections
    wanted: ReportOptions
    annotations: Any = None
    gene_sets: dict[str, list[str]] | None = None
    keep_table: bool = False


def start(out: Path, plan: Plan, run: RunOptions) -> Posterior:
    """Fit, with the draws on disk from the first one, and write the results."""
    with claim(out, run.force):
        write_config(out, plan.command, {**plan.sections, "results": section(plan.wanted)})
        write_samples(out, plan.table.sample_names, plan.annotations)
        if plan.gene_sets is not None:
            write_gene_sets(out, plan.gene_sets)
        if plan.keep_table:
            write_csv(out / TABLE, plan.table.frame().T, "gene", digits=None)

        def sampler(monitor: Monitor) -> Posterior:
            posterior: Posterior = plan.estimator.fit(plan.table.X, store=out / DRAWS, monitor=monitor).posterior_
            if not posterior.length.preview and (plan.estimator.thin is None or plan.estimator.tune is None):
                change_config(out, {"sampling": {"tune": posterior.length.tune, "thin": posterior.length.thin}})
            return posterior

        return complete(out, sampler, plan.estimator.chains, plan.wanted, run)


def write_gene_sets(out: Path, sets: dict[str, list[str]]) -> None:
    """Keep the gene sets beside the draws."""
    write_text(out / GENE_SETS, "".join("\t".join([name, "", *genes]) + "\n" for name, genes in sets.items()))


def resume_words(out: Path) -> str:
    """What to type to go on."""
    return f"nsfa resume {shlex.quote(str(out))} goes on"


def complete(out: Path, sampler: Sampler, chains: int, wanted: ReportOptions, talk: VerdictOptions) -> Posterior:
    """Run ``sampler`` with its progress shown, write what came of it, and say so; exits unless all is well."""
    begun = time.monotonic()
    with quiet_library(talk.quiet), Interrupts(f"Ended at once. {resume_words(out)}.") as interrupts:
        if chains and not talk.quiet and not_compiled():
            tell_progress("Compiling for this machine, once after installation: less than a minute.")
        with _no_draws_yet(out, interrupts), watch(chains, talk.quiet) as monitor:
            posterior = sampler(monitor)
        with _half_written(out):
            write_results(out, posterior, wanted, read_config(out))
            found = {**summary(posterior), "seconds": round(time.monotonic() - begun, 3), "output": str(out)}
            found["files"] = files(out)
    if talk.json:
        say_json(found)
    elif not talk.quiet:
        tell(out, found)
    if interrupts.count:
        made = f"{found['draws_per_chain']} draws of {found['chains']} chain(s)"
        note(f"Interrupted after {made}; the results rest on these. {resume_words(out)}.")
        raise typer.Exit(INTERRUPTED)
    if talk.require_convergence and found["chains"] == 1:
        note("One chain has nothing to agree with: convergence needs at least two (--chains).")
        raise typer.Exit(NOT_CONVERGED)
    if talk.require_convergence and not found["converged"]:
        raise typer.Exit(PARTLY_CONVERGED if found["partly_converged"] else NOT_CONVERGED)
    return posterior


@contextmanager
def _no_draws_yet(out: Path, interrupts: Interrupts) -> Iterator[None]:
    """Ctrl-C before the first draw is an interrupt and no error, whatever the chains make of it."""
    try:
        yield
    except (KeyboardInterrupt, RuntimeError):
        if not interrupts.count:
            raise
        begun = (out / DRAWS).exists()
        note(f"Interrupted before the first draw. {resume_words(out)}." if begun else "Interrupted.")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _half_written(out: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        again = f"nsfa report {shlex.quote(str(out))} writes the rest"
        note(f"Interrupted while writing the results; the draws are safe. {again}.")
        raise typer.Exit(INTERRUPTED) from None


def tell(out: Path, found: dict[str, Any]) -> None:
    """The end of a run in plain words: what was found, whether to believe it, what to do next."""
    for line in _numbers(found):
        say(line)
    say(found["verdict"], style="green" if found["converged"] and found["chains"] > 1 else "yellow")
    if found["n_outlying"]:
        which = "factor rests" if found["n_outlying"] == 1 else "factors rest"
        say(f"{found['n_outlying']} {which} on one or two samples: see two_samples in factors.csv.", style="yellow")
    if found["advice"] is not None:
        from nsfa.posterior.advice import Advice

        say(Advice(**found["advice"]).for_command(shlex.quote(str(out))))
    report = out / REPORT
    where = f"Report: {report}" if report.exists() else f"Tables: {out}"
    say(f"{where}  ({duration(found['seconds'])})")


def _numbers(found: dict[str, Any]) -> list[str]:
    """How many factors: substantial ones first, then of any size, where the two differ and are not given."""
    from nsfa.draws.draw import SUBSTANTIAL

    n, large = found["n_components"], found["n_substantial"]
    substantial, every = found["n_substantial_posterior"], found["n_components_posterior"]
    recur = f"recur{'s' if n == 1 else ''} in more than half of the draws."
    if substantial == every:
        return [f"{n} factor{'s' if n != 1 else ''} {recur} {_likely('factors', every)}"]
    smaller = f", and {n - large} smaller, " if n > large else " "
    factors = f"{large} substantial factor{'s' if large != 1 else ''} ({SUBSTANTIAL} genes or more){smaller}{recur}"
    given = len(every) == 1
    return [
        factors,
        _likely("substantial factors", substantial) + ("" if given else f" {_likely('factors of any size', every)}"),
    ]


def _likely(kind: str, shares: dict[str, float]) -> str:
    top = sorted(shares.items(), key=lambda item: -item[1])[:4]
    return f"Number of {kind}: {', '.join(f'{n} ({share:.0%})' for n, share in top if share >= 0.01)}."
