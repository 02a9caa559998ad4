"""Runs on disk: start one, read it, go on with it."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import Any

from nsfa.atomic import clear_leftovers
from nsfa.blocks import reopened
from nsfa.counts import check_count
from nsfa.data import Observed
from nsfa.draws.files import StoreError
from nsfa.draws.lock import locked
from nsfa.draws.store import Settings, Store, created, open_store
from nsfa.monitor import Monitor
from nsfa.posterior import Posterior
from nsfa.runner import ChainResult, sample, shown
from nsfa.version import __version__


def sample_stored(
    path: str | PathLike[str], data: Observed, settings: Settings, n_jobs: int | str | None, monitor: Monitor | None
) -> Posterior:
    """Run chains that write to a new store as they go."""
    with created(path, data, settings) as store:
        return _go_on(store, data, n_jobs, monitor)


def load(path: str | PathLike[str]) -> Posterior:
    """Read the draws of a store, finished or not, or still being written by another process.

    Parameters
    ----------
    path
        A folder written by a fit with ``store=path`` or by ``Posterior.save``.

    Returns
    -------
    The posterior, with the verbs and attributes of the fitted estimator (``transform``, ``impute``, ``components_``,
    ...); ``finished`` is False while draws are missing. Raises ``StoreError`` with a sentence if the folder
    cannot be used; warns if a damaged file hides draws.
    """
    store = open_store(path)
    return _posterior(store, store.data())


def resume(
    path: str | PathLike[str],
    draws: int | None = None,
    n_jobs: int | str | None = None,
    monitor: Monitor | None = None,
    progress: bool = False,
    X: Any = None,
) -> Posterior:
    """Go on with a run that was interrupted, killed, or ran out of disk; or add draws to a finished one.

    On the same machine and versions the draws are those of an unbroken run, bit for bit.

    Parameters
    ----------
    path
        The folder that the fit was given as ``store``.
    draws
        How many draws to add to each chain of a finished run.
    n_jobs, monitor, progress
        As in ``fit``.
    X
        The table again, where it was a dask array: a store does not keep it.
    """
    store = open_store(path)
    if draws is not None:
        check_count("draws", draws)
    elif store.finished and store.intact:
        return load(path)
    _check_resumable(store)
    with locked(store.path):
        clear_leftovers(store.path)
        # again: its length may have changed before the lock was ours
        store, data = open_store(path), store.data()
        with _table(store, data, X) as table, shown(store.settings.chains, progress, monitor) as watcher:
            if draws is not None:
                store = _extended(store, draws)
            return _go_on(store, table, n_jobs, watcher)


def _table(store: Store, data: Observed, X: Any) -> AbstractContextManager[Observed]:
    """The table of the run: as the store has it, or on workers again."""
    if data.elsewhere == (X is not None):
        return nullcontext(data) if X is None else reopened(X, data)
    if X is not None:
        raise ValueError(
            f"X is for runs of dask arrays. Got it with {store.path}, which keeps its table; leave it out."
        )
    raise StoreError(
        f"{store.path} is of a table in blocks, which it does not keep. Pass it again: "
        f"nsfa.resume({str(store.path)!r}, X=...)."
    )


def _go_on(store: Store, data: Observed, n_jobs: int | str | None, monitor: Monitor | None) -> Posterior:
    settings = store.settings
    sample(
        data,
        settings.spec,
        chains=settings.chains,
        length=settings.length,
        seed=settings.seed,
        n_jobs=n_jobs,
        backend=settings.backend,
        tf32=settings.tf32,
        monitor=monitor,
        store=store,
    )
    return _posterior(store, data)


def _posterior(store: Store, data: Observed) -> Posterior:
    settings = store.settings
    every = [store.draws(chain) for chain in range(settings.chains)]
    results = [ChainResult(chain, draws, store.has_all(len(draws))) for chain, draws in enumerate(every)]
    if not any(result.draws for result in results):
        raise StoreError(
            f"{store.path} holds no draws yet: its chains were stopped, or still are, in their warm-up. Go on with "
            f"nsfa.resume({str(store.path)!r})."
        )
    return Posterior.from_results(data, settings.spec, results, settings.length, settings.seed, settings.backend)


def _extended(store: Store, draws: int) -> Store:
    if not store.finished:
        raise StoreError(
            f"{store.path} must be finished before draws are added. Got an unfinished run; resume it first "
            "without adding draws."
        )
    try:
        return store.extended(draws)
    except OSError as error:
        raise StoreError(f"{store.path} cannot be changed: {error.strerror}. Nothing was changed.") from None


def _check_resumable(store: Store) -> None:
    if not store.settings.resumable:
        raise StoreError(
            f"{store.path} must come from a fit with store=... to be continued. Got draws that Posterior.save wrote, "
            "without their chains; fit again with store=..., or use nsfa.load to read them."
        )
    if store.settings.written_by != __version__:
        warnings.warn(
            f"{store.path} was begun by nsfa {store.settings.written_by} and goes on with {__version__}: the draws are "
            "as good, but may not be those of an unbroken run bit for bit.",
            UserWarning,
            stacklevel=3,
        )
