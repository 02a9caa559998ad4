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

from nsfa.cli.cluster import write_scores
from nsfa.cli.companions import Companions, write_gene_lists, write_samples
from nsfa.cli.errors import NOT_CONVERGED, PARTLY_CONVERGED, Interrupts, quiet_library
from nsfa.cli.options import ReportOptions, RunOptions, VerdictOptions
from nsfa.cli.output import DRAWS, REPORT, TABLE, claim, files, write_csv
from nsfa.cli.results import write_results
from nsfa.cli.settings import Sections, change_config, read_config, section, write_config
from nsfa.cli.words import note, say, say_json, tell_progress
from nsfa.progress import COMPILING, duration, not_compiled, watch

if TYPE_CHECKING:
    from nsfa.monitor import Monitor
    from nsfa.posterior import Posterior
    from nsfa.readers import Table

# draws have many more factors than recur: at least so many more, and such a share of those that do
MANY_MORE, MANY_MORE_SHARE = 2, 0.2

Sampler = Callable[["Monitor"], "Posterior"]


@dataclass(frozen=True)
class Plan:
    """What a new run needs: the estimator, the table, and what to write down about both."""

    estimator: Any
    table: Table
    command: str
    sections: Sections
    wanted: ReportOptions
    companions: Companions
    keep_table: bool = False

    @property
    def in_blocks(self) -> bool:
        """Whether the table is on workers, its samples without names."""
        return not self.table.sample_names


def start(out: Path, plan: Plan, run: RunOptions) -> Posterior:
    """Fit, with the draws on disk from the first one, and write the results."""
    with claim(out, run.force):
        write_config(out, plan.command, {**plan.sections, "results": section(plan.wanted)})
        annotations, sets, names = plan.companions
        if not plan.in_blocks:
            write_samples(out, plan.table.sample_names, annotations)
        write_gene_lists(out, sets, names)
        if plan.keep_table:
            write_csv(out / TABLE, plan.table.frame().T, "gene", digits=None)

        def sampler(monitor: Monitor) -> Posterior:
            posterior: Posterior = plan.estimator.fit(plan.table.X, store=out / DRAWS, monitor=monitor).posterior_
            if posterior.backend_ == "gpu" and not run.quiet:
                note("The chains ran on the GPU.")
            open_ones = {k: v for k, v in posterior.resolved.items() if getattr(plan.estimator, k) is None}
            if open_ones:
                change_config(out, {"sampling": open_ones})
            return posterior

        again = plan.table.X if plan.in_blocks else None
        return complete(out, sampler, plan.estimator.chains, plan.wanted, run, again)


def resume_words(out: Path) -> str:
    """What to type to go on."""
    return f"nsfa resume {shlex.quote(str(out))} goes on"


def complete(
    out: Path, sampler: Sampler, chains: int, wanted: ReportOptions, talk: VerdictOptions, X: Any = None
) -> Posterior:
    """Run ``sampler`` with its progress shown, write what came of it, and say so; exits unless all is well.

    ``X`` is the table where it is in blocks, for its scores.
    """
    begun = time.monotonic()
    with quiet_library(talk.quiet), Interrupts(f"Ended at once. {resume_words(out)}.") as interrupts:
        if chains and not talk.quiet and not_compiled():
            tell_progress(COMPILING)
        with _no_draws_yet(out, interrupts), watch(chains, talk.quiet) as monitor:
            posterior = sampler(monitor)
        with _half_written(out, interrupts):
            found = write_results(out, posterior, wanted, read_config(out))
            if X is not None:
                write_scores(out, posterior, X)
            found |= {"seconds": round(time.monotonic() - begun, 3), "output": str(out)}
            found["files"] = files(out)
    if talk.json:
        say_json(found)
    elif not talk.quiet:
        tell(out, found)
    if interrupts.code:
        made = f"{found['draws_per_chain']} draws of {found['chains']} chain(s)"
        note(f"Interrupted after {made}; the results rest on these. {resume_words(out)}.")
        raise typer.Exit(interrupts.code)
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
        if not interrupts.code:
            raise
        begun = (out / DRAWS).exists()
        note(f"Interrupted before the first draw. {resume_words(out)}." if begun else "Interrupted.")
        raise typer.Exit(interrupts.code) from None


