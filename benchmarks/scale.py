"""Time and memory of a sweep as tables grow: sparse ones, long ones in single precision, and the slopes.

    python -m benchmarks.scale [sparse] [dense] [slopes] [--quick]

Every measurement runs in a process of its own. Memory is the height of the process's resident memory above what it was
with everything imported and compiled: the caller's table is part of it where it says so.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

MB = 1e6
# features, samples, share of entries that are not zero, factors
SPARSE = (2_000, 100_000, 0.05, 30)
DENSE = (20_000, 10_000, 30)
# one of the three goes through its values, the others stay at the first
SLOPES = {"D": (200, 2_000, 20_000), "N": (200, 2_000, 20_000), "K": (4, 40, 400)}
STAYS = {"D": 1_000, "N": 1_000, "K": 10}


def _resident(line: str) -> float:
    """Bytes that /proc says of this process: VmRSS now, VmHWM at their height."""
    text = Path("/proc/self/status").read_text()
    return 1024.0 * int(text.split(f"{line}:")[1].split()[0])


def _forget_height() -> None:
    """Give back what was freed, and let the height be what it is now."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def sparse_table(n_features: int, n_samples: int, density: float) -> Any:
    """Cells × genes in csr: log counts of a few programmes, thinned to the density."""
    rng, parts, share = np.random.default_rng(0), [], 0.0
    programme = rng.gamma(1.0, 1.0, (8, n_features)) * (rng.random((8, n_features)) < 0.2) + 0.05
    for start in range(0, n_samples, 5_000):
        rate = rng.gamma(0.5, 1.0, (min(5_000, n_samples - start), 8)) @ programme
        counts = rng.poisson(rate * (3.0 * density / rate.mean()))
        share = share or density / np.mean(counts > 0)
        parts.append(sp.csr_array(np.log1p(counts) * (rng.random(counts.shape) < share)))
    return sp.csr_array(sp.vstack(parts, format="csr"))


