"""Time and memory of a sweep at the three sizes, beside the two matrix products it cannot avoid.

    python -m benchmarks [--threads 2] [--quick]

Each size runs in a process of its own, so that peak memory is its own. Real tables are read from NSFA_DATA_DIR, and
replaced by simulated ones of the same shape without it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

SIZES = {
    # name: (features, samples, starting factors, factors from which to measure, aim in ms)
    "synthetic 100 × 100": (100, 100, 0, 16, 0.5),
    "breast 226 × 251": (226, 251, 0, 48, 2.5),
    "prostate 12558 × 108": (12558, 108, 0, 26, 20.0),
}


def table(name: str) -> np.ndarray:
    from nsfa.datasets import fetch_breast, fetch_ecoli, fetch_prostate, make_sparse_factors

    features, samples = SIZES[name][:2]
    try:
        if name.startswith("synthetic"):
            return make_sparse_factors(samples, pattern=fetch_ecoli().connectivity, random_state=0).X
        return (fetch_breast() if name.startswith("breast") else fetch_prostate()).X
    except FileNotFoundError:
        return make_sparse_factors(samples, features, 16, random_state=0).X


def measure(name: str, threads: int, quick: bool) -> dict[str, float]:
    """One size, in this process."""
    started = time.perf_counter()
    from threadpoolctl import threadpool_limits

    from nsfa import schedule
    from nsfa.chain import Chain, chain_generator
    from nsfa.data import observe
    from nsfa.kernels import get_kernels
    from nsfa.model import preset
    from nsfa.samples import Samples

    imported = time.perf_counter() - started
    data = observe(table(name))
    # the paper's sweep; the extra moves are timed after it, from where it got to
    settings = {"concentration": 1.0} if name.startswith("synthetic") else {}
    spec = preset("nsfa", moves="plain", **settings)
    start, enough, _ = SIZES[name][2:]
    turns = {"synthetic": 200, "breast": 20, "prostate": 8}[name.split()[0]]
    with threadpool_limits(1):
        started = time.perf_counter()
        chain = Chain(Samples(data, get_kernels("numba", threads)), spec, chain_generator(0, 0), start=start)
        chain.sweep()
        first = time.perf_counter() - started + imported
        for sweep in range(1500):
            chain.sweep()
            if sweep > 20 and chain.state.n_factors >= enough:
                break
        times, factors, unavoidable = [], [], []
        # in turns, so that both see the machine in the same mood
        for _ in range(10):
            # few enough that K stays near where it is asked for
            for _ in range(turns // (4 if quick else 1)):
                started = time.perf_counter()
                chain.sweep()
                times.append(time.perf_counter() - started)
                factors.append(chain.state.n_factors)
            unavoidable += [products(data.values, factors[-1], threads) for _ in range(8)][2:]
            # the threads of the matrix products stay awake for a while
            time.sleep(0.1)
        full = []
        every = schedule.build(preset("nsfa", **settings), data.shape[0], chain.samples.can)
        for sweep in range(40):
            started = time.perf_counter()
            # past the first sweeps, which have all moves
            for move in every.of_sweep(1000 + sweep):
                move.update(chain.state, chain.samples, chain.spec, chain.rng)
            full.append(time.perf_counter() - started)
    n_factors = round(float(np.mean(factors)))
    out = {
        "factors": n_factors,
        "active": int(chain.state.active.sum()),
        "sweep": 1e3 * float(np.median(times)),
        "best": 1e3 * float(np.quantile(times, 0.1)),
        "full": 1e3 * float(np.mean(full)),
        "products": 1e3 * float(np.median(unavoidable)),
        "first": first,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    out["reference"] = reference(data, spec, n_factors)
    return out


def products(values: np.ndarray, n_factors: int, threads: int) -> float:
    """Seconds of Y X and Yᵀ diag(τ) G together, by BLAS on as many threads."""
    from threadpoolctl import threadpool_limits

    scores, weighted = np.full((values.shape[1], n_factors), 0.5), np.full((values.shape[0], n_factors), 0.5)
    with threadpool_limits(threads):
        started = time.perf_counter()
        values @ scores
        values.T @ weighted
        return time.perf_counter() - started


def reference(data, spec, n_factors: int) -> float:
    """ms of one sweep of the plain-NumPy backend."""
    from nsfa.chain import Chain, chain_generator
    from nsfa.kernels import get_kernels
    from nsfa.samples import Samples

    if data.shape[0] > 1000:
        # entry by entry in Python: a hundredth of the features says as much
        from nsfa.data import observe

        part = observe(data.values[::100].T)
        return 100 * reference(part, spec, n_factors)
    chain = Chain(Samples(data, get_kernels("reference")), spec, chain_generator(0, 0), start=n_factors)
    started = time.perf_counter()
    for _ in range(3):
        chain.sweep()
    return 1e3 * (time.perf_counter() - started) / 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", choices=SIZES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.threads, arguments.quick)))
        return
    head = f"{'table':<22}{'K':>4}{'active':>8}{'sweep ms':>10}{'p10':>8}{'aim':>6}{'products':>10}{'ratio':>7}"
    print(f"{head}{'all moves':>11}{'reference':>11}{'first s':>9}{'peak MB':>9}   ({arguments.threads} thread(s))")
    for name, (*_, aim) in SIZES.items():
        command = [sys.executable, "-m", "benchmarks", "--one", name, "--threads", str(arguments.threads)]
        command += ["--quick"] if arguments.quick else []
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        r = json.loads(done.stdout)
        print(
            f"{name:<22}{r['factors']:>4}{r['active']:>8}{r['sweep']:>10.2f}{r['best']:>8.2f}{aim:>6}"
            f"{r['products']:>10.2f}{r['sweep'] / r['products']:>7.1f}{r['full']:>11.2f}{r['reference']:>11.0f}"
            f"{r['first']:>9.2f}{r['memory']:>9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
