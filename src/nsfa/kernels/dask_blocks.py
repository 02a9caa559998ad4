"""Dask: workers to connect to, what they keep, and one map and tree-reduce over it. Nothing in here knows the model."""

from __future__ import annotations

import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from typing import Any

from nsfa.interrupts import held_back

# A node of the tree that adds up what workers return has so many branches.
BRANCHES = 8
# How often a task is tried again where it fails; that of a worker that was lost is done elsewhere in any case.
_RETRIES = 3
# Bytes that may pass the scheduler with all tasks of a sweep together.
_SMALL = 4_000_000
# How long to wait for a scheduler.
_PATIENCE = "10s"
# Seconds between two looks at who is still there, and in which a sum must have come.
_LOOK, _FETCH = 0.5, 60.0
# The first workers a machine gets, if there are none.
N_WORKERS = 2
# Ctrl-C is for the client, which needs them to end its sweep. That they end in the middle of something is no news, and
# what their tasks raise comes to the client.
_QUIET_WORKERS = (
    "import logging, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "logging.getLogger('distributed.worker').setLevel('CRITICAL'); "
    "logging.getLogger('distributed.worker.memory').setLevel('WARNING')"
)
_NEEDS_DASK = "Tables in blocks need Dask. Got a Python without it ({}); install nsfa[dask]."

Source = tuple[Any, list[Any]]
"""What to take, and the chunks to take it from."""
Join = Callable[[list[Any]], Any]


def is_dask(X: Any) -> bool:
    """Whether this is a dask collection; nothing is imported."""
    return hasattr(X, "__dask_graph__") and X.__dask_graph__() is not None


@contextmanager
def connected(address: str | None = None, cores: int = 1) -> Iterator[Any]:
    """A ``distributed.Client``: of the scheduler at ``address``; else the one in use; else of two new workers.

    The new ones share out the ``cores`` and what memory there is, and end with the block.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise ImportError(_NEEDS_DASK.format(error)) from None
    if address is not None:
        try:
            client = distributed.Client(address, timeout=_PATIENCE)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"There must be a Dask scheduler at {address!r}. Got none ({error}); start one with dask scheduler, "
                "or name another."
            ) from None
        with client:
            yield client
        return
    try:
        client = distributed.Client.current()
    except ValueError:
        how = {"n_workers": N_WORKERS, "threads_per_worker": max(1, cores // N_WORKERS), "dashboard_address": ":0"}
        _start_tracker()
        with ExitStack() as stack:
            # the thread that starts workers, and they, have what this one has
            with held_back(signal.SIGINT):
                cluster = stack.enter_context(distributed.LocalCluster(**how, preload=_QUIET_WORKERS))
                own = stack.enter_context(distributed.Client(cluster))
            yield own
        return
    yield client


def _start_tracker() -> None:
    """Start Python's tracker of what processes leave behind: later, that would let signals through again."""
    if hasattr(signal, "pthread_sigmask"):
        from multiprocessing.resource_tracker import ensure_running

        ensure_running()


def places(client: Any) -> list[str]:
    """The workers' addresses, each as often as it has threads; ValueError if there is none."""
    threads = client.nthreads()
    out = [address for address in sorted(threads) for _ in range(threads[address])]
    if not out:
        raise ValueError("The Dask cluster must have workers. Got none; start some, or wait until they have joined.")
    return out


def asked(client: Any, question: Callable[[], Any]) -> dict[str, Any]:
    """What each worker answers, by its address."""
    return dict(client.run(question))


def told(client: Any, what: Callable[[], None]) -> None:
    """Have each worker do something, of those that are still there."""
    if client.status == "running":
        with suppress(OSError):
            client.run(what, on_error="ignore")


