"""``nsfa compare``: several models on the same held-out entries."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table as RichTable
from typer import Exit, Option

from nsfa.cli.errors import NOT_CONVERGED, quiet_library
from nsfa.cli.fit import Output, Table, absolute_paths, check_memory, describe_input, make_estimator, read_input
from nsfa.cli.options import Model, ModelOptions, RunOptions, SamplingOptions, TableOptions, takes
from nsfa.cli.output import COMPARISON, FIGURES, check_free, claim, files, replacing, write_csv
from nsfa.cli.settings import command_line, section, write_config
from nsfa.cli.words import out as console
from nsfa.cli.words import say, say_json

MODELS, SPLITS, HOLDOUT = "nsfa", 10, 0.1


@takes(TableOptions, SamplingOptions, RunOptions)
def compare(
    reading: TableOptions,
    sampling: SamplingOptions,
    run: RunOptions,
    table: Table,
    output: Output,
    models: Annotated[str, Option(help="Models, each with its number of factors: nsfa,sfa:20,spca:10.")] = MODELS,
    splits: Annotated[int, Option(min=1, help="How often to hide entries, others each time.")] = SPLITS,
    holdout: Annotated[float, Option(help="Share of the entries to hide.")] = HOLDOUT,
) -> None:
    """Hide entries of a table, fit several models to the rest, and score what they say about the hidden ones.

    Writes comparison.csv, a row per model and split, and figures.

    [bold]Examples[/bold]

    nsfa compare expression.csv --models nsfa,sfa:20,fa:20 --splits 10 -o comparison

    nsfa compare expression.csv --models fa:5,fa:10,fa:20 --top-genes 500 -o how-many-factors
    """
    import nsfa

    estimators = parse_models(models, sampling)
    check_free(output, run.force)
    read = read_input(table, reading, run.quiet)
    if not run.ignore_memory:
        for word in estimators:
            name, _, number = word.partition(":")
            if name != "spca":
                options = ModelOptions(model=Model(name), n_components=int(number) if number else None)
                check_memory(read.shape, options, sampling, run.jobs, fits=splits * len(estimators))
    source, reading = describe_input(table, read), absolute_paths(reading, "genes")
    command = command_line("compare", source["path"], output.absolute(), reading, sampling)
    command += f" --models {shlex.quote(models)} --splits {splits} --holdout {holdout}"
    how = {"models": models, "splits": splits, "holdout": holdout}
    sections = {"input": source, "table": section(reading), "sampling": section(sampling), "comparison": how}
    with claim(output, run.force, COMPARISON), quiet_library(run.quiet):
        frame = nsfa.compare(
            read.frame(), estimators, holdout=holdout, splits=splits, random_state=sampling.seed, n_jobs=run.jobs,
            progress=not run.quiet,
        )  # fmt: skip
        write_config(output, command, sections)
        write_figures(output, frame)
        write_csv(output / COMPARISON, frame, None)
    if run.json or not run.quiet:
        tell(output, frame, run.json)
    if run.require_convergence and not all_converged(frame):
        raise Exit(NOT_CONVERGED)


def parse_models(text: str, sampling: SamplingOptions) -> dict[str, Any]:
    """The estimators named by "nsfa,sfa:20,spca:10"."""
    found: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = word.partition(":")
        if name not in (*Model, "spca") or (number and not (number.isdecimal() and int(number))):
            known = ", ".join([*Model, "spca"])
            raise ValueError(f"--models must be names ({known}), each with :factors. Got {word!r}; write nsfa,sfa:20.")
        found[word] = _estimator(name, int(number) if number else None, sampling)
    if not found:
        raise ValueError("--models must name a model. Got none; write nsfa,sfa:20.")
    return found


def _estimator(name: str, n_components: int | None, sampling: SamplingOptions) -> Any:
    if name != "spca":
        if name == Model.nsfa and n_components is not None:
            raise ValueError(
                f"nsfa infers its number of factors. Got 'nsfa:{n_components}'; write nsfa, or sfa:{n_components}."
            )
        if name != Model.nsfa and n_components is None:
            raise ValueError(f"--models must give {name} its number of factors. Got {name!r}; write {name}:20.")
        model = make_estimator(ModelOptions(model=Model(name), n_components=n_components), sampling, None)
        # each split has a seed of its own
        return model.set_params(random_state=None)
    import nsfa

    if n_components is None:
        raise ValueError("--models must give spca its number of factors. Got 'spca'; write spca:20.")
    return nsfa.SPCA(n_components=n_components)


def write_figures(out: Path, frame: Any) -> None:
    """Box plots of the scores."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from nsfa import pl

    (out / FIGURES).mkdir(exist_ok=True)
    for metric in ("lppd", "rmse"):
        if frame[metric].notna().any():
            pl.compare(frame, metric)
            with replacing(out / FIGURES / f"{metric}.png") as part:
                plt.gcf().savefig(part, format="png", dpi=120)
            plt.close("all")


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
    splits = frame["split"].nunique()
    say(f"Means of {splits} split(s); lppd: higher is better, rmse: lower is better. Table: {out / COMPARISON}")


def _digits(value: Any, digits: int) -> str:
    return value if isinstance(value, str) else f"{value:.{digits}f}"


def _share(frame: Any, name: str) -> float:
    """Share of a model's fits that converged; NaN for models that cannot say."""
    said = frame.loc[frame["model"] == name, "converged"].dropna()
    return float(said.astype(bool).mean()) if len(said) else math.nan
