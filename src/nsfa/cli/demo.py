"""``nsfa demo``: the main job with nothing to download."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Option

from nsfa.cli.companions import Companions
from nsfa.cli.fit import describe_input, describe_settings, make_estimator
from nsfa.cli.options import ModelOptions, ReportOptions, RunOptions, SamplingOptions, TableOptions, takes
from nsfa.cli.output import TABLE, check_free
from nsfa.cli.run import Plan, start
from nsfa.cli.settings import command_line
from nsfa.cli.words import say

if TYPE_CHECKING:
    from nsfa.arrays import Floats
    from nsfa.posterior import Posterior
    from nsfa.readers import Table

TRUE_FACTORS = 16


@dataclass(frozen=True)
class Simulated:
    """A simulated table, and what is true of it."""

    table: Table
    loadings: Floats
    annotations: Any
    gene_sets: dict[str, list[str]]


@takes(SamplingOptions, RunOptions)
def demo(
    sampling: SamplingOptions,
    run: RunOptions,
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="Directory for the results; nsfa-demo, or nsfa-demo-2 …, if not given."),
    ] = None,
) -> None:
    """Simulate a sparse table, fit NSFA, and write a report of what was found.

    100 samples × 100 genes with 16 hidden factors and a tenth of the signal's variance as noise. Needs no data and no
    network. The fit is that of [bold]nsfa fit[/bold], and so is the report; the table is kept, to be fitted again.

    [bold]Examples[/bold]

    nsfa demo

    nsfa demo -o somewhere --seed 1
    """
    out = output or free_name(Path("nsfa-demo"))
    check_free(out, run.force)
    model = ModelOptions()
    wanted = ReportOptions(title="A simulated table: 100 genes, 16 hidden factors")
    estimator = make_estimator(model, sampling, run.jobs)
    made = simulate(sampling.seed)
    source = describe_input(out / TABLE, made.table)
    plan = Plan(
        estimator,
        made.table,
        command_line("demo", None, out.absolute(), sampling),
        describe_settings(source, TableOptions(), model, sampling, estimator),
        wanted,
        Companions(made.annotations, made.gene_sets),
        keep_table=True,
    )
    posterior = start(out, plan, run)
    if not (run.quiet or run.json):
        say(f"The truth: {TRUE_FACTORS} factors. {recovery(posterior, made.loadings)}")


def free_name(path: Path) -> Path:
    """``path``, or the first of path-2, path-3, ... that does not exist."""
    names = (path if i == 1 else path.with_name(f"{path.name}-{i}") for i in count(1))
    return next(name for name in names if not name.exists())


def simulate(seed: int) -> Simulated:
    """The demo's table, with the true factors as gene sets and the strongest one's scores as annotations."""
    import pandas as pd

    from nsfa.datasets import make_sparse_factors
    from nsfa.readers import Table

    data = make_sparse_factors(n_samples=100, n_features=100, n_components=TRUE_FACTORS, random_state=seed)
    genes, samples = [f"gene{i:03d}" for i in range(1, 101)], [f"sample{i:03d}" for i in range(1, 101)]
    strongest = int(np.argmax((data.loadings**2).sum(axis=0)))
    score = data.scores[:, strongest]
    annotations = pd.DataFrame(
        {
            "group": np.where(score > np.median(score), "high", "low"),
            f"true score {strongest + 1}": score.round(3),
        },
        index=samples,
    )
    sets = {f"true factor {k + 1}": [genes[d] for d in np.flatnonzero(data.active[:, k])] for k in range(TRUE_FACTORS)}
    frame = pd.DataFrame(data.X, index=samples, columns=genes)
    table = Table(frame, tuple(samples), tuple(genes), [], f"simulated, seed {seed}")
    return Simulated(table, data.loadings, annotations, sets)


def recovery(posterior: Posterior, truth: Floats) -> str:
    """How close draws come to the true loadings, beside a model without factors."""
    from nsfa.metrics import reconstruction_error

    last = [draw for chain in posterior.chains for draw in chain[-10:]]
    error = np.mean([reconstruction_error(truth, posterior.scaled_loadings(draw)) for draw in last])
    empty = reconstruction_error(truth, np.zeros((len(truth), 0)))
    return f"Reconstruction error of the loadings: {error:.4f} (without factors: {empty:.4f})."
