"""``nsfa fit``: a table in, factors out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from typer import Argument, Option

from nsfa.cli import cluster, memory
from nsfa.cli.companions import Companions, read_companions
from nsfa.cli.options import (
    COMPANIONS,
    ClusterOptions,
    ModelOptions,
    ReadingOptions,
    ReportOptions,
    RunOptions,
    SamplingOptions,
    ScaleName,
    SizeName,
    TableOptions,
    takes,
)
from nsfa.cli.output import check_free
from nsfa.cli.run import Plan, start
from nsfa.cli.settings import Sections, command_line, section
from nsfa.cli.words import note, tell_progress

Options = TypeVar("Options", ReportOptions, TableOptions)
TableArgument = Annotated[
    Path,
    Argument(
        metavar="TABLE",
        help="Table, genes in rows: csv or tsv (also .gz), parquet, h5ad, mtx, npy, npz, 10x folder, GEO series.",
        show_default=False,
    ),
]
Output = Annotated[Path, Option("-o", "--output", help="Directory for the results; new or empty.", show_default=False)]


@takes(TableOptions, ModelOptions, SamplingOptions, ReportOptions, RunOptions, ClusterOptions)
def fit(
    reading: TableOptions,
    model: ModelOptions,
    sampling: SamplingOptions,
    wanted: ReportOptions,
    run: RunOptions,
    where: ClusterOptions,
    table: TableArgument,
    output: Output,
) -> None:
    """Fit a model to a table, and write its draws, tables, figures and a report.

    Empty entries, NA and NaN are missing; they are integrated out. The draws are on disk from the first one: Ctrl-C
    stops cleanly with all draws so far summarised, and [bold]nsfa resume[/bold] goes on.

    [bold]Examples[/bold]

    nsfa fit expression.csv -o results

    nsfa fit expression.csv -o first-look --preview

    nsfa fit counts.tsv.gz -o results --log2 --top-genes 2000 --draws 1000

    nsfa fit counts.tsv.gz -o results --likelihood counts --top-genes 1000

    nsfa fit expression.csv -o results --annotations samples.csv --gene-sets hallmark.gmt --gene-names symbols.csv

    nsfa fit expression.csv -o results --model sfa --n-components 20 --require-convergence

    nsfa fit atlas.h5ad -o results --dask --scheduler tcp://head:8786
    """
    estimator = make_estimator(model, sampling, run.jobs)
    check_free(output, run.force)
    cluster.check(where, reading, wanted)
    if reading.log2 and model.likelihood != "gaussian":
        raise ValueError(f"--log2 is for measurements. Got it with --likelihood {model.likelihood}; leave it out.")
    if where.dask:
        read = cluster.read_blocks(table, reading, run.quiet)
    else:
        if not run.ignore_memory:
            memory.check_file(table)
        read = read_input(table, reading, run.quiet, str(model.likelihood), str(model.noise))
    given = Companions(read.annotations, None, read.symbols)
    companions = read_companions(wanted, read.sample_names, read.gene_names, given, run.quiet)
    if not run.ignore_memory and not where.dask:
        check_memory(read.shape, model, sampling, run.jobs, stored=_entries(read.X))
    source = describe_input(table, read)
    if not run.quiet:
        tell_progress(f"{source['n_genes']:,} genes × {source['n_samples']:,} samples, {_holes(source)}.")
    absolute, reading = absolute_paths(wanted, *COMPANIONS), absolute_paths(reading, "genes")
    command = command_line("fit", source["path"], output.absolute(), reading, model, sampling, absolute, where)
    sections = describe_settings(source, reading, model, sampling, estimator) | {"cluster": section(where)}
    with cluster.connection(where):
        start(output, Plan(estimator, read, command, sections, absolute, companions), run)


def _holes(source: dict[str, Any]) -> str:
    missing, size = source["missing_entries"], source["n_genes"] * source["n_samples"]
    if missing is None:
        return "in blocks that the workers read"
    return f"{missing:,} entries missing ({missing / size:.1%})" if missing else "none missing"


def read_input(
    table: Path, reading: ReadingOptions, quiet: bool, likelihood: str = "gaussian", noise: str = "diagonal"
) -> Any:
    """Read a table, and say what was noticed, but for what a ``likelihood`` of its own, or robust noise, answers."""
    from nsfa.cli.errors import in_command_words, quiet_library
    from nsfa.discrete import NO_COUNTS
    from nsfa.readers import read_table

    with quiet_library(quiet):
        read = read_table(table, **vars(reading))
    if likelihood != "gaussian" or noise == "robust":
        # what has no counts, the fit says by itself
        said = ("--noise",) if likelihood == "gaussian" else ("--noise", "--likelihood", NO_COUNTS)
        read = replace(read, notes=[text for text in read.notes if not any(word in text for word in said)])
    read = replace(read, notes=[in_command_words(text) for text in read.notes])
    for text in [] if quiet else read.notes:
        note(text)
    return read


def make_estimator(model: ModelOptions, sampling: SamplingOptions, jobs: int | None) -> Any:
    """The estimator that the options describe."""
    from nsfa.estimators import ESTIMATORS

    settings: dict[str, Any] = {
        "chains": sampling.chains, "tune": sampling.tune, "draws": sampling.draws, "thin": sampling.thin,
        "preview": sampling.preview, "random_state": sampling.seed, "n_jobs": jobs, "noise": str(model.noise),
        "likelihood": str(model.likelihood), "prior": str(model.prior), "dtype": str(model.dtype),
        "size_factors": None if model.size_factors is SizeName.none else str(model.size_factors),
        "backend": str(model.backend), "tf32": model.tf32,
        "scale": None if model.scale is ScaleName.none else str(model.scale),
    }  # fmt: skip
    if jobs == 0:
        raise ValueError("--jobs must not be 0. Got 0; leave it out to use every core.")
    if sampling.preview and sampling.tune == "auto":
        raise ValueError(
            "--preview is as short as it is however far the chains get. Got it with --tune auto; leave one of them out."
        )
    likelihood, counted = str(model.likelihood), str(model.size_factors)
    if likelihood != "counts" and counted != "total":
        raise ValueError(f"--size-factors is for --likelihood counts. Got {counted} with {likelihood}; leave it out.")
    if likelihood != "gaussian" and model.scale is ScaleName.common:
        raise ValueError(f"--scale global is for measurements. Got it with --likelihood {likelihood}; leave it out.")
    if model.model == "nsfa" and model.n_components is not None:
        raise ValueError(
            f"--n-components is for models with a fixed number of factors; nsfa infers it. Got {model.n_components}; "
            "leave it out, or use --model sfa."
        )
    if model.model != "nsfa":
        if model.n_components is None:
            raise ValueError(f"--model {model.model} must have --n-components. Got none; use nsfa to infer it.")
        settings["n_components"] = model.n_components
    if model.model in ("nsfa", "sfa"):
        settings["concentration"] = _concentration(model.concentration)
    elif model.concentration != "infer":
        raise ValueError(f"--concentration is for nsfa and sfa. Got it with --model {model.model}; leave it out.")
    return ESTIMATORS[model.model](**settings)


def _concentration(text: str) -> float | str:
    if text == "infer":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--concentration must be a number or infer. Got {text!r}.") from None


def check_memory(
    shape: tuple[int, int],
    model: ModelOptions,
    sampling: SamplingOptions,
    jobs: int | None,
    fits: int | None = None,
    stored: int | None = None,
) -> None:
    """Raise ValueError if the run will not fit into memory; or so many ``fits``, each of them on one core.

    ``stored`` counts the entries of a sparse table.
    """
    from nsfa.counts import worker_count
    from nsfa.length import preview_draws
    from nsfa.runner import TOO_LARGE_TO_COPY

    workers, single = worker_count(jobs), model.dtype == "float32"
    if jobs is None and fits is None and memory.table_bytes(shape, single, stored) > TOO_LARGE_TO_COPY:
        workers = 1
    processes, together = (min(workers, sampling.chains), 1) if fits is None else (1, min(workers, fits))
    draws = preview_draws(sampling.draws) if sampling.preview else sampling.draws
    memory.check(
        together * memory.estimate(
            shape, chains=sampling.chains, draws=draws, processes=processes, model=model.model,
            n_components=model.n_components, single=single, stored=stored,
            latent=model.noise == "robust" or model.likelihood != "gaussian",
        )
    )  # fmt: skip


def _entries(X: Any) -> int | None:
    """How many entries a sparse table has; None for a dense one."""
    return int(X.nnz) if hasattr(X, "nnz") else None


def describe_input(table: Path, read: Any) -> dict[str, Any]:
    """Where the table came from and what it was."""
    n_samples, n_genes = read.shape
    # a sparse table has no holes, and nobody has looked into one in blocks
    missing = int(read.X.isna().to_numpy().sum()) if hasattr(read.X, "isna") else 0 if hasattr(read.X, "nnz") else None
    return {
        "path": str(table.absolute()), "checksum": read.checksum, "n_samples": n_samples, "n_genes": n_genes,
        "missing_entries": missing, "notes": " ".join(read.notes) or None,
    }  # fmt: skip


def describe_settings(
    source: dict[str, Any], reading: TableOptions, model: ModelOptions, sampling: SamplingOptions, estimator: Any
) -> Sections:
    """The sections of ``config.toml``, down to settings that no option changes."""
    return {
        "input": source,
        "table": section(reading),
        "model": section(model),
        "sampling": section(sampling),
        "estimator": {"class": type(estimator).__name__, **estimator.get_params()},
    }


def absolute_paths(options: Options, *names: str) -> Options:
    """The same options with paths that hold from any directory."""
    from dataclasses import replace

    paths = {name: getattr(options, name) for name in names}
    return replace(options, **{name: path and path.absolute() for name, path in paths.items()})
