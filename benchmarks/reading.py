"""Reading a large csv: ``python -m benchmarks.reading``.

Seconds of ``nsfa.readers.read_table`` (checksum included) beside pandas with Arrow's parser and polars, on the same
generated tables; the best of a few runs each, taken in turn. The aim is at most twice what the faster of the two needs.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars

from nsfa.readers import read_table


def write(path: Path, n_rows: int, n_columns: int) -> None:
    """Genes × samples with names, six digits; gzipped if the name says so."""
    rng = np.random.default_rng(0)
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        file.write("gene," + ",".join(f"sample{i}" for i in range(n_columns)) + "\n")
        for row in range(n_rows):
            values = rng.normal(8.0, 2.0, n_columns)
            file.write(f"gene{row}," + ",".join(f"{value:.6g}" for value in values) + "\n")


def best_times(readers: dict, repeats: int) -> dict[str, float]:
    """The shortest of some runs of each, in turn: the machine's moods then fall on all alike."""
    times: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(repeats):
        for name, reader in readers.items():
            started = time.perf_counter()
            reader()
            times[name].append(time.perf_counter() - started)
    return {name: min(seconds) for name, seconds in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading", description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=4)
    repeats = parser.parse_args().repeats
    print(f"{'table':<26}{'MB':>6}{'nsfa s':>9}{'pandas s':>10}{'polars s':>10}{'/ pandas':>10}{'/ polars':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for n_rows, n_columns, ending in ((20_000, 1_000, ".csv"), (1_000, 20_000, ".csv"), (2_000, 200, ".csv.gz")):
            path = Path(folder) / f"table{ending}"
            write(path, n_rows, n_columns)
            readers = {
                "nsfa": lambda path=path: read_table(path),
                "pandas": lambda path=path: pd.read_csv(path, engine="pyarrow", index_col=0),
                "polars": lambda path=path: polars.read_csv(path),
            }
            t = best_times(readers, repeats)
            print(
                f"{f'{n_rows:,} × {n_columns:,} {ending}':<26}{path.stat().st_size / 1e6:>6.0f}{t['nsfa']:>9.2f}"
                f"{t['pandas']:>10.2f}{t['polars']:>10.2f}{t['nsfa'] / t['pandas']:>10.2f}"
                f"{t['nsfa'] / t['polars']:>10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
