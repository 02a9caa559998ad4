"""Which processes there are, by what Linux says of them."""

import time
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")


def _stat(pid) -> list[str]:
    try:
        # the name, in brackets, may have blanks in it
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    others = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [other for other in others if (stat := _stat(other)) and stat[1] == str(pid) and stat[0] != "Z"]


def running(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    stat = _stat(pid)
    return bool(stat) and stat[0] not in "ZX"


def wait_until_gone(pids: list[int], seconds: float = 5.0) -> list[int]:
    """Those that still run after so many seconds."""
    end = time.monotonic() + seconds
    while any(map(running, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return list(filter(running, pids))
