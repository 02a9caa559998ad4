"""Exit codes of short commands, many times over: ``python -m benchmarks.exits [RUNS]``.

A thread that is still busy when the interpreter ends can abort the process after its output; a few runs do not show it.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

RUNS = 100


def codes(words: list[str], cores: int, runs: int) -> Counter[int]:
    """How often each exit code was seen, on so many cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    command = [sys.executable, "-m", "nsfa", *words]
    return Counter(subprocess.run(command, capture_output=True).returncode for _ in range(runs))


def write_table(path: Path) -> None:
    """Genes in rows, with values that have no logarithm."""
    values = np.random.default_rng(0).normal(size=(60, 30)).round(4)
    lines = [",".join(["gene", *(f"s{n}" for n in range(30))])]
    lines += [",".join([f"g{d}", *map(str, row)]) for d, row in enumerate(values)]
    path.write_text("\n".join(lines) + "\n")


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "table.csv", Path(folder) / "out"
        write_table(table)
        fails = ["fit", str(table), "-o", str(out), "--log2"]
        commands = {"info": (3 * runs, 0, ["info", str(table)]), "fit": (runs, 1, fails)}
        for cores in (1, 2):
            for name, (times, right, words) in commands.items():
                seen = codes(words, cores, times)
                print(f"nsfa {name:<5} {cores} core(s)  right: {seen[right]} of {times}  all: {dict(seen)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
