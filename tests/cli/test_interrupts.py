"""Ctrl-C, SIGTERM and SIGKILL, with real processes and real signals."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import nsfa
from command import read_json, run, write_table
from processes import children, needs_proc, running, wait_until_gone

# a shell's background job inherits an ignored SIGINT
COMMAND = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
# a checkpoint comes soon, so that there is something to see
COMMAND += "from nsfa.draws import store; store.EVERY = 0.1; from nsfa.cli import app; app()"
LONG = ["--chains", "2", "--draws", "1000000", "--no-report", "--ignore-memory"]


def start(table, out, *options):
    words = [sys.executable, "-c", COMMAND, "fit", str(table), "-o", str(out), *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, process, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def some_draws(out):
    return any((out / "draws").rglob("draws-*"))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_once_summarises_the_draws_made_so_far_and_resume_goes_on(tmp_path, out):
    table = write_table(tmp_path / "table.csv")
    process = start(table, out, *LONG, "--tune", "5", "--jobs", "1", "--json")
    wait_for(lambda: some_draws(out), process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr and f"nsfa resume {out} goes on" in stderr
    found = json.loads(stdout)
    assert not found["finished"] and found["draws_per_chain"] > 0
    assert (out / "loadings.csv").exists() and not nsfa.load(out / "draws").finished
    assert f"unfinished; nsfa resume {out} goes on" in run("info", out).stdout


def test_before_the_first_draw_there_is_a_sentence_and_the_run_can_go_on(tmp_path, out):
    table = write_table(tmp_path / "table.csv")
    process = start(table, out, "--chains", "1", "--tune", "1000000", "--draws", "1")
    wait_for(lambda: (out / "draws" / "store.json").exists(), process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and stdout == "", stderr
    assert "before the first draw" in stderr and f"nsfa resume {out}" in stderr and "Traceback" not in stderr
    assert (out / "config.toml").exists()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_twice_ends_at_once(tmp_path, out, jobs):
    table = write_table(tmp_path / "table.csv", n_genes=300, n_samples=60)
    process = start(table, out, *LONG, "--tune", "1", "--jobs", jobs)
    wait_for(lambda: some_draws(out), process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and time.monotonic() - begun < 5
    assert "Traceback" not in stderr and "nsfa resume" in stderr
    # nothing after that: no tracker of semaphores has anything to say
    assert stderr.rstrip().endswith("goes on.") and "leaked" not in stderr


@needs_proc
def test_sigterm_is_an_interrupt_with_its_own_code(tmp_path, out):
    table = write_table(tmp_path / "table.csv")
    process = start(table, out, *LONG, "--tune", "5", "--jobs", "2", "--json")
    wait_for(lambda: some_draws(out), process)
    assert read_json(run("info", out, "--json"))["state"] == "running"
    workers = children(process.pid)
    # a batch system sends it to every process
    for pid in (process.pid, *workers):
        os.kill(pid, signal.SIGTERM)
    begun = time.monotonic()
    stdout, stderr = process.communicate(timeout=60)
    # a second or two, unless the machine is busy
    assert process.returncode == 143 and time.monotonic() - begun < 30, stderr
    assert "Traceback" not in stderr and f"nsfa resume {out} goes on" in stderr
    assert json.loads(stdout)["draws_per_chain"] > 0 and (out / "loadings.csv").exists()
    assert workers and not any(map(running, workers))
    assert f"unfinished; nsfa resume {out} goes on" in run("info", out).stdout


def test_sigterm_ends_a_comparison_with_the_scores_of_its_fits(tmp_path):
    table, out = write_table(tmp_path / "table.csv"), tmp_path / "c"
    words = [
        "compare",
        table,
        "-o",
        out,
        "--models",
        "spca:2,nsfa",
        "--splits",
        "1",
        "--draws",
        "100000",
        "--jobs",
        "1",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: (out / "fits.csv").exists() and "spca" in (out / "fits.csv").read_text(), process)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in stderr, stderr
    assert "spca:2" in stdout and f"nsfa resume {out} goes on" in stderr
    # one line per finished fit where there is no terminal; the fit that was cut short is none
    assert "1 of 2 fits, the last one spca:2" in stderr and "2 of 2 fits" not in stderr
    assert "nsfa #0" not in (out / "fits.csv").read_text()


@needs_proc
def test_killed_it_takes_its_workers_along_and_resumes_at_once(tmp_path, out):
    table = write_table(tmp_path / "table.csv")
    # just long enough for a worker process
    options = ["--chains", "2", "--tune", "20", "--draws", "500", "--thin", "4", "--no-report", "--jobs", "2"]
    process = start(table, out, *options)
    wait_for(lambda: some_draws(out), process)
    workers = children(process.pid)
    process.kill()
    process.communicate()
    run("resume", out, "--quiet", "--jobs", "1")
    assert workers and not wait_until_gone(workers)
    run("fit", table, "-o", tmp_path / "straight", *options, "--quiet", "--jobs", "1")
    for name in ("loadings.csv", "scores.csv", "diagnostics.json"):
        assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, out):
    table = write_table(tmp_path / "table.csv", n_genes=100, n_samples=40)
    options = ["--chains", "2", "--tune", "50", "--draws", "400", "--no-report", "--jobs", "1"]
    process = start(table, out, *options)
    wait_for(lambda: (out / "draws" / "store.json").exists(), process)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    run("resume", out, "--quiet")
    run("fit", table, "-o", tmp_path / "straight", *options, "--quiet")
    for name in ("loadings.csv", "scores.csv", "diagnostics.json"):
        assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


@needs_proc
def test_while_dask_s_workers_start_it_is_one_sentence(tmp_path, out):
    """A terminal sends it to every process, also to those that are still loading their code."""
    zarr = pytest.importorskip("zarr")
    table = np.random.default_rng(0).standard_normal((20, 6000))
    zarr.open(tmp_path / "t.zarr", mode="w", shape=table.shape, chunks=(20, 3000), dtype="f8")[:] = table
    words = [sys.executable, "-c", COMMAND, "fit", str(tmp_path / "t.zarr"), "-o", str(out), "--dask", *LONG]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    # the first child is Python's own, which looks after what processes leave behind
    wait_for(lambda: len(children(process.pid)) > 1, process)
    workers = children(process.pid)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and stdout == "", stderr
    assert "Traceback" not in stderr and "Interrupted" in stderr and len(stderr.splitlines()) <= 4, stderr
    assert not wait_until_gone(workers)


def test_joblib_s_tracker_is_not_heard(monkeypatch):
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    run("--version")
    run("info", "--quiet")
    warn = "import warnings; warnings.warn_explicit('leaked', UserWarning, 'f', 1, '{}')".format
    heard = [
        subprocess.run([sys.executable, "-c", warn(module)], capture_output=True, text=True).stderr
        for module in ("joblib.externals.loky.backend.resource_tracker", "another")
    ]
    assert heard[0] == "" and "leaked" in heard[1]
