"""Where chains run must not change a bit of what they draw."""

import hashlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import Parallel, delayed

from nsfa import runner
from nsfa.counts import core_count, worker_count
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.length import Length
from nsfa.model import preset
from nsfa.monitor import Progress
from nsfa.runner import sample
from nsfa.samples import Samples
from nsfa.workers import Worker, borrowed


def fingerprint(results) -> list[str]:
    out = []
    for result in results:
        digest = hashlib.sha256()
        for draw in result.draws:
            for part in (draw.pattern, draw.value, draw.noise_precision, draw.loading_precision):
                digest.update(part.tobytes())
            digest.update(repr([v for k, v in sorted(draw.scalars.items()) if k != "seconds"]).encode())
        out.append(digest.hexdigest())
    return out


def problem(name="nsfa", missing=0.1, n_features=40):
    X = make_sparse_factors(30, n_features, 4, density=0.3, missing=missing, random_state=2).X
    spec = preset(name, **({} if name == "nsfa" else {"n_components": 4}))
    return observe(X), spec


LENGTH = Length(tune=20, draws=10)


@pytest.mark.parametrize("name", ["nsfa", "fok", "bfrm"])
def test_threads_processes_and_numbers_of_chains_give_the_same_draws(name):
    data, spec = problem(name)
    serial = fingerprint(sample(data, spec, chains=3, length=LENGTH, seed=7, n_jobs=1))
    assert len(set(serial)) == 3
    for settings in ({"workers": "threads", "n_jobs": 2}, {"workers": "processes", "n_jobs": 2}, {"n_jobs": None}):
        assert fingerprint(sample(data, spec, chains=3, length=LENGTH, seed=7, **settings)) == serial
    assert fingerprint(sample(data, spec, chains=2, length=LENGTH, seed=7)) == serial[:2]
    assert fingerprint(sample(data, spec, chains=1, length=LENGTH, seed=8))[0] not in serial


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_chains_of_large_tables_take_turns_unless_told_otherwise(form, monkeypatch):
    X = form(make_sparse_factors(30, 20, 4, density=0.3, random_state=2).X)
    data, went = observe(X), []
    monkeypatch.setattr(runner, "_run_in_processes", lambda *arguments: went.append("processes") or [])
    monkeypatch.setattr(runner, "_run_in_threads", lambda *arguments: went.append(arguments[2]) or [])
    monkeypatch.setattr(runner, "_WORTH_PROCESSES", 0.0)
    monkeypatch.setattr(runner, "core_count", lambda: 4)
    monkeypatch.setattr(runner, "worker_count", lambda n_jobs: n_jobs or 4)
    for most, n_jobs in ((runner.TOO_LARGE_TO_COPY, None), (8 * 600 - 1, None), (8 * 600 - 1, 2)):
        monkeypatch.setattr(runner, "TOO_LARGE_TO_COPY", most)
        sample(data, preset("nsfa"), chains=4, length=LENGTH, seed=7, n_jobs=n_jobs)
    assert went == ["processes", 1, "processes"]


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("sweep", ["collapsed", "parallel"])
def test_one_thread_equals_two_and_three(missing, sweep, monkeypatch):
    """With the threshold lowered, so that every kernel really is shared out."""
    from nsfa.chain import Chain, chain_generator
    from nsfa.kernels import numba_cpu, products

    monkeypatch.setattr(numba_cpu, "_WORTH_A_THREAD", 50)
    monkeypatch.setattr(products, "_WORK_PER_BLOCK", 1000)
    X = make_sparse_factors(60, 300, 5, density=0.2, missing=missing, random_state=3).X
    results = []
    for threads in (1, 2, 3):
        samples = Samples(observe(X), get_kernels("numba", threads))
        chain = Chain(samples, preset("nsfa", sweep=sweep), chain_generator(1, 0))
        for _ in range(25):
            chain.sweep()
        results.append((chain.state.loadings, samples.scores, samples.log_evidence))
    for loadings, scores, evidence in results[1:]:
        np.testing.assert_array_equal(loadings, results[0][0])
        np.testing.assert_array_equal(scores, results[0][1])
        assert evidence == results[0][2]


