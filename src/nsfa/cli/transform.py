"""``nsfa transform``: scores of new samples on the factors of a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from nsfa.cli.again import draws_of
from nsfa.cli.errors import quiet_library
from nsfa.cli.fit import TableArgument, read_input
from nsfa.cli.options import ReadingOptions, TalkOptions, takes
from nsfa.cli.output import write_csv
from nsfa.cli.settings import read_config
from nsfa.cli.words import note, say, say_json

if TYPE_CHECKING:
    from nsfa.posterior import Posterior


@takes(ReadingOptions, TalkOptions)
def transform(
    reading: ReadingOptions,
    talk: TalkOptions,
    results: Annotated[Path, Argument(metavar="RESULTS", help="Output directory of a run.", show_default=False)],
    table: TableArgument,
    output: Annotated[Path, Option("-o", "--output", help="File for the scores (csv); new.", show_default=False)],
    force: Annotated[bool, Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write the scores of new samples on the factors of a run, with their standard deviations.

    Genes are matched by name: those of the run that the table lacks count as missing, its others are ignored. The table
    must be in the units of the one that was fitted.

    [bold]Examples[/bold]

    nsfa transform results new.csv -o scores.csv

    nsfa transform results new_counts.tsv.gz -o scores.csv --log2
    """
    import nsfa

    store = draws_of(results)
    if os.path.lexists(output) and (output.is_dir() or not force):
        what = "a directory" if output.is_dir() else "one that is there"
        advice = "name a file in it" if output.is_dir() else "choose another name, or replace it with --force"
        raise ValueError(f"The output must be a new file. Got {output}, {what}; {advice}.")
    model = read_config(results).get("model", {})
    reading = _same_layer(results, table, reading, talk.quiet)
    read = read_input(table, reading, talk.quiet, model.get("likelihood", "gaussian"), model.get("noise", "diagonal"))
    if not talk.quiet:
        _compare_units(results, reading)
    with quiet_library(talk.quiet):
        posterior = nsfa.load(store)
        scores = score_table(posterior, read)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_csv(output, scores, "sample")
    _tell(posterior, read, output, talk)


def _same_layer(results: Path, table: Path, reading: ReadingOptions, quiet: bool) -> ReadingOptions:
    """How to read the table: where the user names no layer, in the one that was fitted, if it was one."""
    from nsfa.readers.frames import layers_in
    from nsfa.readers.sheet import show_some

    has, fitted = layers_in(table), read_config(results).get("table", {}).get("layer")
    if reading.layer is not None:
        in_x = reading.layer == "X" and has is not None and "X" not in has
        return replace(reading, layer=None) if in_x else reading
    if fitted is None:
        return reading
    told = f"The run was fitted to the layer {fitted!r}: "
    if has is None:
        told += f"the scores are right only if the values of {table.name} are such."
    elif fitted in has:
        told += f"that of {table.name} is read; --layer names another, --layer X its X."
    else:
        raise ValueError(
            f"{table.name} must have the layer {fitted!r}, which the run was fitted to. Got the layers: "
            f"{show_some(has) or 'none'}; name one with such values with --layer, or its X with --layer X."
        )
    if not quiet:
        note(told)
    return reading if has is None else replace(reading, layer=fitted)


def score_table(posterior: Posterior, read: Any) -> Any:
    """Posterior means of the scores, samples × factors, then their standard deviations."""
    import numpy as np
    import pandas as pd

    parts = posterior.transform(read.X, return_std=True)
    columns = [f"factor_{k}{kind}" for kind in ("", "_std") for k in range(parts[0].shape[1])]
    return pd.DataFrame(np.hstack(parts), index=list(read.sample_names), columns=columns)


def _compare_units(results: Path, reading: ReadingOptions) -> None:
    """Say so if one table is read with logarithms and the other without."""
    fitted = read_config(results).get("table", {}).get("log2")
    if fitted is not None and fitted != reading.log2:
        how = ("with --log2", "without")
        note(
            f"The table of the run was read {how[not fitted]} and this one {how[not reading.log2]}: the scores are "
            "right only if their values are in the same units."
        )


def _tell(posterior: Posterior, read: Any, output: Path, talk: TalkOptions) -> None:
    genes = posterior.data.names
    found = {
        "samples": len(read.sample_names),
        "factors": posterior.n_components_,
        "genes_of_the_run": len(genes),
        "genes_in_common": len(set(genes) & set(read.gene_names)),
        "output": str(output),
    }
    if talk.json:
        say_json(found)
    elif not talk.quiet:
        common = f"{found['genes_in_common']:,} of the run's {len(genes):,} genes"
        say(f"{found['samples']:,} samples on {found['factors']} factors, by {common}: {output}")
