"""The ``nsfa`` command: a thin caller of the library."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nsfa import __version__

if TYPE_CHECKING:
    from nsfa.kernels import Floats
    from nsfa.posterior import Posterior
    from nsfa.runner import Progress as Report

app = typer.Typer(
    name="nsfa",
    help="Bayesian sparse factor analysis: how many hidden factors, which genes belong to each, and how sure we are.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"nsfa {__version__}")
        raise typer.Exit


@app.callback()
def main(version: bool = typer.Option(False, "--version", callback=_show_version, help="Show the version.")) -> None:
    """Bayesian sparse factor analysis."""


@app.command()
def demo(
    chains: int = typer.Option(4, min=1, help="Chains to run."),
    tune: int = typer.Option(1000, min=0, help="Warm-up sweeps per chain."),
    draws: int = typer.Option(1000, min=1, help="Kept draws per chain."),
    thin: int = typer.Option(4, min=1, help="Sweeps per kept draw."),
    seed: int = typer.Option(0, min=0, help="Seed of the data and of the chains."),
    quiet: bool = typer.Option(False, "--quiet", help="No progress bar."),
) -> None:
    """Simulate a sparse table, fit NSFA, and say what was found.

    100 samples × 100 genes with 16 hidden factors and a tenth of the signal's variance as noise. Needs no data and no
    network. Example: nsfa demo --seed 1
    """
    from sklearn.exceptions import ConvergenceWarning

    from nsfa import NSFA
    from nsfa.datasets import make_sparse_factors

    data = make_sparse_factors(n_samples=100, n_features=100, n_components=16, random_state=seed)
    try:
        estimator = NSFA(chains=chains, tune=tune, draws=draws, thin=thin, concentration=1.0, random_state=seed)
        with _Bars(chains, quiet) as bars, warnings.catch_warnings():
            # the verdict printed below says the same
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(data.X, monitor=bars.update)
    except (ValueError, RuntimeError) as error:
        Console(stderr=True).print(f"[red]Error:[/red] {error}")
        raise typer.Exit(1) from None
    console.print("Simulated 100 samples × 100 genes with [bold]16[/bold] factors (signal to noise 10).")
    _summarise(estimator.posterior_, data.loadings)


def _summarise(posterior: Posterior, truth: Floats) -> None:
    """Posterior of K, reconstruction error and the convergence verdict."""
    import numpy as np

    from nsfa.metrics import reconstruction_error

    values, counts = np.unique(posterior.n_components, return_counts=True)
    console.print("\nPosterior of the number of factors K (true value 16):")
    for value, share in zip(values, counts / counts.sum(), strict=True):
        if share >= 0.005:
            console.print(f"  K = {value:>3}  {share:6.1%}  {'█' * round(40 * share)}")
    last = [draw for chain in posterior.chains for draw in chain[-10:]]
    errors = [reconstruction_error(truth, posterior.scaled_loadings(draw)) for draw in last]
    baseline = reconstruction_error(truth, np.zeros((len(truth), 0)))
    console.print(f"Reconstruction error of the loadings: {np.mean(errors):.4f} (an empty model: {baseline:.4f})")
    console.print(f"\n{posterior.diagnostics()}", highlight=False)
    console.print("\nNext: nsfa.NSFA().fit(X) on your own samples × genes table; missing entries may stay NaN.")


class _Bars:
    """One progress bar per chain, with the time left; silent when asked to be or when nobody watches."""

    def __init__(self, chains: int, quiet: bool) -> None:
        self._progress = Progress(
            TextColumn("chain {task.fields[chain]} {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("K = {task.fields[factors]}"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._tasks = [
            self._progress.add_task("waiting ", total=None, chain=chain + 1, factors="–") for chain in range(chains)
        ]

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update(self, report: Report) -> None:
        """Show where a chain stands."""
        self._progress.update(
            self._tasks[report.chain],
            description="warm-up " if report.warming_up else "sampling",
            completed=report.done,
            total=report.total,
            factors=report.n_factors,
        )