def dense_table(n_features: int, n_samples: int, dtype: str = "float64") -> Any:
    """Samples × features with ten planted factors, made without a second copy."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((10, n_features)) * (rng.random((10, n_features)) < 0.1)
    out = np.empty((n_samples, n_features), dtype=dtype)
    for start in range(0, n_samples, 500):
        part = out[start : start + 500]
        part[:] = rng.standard_normal((len(part), 10)) @ loadings + rng.standard_normal(part.shape)
    return out


def _chain(data: Any, n_factors: int, threads: int, **settings: Any) -> Any:
    from nsfa.chain import Chain, chain_generator
    from nsfa.kernels import get_kernels
    from nsfa.model import preset
    from nsfa.samples import Samples

    spec = preset("sfa", n_components=n_factors, **settings)
    chain = Chain(Samples(data, get_kernels("numba", threads)), spec, chain_generator(0, 0), start=n_factors)
    # past the first sweeps, which have all moves
    chain.number = 1000
    return chain


def _warm(dense: bool, dtype: str) -> None:
    """Compile, or read what was compiled, on a small table of the same kind."""
    from nsfa.data import observe

    table = sparse_table(50, 60, 0.3)
    for n_features in (50, 3_001):
        if n_features > 50 and not dense:
            continue
        X = dense_table(n_features, 40) if dense else table
        chain = _chain(observe(X, dtype=dtype), 4, 2)
        for _ in range(5):
            chain.sweep()


def measure(case: dict[str, Any]) -> dict[str, float]:
    """One table in this process: seconds per sweep, and the height of memory."""
    from threadpoolctl import threadpool_limits

    from nsfa.data import observe

    n_features, n_samples, n_factors = case["shape"]
    dense, dtype, density = case["dense"], case["dtype"], case.get("density", 0.0)
    with threadpool_limits(1):
        _warm(dense, dtype)
        _forget_height()
        base = _resident("VmRSS")
        made = (
            dense_table(n_features, n_samples, dtype) if not density else sparse_table(n_features, n_samples, density)
        )
        X = made.toarray() if density and dense else made
        del made
        _forget_height()
        own = _resident("VmRSS") - base
        started = time.perf_counter()
        data = observe(X, dtype=dtype)
        observed = time.perf_counter() - started
        start_height = _resident("VmHWM") - base
        chain = _chain(data, n_factors, case["threads"], moves=case.get("moves", "all"))
        began = time.perf_counter() - started - observed
        times = []
        for _ in range(case["sweeps"]):
            started = time.perf_counter()
            chain.sweep()
            times.append(time.perf_counter() - started)
    plain = [t for i, t in enumerate(times) if (i + 1) % 5]
    stored = data.values.nbytes if dense else sum(a.nbytes for a in (data.values.data, data.values.indices))
    return {
        "values": stored / MB, "scores": 8 * n_samples * n_factors / MB, "own": own / MB,
        "start": start_height / MB, "peak": (_resident("VmHWM") - base) / MB, "observe": observed, "begin": began,
        "sweep": float(np.mean(times)), "plain": float(np.median(plain)), "best": float(np.min(times)),
    }  # fmt: skip


def in_turns(case: dict[str, Any]) -> dict[str, float]:
    """Sweeps of a sparse table and of the same one made dense in turns, so that both see the machine in one mood."""
    from threadpoolctl import threadpool_limits

    from nsfa.data import observe

    n_features, n_samples, n_factors = case["shape"]
    with threadpool_limits(1):
        for dense in (False, True):
            _warm(dense, "float64")
        X = sparse_table(n_features, n_samples, case["density"])
        tables = [observe(X), observe(X.toarray())]
        chains = [_chain(data, n_factors, case["threads"], moves=case["moves"]) for data in tables]
        times = np.empty((case["sweeps"], 2))
        for row in times:
            for i, chain in enumerate(chains):
                started = time.perf_counter()
                chain.sweep()
                row[i] = time.perf_counter() - started
    ordinary = times[np.arange(1, len(times) + 1) % 5 > 0]
    ratio = ordinary[:, 0] / ordinary[:, 1]
    return {
        "all": float(np.divide(*times.mean(axis=0))), "ordinary": float(np.median(ratio)),
        "least": float(ratio.min()), "most": float(ratio.max()),
        "sparse": float(np.median(ordinary[:, 0])), "dense": float(np.median(ordinary[:, 1])),
    }  # fmt: skip


def _apart(**case: Any) -> dict[str, float]:
    """``measure`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "--case", json.dumps(case)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _tell(name: str, found: dict[str, float]) -> None:
    print(f"{name:<36}" + "".join(f"{key} {value:.4g}  " for key, value in found.items()), flush=True)


def sparse_bar(threads: int, quick: bool) -> None:
    """A sparse table, and the same one made dense: by the moves that each gets, and by the same ones."""
    *shape, density, n_factors = SPARSE
    if quick:
        shape[1] //= 10
    case = {"shape": (*shape, n_factors), "density": density, "threads": threads, "sweeps": 10}
    for moves in ("all", "plain"):
        sparse = _apart(dense=False, dtype="float64", moves=moves, **case)
        _tell(f"sparse float64, moves {moves}", sparse)
        dense = _apart(dense=True, dtype="float64", moves=moves, **case)
        _tell(f"dense float64, moves {moves}", dense)
        height = (sparse["peak"] - sparse["scores"]) / sparse["values"]
        print(f"    height with the caller's matrix: {height:.2f} × matrix + scores")
        _tell("    time of a sweep, sparse / dense", _apart(turns=True, moves=moves, **case))
    _tell("sparse float32, moves all", _apart(dense=False, dtype="float32", moves="all", **case))


def dense_bar(threads: int, quick: bool) -> None:
    """Long tables in both precisions; the caller's table is not counted."""
    *shape, n_factors = DENSE
    if quick:
        shape = [n // 3 for n in shape]
    for dtype in ("float32", "float64"):
        found = _apart(shape=(*shape, n_factors), dense=True, dtype=dtype, threads=threads, sweeps=6)
        _tell(f"dense {dtype} {shape[0]} × {shape[1]}", found)
        beyond = found["peak"] - found["own"]
        print(f"    peak beside the caller's table: {beyond / found['values']:.2f} × Y")


def growth(seconds: Sequence[float], sizes: Sequence[int]) -> str:
    """Times at some sizes, and d log seconds / d log size from point to point and over all."""
    log_times, log_sizes = np.log(seconds), np.log(sizes)
    shown = ", ".join(f"{1e3 * t:.2f} ms at {n:,}" for t, n in zip(seconds, sizes, strict=True))
    steps = ", ".join(f"{s:.2f}" for s in np.diff(log_times) / np.diff(log_sizes))
    over_all = (log_times[-1] - log_times[0]) / (log_sizes[-1] - log_sizes[0])
    return f"{shown}; slopes {steps}, over all {over_all:.2f}"


def slopes(threads: int, quick: bool) -> None:
    """How the time of a sweep grows with each size: d log seconds / d log size, from point to point and over all."""
    for kind in ("dense", "sparse"):
        for axis, points in SLOPES.items():
            points = points[:2] if quick else points
            times = []
            for size in points:
                now = {**STAYS, axis: size}
                # sweeps without the moves that only tables below 3,000 features have
                found = _apart(
                    shape=(now["D"], now["N"], now["K"]), dense=kind == "dense", dtype="float64", threads=threads,
                    density=0.05, sweeps=8 if size >= 400 else 40, moves="plain",
                )  # fmt: skip
                times.append(found["plain"])
            print(f"{kind} {axis}: {growth(times, points)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["sparse", "dense", "slopes"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case")
    given = parser.parse_args()
    if given.case:
        case = json.loads(given.case)
        print(json.dumps((in_turns if case.pop("turns", False) else measure)(case)))
        return
    for what in given.what:
        {"sparse": sparse_bar, "dense": dense_bar, "slopes": slopes}[what](given.threads, given.quick)


if __name__ == "__main__":
    main()
