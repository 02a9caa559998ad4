"""Several models on the same held-out entries: one table of scores, one figure."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from nsfa.arrays import Bools, Floats
from nsfa.counts import check_count, on_cluster, worker_count
from nsfa.filling import fill, log_density
from nsfa.metrics import lppd, rmse
from nsfa.table import as_float_table, check_table
from nsfa.tasks import Ledger, Number, Step, Task, run_tasks
from nsfa.version import __version__

COLUMNS = ("model", "split", "lppd", "rmse", "K", "seconds", "converged")
# so many digits bring a number back to the last bit
DIGITS = 17


def compare(
    X: Any,
    models: Mapping[str, Any] | None = None,
    *,
    holdout: float = 0.1,
    splits: int = 10,
    random_state: int | None = 0,
    n_jobs: int | str | None = None,
    progress: bool = True,
    store: str | PathLike[str] | None = None,
) -> Any:
    """Fit every model to the same tables with entries hidden at random, and score what it says about those.

    Ctrl-C returns the rows that are done.

    Parameters
    ----------
    X : array-like or DataFrame of shape (n_samples, n_features)
        NaN marks entries that are missing anyway; they are never scored, nor are features that do not vary.
    models : dict of estimators, optional
        By default NSFA alone. Each is cloned; a ``random_state`` of None is replaced by one that depends on the split.
        A model here, or any scikit-learn estimator with ``fit``, ``transform`` and ``inverse_transform``, also a
        pipeline: PCA, NMF, SparsePCA, FastICA, and FactorAnalysis, which needs no inverse. Those take no missing
        entries: these are filled with the features' means, then by what the fit makes of them, fitted again, and so on
        until they stand still (50 fits at most). They get X in its own units: where features differ, make a pipeline
        of a StandardScaler and the model. FactorAnalysis needs no scaling and must be alone; the likelihood of the
        observed entries alone decides where its fit ends.
    holdout : float
        Share of the observed entries to hide, between 0 and 1.
    splits : int
        How many times, with other entries each time; the same for every model.
    random_state : int, optional
        Decides which entries are hidden, and the seeds of models without one; None is another each time.
    n_jobs : int or "dask", optional
        Fits that run at once; None is one per core, "dask" makes each a task of the Dask client in use. The scores do
        not depend on it.
    progress : bool
        Show a progress bar when standard error is a terminal.
    store : path, optional
        A csv file that every finished fit is kept in at once. The same call after an interrupt or a kill goes on from
        there, to the same table; with more splits or models it runs those that are new. Fits of another table, or with
        other settings or another version, do not count, and stay in the file. Classes and functions of your own count
        by their names, not by their code: take another file when you change that.

    Returns
    -------
    pandas DataFrame with a row per model and split: ``lppd`` (log of the mean predictive density, mean per entry;
    NaN for models without one: SPCA, and of scikit-learn's all but FactorAnalysis, scored by its Gaussian of the
    hidden entries given the others), ``rmse``, both in the table's units, ``K`` (mean number of factors; columns of
    ``transform``), ``seconds``, ``converged`` (for scikit-learn's, whether the filled entries stood still; for
    FactorAnalysis, its noise). Draw it with ``nsfa.pl.compare``.
    """
    from nsfa.estimators import resolve_seed

    table = as_float_table(X)
    models, seed = _check(models, holdout, splits), resolve_seed(random_state)
    _note_kinds(models)
    check_table(table, np.isnan(table), None)
    tasks: list[Task] = []
    for split in range(splits):
        hidden = hide(table, holdout, np.random.default_rng([seed, split]))
        if not hidden.any():
            raise ValueError(
                "holdout must leave entries to score when every sample and feature keeps two of its own. "
                f"Got {holdout} of a table of shape {table.shape}; hide more, or use a larger table."
            )
        tasks += _tasks(models, seed, split, hidden)
    if store is not None:
        tasks = _digested(tasks, table)
    ledger = Ledger(None if store is None else _checked(store), DIGITS)
    try:
        with _bar(len(tasks), progress) as advance:
            at_once = None if on_cluster(n_jobs) else worker_count(n_jobs)
            run_tasks(tasks, ledger, advance, at_once, {"table": table})
    except KeyboardInterrupt:
        _tell_interrupted(sum(task.key in ledger.rows for task in tasks), len(tasks), store is not None)
    return _frame(tasks, ledger, list(models))


def _check(models: Mapping[str, Any] | None, holdout: float, splits: int) -> Mapping[str, Any]:
    from nsfa.estimators import NSFA

    models = {"NSFA": NSFA()} if models is None else models
    check_count("splits", splits)
    if not 0 < holdout < 1:
        raise ValueError(f"holdout must lie between 0 and 1. Got {holdout!r}.")
    if not isinstance(models, Mapping) or not models:
        what = "none" if isinstance(models, Mapping) else f"a {type(models).__name__}"
        raise ValueError(f"models must be a dict of estimators by name. Got {what}; write {{'NSFA': NSFA()}}.")
    for name, model in models.items():
        can = {verb for verb in ("get_params", "fit", "impute", "transform") if hasattr(model, verb)}
        if not can >= {"get_params", "fit"} or not can & {"impute", "transform"}:
            raise ValueError(
                "models must be estimators with fit and either impute or transform and inverse_transform. "
                f"Got {model!r} as {name!r}."
            )
    return models


def _note_kinds(models: Mapping[str, Any]) -> None:
    """Warn of scores that are not of one kind."""
    kinds: dict[str, str] = {}
    for name, model in models.items():
        kinds.setdefault(getattr(model, "likelihood", "gaussian"), name)
    if len(kinds) > 1:
        some = ", ".join(f"likelihood={kind!r} ({name!r})" for kind, name in kinds.items())
        warnings.warn(
            f"The models have {some}. lppd of counts, or zeros and ones, is the log of a probability, of measurements "
            "the log of a density: compare it among models of one likelihood, and rmse among all.",
            UserWarning,
            stacklevel=3,
        )


def _checked(store: str | PathLike[str]) -> Path:
    path = Path(store)
    if path.is_dir() or not path.parent.is_dir():
        what = "a directory" if path.is_dir() else "one in a directory that does not exist"
        raise ValueError(f"store must be a csv file, new or of an earlier comparison. Got {what}, {str(path)!r}.")
    return path


def _tasks(models: Mapping[str, Any], seed: int, split: int, hidden: Bools) -> Iterator[Task]:
    """The fits of one split; the table is theirs together."""
    for name, model in models.items():
        arguments = {"name": name, "model": _seeded(model, seed, split), "hidden": hidden}
        yield Task(name, split, _fit_and_score, arguments)


def _digested(tasks: list[Task], table: Floats) -> list[Task]:
    """Each with a digest of all that decides its scores."""
    import joblib

    data = {task.replicate: joblib.hash((table, task.arguments["hidden"])) for task in tasks}
    out = []
    for task in tasks:
        model = task.arguments["model"]
        kind = type(model).__module__, type(model).__qualname__
        try:
            digest = joblib.hash((__version__, data[task.replicate], *kind, model))
        except (pickle.PicklingError, AttributeError, TypeError):
            raise ValueError(
                "With store=, models must be such that pickle can write them, to be known again. Got "
                f"{task.model!r}, which it cannot; use functions with a name instead of lambdas, or no store."
            ) from None
        out.append(replace(task, digest=digest))
    return out


def _tell_interrupted(done: int, total: int, kept: bool) -> None:
    """A sentence where some fits are done; else the interrupt goes on."""
    if not done:
        raise KeyboardInterrupt
    again = " These are kept: the same again goes on." if kept else ""
    warnings.warn(f"Interrupted after {done} of {total} fits.{again}", UserWarning, stacklevel=3)


def _frame(tasks: list[Task], ledger: Ledger, names: list[str]) -> Any:
    """The finished fits, a row each, by model and split."""
    import pandas as pd

    rows = []
    for task in sorted(tasks, key=lambda task: (names.index(task.model), task.replicate)):
        if task.key in ledger.rows:
            found: dict[str, Any] = {name: float(value) for *_, name, _, value in ledger.rows[task.key]}
            if found["converged"] == found["converged"]:
                found["converged"] = bool(found["converged"])
            rows.append({**found, "model": task.model, "split": task.replicate})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def hide(table: Floats, share: float, rng: np.random.Generator) -> Bools:
    """A mask of observed entries to hide, chosen at random; every sample and every feature keeps two of its own.

    Features that would not vary without theirs keep all.
    """
    seen = ~np.isnan(table)
    draw = np.where(seen, rng.random(table.shape), np.inf)
    hidden = draw < share
    for axis in (0, 1):
        # the two largest draws of each row and column stay
        ranks = np.argsort(np.argsort(np.where(seen, -draw, np.inf), axis=axis), axis=axis)
        hidden &= ranks >= 2
    left = seen & ~hidden
    low, high = np.where(left, table, np.inf).min(axis=0), np.where(left, table, -np.inf).max(axis=0)
    hidden &= low < high
    return hidden


def _seeded(model: Any, seed: int, split: int) -> Any:
    """A clone of which every part runs on one core, with a seed of the split where it has none."""
    copy = clone(model)
    own = int(np.random.SeedSequence([seed, split]).generate_state(1)[0])
    for name, value in copy.get_params().items():
        setting = name.split("__")[-1]
        if setting == "n_jobs" or (setting == "random_state" and value is None):
            copy.set_params(**{name: 1 if setting == "n_jobs" else own})
    return copy


def _fit_and_score(name: str, model: Any, table: Floats, hidden: Bools) -> Iterator[Number]:
    """One model on one split."""
    started = time.perf_counter()
    try:
        scores = (_own if hasattr(model, "impute") else _filled)(model, table, hidden)
    except ValueError as error:
        raise ValueError(f"The model {name!r} cannot be compared on this table: {error}") from error
    scores = {"lppd": np.nan, "K": np.nan, "converged": np.nan, "seconds": time.perf_counter() - started} | scores
    yield from ((quantity, 0, value) for quantity, value in scores.items())


def _own(model: Any, table: Floats, hidden: Bools) -> dict[str, float]:
    """The scores of a model that takes missing entries."""
    seen = np.where(hidden, np.nan, table)
    started = time.perf_counter()
    model.fit(seen)
    out = {"seconds": time.perf_counter() - started, "rmse": rmse(table[hidden], model.impute(seen)[hidden])}
    posterior = getattr(model, "posterior_", None)
    if posterior is not None:
        out["lppd"] = lppd(posterior.log_predictive_density(table, where=hidden))
        out["K"] = float(posterior.n_factors.mean())
        out["converged"] = posterior.diagnostics(factors=False).converged
    elif hasattr(model, "components_"):
        out["K"] = float(len(model.components_))
    return out


def _filled(model: Any, table: Floats, hidden: Bools) -> dict[str, float]:
    """The scores of a model that does not, by filling them."""
    found = fill(model, np.where(hidden, np.nan, table))
    truth, mean = table[hidden], found.mean[hidden]
    out = {"rmse": rmse(truth, mean), "K": float(found.scores.shape[1]), "converged": found.settled}
    if found.variance is not None:
        out["lppd"] = lppd(log_density(mean, found.variance[hidden], truth))
    return out


@contextmanager
def _bar(total: int, wanted: bool) -> Iterator[Callable[[Step], Any]]:
    """Count finished fits in a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not wanted or not console.is_terminal, transient=True) as bar:
        shown = bar.add_task("fits", total=total)

        def tell(step: Step) -> None:
            bar.update(shown, completed=step.done, description=step.label.split(" #")[0])
            if wanted and not console.is_terminal:
                # a log has lines
                console.print(f"{step.done} of {total} fits, the last one {step.label.split(' #')[0]}", highlight=False)

        yield tell
