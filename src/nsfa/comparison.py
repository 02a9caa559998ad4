"""Several models on the same held-out entries: one table of scores, one figure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from nsfa.kernels import Bools, Floats
from nsfa.metrics import lppd, rmse
from nsfa.runner import check_count, worker_count
from nsfa.table import as_float_table, check_table

COLUMNS = ("model", "split", "lppd", "rmse", "K", "seconds", "converged")


class _Job(NamedTuple):
    name: str
    model: Any
    split: int
    table: Floats
    hidden: Bools


def compare(
    X: Any,
    models: Mapping[str, Any] | None = None,
    *,
    holdout: float = 0.1,
    splits: int = 10,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: bool = True,
) -> Any:
    """Fit every model to the same tables with entries hidden at random, and score what it says about those.

    Parameters
    ----------
    X : array-like or DataFrame of shape (n_samples, n_features)
        NaN marks entries that are missing anyway; they are never scored.
    models : dict of estimators, optional
        By default NSFA alone. Each is cloned; a ``random_state`` of None is replaced by one that depends on the split.
    holdout : float
        Share of the observed entries to hide, between 0 and 1.
    splits : int
        How many times, with other entries each time; the same for every model.
    n_jobs : int, optional
        Fits that run at once; None is one per core. The scores do not depend on it.
    progress : bool
        Show a progress bar when standard error is a terminal.

    Returns
    -------
    pandas DataFrame with a row per model and split: ``lppd`` (log of the mean predictive density, mean per entry;
    NaN for models without one), ``rmse``, both in the table's units, ``K`` (mean number of factors), ``seconds``,
    ``converged``. Draw it with ``nsfa.pl.compare``.
    """
    import pandas as pd

    table = as_float_table(X)
    models = _check(models, holdout, splits)
    check_table(table, np.isnan(table), None)
    jobs = []
    for split in range(splits):
        hidden = hide(table, holdout, np.random.default_rng([random_state, split]))
        if not hidden.any():
            raise ValueError(
                "holdout must leave entries to score when every sample and feature keeps two of its own. "
                f"Got {holdout} of a table of shape {table.shape}; hide more, or use a larger table."
            )
        jobs += [
            _Job(name, _seeded(model, random_state, split), split, table, hidden) for name, model in models.items()
        ]
    rows = list(_with_bar(_run(jobs, worker_count(n_jobs)), len(jobs), progress))
    order = {name: i for i, name in enumerate(models)}
    rows.sort(key=lambda row: (order[row["model"]], row["split"]))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _check(models: Mapping[str, Any] | None, holdout: float, splits: int) -> Mapping[str, Any]:
    from nsfa.estimators import NSFA

    models = {"NSFA": NSFA()} if models is None else models
    check_count("splits", splits)
    if not 0 < holdout < 1:
        raise ValueError(f"holdout must lie between 0 and 1. Got {holdout!r}.")
    for name, model in models.items():
        if not (hasattr(model, "fit") and hasattr(model, "impute")):
            raise ValueError(f"models must be estimators with fit and impute. Got {model!r} as {name!r}.")
    return models


def hide(table: Floats, share: float, rng: np.random.Generator) -> Bools:
    """A mask of observed entries to hide, chosen at random; every sample and every feature keeps two of its own."""
    seen = ~np.isnan(table)
    draw = np.where(seen, rng.random(table.shape), np.inf)
    hidden = draw < share
    for axis in (0, 1):
        # the two largest draws of each row and column stay
        ranks = np.argsort(np.argsort(np.where(seen, -draw, np.inf), axis=axis), axis=axis)
        hidden &= ranks >= 2
    return hidden


def _seeded(model: Any, random_state: int, split: int) -> Any:
    """A clone that runs alone on one core, with a seed of the split's where it has none of its own."""
    copy = clone(model)
    settings = copy.get_params(deep=False)
    if settings.get("random_state", 0) is None:
        copy.set_params(random_state=int(np.random.SeedSequence([random_state, split]).generate_state(1)[0]))
    if "n_jobs" in settings:
        copy.set_params(n_jobs=1)
    return copy


def _run(jobs: list[_Job], at_once: int) -> Iterable[dict[str, Any]]:
    if at_once == 1:
        return map(_fit_and_score, jobs)
    from joblib import Parallel, delayed

    found: Iterable[dict[str, Any]] = Parallel(n_jobs=at_once, return_as="generator_unordered")(
        delayed(_fit_and_score)(job) for job in jobs
    )
    return found


def _fit_and_score(job: _Job) -> dict[str, Any]:
    """One model on one split."""
    import warnings

    with warnings.catch_warnings():
        # the column ``converged`` says it
        warnings.simplefilter("ignore")
        table = np.where(job.hidden, np.nan, job.table)
        started = time.perf_counter()
        model = job.model.fit(table)
        seconds = time.perf_counter() - started
        row: dict[str, Any] = {"model": job.name, "split": job.split, "seconds": seconds}
        row["rmse"] = rmse(job.table[job.hidden], model.impute(table)[job.hidden])
        posterior = getattr(model, "posterior_", None)
        if posterior is not None:
            row["lppd"] = lppd(posterior.log_predictive_density(job.table, where=job.hidden))
            row["K"] = float(posterior.n_components.mean())
            row["converged"] = posterior.diagnostics(factors=False).converged
        elif hasattr(model, "components_"):
            row["K"] = float(len(model.components_))
    return row


def _with_bar(rows: Iterable[dict[str, Any]], total: int, wanted: bool) -> Iterator[dict[str, Any]]:
    """Pass rows on, counting them in a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not wanted or not console.is_terminal, transient=True) as bar:
        task = bar.add_task("fits", total=total)
        for row in rows:
            bar.update(task, advance=1, description=f"{row['model']}, split {row['split'] + 1}")
            yield row
