"""Many chains: in threads or processes, with a clean stop. Where they run never changes what they draw."""

from __future__ import annotations

import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, BrokenExecutor, Future, ThreadPoolExecutor, wait
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from nsfa.chain import Chain, Length, Sweep, chain_generator, run_chain
from nsfa.data import Observed
from nsfa.draws import Draw
from nsfa.draws.log import ChainLog, Keeper, Memory
from nsfa.draws.store import Store
from nsfa.kernels import get_kernels
from nsfa.model.spec import ModelSpec, is_integer
from nsfa.model.start import starting_factors

_REPORT_EVERY = 0.1
# Seconds of sampling from which starting worker processes (imports, compiled code from the cache) is worth it.
_WORTH_PROCESSES = 2.0
# Entries of a table from which workers are not kept for the next fit.
_LARGE = 500_000


@dataclass(frozen=True)
class Progress:
    """Where one chain stands: sweeps done of how many, whether still warming up, and its number of factors.

    ``acceptance`` is the share of features that took a changed set of own factors, over the sweeps of this process (NaN
    for models without births); ``seconds`` is since the chain's start, earlier processes included.
    """

    chain: int
    done: int
    total: int
    warming_up: bool
    n_factors: int
    log_joint: float = math.nan
    acceptance: float = math.nan
    seconds: float = 0.0


_COLUMNS = len(fields(Progress)) - 1
Monitor = Callable[[Progress], None]


