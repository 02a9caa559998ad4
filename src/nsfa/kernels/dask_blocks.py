"""Dask: workers to connect to, what they keep, and one map and tree-reduce over it. Nothing in here knows the model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any

# A node of the tree that adds up what workers return has so many branches.
BRANCHES = 8
# How often a task is tried again where it fails; that of a worker that was lost is done elsewhere in any case.
_RETRIES = 3
# How long to wait for a scheduler.
_PATIENCE = "10s"
# The first workers a machine gets, if there are none.
N_WORKERS = 2
# Ctrl-C is for the client, which needs them to end its sweep.
_NO_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
_NEEDS_DASK = "Tables in blocks need Dask. Got a Python without it ({}); install nsfa[dask]."

Group = Sequence[Any]
"""Futures of what one thread of a worker goes through in one task."""


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
                f"There must be a Dask scheduler at {address!r}. Got none ({error}); start one with dask scheduler."
            ) from None
        with client:
            yield client
        return
    try:
        client = distributed.Client.current()
    except ValueError:
        how = {"n_workers": N_WORKERS, "threads_per_worker": max(1, cores // N_WORKERS), "dashboard_address": ":0"}
        with distributed.LocalCluster(**how, preload=_NO_INTERRUPTS) as cluster, distributed.Client(cluster) as own:
            yield own
        return
    yield client


def places(client: Any) -> list[str]:
    """The workers' addresses, each as often as it has threads; ValueError if there is none."""
    threads = client.nthreads()
    out = [address for address in sorted(threads) for _ in range(threads[address])]
    if not out:
        raise ValueError("The Dask cluster must have workers. Got none; start some, or wait until they have joined.")
    return out


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


def read_reduced(
    client: Any, function: Callable[..., Any], sources: Sequence[tuple[Any, list[Any]]],
    join: Callable[[list[Any]], Any], finish: Callable[[list[Any]], Any],
) -> Any:  # fmt: skip
    """``finish`` of all function(cut, chunks), neighbours joined on the way; chunks are read and forgotten."""
    from dask.delayed import delayed

    parts = [delayed(function, pure=False)(cut, chunks) for cut, chunks in sources]
    while len(parts) > BRANCHES:
        parts = [delayed(join, pure=False)(parts[i : i + BRANCHES]) for i in range(0, len(parts), BRANCHES)]
    return client.compute(delayed(finish, pure=False)(parts), retries=_RETRIES).result()


def kept(
    client: Any, function: Callable[..., Any], sources: Sequence[tuple[Any, list[Any]]], *shared: Any
) -> list[Group]:
    """function(cut, chunks, *shared) of all sources, kept by the workers: neighbours together, a group per thread.

    They are tasks: whatever a lost worker had is made anew by the others, from its chunks.
    """
    import numpy as np
    from dask.delayed import delayed

    where = places(client)
    common = [delayed(item, pure=False) for item in shared]
    groups = []
    for address, some in zip(where, np.array_split(np.arange(len(sources)), len(where)), strict=True):
        made = [delayed(function, pure=False)(*sources[i], *common) for i in some]
        if made:
            groups.append(client.compute(made, workers=[address], allow_other_workers=True, retries=_RETRIES))
    return groups


def reduced(
    client: Any, function: Callable[..., Any], groups: Sequence[Group], shared: Any,
    join: Callable[[list[Any]], Any], finish: Callable[[list[Any]], Any],
) -> Any:  # fmt: skip
    """``finish`` of all function(group, shared), neighbours joined on the way.

    A task per group and a few for the tree, submitted as they are: there is no graph to optimise. What is shared is a
    task, too, so that everything can be done again where a worker is lost.
    """
    how: dict[str, Any] = {"pure": False, "retries": _RETRIES}
    everywhere = client.submit(_same, shared, **how)
    parts = [client.submit(function, list(group), everywhere, **how) for group in groups]
    while len(parts) > BRANCHES:
        parts = [client.submit(join, parts[i : i + BRANCHES], **how) for i in range(0, len(parts), BRANCHES)]
    return client.submit(finish, parts, **how).result()


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
    array.to_zarr(str(path), overwrite=True)


def mapped(X: Any, function: Callable[..., Any], payload: Any, width: int) -> Any:
    """A dask array (n_samples, width) of function(chunk, payload), lazy, made where the chunks of X are."""
    from dask.delayed import delayed

    whole = X.rechunk({1: -1})
    carried = delayed(payload, pure=False)
    return whole.map_blocks(
        function, payload=carried, dtype="float64", chunks=(whole.chunks[0], (width,)), meta=_empty()
    )


def _empty() -> Any:
    import numpy as np

    return np.empty((0, 0))


def _same(value: Any) -> Any:
    return value
