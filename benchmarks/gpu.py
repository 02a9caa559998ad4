"""A chain on one GPU: the same draws as on the CPU, and the time of a sweep by device events.

Run as ``python -m benchmarks.gpu`` and some of check, small, real TABLE, atlas, fit, geweke, streamed, slopes; needs a
GPU.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmarks.scale import growth
from nsfa.arrays import to_host
from nsfa.chain import Chain, chain_generator
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.gpu_samples import DeviceSamples, DeviceTable, gpu_samples
from nsfa.kernels import get_kernels
from nsfa.kernels.device import CupyDevice
from nsfa.kernels.gpu import GpuKernels
from nsfa.kernels.streams import fresh_key, normals_at
from nsfa.model import preset
from nsfa.passing import ObservedTable, PassingSamples


class Keyed(PassingSamples):
    """The CPU's samples, features' means with the random numbers that a device takes."""

    def draw_intercept(self, state, rng):
        error = normals_at(fresh_key(rng), np.arange(self.n_features), 0)
        zeros = type("Zeros", (), {"standard_normal": lambda _, n: error})()
        return super().draw_intercept(state, zeros)


def on_cpu(data) -> Keyed:
    """The twin on the CPU of samples on a device."""
    return Keyed(ObservedTable(data, get_kernels()), get_kernels(), at_once=True)


def check() -> None:
    """Ten sweeps on the device and on the CPU from the same random numbers."""
    for shape, start in (((171, 2000), 20), ((1000, 300), 8)):
        X = make_sparse_factors(*shape, n_components=8, density=0.2, random_state=0).X
        for dtype in ("float64", "float32"):
            data = observe(X, dtype=dtype)
            kinds = on_cpu(data), gpu_samples(data)
            cpu, gpu = (Chain(s, preset("nsfa"), chain_generator(3, 0), start, tune=20) for s in kinds)
            for number in range(1, 11):
                cpu.sweep()
                gpu.sweep()
                state = gpu.state.on_host()
                if state.n_factors != cpu.state.n_factors:
                    print(f"  sweep {number}: K {cpu.state.n_factors} and {state.n_factors}")
                    break
                flips = int((state.active != cpu.state.active).sum())
                apart = np.abs(state.loadings - cpu.state.loadings).max()
                print(f"{shape} {dtype} sweep {number}: K {state.n_factors}, flips {flips}, loadings {apart:.1e}")


def times(chain: Chain, sweeps: int, label: str) -> None:
    """Median time of ordinary sweeps, of every fifth, and the mean of all, by device events."""
    import cupy

    device, spent = cupy.cuda, []
    for _ in range(sweeps):
        start, stop = device.Event(), device.Event()
        start.record()
        chain.sweep()
        stop.record()
        stop.synchronize()
        spent.append((chain.number, device.get_elapsed_time(start, stop)))
    ordinary = [t for n, t in spent if n % 5]
    fifth = [t for n, t in spent if not n % 5]
    print(
        f"{label}: K {chain.state.n_factors}, ordinary {np.median(ordinary):.3f} ms, every fifth "
        f"{np.median(fifth):.3f} ms, mean of all {np.mean([t for _, t in spent]):.3f} ms"
    )


def moves(chain: Chain, sweeps: int) -> None:
    """Where the time of a sweep goes, each move waited for."""
    import cupy

    total: dict[str, float] = {}
    for _ in range(sweeps):
        chain.number += 1
        for move in chain.schedule.of_sweep(chain.number):
            before = time.perf_counter()
            move.update(chain.state, chain.samples, chain.spec, chain.rng)
            cupy.cuda.get_current_stream().synchronize()
            total[move.name] = total.get(move.name, 0.0) + time.perf_counter() - before
    print("  " + ", ".join(f"{name} {1e3 * t / sweeps:.3f}" for name, t in sorted(total.items(), key=lambda i: -i[1])))


def small() -> None:
    """12,558 genes × 171 samples with 40 planted factors."""
    data = observe(make_sparse_factors(171, 12558, n_components=40, density=0.1, random_state=0).X, dtype="float32")
    chain = Chain(gpu_samples(data), preset("nsfa"), chain_generator(0, 0), 40, tune=200)
    for _ in range(400):
        chain.sweep()
    times(chain, 200, "12,558 × 171")
    moves(chain, 100)


def real(path: str) -> None:
    """The prostate table with 150 factors: their number given, and as a chain that infers it has them by then."""
    import pandas as pd

    data = observe(pd.read_csv(path, index_col=0).to_numpy().T, dtype="float32")
    chain = Chain(gpu_samples(data), preset("sfa", n_components=150), chain_generator(0, 0), 0, tune=0)
    for _ in range(30):
        chain.sweep()
    times(chain, 50, "prostate 12,558 × 108, SFA")
    moves(chain, 20)
    chain = Chain(gpu_samples(data), preset("nsfa"), chain_generator(0, 0), 100, tune=400)
    began = time.perf_counter()
    for _ in range(1000):
        chain.sweep()
    print(f"  1,000 sweeps in {time.perf_counter() - began:.1f} s")
    times(chain, 100, "prostate 12,558 × 108, NSFA")


class Given:
    """Blocks of a table that is on the device already."""

    def __init__(self, values, device) -> None:
        from nsfa.gpu_blocks import DenseBlocks

        self.values, self.device, self.shape, self.dtype = values, device, values.shape, values.dtype
        self._iterate = DenseBlocks.__iter__

    def __iter__(self):
        return self._iterate(self)


def normals(kernels: GpuKernels, n_rows: int, n_columns: int, key: int, first: int = 0):
    """Standard normals of single precision on the device; a million samples would see correlations in weaker ones."""
    out = kernels.device.zeros((n_rows, n_columns))
    size = np.int64(n_rows), np.int64(n_columns), np.uint64(key), np.int64(first)
    kernels.rows("add_normals", n_rows * ((n_columns + 1) // 2), *size, out)
    return out.astype(np.float32)


def atlas(n_features: int = 20_000, n_samples: int = 1_000_000, n_factors: int = 50) -> None:
    """A table made on the device, with and without TF32."""
    import cupy

    kernels = GpuKernels(CupyDevice())
    values = cupy.empty((n_features, n_samples), np.float32)
    loadings = cupy.asarray(np.random.default_rng(0).standard_normal((n_features, n_factors)), np.float32)
    loadings *= cupy.asarray(np.random.default_rng(1).random((n_features, n_factors)) < 0.1)
    scores = normals(kernels, n_factors, n_samples, 1)
    moments = np.empty((3, n_features))
    planted = cupy.zeros(loadings.shape)
    for first in range(0, n_features, 500):
        rows = slice(first, first + 500)
        part = loadings[rows] @ scores + normals(kernels, 500, n_samples, 2, first)
        part -= part.mean(axis=1, keepdims=True)
        planted[rows] = loadings[rows] / part.std(axis=1, keepdims=True)
        part /= part.std(axis=1, keepdims=True)
        values[rows] = part
        moments[1, rows], moments[2, rows] = part.sum(axis=1).get(), cupy.square(part).sum(axis=1).get()
    state = part = scores = None
    cupy.get_default_memory_pool().free_all_blocks()
    moments[0] = n_samples
    for tf32 in (False, True):
        kernels = GpuKernels(CupyDevice(tf32))
        samples = DeviceSamples(DeviceTable(Given(values, kernels.device), moments, kernels), kernels)
        chain = Chain(samples, preset("nsfa"), chain_generator(0, 0), n_factors, tune=0)
        # from the planted loadings: this is about time
        state = chain.state
        state.loadings[:] = planted
        state.usage = (planted != 0).sum(axis=0).get().astype(np.int64)
        state.noise_precision[:] = 1 / (1 - (planted**2).sum(axis=1))
        samples.draw_scores(state, 1)
        samples.refresh(state)
        for _ in range(5):
            chain.sweep()
            print(f"  K {chain.state.n_factors}, loadings in use {chain.state.usage.sum():,}")
        times(chain, 15, f"{n_features:,} × {n_samples:,}, tf32 {tf32}")
        moves(chain, 5)


def fit(n_features: int = 2_000, n_samples: int = 1_000_000, n_factors: int = 20) -> None:
    """A whole fit of a table in memory, one chain of 250 + 250 sweeps, and what it found of the planted factors."""
    import cupy

    from nsfa import NSFA

    kernels = GpuKernels(CupyDevice())
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((n_features, n_factors)) * (rng.random((n_features, n_factors)) < 0.1)
    scores = normals(kernels, n_samples, n_factors, 1)
    X = np.empty((n_samples, n_features), np.float32)
    right = cupy.asarray(loadings.T, np.float32)
    for first in range(0, n_samples, 50_000):
        rows = slice(first, first + 50_000)
        X[rows] = (scores[rows] @ right + normals(kernels, 50_000, n_features, 2, first)).get()
    cupy.get_default_memory_pool().free_all_blocks()
    before = time.perf_counter()
    model = NSFA(chains=1, tune=250, draws=250, thin=1, dtype="float32", backend="gpu", random_state=0).fit(X)
    seconds = time.perf_counter() - before
    print(
        f"  fit {seconds:.1f} s, of which the chain {model.posterior_.draws[-1].scalars['seconds']:.1f} s", flush=True
    )
    found = model.components_
    seconds = time.perf_counter() - before
    cosine = np.abs(found @ loadings) / np.outer(np.linalg.norm(found, axis=1), np.linalg.norm(loadings, axis=0))
    print(
        f"{n_features:,} × {n_samples:,}: {seconds:.1f} s, {model.n_components_} consensus factors, K of draws "
        f"{np.bincount(model.n_components_draws_.ravel())[n_factors - 5 :]}, planted found at > 0.9: "
        f"{int((cosine.max(axis=0) > 0.9).sum())} of {n_factors}, false {int((cosine.max(axis=1) < 0.9).sum())}"
    )


def geweke() -> None:
    """Joint-distribution tests on the device: tables of 5 × 4, every hyperparameter drawn."""
    sys.path.insert(0, "tests")
    import geweke as joint

    device = CupyDevice()
    kernels = GpuKernels(device)

    class Table(joint.Keeping, DeviceTable):
        def _drawn(self, half, *given):
            out = super()._drawn(half, *given)
            # they lie behind columns of ones
            self.scores[-1] = out[:, -half.shape[1] :]
            return out

    class OnDevice(joint.Given, DeviceSamples):
        def __init__(self, data) -> None:
            self.here = ObservedTable(data, get_kernels())
            super().__init__(Table.of(data, kernels), kernels)

        def set_scores(self, scores) -> None:
            gram, cross, sums, _ = self.here.sums_of(scores)
            self.given = scores
            self._set(gram, device.put(cross), sums)

    runs = {
        "nsfa": {"repeat": 2},
        "nsfa, absolute slabs": {"priors": joint.ABSOLUTE, "noise": "shared"},
        "nsfa pairs": {"without": ("update_buffet_parallel", "update_noise_diagonal", "update_births")},
        "sfa": {},
        "afa": {"repeat": 2},
    }
    for name, settings in runs.items():
        before = time.perf_counter()
        result = joint.run(name.split(",")[0].split()[0], 2_000, kind=OnDevice, **settings)
        print(f"geweke {name}: largest |z| {result.worst:.2f}, {time.perf_counter() - before:.0f} s; {result}")


class Small(CupyDevice):
    """The device, as if it had next to no memory left."""

    free_bytes = 3_000_000


def streamed() -> None:
    """A table that passes through in blocks, and a sparse one: sums of scores against those of the CPU."""
    import scipy.sparse as sp

    X = make_sparse_factors(3000, 500, n_components=5, density=0.2, random_state=0).X
    sparse = sp.csr_array(np.where(np.abs(X) > 0.8, X, 0.0))
    for label, table, device in (("streamed", X, Small()), ("sparse", sparse, CupyDevice())):
        data = observe(table, dtype="float32")
        cpu, gpu = ObservedTable(data, get_kernels()), gpu_samples(data, device=device)
        chain = Chain(gpu, preset("nsfa"), chain_generator(3, 0), 6, tune=20)
        here, there = chain.state.on_host(), chain.state
        parts = [
            table.pass_scores(state.loadings, state.noise_precision, state.intercept, 5)
            for table, state in ((cpu, here), (gpu.table, there))
        ]
        apart = [np.abs(a - to_host(b)).max() / np.abs(a).max() for a, b in zip(*(p[:3] for p in parts), strict=True)]
        shown = ", ".join(f"{value:.1e}" for value in apart)
        print(f"{label} {type(gpu.table._blocks).__name__}: S, T, sums apart by {shown}")
        times(chain, 20, f"  500 × 3,000 {label}")


def slopes() -> None:
    """How the time of an ordinary sweep grows with each size, of tables of noise in single precision."""
    stays = {"D": 20_000, "N": 10_000, "K": 10}
    for axis, points in (("D", (2_000, 20_000, 200_000)), ("N", (2_000, 20_000, 200_000)), ("K", (4, 40, 400))):
        medians = []
        for size in points:
            now = {**stays, axis: size}
            kernels = GpuKernels(CupyDevice())
            values = normals(kernels, now["D"], now["N"], 1)
            count, total = np.full(now["D"], float(now["N"])), to_host(values.sum(axis=1))
            power = to_host((values * values).sum(axis=1))
            moments = np.stack([count, total, power])
            samples = DeviceSamples(DeviceTable(Given(values, kernels.device), moments, kernels), kernels)
            spec = preset("sfa", n_components=now["K"], moves="plain")
            chain = Chain(samples, spec, chain_generator(0, 0), now["K"], tune=0)
            spent = []
            for _ in range(12):
                before = time.perf_counter()
                chain.sweep()
                kernels.device.synchronize()
                spent.append(time.perf_counter() - before)
            medians.append(float(np.median(spent[2:])))
            samples = chain = values = None
            kernels.device.trim()
        print(f"{axis}: {growth(medians, points)}", flush=True)


def main() -> None:
    """Run what is asked for, or some of it."""
    import cupy

    print(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), "CuPy", cupy.__version__)
    asked = sys.argv[1:] or ["check", "small", "atlas"]
    while asked:
        name = asked.pop(0)
        real(asked.pop(0)) if name == "real" else globals()[name]()


if __name__ == "__main__":
    main()
