"""Runs to be killed. As a script: a process that forks fits and resumes, and kills them at random moments.

    python crashing.py FOLDER KILLS SEED       kills by the clock
    python crashing.py FOLDER steps SEED       kills at every step of writing, one after another

Forking saves each fit the seconds of imports.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import warnings
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import nsfa
from nsfa.datasets import make_sparse_factors
from nsfa.draws import files, log, store

SHORT = {"chains": 2, "tune": 12, "draws": 12, "random_state": 5, "n_jobs": 1}


def problem(name: str):
    """An unfitted model and its table."""
    X = make_sparse_factors(20, 16, 3, density=0.4, random_state=1).X
    if name == "holes":
        return nsfa.NSFA(thin=1, **SHORT), np.where(np.random.default_rng(0).random(X.shape) < 0.15, np.nan, X)
    if name == "sparse":
        return nsfa.SFA(3, thin=2, **SHORT), sp.csr_array(
            np.where(np.random.default_rng(0).random(X.shape) < 0.5, 0.0, X)
        )
    if name == "clusters":
        return nsfa.BFRM(3, **SHORT), X
    return nsfa.NSFA(thin=1, **SHORT, noise="shared", stickiness="infer"), X


PROBLEMS = ("holes", "sparse", "clusters", "complete")


def write_always() -> None:
    """Checkpoints after every sweep."""
    store.EVERY, log._PATIENCE = 0.0, 0.0


def start_or_resume(name: str, path: Path):
    """Begin a run, or go on with it; returns the posterior."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if (path / store.HEADER).exists():
            return nsfa.resume(path, n_jobs=1)
        model, X = problem(name)
        return model.fit(X, store=path).posterior_


def difference(a, b) -> str:
    """What differs between two draws, but for the seconds they took; empty if nothing."""
    for item in fields(a):
        one, other = getattr(a, item.name), getattr(b, item.name)
        if item.name == "scalars":
            names = set(one) & set(other)
            wrong = [n for n in names if n != "seconds" and repr(float(one[n])) != repr(float(other[n]))]
            wrong += set(one) ^ set(other)
            if wrong:
                return f"{wrong}"
        elif isinstance(one, np.ndarray):
            if (one.dtype, one.shape, one.tobytes()) != (other.dtype, other.shape, other.tobytes()):
                return item.name
        elif one != other:
            return item.name
    return ""


def assert_same_draws(posterior, expected) -> None:
    """Every draw is that of the unbroken run, to the last bit."""
    for chain, whole in zip(posterior.chains, expected.chains, strict=True):
        for i, (a, b) in enumerate(zip(chain, whole, strict=True)):
            assert not difference(a, b), f"draw {i}: {difference(a, b)}"


def assert_part_of(posterior, expected) -> None:
    """Every chain is the beginning of one of the unbroken run's."""
    whole = [chain[: len(posterior.chains[0])] for chain in expected.chains]
    for chain in posterior.chains:
        assert any(not any(map(difference, chain, beginning)) for beginning in whole)


def _forked(name: str, path: Path, prepare=lambda: None) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            write_always()
            prepare()
            start_or_resume(name, path)
            status = 0
        finally:
            os._exit(status)
    return pid


def _killed(pid: int) -> bool:
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"a run failed with status {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status)


def kill_by_clock(folder: Path, kills: int, rng: random.Random) -> dict[str, int]:
    """Kill runs of every problem at random moments; a run that ends before its kill is followed by another one."""
    counts = {}
    for name in PROBLEMS:
        done = attempt = 0
        started = time.monotonic()
        _killed(_forked(name, folder / f"{name}-whole"))
        length = time.monotonic() - started
        while done < kills:
            pid = _forked(name, folder / f"{name}-{attempt}")
            time.sleep(rng.uniform(0.0, 0.7 * length))
            os.kill(pid, signal.SIGKILL)
            killed = _killed(pid)
            done += killed
            attempt += not killed
        counts[name] = done
    return counts


def kill_at_steps(folder: Path) -> dict[str, int]:
    """Kill a run at one step of writing, go on and kill it at another, and so on until it is done."""
    path, kills = folder / "holes-0", 0
    while _killed(_forked("holes", path, partial(_kill_at_step, 5 * kills % 17))):
        kills += 1
    return {"holes": kills}


def _kill_at_step(last: int) -> None:
    """Count what touches the disk; the process dies at step ``last``, half of a file written if it is a write."""
    steps = 0

    def counted(do, half=None):
        def wrapper(*args, **keywords):
            nonlocal steps
            if steps == last:
                if half:
                    half(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            steps += 1
            return do(*args, **keywords)

        return wrapper

    def half_written(path: Path, *parts) -> None:
        path.with_name(f".{path.name}.0.tmp").write_bytes(bytes(parts[0])[: len(parts[0]) // 2])

    files.write_bytes = counted(files.write_bytes, half_written)
    files.os.replace = counted(os.replace)
    files.os.fsync = counted(os.fsync)


def main(folder: Path, what: str, seed: int) -> None:
    warnings.simplefilter("ignore")
    # compile once, before anything is forked
    for name in PROBLEMS:
        model, X = problem(name)
        model.fit(X)
    made = kill_at_steps(folder) if what == "steps" else kill_by_clock(folder, int(what), random.Random(seed))
    sys.stdout.write(json.dumps(made))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