@contextmanager
def _half_written(out: Path, interrupts: Interrupts) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        again = f"nsfa report {shlex.quote(str(out))} writes the rest"
        note(f"Interrupted while writing the results; the draws are safe. {again}.")
        raise typer.Exit(interrupts.code) from None


def tell(out: Path, found: dict[str, Any]) -> None:
    """The end of a run in plain words: what was found, whether to believe it, what to do next."""
    for line in _numbers(found):
        say(line)
    say(found["verdict"], style="green" if found["converged"] and found["chains"] > 1 else "yellow")
    if found["n_outlying"]:
        from nsfa.posterior.factors import OUTLYING, on_few_samples

        few = [each["factor"] for each in found["factors"] if (each["two_samples"] or 0.0) > OUTLYING]
        open_to_robust = found["share_of_outliers"] is None and found["likelihood"] == "gaussian"
        robust = "--noise robust" if open_to_robust else None
        say(on_few_samples(few, "see two_samples in factors.csv", robust), style="yellow")
    if found["poor_samples"]:
        from nsfa.readers.sheet import show_some

        some, have = show_some(found["poor_samples"]), "s have" if len(found["poor_samples"]) > 1 else " has"
        say(f"{len(found['poor_samples'])} sample{have} clearly more outliers than the others: {some}.", style="yellow")
    if found["advice"] is not None:
        from nsfa.posterior.advice import Advice

        say(Advice(**found["advice"]).for_command(shlex.quote(str(out))))
    report = out / REPORT
    where = f"Report: {report}" if report.exists() else f"Tables: {out}"
    say(f"{where}  ({duration(found['seconds'])})")


def _numbers(found: dict[str, Any]) -> list[str]:
    """How many factors: substantial ones first, then of any size, where the two differ and are not given."""
    from nsfa.draw import SUBSTANTIAL

    n, large = found["n_components"], found["n_substantial"]
    substantial, every = found["n_substantial_posterior"], found["n_components_posterior"]
    recur = f"recur{'s' if n == 1 else ''} in more than half of the draws."
    guises, none = _guises(large, substantial), "none recurs in more than half of the draws."
    if substantial == every:
        factors = f"{n} factor{'s' if n != 1 else ''} {recur}" if n else f"No factors: {none}"
        return [f"{factors} {_likely('factors', every)}{guises}"]
    smaller = f", and {n - large} smaller, " if n > large else " "
    factors = f"{large} substantial factor{'s' if large != 1 else ''} ({SUBSTANTIAL} genes or more){smaller}{recur}"
    if not large:
        factors = f"No substantial factors ({SUBSTANTIAL} genes or more): {f'{n} smaller {recur}' if n else none}"
    given = len(every) == 1
    return [
        factors,
        _likely("substantial factors", substantial)
        + guises
        + ("" if given else f" {_likely('factors of any size', every)}"),
    ]


def _guises(recurring: int, shares: dict[str, float]) -> str:
    """Why draws have more factors than recur, where they have many more."""
    mean = sum(int(n) * share for n, share in shares.items())
    if mean - recurring < max(MANY_MORE, MANY_MORE_SHARE * recurring):
        return ""
    return " Factors that come and go, or change their genes, count in a draw but do not recur."


def _likely(kind: str, shares: dict[str, float]) -> str:
    top = sorted(shares.items(), key=lambda item: -item[1])[:4]
    return f"Number of {kind}: {', '.join(f'{n} ({share:.0%})' for n, share in top if share >= 0.01)}."
