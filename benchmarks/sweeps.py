"""Which sweep over the loadings earns more effective samples per second, by size: ``python -m benchmarks.sweeps``.

Both start from the same warmed-up state; effective samples are of the number of factors and of the active loadings.
"""

from __future__ import annotations

import os
import time

import numpy as np
from threadpoolctl import threadpool_limits

from nsfa.chain import Chain, chain_generator
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.model import preset
from nsfa.posterior.diagnostics import ess_bulk
from nsfa.samples import Samples

SIZES = [(100, 100, 4000), (400, 100, 3000), (1000, 100, 2000), (2000, 100, 1500), (4000, 100, 800), (12000, 100, 300)]


def measure(n_features: int, n_samples: int, sweeps: int, kind: str, threads: int) -> tuple[float, float, float]:
    """ms per sweep, and effective samples per second of the number of factors and of active loadings."""
    data = make_sparse_factors(n_samples, n_features, 16, density=0.1, random_state=0)
    spec = preset("nsfa", concentration=1.0, sweep=kind)
    with threadpool_limits(1):
        chain = Chain(Samples(observe(data.X), get_kernels("numba", threads)), spec, chain_generator(0, 0))
        for _ in range(max(sweeps // 2, 400)):
            chain.sweep()
        trace, started = np.empty((2, sweeps)), time.perf_counter()
        for i in range(sweeps):
            chain.sweep()
            trace[:, i] = chain.state.n_factors, chain.state.usage.sum()
        seconds = time.perf_counter() - started
    return 1e3 * seconds / sweeps, ess_bulk(trace[:1]) / seconds, ess_bulk(trace[1:]) / seconds


def main() -> None:
    threads = os.cpu_count() or 1
    print(f"{'features':>9}{'':>12}{'ms/sweep':>10}{'ESS/s K':>10}{'ESS/s active':>14}   ({threads} threads)")
    for n_features, n_samples, sweeps in SIZES:
        for kind in ("collapsed", "parallel"):
            ms, factors, active = measure(n_features, n_samples, sweeps, kind, threads)
            print(f"{n_features:>9}{kind:>12}{ms:>10.2f}{factors:>10.1f}{active:>14.1f}", flush=True)


if __name__ == "__main__":
    main()
