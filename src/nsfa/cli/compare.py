"""``nsfa compare``: several models on the same held-out entries."""

from __future__ import annotations

import math
import shlex
import warnings
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table as RichTable
from typer import Exit, Option

from nsfa.cli import cluster
from nsfa.cli.errors import INTERRUPTED, NOT_CONVERGED, Interrupts, quiet_library
from nsfa.cli.fit import Output, TableArgument, absolute_paths, check_memory, describe_input, make_estimator, read_input
from nsfa.cli.options import (
    ModelName,
    ModelOptions,
    RunOptions,
    SamplingOptions,
    TableOptions,
    TaskOptions,
    WorkOptions,
    takes,
)
from nsfa.cli.output import COMPARISON, FITS, check_free, claim, files, half_compared, held, write_csv, write_figures
from nsfa.cli.run import resume_words
from nsfa.cli.settings import Sections, change_config, command_line, read_config, section, write_config
from nsfa.cli.words import note, say, say_json
from nsfa.cli.words import out as console
from nsfa.model.presets import PRESETS

MODELS, SPLITS, HOLDOUT = "nsfa", 10, 0.1
# what a model's name may end in, and what it means
KINDS: dict[str, dict[str, str]] = {
    "": {},
    "robust": {"noise": "robust"},
    "counts": {"likelihood": "counts"},
    "binary": {"likelihood": "binary"},
}


@takes(TableOptions, SamplingOptions, RunOptions, TaskOptions)
def compare(
    reading: TableOptions,
    sampling: SamplingOptions,
    run: RunOptions,
    where: TaskOptions,
    table: TableArgument,
    output: Output,
    models: Annotated[
        str, Option(help="Models, each with its number of factors: nsfa,sfa:20,spca:10; +robust, +counts, +binary.")
    ] = MODELS,
    splits: Annotated[int, Option(min=1, help="How often to hide entries, others each time.")] = SPLITS,
    holdout: Annotated[float, Option(help="Share of the entries to hide.")] = HOLDOUT,
) -> None:
    """Hide entries of a table, fit several models to the rest, and score what they say about the hidden ones.

    Writes comparison.csv, a row per model and split, and figures. Every finished fit is kept at once: after Ctrl-C or
    SIGTERM the same command, or [bold]nsfa resume[/bold], goes on.

    [bold]Examples[/bold]

    nsfa compare expression.csv --models nsfa,sfa:20,fa:20 --splits 10 -o comparison

    nsfa compare expression.csv --models fa:5,fa:10,fa:20 --top-genes 500 -o how-many-factors

    nsfa compare expression.csv --models nsfa,nsfa+robust -o outliers
    """
    how = {"models": models, "splits": splits, "holdout": holdout}
    run_comparison(reading, sampling, run, where, table, output, how)


def run_comparison(
    reading: TableOptions,
    sampling: SamplingOptions,
    run: RunOptions,
    where: TaskOptions,
    table: Path,
    out: Path,
    how: dict[str, Any],
) -> None:
    """Compare from the start, or go on where an interrupted comparison is; ``how`` has models, splits and holdout."""
    cluster.check_tasks(where, run.jobs)
    estimators = parse_models(how["models"], sampling)
    goes_on = half_compared(out) and not run.force
    if not goes_on:
        check_free(out, run.force)
    # what one of the models answers is not for a note to ask
    special = max((word.partition("+")[2] for word in estimators), default="")
    read = read_input(table, reading, run.quiet, **KINDS[special])
    if not run.ignore_memory and not where.dask:
        _check_memory(read.shape, estimators, sampling, run.jobs, how["splits"])
    source, reading = describe_input(table, read), absolute_paths(reading, "genes")
    sections = {"input": source, "table": section(reading), "sampling": section(sampling), "comparison": how}
    if goes_on:
        check_same(out, sections)
    place, last_words = held(out) if goes_on else claim(out, run.force, FITS), f"Ended at once. {resume_words(out)}."
    with place, quiet_library(run.quiet), Interrupts(last_words, "scores of the fits") as interrupts:
        if goes_on and not half_compared(out):
            # another command has finished it
            check_free(out, run.force)
        if not goes_on:
            command = command_line("compare", source["path"], out.absolute(), reading, sampling, where)
            options = [word for key, value in how.items() for word in (f"--{key}", str(value))]
            write_config(out, f"{command} {shlex.join(options)}", {**sections, "cluster": section(where)})
        with cluster.connection(where):
            if goes_on:
                change_config(out, {"cluster": asdict(where)})
            frame = fit_all(out, read, estimators, how, sampling, run.quiet, cluster.jobs_of(where, run.jobs))
    total = len(estimators) * how["splits"]
    if len(frame) == total:
        (out / FITS).unlink(missing_ok=True)
    if run.json or not run.quiet:
        tell(out, frame, run.json)
    if len(frame) < total:
        note(f"Interrupted after {len(frame)} of {total} fits. {resume_words(out)}, and so does the same command.")
        raise Exit(interrupts.code or INTERRUPTED)
    if run.require_convergence and not all_converged(frame):
        raise Exit(NOT_CONVERGED)


