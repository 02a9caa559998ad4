"""Ctrl-C, with real processes and real signals."""

import json
import signal
import subprocess
import sys
import time

import pytest

import nsfa
from command import run, write_table

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
