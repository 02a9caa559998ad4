"""Worker processes: fresh interpreters that do calls for the process that started them, and end when it does.

A worker reads calls from its standard input and answers on its standard output. The end of its input is the end of its
caller, a kill included; there are no files and no semaphores to leave behind. It imports this package and never the
caller's script, which therefore needs no ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing.spawn import get_executable
from queue import Empty, SimpleQueue
from typing import Any

from nsfa.interrupts import held_back

# Seconds after which an idle worker ends by itself; somewhat earlier it is not given work any more.
_IDLE, _FRESH = 300.0, 240.0
# Seconds between two looks at who the parent is.
_LOOK = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP = "stop"
_START = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from nsfa.workers import serve; serve()"

Report = Callable[[Any], None]


class WorkerLostError(RuntimeError):
    """A worker process ended before its call did; the message says how."""


class Worker:
    """A process that does one call at a time. ``awake`` is done once it has loaded the code and can take a call."""

    def __init__(self) -> None:
        self.owner, self.since = os.getpid(), time.monotonic()
        self.awake: Future[None] = Future()
        self._sending = threading.Lock()
        # blocked until it can ignore them
        with held_back(*_SIGNALS):
            # -P: nothing is imported from the current directory before the caller's path is known
            command = [get_executable() or "", "-P", "-c", _START]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._greeting = threading.Thread(target=self._greet, daemon=True)
        self._greeting.start()

    def _greet(self) -> None:
        try:
            self._send(sys.path)
            self._receive()
        except WorkerLostError as error:
            self.awake.set_exception(error)
        else:
            self.awake.set_result(None)

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def call(self, function: Callable[..., Any], *args: Any, stop: threading.Event, report: Report) -> Any:
        """What ``function(*args, stop, report)`` returns there.

        Whoever sets ``stop`` also calls the method of that name, which sets it there; reports come back here.
        """
        self.awake.result()
        try:
            self._send((function, args, _folder()))
            if stop.is_set():
                # the request may have gone before the call
                self.stop()
            kind, value = self._receive()
            while kind == "report":
                report(value)
                kind, value = self._receive()
        except BaseException:
            # what is in its pipes belongs to nobody now
            self.end()
            raise
        if kind == "error":
            raise value
        return value

    def stop(self) -> None:
        """Ask the call under way, if there is one, to stop."""
        if self.awake.done():
            with suppress(WorkerLostError):
                self._send(_STOP)

    def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        if threading.current_thread() is not self._greeting:
            self._greeting.join()
        for pipe in (self._process.stdin, self._process.stdout):
            # closing flushes, and there is nobody left to read it
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _send(self, message: Any) -> None:
        pipe: Any = self._process.stdin
        with self._sending:
            try:
                pickle.dump(message, pipe, protocol=5)
                pipe.flush()
            except (OSError, ValueError) as error:
                raise self._lost() from error

    def _receive(self) -> tuple[str, Any]:
        pipe: Any = self._process.stdout
        try:
            answer: tuple[str, Any] = pickle.load(pipe)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            raise self._lost() from error
        return answer

    def _lost(self) -> WorkerLostError:
        self._process.kill()
        code = self._process.wait()
        how = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return WorkerLostError(
            f"Worker processes must live as long as their chains. Got one that was {how}, which the system does when "
            "memory runs out; run fewer chains at once. Draws in a store are safe."
        )


_idle: deque[Worker] = deque()


@contextmanager
def borrowed(number: int, keep: bool = True) -> Iterator[list[Worker]]:
    """So many workers, if the system lets us start them; afterwards they wait for the next call, or end."""
    team: list[Worker] = []
    try:
        with suppress(OSError):
            while len(team) < number:
                team.append(_waiting() or Worker())
        yield team
    finally:
        for worker in team:
            if keep and worker.alive:
                worker.since = time.monotonic()
                _idle.append(worker)
            else:
                worker.end()


def end_idle() -> None:
    """End the workers that wait for work."""
    for _ in range(len(_idle)):
        worker = _idle.popleft()
        # a forked copy of this process must leave its parent's alone
        if worker.owner == os.getpid():
            worker.end()


atexit.register(end_idle)


def _waiting() -> Worker | None:
    for _ in range(len(_idle)):
        worker = _idle.pop()
        if worker.owner != os.getpid():
            _idle.appendleft(worker)
        elif worker.alive and time.monotonic() - worker.since < _FRESH:
            return worker
        else:
            worker.end()
    return None


def _folder() -> str | None:
    """The current directory, None if it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


_following: list[threading.Thread] = []


def followed(caller: int, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a worker of another's pool, which from then on ends when the process ``caller`` does."""
    # elsewhere than in a child of the caller there is nobody to follow
    if os.getppid() == caller and not _following:
        _following.append(threading.Thread(target=_leave_with_parent, daemon=True))
        _following[0].start()
    return function(*args)


def serve() -> None:
    """What a worker does: one call after another, until there is no caller or nothing to do."""
    for number in _SIGNALS:
        # a terminal's Ctrl-C and a batch system's SIGTERM reach every process, and the caller acts for all
        signal.signal(number, signal.SIG_IGN)
    answers, nowhere = os.fdopen(os.dup(1), "wb"), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    calls: SimpleQueue[Any] = SimpleQueue()
    for watch in (lambda: _read(calls), _leave_with_parent):
        threading.Thread(target=watch, daemon=True).start()

    def answer(kind: str, value: Any) -> None:
        pickle.dump((kind, value), answers, protocol=5)
        answers.flush()

    try:
        _load_code()
        answer("awake", None)
        while True:
            answer(*_do(calls.get(timeout=_IDLE), lambda value: answer("report", value)))
    except (Empty, BrokenPipeError):
        pass
    except Exception:  # noqa: BLE001  (there is nobody else to tell)
        traceback.print_exc()
    # without the threads, which may wait for ever
    os._exit(0)


def _load_code() -> None:
    from nsfa.kernels import get_kernels

    get_kernels()


def _read(calls: SimpleQueue[Any]) -> None:
    """Read ahead: so the end of the caller is seen during a call, too, and a request to stop it."""
    stop = threading.Event()
    while True:
        try:
            message = pickle.load(sys.stdin.buffer)
        except (EOFError, OSError):
            os._exit(1)
        except Exception as error:  # noqa: BLE001  (whatever a class that is not here raises)
            calls.put(error)
            return
        if message == _STOP:
            stop.set()
        else:
            stop = threading.Event()
            calls.put((*message, stop))
        del message


def _leave_with_parent() -> None:
    """The pipe does not end while a forked copy of the caller has it open; the parent of this process changes then."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)


def _do(call: Any, report: Report) -> tuple[str, Any]:
    """The answer to one call."""
    try:
        if isinstance(call, Exception):
            raise call
        function, args, folder, stop = call
        if folder is not None:
            # paths may be relative
            os.chdir(folder)
        return "result", function(*args, stop, report)
    except Exception as error:  # noqa: BLE001  (the caller's to handle)
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        return "error", _portable(error)


def _portable(error: Exception) -> Exception:
    """An exception that can be sent: itself, or its text if it cannot be pickled or read back."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  (exceptions may raise anything here)
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