def memory(client: Any) -> float:
    """Bytes that the workers may use together; infinite where one has no limit."""
    limits = [worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    return float(sum(limits)) if all(limits) else float("inf")


def scratch_folder() -> str:
    """Where the worker that this is called on may write what goes with it."""
    from distributed import get_worker

    try:
        return str(get_worker().local_directory)
    except ValueError:
        return tempfile.gettempdir()


def chunks_of(X: Any) -> list[Any]:
    """The chunks of a dask array with one column of them, each to be read by a task."""
    return [row[0] for row in X.to_delayed()]


def read_reduced(client: Any, function: Callable[..., Any], sources: Sequence[Source], join: Join, finish: Join) -> Any:
    """``finish`` of all function(cut, chunks), neighbours joined on the way; chunks are read and forgotten."""
    from dask.delayed import delayed

    parts = [delayed(function, pure=False)(cut, chunks) for cut, chunks in sources]
    while len(parts) > BRANCHES:
        parts = [delayed(join, pure=False)(parts[i : i + BRANCHES]) for i in range(0, len(parts), BRANCHES)]
    with _graphs_of_any_size():
        found = client.compute(delayed(finish, pure=False)(parts), retries=_RETRIES)
    return found.result()


class Kept:
    """What workers keep: futures in order, and by which worker each is gone through, where it lies.

    They are tasks: whatever a lost worker had is made anew by the others, from its source.
    """

    def __init__(self, client: Any, futures: list[Any]) -> None:
        self.client, self._futures = client, futures
        self._groups: list[tuple[str, list[Any]]] = []

    def groups(self) -> list[tuple[str, list[Any]]]:
        """For each thread of each worker its address and what it goes through; waits until everything is there."""
        if not self._futures:
            raise ValueError("The table must be with its workers. Got one that they were let forget; pass it again.")
        distributed: Any = import_module("distributed")
        while not (found := self._groups):
            distributed.wait(self._futures)
            for future in self._futures:
                if future.status in ("error", "cancelled"):
                    future.result()
            holders = self.client.who_has(self._futures)
            where = [min(holders.get(future.key) or ("",)) for future in self._futures]
            found = []
            for address, threads in sorted(self.client.nthreads().items()):
                own = [future for future, there in zip(self._futures, where, strict=True) if there == address]
                found += [(address, own[first:last]) for first, last in _shares(len(own), threads)]
            if sum(len(group) for _, group in found) < len(self._futures):
                # lost, or its worker lost, in between
                time.sleep(_LOOK)
                continue
            self._groups = found
        return found

    def moved(self, groups: list[tuple[str, list[Any]]]) -> bool:
        """Whether a worker is no longer there that some of ``groups`` lay with; they are then looked for anew."""
        if {address for address, _ in groups} <= set(self.client.nthreads()):
            return False
        if self._groups is groups:
            self._groups = []
        return True

    def forget(self) -> None:
        """Let the workers forget it."""
        self._futures, self._groups = [], []


def _shares(n: int, threads: int) -> list[tuple[int, int]]:
    """Up to so many even parts of n, none of them empty."""
    parts = min(n, threads)
    edges = [n * i // parts for i in range(parts + 1)] if parts else []
    return list(pairwise(edges))


def kept(client: Any, function: Callable[..., Any], sources: Sequence[Source], *shared: Any) -> Kept:
    """function(cut, chunks, *shared) of all sources, kept by the workers, neighbours together."""
    from dask.delayed import delayed

    where = places(client)
    common = [delayed(item, pure=False) for item in shared]
    futures: list[Any] = []
    for i, address in enumerate(where):
        some = sources[len(sources) * i // len(where) : len(sources) * (i + 1) // len(where)]
        made = [delayed(function, pure=False)(*source, *common) for source in some]
        with _graphs_of_any_size():
            futures += client.compute(made, workers=[address], allow_other_workers=True, retries=_RETRIES)
    return Kept(client, futures)


def reduced(what: Kept, function: Callable[..., Any], shared: Any, join: Join, finish: Join) -> Any:
    """``finish`` of all function(group, shared), neighbours joined on the way.

    A task per thread, and for many of them a tree, submitted as they are: there is no graph to optimise. What is kept
    is never moved: its tasks run where it lies, and where a worker is lost on the way all of it is done again.
    """
    distributed: Any = import_module("distributed")
    client, how = what.client, {"pure": False, "retries": _RETRIES}
    while True:
        groups = what.groups()
        sent = _sent(client, shared, len(groups))
        parts = [client.submit(function, group, sent, workers=[address], **how) for address, group in groups]
        while len(parts) > BRANCHES:
            parts = [client.submit(join, parts[i : i + BRANCHES], **how) for i in range(0, len(parts), BRANCHES)]
        waiting = True
        while waiting:
            try:
                distributed.wait(parts, timeout=_LOOK)
                return finish([part.result(timeout=_FETCH) for part in parts])
            except TimeoutError:
                if any(part.status == "error" for part in parts):
                    raise
                waiting = not what.moved(groups)


def _sent(client: Any, shared: Any, times: int) -> Any:
    """What all tasks share: itself where it is small, so that it goes with each; else a task that workers ask."""
    if times * len(pickle.dumps(shared, protocol=5)) <= _SMALL:
        return shared
    with _graphs_of_any_size():
        return client.submit(_same, shared, pure=False, retries=_RETRIES)


def _graphs_of_any_size() -> Any:
    """No warning of what Dask takes for a mistake: arrays, and what models are made of, that go with a task."""
    config: Any = import_module("dask.config")
    return config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})


def done(client: Any, function: Callable[..., Any], shared: Any, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Each item's number and function(shared, item), as they are done, in tasks of their own; an end drops the rest."""
    distributed: Any = import_module("distributed")
    sent = _sent(client, shared, len(items))
    with _graphs_of_any_size():
        # a task whose worker is gone is done again in any case; one that fails would fail again
        number = {client.submit(function, sent, item, pure=False): i for i, item in enumerate(items)}
    try:
        for future in distributed.as_completed(number):
            yield number[future], future.result()
    finally:
        client.cancel([future for future in number if not future.done()])


def from_rows(read: Callable[[int, int], Any], shape: tuple[int, int], rows: int, sparse: bool) -> Any:
    """A dask array (samples, features) of read(start, stop), so many rows at a time."""
    import numpy as np
    import scipy.sparse as sp
    from dask.delayed import delayed

    da: Any = import_module("dask.array")
    meta = sp.csr_array((0, 0)) if sparse else np.empty((0, 0))
    edges = [*range(0, shape[0], rows), shape[0]]
    blocks = [
        da.from_delayed(delayed(read, pure=False)(start, stop), (stop - start, shape[1]), meta=meta)
        for start, stop in pairwise(edges)
    ]
    return da.concatenate(blocks)


def write_zarr(array: Any, path: Any) -> None:
    """Write a dask array to a new zarr folder, each block by the worker that has it."""
    with _graphs_of_any_size():
        array.to_zarr(str(path), overwrite=True)


def mapped(X: Any, function: Callable[..., Any], payload: Any, width: int) -> Any:
    """A dask array (n_samples, width) of function(chunk, payload), lazy, made where the chunks of X are."""
    whole = X.rechunk({1: -1})
    return whole.map_blocks(
        function, payload=_carried(payload), dtype="float64", chunks=(whole.chunks[0], (width,)), meta=_empty()
    )


def _carried(payload: Any) -> Any:
    """What goes with a lazy array: a large one not with its graph, but once, to the workers of the client in use."""
    from dask.delayed import delayed

    distributed = sys.modules.get("distributed")
    with suppress(ValueError):
        if distributed is not None and len(pickle.dumps(payload, protocol=5)) > _SMALL:
            client = distributed.Client.current()
            with _graphs_of_any_size():
                # a task: a worker that is lost with it does not take it away
                return client.persist(delayed(_same, pure=False)(payload))
    return delayed(payload, pure=False)


def _empty() -> Any:
    import numpy as np

    return np.empty((0, 0))


def _same(value: Any) -> Any:
    return value