def _check_memory(
    shape: tuple[int, int], estimators: dict[str, Any], sampling: SamplingOptions, jobs: int | None, splits: int
) -> None:
    for word in estimators:
        name, _, number = word.partition("+")[0].partition(":")
        if name != "spca":
            options = ModelOptions(model=ModelName(name), n_components=int(number) if number else None)
            check_memory(shape, options, sampling, jobs, fits=splits * len(estimators))


def check_same(out: Path, sections: Sections) -> None:
    """Raise ValueError unless an interrupted comparison was begun with the same table and settings."""
    before = read_config(out)
    for name, values in sections.items():
        for key in dict.fromkeys([*before.get(name, {}), *values]):
            old, new = before.get(name, {}).get(key), values.get(key)
            # where the table lies has no part in the scores
            if old != new and key != "path":
                raise ValueError(
                    f"{out} holds an interrupted comparison with another {key.replace('_', '-')} ({old}, now {new}). "
                    f"{resume_words(out)} with that; choose another name, or replace it with --force."
                )


def resume(out: Path, work: WorkOptions, scheduler: str | None = None) -> None:
    """Go on with an interrupted comparison, by its own settings, or with another Dask ``scheduler``."""
    config = read_config(out)
    before = cluster.options_of(config, scheduler)
    how, given = config.get("comparison", {}), dict(config.get("table", {}))
    if not how:
        raise ValueError(f"{out} must have the config.toml of its comparison. Got none; repeat the command.")
    if "genes" in given:
        given["genes"] = Path(given["genes"])
    run = RunOptions(**{field.name: getattr(work, field.name) for field in fields(work)})
    table, sampling = Path(config["input"]["path"]), SamplingOptions(**config["sampling"])
    where = TaskOptions(before.dask, before.scheduler)
    run_comparison(TableOptions(**given), sampling, run, where, table, out, how)


def fit_all(
    out: Path,
    read: Any,
    estimators: dict[str, Any],
    how: dict[str, Any],
    sampling: SamplingOptions,
    quiet: bool,
    n_jobs: int | str | None,
) -> Any:
    """Make the fits that are not done; write figures and comparison.csv, the sign that all are."""
    import nsfa

    # said after the table
    warnings.filterwarnings("ignore", "Interrupted after")
    frame = nsfa.compare(
        read.frame(), estimators, holdout=how["holdout"], splits=how["splits"], random_state=sampling.seed,
        n_jobs=n_jobs, progress=not quiet, store=out / FITS,
    )  # fmt: skip
    if len(frame) == len(estimators) * how["splits"]:
        from nsfa import pl

        known = [metric for metric in ("lppd", "rmse") if frame[metric].notna().any()]
        write_figures(out, {metric: partial(pl.compare, frame, metric) for metric in known})
        write_csv(out / COMPARISON, frame, None)
    return frame


