"""Nothing is lost: runs that are killed, run out of disk or have their files damaged go on to the same bits."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import nsfa
from crashing import PROBLEMS, assert_part_of, assert_same_draws, problem, start_or_resume, write_always
from nsfa.draws import files, log, store

SEED = int(os.environ.get("NSFA_TEST_SEED", "0"))


@pytest.fixture(scope="module")
def unbroken():
    """The posterior of every problem, sampled in one go without a store."""
    out = {}
    for name in PROBLEMS:
        model, X = problem(name)
        out[name] = model.fit(X).posterior_
    return out


@pytest.fixture
def always(monkeypatch):
    """Checkpoints after every sweep."""
    monkeypatch.setattr(store, "EVERY", 0.0)
    monkeypatch.setattr(log, "_PATIENCE", 0.0)
    write_always()


def crash(folder: Path, what: str) -> dict[str, int]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = str(Path(__file__).with_name("crashing.py"))
    command = [sys.executable, script, str(folder), what, str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills are made by forking")
def test_runs_killed_at_random_moments_resume_to_the_same_bits(tmp_path, unbroken):
    kills = crash(tmp_path, "7")
    assert len(kills) >= 3 and sum(kills.values()) >= 20
    for path in tmp_path.iterdir():
        name = path.name.partition("-")[0]
        assert_same_draws(start_or_resume(name, path), unbroken[name])
        assert nsfa.load(path).finished


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills are made by forking")
def test_runs_killed_at_every_step_of_writing_resume_to_the_same_bits(tmp_path, unbroken):
    assert crash(tmp_path, "steps")["holes"] >= 17
    assert_same_draws(nsfa.load(tmp_path / "holes-0"), unbroken["holes"])


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_worker_processes_stop_when_their_parent_is_killed(tmp_path):
    code = (
        "import os, signal, nsfa\n"
        "from crashing import problem\n"
        "from nsfa.draws import store\n"
        "store.EVERY = 0.05\n"
        "model, X = problem('holes')\n"
        "def watch(report):\n"
        "    if all(os.path.exists(f's/chain-{i}/draws-00000000.npz') for i in (0, 1)):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "model.set_params(tune=0, draws=10**6, n_jobs=2).fit(X, store='s', monitor=watch)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path).returncode == -signal.SIGKILL
    now, before, deadline = contents(tmp_path), None, time.monotonic() + 60
    while now != before and time.monotonic() < deadline:
        time.sleep(3)
        now, before = contents(tmp_path), now
    assert now == before
    run = store.open_store(tmp_path / "s")
    assert run.n_draws(0) and run.n_draws(1) and not run.finished


class FullDisk:
    """``open`` on a disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, path, mode):
        file = open(path, mode)  # noqa: SIM115
        return _LimitedFile(file, self) if mode == "wb" else file


class _LimitedFile:
    def __init__(self, file, disk):
        self._file, self._disk = file, disk

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def write(self, part):
        self._file.write(part[: self._disk.room])
        self._disk.room -= len(part)
        if self._disk.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name):
        return getattr(self._file, name)


@pytest.mark.parametrize("name", ["holes", "sparse", "clusters"])
def test_a_full_disk_gives_one_sentence_and_resumes_to_the_same_bits(name, tmp_path, monkeypatch, unbroken, always):
    rng, path = random.Random(SEED), tmp_path / "s"
    sentences = []
    while not (path / store.HEADER).exists() or not nsfa.draws.store.open_store(path).finished:
        monkeypatch.setattr(files, "open", FullDisk(rng.randrange(60_000)), raising=False)
        sentences.append(attempt(lambda: start_or_resume(name, path))[1])
        assert path.exists() == (path / store.HEADER).exists(), "half a store"
        assert not list(path.glob("**/.*.tmp"))
    assert any("No space left on device. The run was stopped; " in text for text in sentences)
    assert all("No space left on device" in text and "\n" not in text for text in sentences if text)
    assert_same_draws(nsfa.load(path), unbroken[name])


