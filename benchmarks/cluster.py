"""A table in blocks on the workers of a LocalCluster: memory, time of a sweep, and what the scheduler adds to it.

    python -m benchmarks.cluster [--quick] [--overhead | --slopes]

The table is a zarr array of twice the size of one worker's memory limit. The height of each worker's resident memory is
what /proc says, libraries included. The overhead is the time of a pass over two blocks, one per worker, with everything
sent and returned and nothing computed. The slopes are those of the time of a sweep over two decades of each size, with
one worker and with two.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale import growth

GENES, FACTORS = 2_000, 30
LIMIT = 1_000_000_000
SWEEPS = 20
# Sizes of the slopes: one of them changes, and the others stay.
STAYS = {"D": 2_000, "N": 16_384, "K": 10}
SLOPES = {"D": (200, 2_000, 20_000), "N": (2_048, 20_480, 204_800), "K": (4, 40, 400)}


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


def seconds(function: Any) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def echo(pieces: list[Any], shared: Any) -> Any:
    """What a pass over some pieces returns, in its size, without the pass."""
    from nsfa.units import Node

    loadings = shared.arguments[0]
    square = np.zeros((loadings.shape[1],) * 2)
    return [Node(pieces[0].first, 1, (square, loadings, square[0], 0.0))]


def overhead(client: Any, n_features: int, n_factors: int) -> np.ndarray:
    """Seconds of passes of two blocks on two workers, without what a pass does."""
    import dask.array as da

    from nsfa.blocks import Asked, Named, observe_blocks
    from nsfa.kernels.dask_blocks import reduced
    from nsfa.units import finish_sums, join_sums, unit_size

    unit, rng = unit_size(n_features), np.random.default_rng(0)
    table = observe_blocks(
        client, Named(da.random.default_rng(0).normal(size=(2 * unit, n_features), chunks=(unit, n_features)))
    ).values.table
    shared = Asked("pass_scores", (rng.standard_normal((n_features, n_factors)), np.ones(n_features), None, 1))
    spent = [seconds(lambda: reduced(table._pieces, echo, shared, join_sums, finish_sums)) for _ in range(60)]
    table.close()
    return np.array(spent[10:])


def sweep(client: Any, limit: int, folder: Path, n_samples: int) -> None:
    """Memory and time of sweeps over the table in the folder."""
    from nsfa.backends import open_samples
    from nsfa.blocks import observe_blocks
    from nsfa.chain import Chain, chain_generator
    from nsfa.model import preset
    from nsfa.readers.lazy import read_lazily

    print(f"{GENES} × {n_samples}, {8 * GENES * n_samples / 1e9:.2f} GB; two workers of {limit / 1e9:.2f} GB each")
    print("workers before", [f"{value / 1e6:.0f} MB" for value in client.run(height).values()])
    started = time.perf_counter()
    data = observe_blocks(client, read_lazily(folder / "table.zarr", samples_in_rows=True).X)
    print(f"read, centred and kept in {time.perf_counter() - started:.1f} s")
    spec = preset("sfa", n_components=FACTORS)
    chain = Chain(open_samples(data, spec, threads=2), spec, chain_generator(0, 0), tune=SWEEPS)
    spent = np.median([seconds(chain.sweep) for _ in range(SWEEPS)])
    print(f"{spent:.2f} s per sweep, K = {chain.state.n_factors}, {SWEEPS} sweeps")
    print("workers' height", [f"{value / 1e6:.0f} MB" for value in client.run(height).values()])
    data.values.table.close()


def noise(block: Any, n_features: int) -> np.ndarray:
    """A block of samples × features, soon made; ``block`` holds its number."""
    return np.random.default_rng(int(block[0, 0])).random((1_024, n_features))


def sweep_seconds(client: Any, sizes: dict[str, int]) -> float:
    """Median seconds of a sweep over a table of noise, without the moves of every fifth."""
    import dask.array as da

    from nsfa.backends import open_samples
    from nsfa.blocks import Named, observe_blocks
    from nsfa.chain import Chain, chain_generator
    from nsfa.model import preset

    n_blocks, n_features = sizes["N"] // 1_024, sizes["D"]
    numbers = da.from_array(np.arange(n_blocks)[:, None], chunks=1)
    chunks = ((1_024,) * n_blocks, (n_features,))
    table = numbers.map_blocks(noise, n_features, chunks=chunks, dtype="f8", meta=np.empty((0, 0)))
    data = observe_blocks(client, Named(table.rechunk({0: 8_192})))
    spec = preset("sfa", n_components=sizes["K"], moves="plain")
    chain = Chain(open_samples(data, spec, threads=2), spec, chain_generator(0, 0))
    spent = [seconds(chain.sweep) for _ in range(12 if sizes["N"] * n_features * sizes["K"] < 10**9 else 5)]
    data.values.table.close()
    return float(np.median(spent[1:]))


def slopes(n_workers: int) -> None:
    """How the time of a sweep grows with each size: d log seconds / d log size, from point to point and over all."""
    import distributed

    how = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=n_workers, **how) as cluster, distributed.Client(cluster) as client:
        for axis, points in SLOPES.items():
            times = [sweep_seconds(client, {**STAYS, axis: size}) for size in points]
            print(f"{n_workers} worker(s), {axis}: {growth(times, points)}", flush=True)


def run(limit: int, folder: Path, only_overhead: bool) -> None:
    """Print the figures."""
    import distributed

    n_samples = 2 * limit // (8 * GENES)
    if not only_overhead:
        write_table(folder / "table.zarr", n_samples)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0", local_directory=str(folder)
    )
    with cluster, distributed.Client(cluster) as client:
        if not only_overhead:
            sweep(client, limit, folder, n_samples)
        for n_features, n_factors in ((GENES, FACTORS), (GENES, 100), (200, 10)):
            spent = 1e3 * overhead(client, n_features, n_factors)
            figures = np.quantile(spent, [0.5, 0.0])
            print("overhead at D = {}, K = {}: {:.1f} ms, {:.1f} at least".format(n_features, n_factors, *figures))


def main() -> None:
    """Read the command line, and clean up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="half the size")
    parser.add_argument("--overhead", action="store_true", help="nothing but the overhead")
    parser.add_argument("--slopes", action="store_true", help="nothing but the slopes, with one worker and with two")
    wanted = parser.parse_args()
    if wanted.slopes:
        for n_workers in (1, 2):
            slopes(n_workers)
        return
    folder = Path(tempfile.mkdtemp(prefix="nsfa-cluster-"))
    try:
        run(LIMIT // (2 if wanted.quick else 1), folder, wanted.overhead)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