def parse_models(text: str, sampling: SamplingOptions) -> dict[str, Any]:
    """The estimators named by "nsfa,sfa:20,spca:10"."""
    found: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        plain, _, kind = word.partition("+")
        name, _, number = plain.partition(":")
        if name not in (*PRESETS, "spca") or (number and not (number.isdecimal() and int(number))):
            known = ", ".join([*PRESETS, "spca"])
            raise ValueError(f"--models must be names ({known}), each with :factors. Got {word!r}; write nsfa,sfa:20.")
        if kind not in KINDS or (kind and name == "spca"):
            known = ", ".join(f"+{kind}" for kind in KINDS if kind)
            raise ValueError(f"--models may end in {known}, but for spca. Got {word!r}; write nsfa,nsfa+robust.")
        found[word] = _estimator(name, int(number) if number else None, sampling)
        if KINDS[kind]:
            found[word].set_params(**KINDS[kind])
    if not found:
        raise ValueError("--models must name a model. Got none; write nsfa,sfa:20.")
    return found


def _estimator(name: str, n_components: int | None, sampling: SamplingOptions) -> Any:
    if name != "spca":
        if name == "nsfa" and n_components is not None:
            raise ValueError(
                f"nsfa infers its number of factors. Got 'nsfa:{n_components}'; write nsfa, or sfa:{n_components}."
            )
        if name != "nsfa" and n_components is None:
            raise ValueError(f"--models must give {name} its number of factors. Got {name!r}; write {name}:20.")
        model = make_estimator(ModelOptions(model=ModelName(name), n_components=n_components), sampling, None)
        # each split has a seed of its own
        return model.set_params(random_state=None)
    import nsfa

    if n_components is None:
        raise ValueError("--models must give spca its number of factors. Got 'spca'; write spca:20.")
    return nsfa.SPCA(n_components=n_components)


def all_converged(frame: Any) -> bool:
    """Whether every fit that can say so has converged."""
    return bool(frame["converged"].dropna().astype(bool).all())


def tell(out: Path, frame: Any, as_json: bool) -> None:
    """Means over the splits, best first."""
    means = frame.groupby("model", sort=False)[["lppd", "rmse", "K", "seconds"]].mean().sort_values("rmse")
    means["converged"] = [_share(frame, name) for name in means.index]
    rows = [(name, *row) for name, row in zip(means.index, means.to_numpy(dtype=float).tolist(), strict=True)]
    if as_json:
        keys = ("model", *means.columns)
        clean = [[value if isinstance(value, str) or math.isfinite(value) else None for value in row] for row in rows]
        converged = all_converged(frame)
        listed = [dict(zip(keys, row, strict=True)) for row in clean]
        say_json({"models": listed, "converged": converged, "output": str(out), "files": files(out)})
        return
    shown = RichTable("model", *(f"{name}" for name in means.columns), box=None)
    for name, *values in rows:
        lppd, rmse, k, seconds, share = ("–" if math.isnan(v) else v for v in values)
        cells = [_digits(lppd, 4), _digits(rmse, 4), _digits(k, 1), _digits(seconds, 1)]
        shown.add_row(name, *cells, share if isinstance(share, str) else f"{share:.0%}")
    console.print(shown)
    made = sorted(frame.groupby("model")["split"].nunique())
    # an interrupt leaves some models with fewer
    splits = f"{made[0]} to {made[-1]}" if made[0] < made[-1] else f"{made[0]}"
    where = f" Table: {out / COMPARISON}" if (out / COMPARISON).exists() else ""
    say(f"Means of {splits} split(s); lppd: higher is better, rmse: lower is better.{where}")


def _digits(value: Any, digits: int) -> str:
    return value if isinstance(value, str) else f"{value:.{digits}f}"


def _share(frame: Any, name: str) -> float:
    """Share of a model's fits that converged; NaN for models that cannot say."""
    said = frame.loc[frame["model"] == name, "converged"].dropna()
    return float(said.astype(bool).mean()) if len(said) else math.nan
