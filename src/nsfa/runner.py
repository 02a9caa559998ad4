"""Many chains: in threads or processes, with a clean stop. Where they run never changes what they draw."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from nsfa.backends import open_samples, resolve_backend
from nsfa.chain import Chain, Sweep, chain_generator, run_chain
from nsfa.counts import check_count, core_count, on_cluster, worker_count
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.draws.log import Keeper, Memory, open_log
from nsfa.draws.store import Store
from nsfa.kernels.dask_blocks import connected, done
from nsfa.kernels.device import enough_memory
from nsfa.length import Length
from nsfa.matching import warn_caller
from nsfa.model.spec import ModelSpec
from nsfa.model.start import starting_factors
from nsfa.monitor import Monitor, Progress
from nsfa.threads import one_thread
from nsfa.workers import Worker, borrowed

_REPORT_EVERY = 0.1
# Seconds of sampling from which starting worker processes (imports, compiled code from the cache) is worth it.
_WORTH_PROCESSES = 2.0
# Entries of a table from which workers are not kept for the next fit.
_LARGE = 500_000
# Bytes of a table from which chains take turns on all cores unless told otherwise: each worker would hold it again.
TOO_LARGE_TO_COPY = 10**9


@dataclass(frozen=True)
class ChainResult:
    """The kept draws of one chain, and whether it ran to its end."""

    chain: int
    draws: list[Draw]
    finished: bool


@dataclass(frozen=True)
class _Job:
    data: Observed
    spec: ModelSpec
    length: Length
    seed: int
    backend: str
    tf32: bool
    threads: int
    watched: bool
    store: Store | None


def sample(
    data: Observed,
    spec: ModelSpec,
    *,
    chains: int = 4,
    length: Length | None = None,
    seed: int | None = None,
    n_jobs: int | str | None = None,
    workers: str = "auto",
    backend: str = "auto",
    tf32: bool = False,
    monitor: Monitor | None = None,
    store: Store | None = None,
) -> list[ChainResult]:
    """Run ``chains`` chains and return their draws; Ctrl-C returns what was drawn so far.

    A chain's draws depend on (data, spec, seed, its number) alone. ``n_jobs`` chains run at once (None: as many as
    there are cores); cores left over speed up each chain. ``workers`` is "threads", "processes" or "auto": short runs
    take turns in one thread; of long ones one chain stays here and the others go to processes, which take seconds to
    start. Every process has a copy of the table: of one of more than 1 GB chains take turns unless ``n_jobs`` is given.
    ``n_jobs="dask"`` makes each chain a task of the Dask client in use, or of one made for it, without reports on the
    way. ``backend`` and ``tf32`` are those of the estimators, or a name of kernels; chains on a GPU take turns.
    ``monitor`` may be called from other threads. With a ``store``, whose lock the caller holds, chains go on from what
    it has and leave their draws there instead of returning them.
    """
    check_count("chains", chains)
    spec.check_shape(*data.shape)
    if workers not in ("auto", "threads", "processes"):
        raise ValueError(f"workers must be 'auto', 'threads' or 'processes'. Got {workers!r}.")
    seed = fresh_seed() if seed is None else seed
    length = length or Length()
    cluster, jobs = on_cluster(n_jobs), None if on_cluster(n_jobs) else n_jobs
    at_once, backend = min(worker_count(jobs), chains), resolve_backend(backend, data, spec)
    if backend == "gpu" and not data.elsewhere:
        _warn_of_turns(cluster, workers)
    if backend == "gpu" or data.elsewhere:
        # of a table on other workers as many at once as wanted: here they only wait
        workers, at_once = "threads", at_once if data.elsewhere and jobs is not None else 1
    elif cluster:
        job = _Job(data, spec, length, seed, backend, tf32, 1, False, store)
        return _run_on_cluster(job, chains)
    elif workers == "auto":
        long = chains * length.sweeps * _guess_seconds(data) > _WORTH_PROCESSES
        alone = jobs is None and table_bytes(data) > TOO_LARGE_TO_COPY
        workers = "processes" if long and at_once > 1 and not alone else "threads"
        at_once = at_once if workers == "processes" else 1
    threads = max(1, core_count() // at_once) if jobs is None else 1
    job = _Job(data, spec, length, seed, backend, tf32, threads, monitor is not None, store)
    run = _run_in_threads if workers == "threads" else _run_in_processes
    return run(job, chains, at_once, monitor or (lambda progress: None))


def _warn_of_turns(cluster: bool, workers: str) -> None:
    """Say what is ignored where chains are on this machine's GPU."""
    wish = ("n_jobs='dask'", "tasks") if cluster else ("workers='processes'", "processes")
    if cluster or workers == "processes":
        warn_caller(
            f"{wish[0]} has no effect: these chains take turns on this machine's GPU; use backend='cpu' for {wish[1]}."
        )