def test_a_disk_that_is_full_at_the_start_leaves_nothing_behind(tmp_path, monkeypatch, unbroken):
    for room in (0, 1000, 8700):
        monkeypatch.setattr(files, "open", FullDisk(room), raising=False)
        with pytest.raises(
            nsfa.StoreError, match="cannot be written: No space left on device. Nothing was started; make"
        ):
            start_or_resume("holes", tmp_path / "s")
        assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert_same_draws(start_or_resume("holes", tmp_path / "s"), unbroken["holes"])


def test_a_real_full_disk(tmp_path, unbroken, always):
    """A small file system, where we may mount one."""
    mount = tmp_path / "mount"
    mount.mkdir()
    if shutil.which("mount") is None or os.name == "nt":
        pytest.skip("no mount")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True)
    if made.returncode:
        pytest.skip("no right to mount")
    try:
        with pytest.raises(nsfa.StoreError, match="No space left on device. The run was stopped; "):
            start_or_resume("holes", mount / "s")
        assert subprocess.run(["mount", "-o", "remount,size=4m", str(mount)]).returncode == 0
        assert_same_draws(start_or_resume("holes", mount / "s"), unbroken["holes"])
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_limit_on_file_sizes_is_a_full_disk_too(tmp_path):
    """The kernel's own error instead of ours; needs no rights."""
    model, X = problem("holes")
    expected = model.set_params(draws=60).fit(X).posterior_
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        with pytest.raises(nsfa.StoreError, match="File too large. The run was stopped; 1 draws of chain 0 "):
            model.fit(X, store=tmp_path / "s")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert_same_draws(nsfa.resume(tmp_path / "s"), expected)


def damage(path: Path, kind: str, rng: random.Random, others: list[Path]) -> None:
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content))
    if kind == "cut":
        path.write_bytes(content[:at])
    elif kind == "flip":
        content[at] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
    elif kind == "zeros":
        path.write_bytes(content[:at] + bytes(len(content) - at))
    elif kind == "foreign":
        path.write_bytes(rng.randbytes(len(content)))
    elif kind == "other":
        path.write_bytes(rng.choice(others).read_bytes())
    else:
        path.unlink()


KINDS = ("cut", "flip", "zeros", "foreign", "other", "gone")


@pytest.mark.parametrize("name", ["holes", "clusters"])
def test_damaged_files_are_drawn_again_or_named(name, tmp_path, unbroken, always):
    """Either the unbroken run's draws or one sentence: never another error, never other draws."""
    rng = random.Random(SEED)
    start_or_resume(name, tmp_path / "whole")
    start_or_resume("complete", tmp_path / "foreign")
    elsewhere = [p for p in (tmp_path / "foreign").glob("**/*") if p.is_file() and p.stat().st_size]
    outcomes = {"load": 0, "resume": 0, "refused": 0}
    for case in range(48):
        path = tmp_path / str(case)
        shutil.copytree(tmp_path / "whole", path)
        targets = sorted(p for p in path.glob("**/*") if p.is_file() and p.stat().st_size)
        # every other case: the files that matter most
        some = targets if case % 2 else [p for p in targets if p.parent == path or p.name.startswith("state")]
        for target in rng.sample(some, rng.choice([1, 1, 2])):
            damage(target, KINDS[case % len(KINDS)], rng, [p for p in (*targets, *elsewhere) if p.exists()])
        check_damaged(path, unbroken[name], outcomes)
        shutil.rmtree(path)
    assert min(outcomes.values()) >= 5, outcomes


def check_damaged(path: Path, expected, outcomes: dict[str, int]) -> None:
    before = contents(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior, sentence = attempt(lambda: nsfa.load(path))
        assert contents(path) == before, "reading changed the store"
        if not sentence:
            assert_part_of(posterior, expected)
            outcomes["load"] += 1
        posterior, sentence = attempt(lambda: nsfa.resume(path, n_jobs=1))
        if sentence:
            assert set(before.values()) <= set(contents(path).values()), "something was destroyed"
            outcomes["refused"] += 1
        else:
            assert_same_draws(posterior, expected)
            assert_same_draws(nsfa.load(path), expected)
            outcomes["resume"] += 1


def attempt(do) -> tuple[object, str]:
    """What a call returns, or its sentence."""
    try:
        return do(), ""
    except nsfa.StoreError as error:
        return None, str(error)


def contents(path: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in path.glob("**/*") if p.is_file()}