class StopFlag(Protocol):
    """Something chains look at between sweeps: an Event of threads or of processes."""

    def is_set(self) -> bool:
        """Whether to stop."""


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
    n_jobs: int | None = None,
    workers: str = "auto",
    backend: str = "numba",
    monitor: Monitor | None = None,
    store: Store | None = None,
) -> list[ChainResult]:
    """Run ``chains`` chains and return their draws; Ctrl-C returns what was drawn so far.

    A chain's draws depend on (data, spec, seed, its number) alone. ``n_jobs`` chains run at once (None: as many as
    there are cores); cores left over speed up each chain. ``workers`` is "threads", "processes" or "auto": short runs
    take turns in one thread; of long ones one chain stays here and the others go to processes, which take seconds to
    start. ``monitor`` may be called from other threads. With a ``store``, whose lock the caller holds, chains go on
    from what it has and leave their draws there instead of returning them.
    """
    check_count("chains", chains)
    spec.check_shape(*data.shape)
    if workers not in ("auto", "threads", "processes"):
        raise ValueError(f"workers must be 'auto', 'threads' or 'processes'. Got {workers!r}.")
    seed = fresh_seed() if seed is None else seed
    length = length or Length()
    at_once = min(worker_count(n_jobs), chains)
    if workers == "auto":
        long = chains * length.sweeps * _guess_seconds(data) > _WORTH_PROCESSES
        workers = "processes" if long and at_once > 1 else "threads"
        at_once = at_once if workers == "processes" else 1
    threads = max(1, core_count() // at_once) if n_jobs is None else 1
    job = _Job(data, spec, length, seed, backend, threads, monitor is not None, store)
    run = _run_in_threads if workers == "threads" else _run_in_processes
    return run(job, chains, at_once, monitor or (lambda progress: None))


def _guess_seconds(data: Observed) -> float:
    """A rough guess at the seconds of one sweep, from the table's size."""
    return 5e-4 + 4e-8 * data.shape[0] * data.shape[1]


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is an int of at least ``least``."""
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} must be an int >= {least}. Got {value!r}.")


def fresh_seed() -> int:
    """A seed from the system's entropy, small enough to write down."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def core_count() -> int:
    """Cores this process may use: its affinity where the system tells it, which batch schedulers set."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(n_jobs: int | None) -> int:
    """How many chains to run at once: None is one per core, negative counts back from the cores as in joblib."""
    cores = core_count()
    if n_jobs is None:
        return cores
    if not is_integer(n_jobs) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None or a non-zero int. Got {n_jobs!r}.")
    return max(1, cores + 1 + n_jobs) if n_jobs < 0 else n_jobs


def _run_one(job: _Job, chain: int, stop: StopFlag, report: Callable[[Progress], Any]) -> ChainResult:
    """One chain from start to end, or until ``stop`` is set; reports a few times a second."""
    keeper: Keeper = Memory() if job.store is None else ChainLog(job.store, chain)
    if keeper.complete:
        return ChainResult(chain, keeper.draws, finished=True)
    with threadpool_limits(1):
        kernels, start = get_kernels(job.backend, job.threads), starting_factors(job.spec, job.data.shape, chain)
        engine = Chain(job.data, job.spec, kernels, chain_generator(job.seed, chain), start, job.length.tune)
        keeper.restore(engine)
        last_report, total = time.monotonic(), job.length.sweeps
        accepted = tried = 0
        for sweep in _guarded(run_chain(engine, job.length)):
            if sweep.draw is not None:
                keeper.add(sweep.draw)
            keeper.checkpoint(engine)
            accepted, tried = accepted + sweep.births.accepted, tried + sweep.births.features
            now = time.monotonic()
            if now - last_report > _REPORT_EVERY or sweep.number == total:
                report(_progress(job, chain, engine, sweep, accepted / tried if tried else math.nan))
                last_report = now
                if stop.is_set():
                    break
        keeper.checkpoint(engine, now=True)
    return ChainResult(chain, keeper.draws, finished=engine.number >= total)


def _progress(job: _Job, chain: int, engine: Chain, sweep: Sweep, acceptance: float) -> Progress:
    """A report; the log joint costs something and is computed only for someone to see."""
    log_joint = sum(engine.log_density()) if job.watched else math.nan
    total = job.length.sweeps
    return Progress(
        chain, sweep.number, total, sweep.warming_up, sweep.n_factors, log_joint, acceptance, engine.seconds
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
        return _gather(futures, stop.set, lambda: None)


def _run_in_processes(job: _Job, chains: int, at_once: int, monitor: Monitor) -> list[ChainResult]:
    """One chain at a time here, the others in worker processes, which join in once they are up."""
    # the pool that joblib.Parallel itself reuses: a plain loky one in its place would break the user's next Parallel
    from joblib.executor import get_memmapping_executor

    with tempfile.TemporaryDirectory(prefix="nsfa-") as folder, ThreadPoolExecutor(at_once) as waiting:
        board = Board(Path(folder) / "board", chains)
        pool = get_memmapping_executor(max(1, at_once - 1), max_nbytes=None)
        places: SimpleQueue[Callable[[int], ChainResult]] = SimpleQueue()

        def here(chain: int) -> ChainResult:
            return _run_one(job, chain, board, board.write)

        def elsewhere(chain: int) -> ChainResult:
            result: ChainResult = pool.submit(_run_elsewhere, job, chain, board).result()
            return result

        def anywhere(chain: int) -> ChainResult:
            place = places.get()
            try:
                return ChainResult(chain, [], finished=False) if board.is_set() else place(chain)
            finally:
                places.put(place)

        def join(awake: Future[None]) -> None:
            # a worker that cannot start is not missed
            if not awake.cancelled() and awake.exception() is None:
                places.put(elsewhere)

        def forward() -> None:
            for report in board.read():
                monitor(report)

        places.put(here)
        for _ in range(at_once - 1):
            pool.submit(_wake, job.backend).add_done_callback(join)
        try:
            return _gather([waiting.submit(anywhere, chain) for chain in range(chains)], board.stop, forward)
        except BaseException:
            # leaving waits for the chains: they need not run to their end
            board.stop()
            raise
        finally:
            if job.data.values.size > _LARGE:
                # workers that have seen a large table do not give its memory back while they wait
                pool.shutdown()


def _wake(backend: str) -> None:
    """What a worker process does first: load the code."""
    get_kernels(backend, 1)


def _run_elsewhere(job: _Job, chain: int, board: Board) -> ChainResult:
    """One chain in a worker process; meanwhile Ctrl-C is the parent's to act on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return _run_one(job, chain, _Orphaned(board), board.write)
    finally:
        signal.signal(signal.SIGINT, before)


class _Orphaned:
    """A stop flag that is also set when the process that started this one is gone."""

    def __init__(self, flag: StopFlag) -> None:
        self._flag, self._parent = flag, os.getppid()

    def is_set(self) -> bool:
        return self._flag.is_set() or os.getppid() != self._parent


class Board:
    """A small file that worker processes write their progress to, and read the stop flag from."""

    def __init__(self, path: Path, chains: int) -> None:
        self._path, self._chains = path, chains
        np.zeros((chains + 1, _COLUMNS)).tofile(path)

    def _open(self, mode: Any) -> Any:
        return np.memmap(self._path, dtype=np.float64, mode=mode, shape=(self._chains + 1, _COLUMNS))

    def stop(self) -> None:
        """Ask all chains to stop after their sweep."""
        self._open("r+")[-1, 0] = 1

    def is_set(self) -> bool:
        """Whether chains should stop."""
        return bool(self._open("r")[-1, 0])

    def write(self, p: Progress) -> None:
        """Post where a chain stands."""
        self._open("r+")[p.chain] = astuple(p)[1:]

    def read(self) -> list[Progress]:
        """Where the chains stand that have posted."""
        rows = self._open("r")[:-1].tolist()
        return [
            Progress(i, int(done), int(total), bool(warm), int(k), *rest)
            for i, (done, total, warm, k, *rest) in enumerate(rows)
            if total
        ]


def _gather(
    futures: list[Future[ChainResult]], stop: Callable[[], None], poll: Callable[[], None]
) -> list[ChainResult]:
    """Wait for all chains; on Ctrl-C ask them to stop after their sweep and collect what they have."""
    interrupted = False
    try:
        waiting = True
        while waiting:
            poll()
            # each look takes the interpreter from a chain that runs here
            done, rest = wait(futures, _REPORT_EVERY / 2, FIRST_EXCEPTION)
            waiting = bool(rest) and not any(future.exception() for future in done)
    except KeyboardInterrupt:
        interrupted = True
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
        ChainResult(chain, [], finished=False)
        # a terminal's Ctrl-C also ends workers that are idle or starting, and then their pool
        if future.cancelled() or (interrupted and isinstance(future.exception(), BrokenExecutor))
        else future.result()
        for chain, future in enumerate(futures)
    ]
    poll()
    return results
