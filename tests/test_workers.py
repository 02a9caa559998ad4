"""Worker processes: they answer, they can be stopped, and they never outlive their caller."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from nsfa import workers
from nsfa.workers import Worker, WorkerLostError, borrowed
from processes import children, needs_proc, running, wait_until_gone


@pytest.fixture
def worker():
    with borrowed(1) as team:
        yield team[0]


def call(worker, function, *args, stop=None, report=lambda value: None):
    return worker.call(function, *args, stop=stop or threading.Event(), report=report)


def echo(value, stop, report):
    for i in range(3):
        report(i)
    print("not an answer")  # noqa: T201
    return value, os.getpid(), os.getcwd()


def fail(error, stop, report):
    raise error


def wait_for_stop(stop, report):
    report("waiting")
    return stop.wait(60)


def busy(stop, report):
    report(os.getpid())
    while True:
        pass


class Odd(Exception):
    """Cannot be read back: its second argument is not kept."""

    def __init__(self, one, two):
        super().__init__(one)


def test_calls_are_answered_in_another_process_with_reports_on_the_way(worker, tmp_path, monkeypatch):
    reports = []
    monkeypatch.chdir(tmp_path)
    value, pid, folder = call(worker, echo, "x" * 10**6, report=reports.append)
    assert (value, reports, folder) == ("x" * 10**6, [0, 1, 2], str(tmp_path)) and pid != os.getpid()
    assert call(worker, echo, 1)[1] == pid


def test_errors_come_back_and_the_worker_stays(worker):
    with pytest.raises(FloatingPointError, match="no luck") as caught:
        call(worker, fail, FloatingPointError("no luck"))
    assert "In a worker process" in caught.value.__notes__[0]
    pid = call(worker, echo, 1)[1]
    with pytest.raises(RuntimeError, match="Odd: this"):
        call(worker, odd)
    assert call(worker, echo, 1)[1] == pid


def odd(stop, report):
    raise Odd("this", "that")


def test_a_call_can_be_stopped_also_before_it_arrives(worker):
    stop = threading.Event()

    def stop_it(_):
        stop.set()
        worker.stop()

    assert call(worker, wait_for_stop, stop=stop, report=stop_it)
    # the flag was set, and the request sent, between the caller's look at it and the call
    worker.stop()
    assert call(worker, wait_for_stop, stop=stop)
    # and the next call is not stopped by the one before
    assert not call(worker, is_stopped)


def is_stopped(stop, report):
    return stop.is_set()


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_worker_that_is_killed_is_a_sentence(worker):
    with pytest.raises(WorkerLostError, match="ended by signal 9, .* memory runs out; run fewer chains at once"):
        call(worker, busy, report=lambda pid: os.kill(pid, signal.SIGKILL))
    assert not worker.alive


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_signals_for_the_caller_are_ignored_from_the_first_moment():
    worker = Worker()
    try:
        for _ in range(3):
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(worker._process.pid, number)
            time.sleep(0.05)
        assert call(worker, echo, 1)[0] == 1
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(worker._process.pid, number)
        assert call(worker, echo, 2)[0] == 2
    finally:
        worker.end()


def test_workers_are_kept_for_the_next_caller_and_ended_when_asked():
    with borrowed(2) as team:
        pids = {call(worker, echo, 1)[1] for worker in team}
        assert len(pids) == 2
    with borrowed(1) as (worker,):
        assert call(worker, echo, 1)[1] in pids
    with borrowed(2, keep=False) as team:
        assert {call(worker, echo, 1)[1] for worker in team} == pids
    assert not any(worker.alive for worker in team)


def test_workers_that_have_waited_long_are_not_used(monkeypatch):
    with borrowed(1) as (old,):
        call(old, echo, 1)
    monkeypatch.setattr(workers, "_FRESH", 0.0)
    with borrowed(1, keep=False) as (new,):
        assert new is not old and not old.alive


def test_a_process_that_cannot_start_is_not_missed(monkeypatch):
    workers.end_idle()
    monkeypatch.setattr(workers, "get_executable", lambda: "/nowhere/python")
    with borrowed(3) as team:
        assert team == []


SCRIPT = """
import os, sys, time
from test_workers import busy, call
from nsfa.workers import Worker
workers = [Worker() for _ in range(3)]
if sys.argv[1] != "starting":
    [worker.awake.result() for worker in workers]
if sys.argv[1] == "forked" and os.fork() == 0:
    time.sleep(30)
    os._exit(0)
if sys.argv[1] == "busy":
    call(workers[0], busy, report=lambda pid: print("ready", flush=True))
print("ready", flush=True)
time.sleep(60)
"""


@needs_proc
@pytest.mark.parametrize("state", ["starting", "idle", "busy", "forked"])
def test_a_killed_caller_takes_its_workers_with_it(state):
    """Also where a forked copy of the caller lives on, and keeps their pipes open."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    caller = subprocess.Popen([sys.executable, "-c", SCRIPT, state], stdout=subprocess.PIPE, env=env)
    assert caller.stdout.readline() == b"ready\n"
    pids = children(caller.pid)
    copies = [pid for pid in pids if state == "forked" and b"serve" not in cmdline(pid)]
    assert len(pids) == 3 + len(copies) and len(copies) == (state == "forked")
    caller.kill()
    caller.communicate() if not copies else caller.wait()
    left = wait_until_gone([pid for pid in pids if pid not in copies])
    assert all(map(running, copies))
    for pid in copies:
        os.kill(pid, signal.SIGKILL)
    caller.stdout.close()
    assert not left


def cmdline(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def mark_and_sleep(path):
    open(path, "w").close()
    time.sleep(60)


@needs_proc
def test_another_s_pool_ends_with_the_caller_too(tmp_path):
    code = (
        "import os\n"
        "from joblib import Parallel, delayed\n"
        "from nsfa.workers import followed\n"
        "from test_workers import mark_and_sleep\n"
        "Parallel(n_jobs=2)(delayed(followed)(os.getpid(), mark_and_sleep, name) for name in 'ab')\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    caller = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, env=env, cwd=tmp_path)
    end = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    pids = [pid for pid in children(caller.pid) if b"popen_loky" in cmdline(pid)]
    caller.kill()
    caller.wait()
    assert len(pids) == 2 and not wait_until_gone(pids)