def test_another_interpreter_gives_the_same_draws():
    code = (
        "from test_runner import *\n"
        "data, spec = problem()\n"
        "print(fingerprint(sample(data, spec, chains=1, length=LENGTH, seed=7))[0])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    data, spec = problem()
    assert other.stdout.strip() == fingerprint(sample(data, spec, chains=1, length=LENGTH, seed=7))[0]


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_ctrl_c_returns_what_was_drawn(workers):
    data, spec = problem()
    reports: list[Progress] = []
    # a shell's background job inherits an ignored SIGINT
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def watch(report: Progress) -> None:
        reports.append(report)
        if len(reports) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    started = time.monotonic()
    results = sample(data, spec, chains=2, length=Length(5, 10**6), seed=1, workers=workers, n_jobs=2, monitor=watch)
    signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 60
    assert results and not any(r.finished for r in results)
    assert max(len(r.draws) for r in results) > 0
    assert reports[0].total == 5 + 10**6


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_monitor_that_fails_ends_the_run(workers):
    data, spec = problem()

    def watch(report: Progress) -> None:
        raise RuntimeError("the display is gone")

    sample(data, spec, chains=2, length=Length(5, 5), seed=1, workers=workers, n_jobs=2)  # compiles
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="display"):
        sample(data, spec, chains=2, length=Length(5, 20_000), seed=1, workers=workers, n_jobs=2, monitor=watch)
    assert time.monotonic() - started < 10


def test_an_error_in_a_chain_reaches_the_caller(monkeypatch):
    from nsfa import runner

    def broken(*args):
        raise FloatingPointError("no luck")

    monkeypatch.setattr(runner, "run_chain", broken)
    data, spec = problem()
    with pytest.raises(FloatingPointError, match="no luck"):
        sample(data, spec, chains=3, length=LENGTH, seed=1, workers="threads")


def test_no_seed_means_a_new_one_each_time():
    data, spec = problem()
    a, b = (fingerprint(sample(data, spec, chains=1, length=LENGTH)) for _ in range(2))
    assert a != b


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"chains": 0}, "chains must be an int >= 1. Got 0"),
        ({"workers": "elves"}, "workers must be 'auto', 'threads' or 'processes'. Got 'elves'"),
        ({"n_jobs": 0}, "n_jobs must be None or a non-zero int. Got 0"),
    ],
)
def test_bad_settings_get_one_sentence(settings, sentence):
    data, spec = problem()
    with pytest.raises(ValueError, match=sentence):
        sample(data, spec, length=LENGTH, **settings)


def test_negative_jobs_count_back_from_the_cores(monkeypatch):
    monkeypatch.setattr("nsfa.counts.core_count", lambda: 6)
    assert [worker_count(n) for n in (None, -1, -2, -6, -7, 3, 12)] == [6, 6, 5, 1, 1, 3, 12]


def test_cores_are_those_that_affinity_and_containers_leave(monkeypatch):
    if hasattr(os, "sched_setaffinity"):
        code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        code += "from nsfa.counts import core_count; print(core_count())"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "1\n"
    # a container's quota is counted by joblib
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    assert core_count() == 2


@pytest.mark.parametrize("large", [10**6, 0])
def test_joblib_s_own_workers_can_be_used_after_ours(large, monkeypatch):
    monkeypatch.setattr("nsfa.runner._LARGE", large)
    data, spec = problem()
    first = sample(data, spec, chains=2, length=Length(5, 2), seed=0, n_jobs=2, workers="processes")
    assert Parallel(n_jobs=2)(delayed(abs)(i) for i in (-1, 2)) == [1, 2]
    again = sample(data, spec, chains=2, length=Length(5, 2), seed=0, n_jobs=2, workers="processes")
    assert fingerprint(first) == fingerprint(again)


def test_what_is_sent_to_workers_does_not_change_meanwhile(monkeypatch):
    """Chains in this process keep sums in the table; pickling it at that moment would fail."""
    real, sent = Worker.call, []
    monkeypatch.setattr(
        Worker, "call", lambda self, *args, **rest: (sent.append(args[1].data), real(self, *args, **rest))[1]
    )
    data, spec = problem(missing=0.0)
    with borrowed(1) as team:
        team[0].awake.result()
    sample(data, spec, chains=4, length=Length(5, 40), seed=0, n_jobs=2, workers="processes")
    assert sent and "total" in vars(data)
    assert all(table.values is data.values and "total" not in vars(table) for table in sent)
