"""A table in blocks on the workers of a LocalCluster: memory, time of a sweep, and what the scheduler adds to it.

    python -m benchmarks.cluster [--quick]

The table is a zarr array of twice the size of one worker's memory limit. The height of each worker's resident memory is
what /proc says, libraries included. The overhead is the time of a pass over two blocks, one per worker, less that of
one such block in this process.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

GENES, FACTORS = 2_000, 30
LIMIT = 1_000_000_000
SWEEPS = 20


def write_table(path: Path, n_samples: int) -> np.ndarray:
    """Samples × genes with ten planted factors, in a zarr array; returns the loadings."""
    import zarr

    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((10, GENES)) * (rng.random((10, GENES)) < 0.1)
    table = zarr.create_array(path, shape=(n_samples, GENES), chunks=(2_048, GENES), dtype="f8", compressors=None)
    for start in range(0, n_samples, 2_048):
        rows = min(2_048, n_samples - start)
        table[start : start + rows] = rng.standard_normal((rows, 10)) @ loadings + rng.standard_normal((rows, GENES))
    return loadings


def height() -> float:
    """The height of a process's resident memory, in bytes."""
    return 1024.0 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def medians(function: Any, times: int) -> float:
    """Median seconds of a call."""
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        function()
        spent.append(time.perf_counter() - started)
    return float(np.median(spent))


def overhead(client: Any, n_features: int, n_factors: int) -> tuple[float, float]:
    """Seconds of a pass of two blocks on two workers, and of one of them here."""
    import dask.array as da

    from nsfa.blocks import Named, observe_blocks, one_thread, unit_size
    from nsfa.data import observe
    from nsfa.kernels import get_kernels
    from nsfa.passing import ObservedTable

    unit, rng = unit_size(n_features), np.random.default_rng(0)
    X = rng.standard_normal((2 * unit, n_features))
    blocks = observe_blocks(client, Named(da.from_array(X, chunks=(unit, n_features)))).values.table
    here = ObservedTable(observe(X[:unit]), get_kernels())
    given = rng.standard_normal((n_features, n_factors)), np.ones(n_features), None, 1
    for table in (blocks, here):
        table.pass_scores(*given)
    with one_thread():
        return medians(lambda: blocks.pass_scores(*given), 30), medians(lambda: here.pass_scores(*given), 30)


def run(limit: int, folder: Path) -> None:
    """Print the figures."""
    import distributed

    from nsfa.backends import open_samples
    from nsfa.blocks import observe_blocks
    from nsfa.chain import Chain, chain_generator
    from nsfa.model import preset
    from nsfa.readers.lazy import read_lazily

    n_samples = 2 * limit // (8 * GENES)
    write_table(folder / "table.zarr", n_samples)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0", local_directory=str(folder)
    )
    with cluster, distributed.Client(cluster) as client:
        print(f"{GENES} × {n_samples}, {8 * GENES * n_samples / 1e9:.2f} GB; two workers of {limit / 1e9:.2f} GB each")
        print("workers before", [f"{value / 1e6:.0f} MB" for value in client.run(height).values()])
        started = time.perf_counter()
        data = observe_blocks(client, read_lazily(folder / "table.zarr", samples_in_rows=True).X)
        print(f"read, centred and kept in {time.perf_counter() - started:.1f} s")
        spec = preset("sfa", n_components=FACTORS)
        chain = Chain(open_samples(data, threads=2), spec, chain_generator(0, 0), tune=SWEEPS)
        print(f"{medians(chain.sweep, SWEEPS):.2f} s per sweep, K = {chain.state.n_factors}, {SWEEPS} sweeps")
        print("workers' height", [f"{value / 1e6:.0f} MB" for value in client.run(height).values()])
        data.values.table.close()
        for n_features, n_factors in ((GENES, FACTORS), (GENES, 100), (200, 10)):
            there, here = overhead(client, n_features, n_factors)
            print(
                f"overhead at D = {n_features}, K = {n_factors}: {1e3 * (there - here):.1f} ms ({1e3 * here:.1f} here)"
            )


def main() -> None:
    """Read the command line, and clean up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the size")
    folder = Path(tempfile.mkdtemp(prefix="nsfa-cluster-"))
    try:
        run(LIMIT // 4 * (2 if parser.parse_args().quick else 4), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
