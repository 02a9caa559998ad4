"""Runs whose table is in blocks on Dask workers: what the options mean, and what is written otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsfa.cli.options import ClusterOptions, ReadingOptions, ReportOptions, TableOptions, TaskOptions
from nsfa.cli.output import SCORES
from nsfa.cli.words import note

if TYPE_CHECKING:
    from nsfa.posterior import Posterior
    from nsfa.readers import Table

_READ = ("samples_in_rows", "log2", "layer")


def check(where: ClusterOptions, reading: TableOptions, wanted: ReportOptions) -> None:
    """Raise ValueError about options that do not go together."""
    _check_scheduler(where)
    if where.dask:
        _refuse({name: getattr(reading, name) for name in ("min_variance", "top_genes", "genes")})
        check_results(wanted)


def check_results(wanted: ReportOptions) -> None:
    """Raise ValueError about results that need a table whose samples are at hand, of one that was in blocks."""
    _refuse({"annotations": wanted.annotations, "impute": wanted.impute or None})


def _refuse(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if value is not None:
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"With --dask a table is fitted as it is. Got {flag}; leave it out, or fit a smaller file in memory."
            )


def check_tasks(where: TaskOptions, jobs: int | None) -> None:
    """Raise ValueError about options that do not go together, of fits that may be tasks."""
    _check_scheduler(where)
    if where.dask and jobs is not None:
        raise ValueError(f"--jobs is for processes of this machine, and this run has --dask. Got {jobs}; leave it out.")


def _check_scheduler(where: ClusterOptions) -> None:
    if where.scheduler is not None and not where.dask:
        raise ValueError(f"--scheduler is for --dask. Got {where.scheduler} without it; add --dask.")


def jobs_of(where: TaskOptions, jobs: int | None) -> int | str | None:
    """``n_jobs`` of fits that may be tasks."""
    return "dask" if where.dask else jobs


def connection(where: ClusterOptions) -> AbstractContextManager[Any]:
    """The workers that the options ask for, while they are needed."""
    if not where.dask:
        return nullcontext()
    from nsfa.counts import core_count
    from nsfa.kernels.dask_blocks import connected

    return connected(where.scheduler, core_count())


def read_blocks(table: Path, reading: ReadingOptions, quiet: bool) -> Table:
    """Say where a table's blocks are, and what was noticed."""
    from nsfa.cli.errors import in_command_words
    from nsfa.readers.lazy import read_lazily

    read = read_lazily(table, **{name: getattr(reading, name) for name in _READ})
    read = replace(read, notes=[in_command_words(text) for text in read.notes])
    for text in [] if quiet else read.notes:
        note(text)
    return read


def options_of(config: Mapping[str, Any], scheduler: str | None = None) -> ClusterOptions:
    """Where the table of a run was, or its fits; from now on with the workers of another ``scheduler``, if given."""
    known = {field.name for field in fields(ClusterOptions)}
    before = ClusterOptions(**{name: value for name, value in config.get("cluster", {}).items() if name in known})
    if scheduler is None:
        return before
    if not before.dask:
        raise ValueError(
            f"--scheduler is for runs that were begun with --dask. Got {scheduler} for one that was not; leave it out."
        )
    return replace(before, scheduler=scheduler)


def table_of(config: Mapping[str, Any], where: ClusterOptions) -> Any:
    """The table of a run again, in blocks; None where the run keeps it."""
    if not where.dask:
        return None
    known = {name: value for name, value in config["table"].items() if name in _READ}
    return read_blocks(Path(config["input"]["path"]), ReadingOptions(**known), quiet=True).X


def write_scores(out: Path, posterior: Posterior, X: Any) -> None:
    """Write ``scores.zarr``, samples × factors in the table's order; each block by a worker."""
    from nsfa.kernels.dask_blocks import write_zarr

    if posterior.n_components_:
        write_zarr(posterior.transform(X), out / SCORES)