def _guess_seconds(data: Observed) -> float:
    """A rough guess at the seconds of one sweep, from the table's size."""
    return 5e-4 + 4e-8 * data.shape[0] * data.shape[1]


def table_bytes(data: Observed) -> int:
    """Bytes of a table's values; of a sparse one, where they are included."""
    values = data.values
    parts = (values,) if data.offset is None else (values.data, values.indices, values.indptr)
    return sum(int(part.nbytes) for part in parts)


def shown(chains: int, progress: bool, monitor: Monitor | None) -> AbstractContextManager[Monitor | None]:
    """The caller's monitor, and if ``progress`` the display of the command beside it."""
    if not progress:
        return nullcontext(monitor)
    # here, since it needs rich and sampling does not
    from nsfa.progress import beside

    return beside(chains, monitor)


def fresh_seed() -> int:
    """A seed from the system's entropy, small enough to write down."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def _run_one(job: _Job, chain: int, stop: threading.Event, report: Callable[[Progress], Any]) -> ChainResult:
    """One chain from start to end, or until ``stop`` is set; reports a few times a second."""
    if job.store is None:
        return _run_kept(job, chain, Memory(), stop, report)
    with open_log(job.store, chain) as log:
        return _run_kept(job, chain, log, stop, report)


def _run_kept(
    job: _Job, chain: int, keeper: Keeper, stop: threading.Event, report: Callable[[Progress], Any]
) -> ChainResult:
    if keeper.complete:
        return ChainResult(chain, keeper.draws, finished=True)
    # what is left is looked at before the samples are closed
    with threadpool_limits(1), ExitStack() as opened, enough_memory():
        samples = open_samples(job.data, job.spec, job.backend, job.tf32, job.threads)
        opened.callback(samples.close)
        start = starting_factors(job.spec, job.data.shape, chain)
        engine = Chain(samples, job.spec, chain_generator(job.seed, chain), start, job.length.tune)
        keeper.restore(engine)
        # a chain that was at its end makes no sweep
        last_report, finished = time.monotonic(), True
        accepted = tried = 0
        for sweep in _guarded(run_chain(engine, job.length)):
            if sweep.draw is not None:
                keeper.add(sweep.draw)
            keeper.checkpoint(engine)
            accepted, tried = accepted + sweep.births.accepted, tried + sweep.births.tried
            now, finished = time.monotonic(), sweep.number == sweep.total
            if now - last_report > _REPORT_EVERY or finished:
                report(_progress(job, chain, engine, sweep, accepted / tried if tried else math.nan))
                last_report = now
                if stop.is_set():
                    break
        keeper.checkpoint(engine, now=True)
    return ChainResult(chain, keeper.draws, finished=finished)


def _progress(job: _Job, chain: int, engine: Chain, sweep: Sweep, acceptance: float) -> Progress:
    """A report; the log joint costs something and is computed only for someone to see."""
    log_joint = sum(engine.log_density()) if job.watched else math.nan
    return Progress(
        chain, sweep.number, sweep.total, sweep.warming_up, sweep.n_factors, log_joint, acceptance, engine.seconds
    )


def _guarded(sweeps: Iterator[Sweep]) -> Iterator[Sweep]:
    """Pass sweeps on; turn a numerical breakdown into a sentence about its usual cause."""
    try:
        yield from sweeps
    except np.linalg.LinAlgError as error:
        raise RuntimeError(
            f"The sampler broke down numerically ({error}) Features that are copies or sums of each other can do this: "
            "drop them, or use noise='diagonal'."
        ) from None


def _run_in_threads(job: _Job, chains: int, at_once: int, monitor: Monitor) -> list[ChainResult]:
    stop = threading.Event()
    # limits set here too: chains enter and leave theirs at different times, and the setting is the process's
    with threadpool_limits(1), ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(_run_one, job, chain, stop, monitor) for chain in range(chains)]
        try:
            return _gather(futures, stop.set, lambda: None)
        except BaseException:
            # leaving waits for the chains: they need not run to their end
            stop.set()
            raise


def _run_in_processes(job: _Job, chains: int, at_once: int, monitor: Monitor) -> list[ChainResult]:
    """One chain at a time here, the others in worker processes, which join in once they are up."""
    stop, latest = threading.Event(), dict[int, Progress]()
    places: SimpleQueue[Callable[[int], ChainResult]] = SimpleQueue()
    # its own table, of the same arrays: a chain here adds what it computes to the other, maybe while this one is sent
    sent = replace(job, data=copy(job.data))

    def note(report: Progress) -> None:
        latest[report.chain] = report

    def join(worker: Worker, awake: Future[None]) -> None:
        # a worker that cannot start is not missed
        if awake.exception() is None:
            places.put(partial(worker.call, _run_one, sent, stop=stop, report=note))

    def anywhere(chain: int) -> ChainResult:
        place = places.get()
        try:
            return ChainResult(chain, [], finished=False) if stop.is_set() else place(chain)
        finally:
            places.put(place)

    def forward() -> None:
        for chain in list(latest):
            monitor(latest.pop(chain))

    def end() -> None:
        stop.set()
        for worker in team:
            worker.stop()

    # workers that have seen a large table do not give its memory back while they wait
    keep = job.data.values.size <= _LARGE
    with borrowed(at_once - 1, keep) as team, ThreadPoolExecutor(at_once) as waiting:
        places.put(partial(_run_one, job, stop=stop, report=note))
        for worker in team:
            worker.awake.add_done_callback(partial(join, worker))
        try:
            return _gather([waiting.submit(anywhere, chain) for chain in range(chains)], end, forward)
        except BaseException:
            # as above
            end()
            raise


def _run_on_cluster(job: _Job, chains: int) -> list[ChainResult]:
    """Chains as tasks; one whose worker is lost begins anew elsewhere. Ctrl-C leaves those that are done."""
    results = [ChainResult(chain, [], finished=False) for chain in range(chains)]
    with connected(cores=core_count()) as client, suppress(KeyboardInterrupt):
        for chain, result in done(client, _run_alone, job, range(chains)):
            results[chain] = result
    return results


def _run_alone(job: _Job, chain: int) -> ChainResult:
    # beside others of this worker, which end at other times
    with one_thread():
        return _run_one(job, chain, threading.Event(), lambda progress: None)


def _gather(
    futures: list[Future[ChainResult]], stop: Callable[[], None], poll: Callable[[], None]
) -> list[ChainResult]:
    """Wait for all chains; on Ctrl-C ask them to stop after their sweep and collect what they have."""
    try:
        waiting = True
        while waiting:
            poll()
            # each look takes the interpreter from a chain that runs here
            done, rest = wait(futures, _REPORT_EVERY / 2, FIRST_EXCEPTION)
            waiting = bool(rest) and not any(future.exception() for future in done)
    except KeyboardInterrupt:
        stop()
        for future in futures:
            future.cancel()
    if any(future.done() and not future.cancelled() and future.exception() for future in futures):
        stop()
        for future in futures:
            future.cancel()
    # also after an error: the others still write what they have
    wait([future for future in futures if not future.cancelled()])
    results = [
        ChainResult(chain, [], finished=False) if future.cancelled() else future.result()
        for chain, future in enumerate(futures)
    ]
    poll()
    return results
