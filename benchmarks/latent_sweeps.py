"""What a sweep costs whose values are drawn, beside a Gaussian one: ``python -m benchmarks.latent_sweeps``.

    python -m benchmarks.latent_sweeps [--only robust counts binary] [--sweeps 100] [--threads 1]

Tables with ten planted factors, genes × samples. Each kind goes on from a warm-up of its own, five sweeps at a time by
turns with Gaussian noise on the same table (of counts: on their logarithms), so that both see the machine in the same
mood; five, since every fifth sweep has more moves. The median of these is given, and K beside it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.controls import binary, counts, planted
from nsfa.chain import Chain, chain_generator
from nsfa.data import observe, observe_discrete
from nsfa.kernels import get_kernels
from nsfa.latent_samples import samples_of
from nsfa.model import preset

SHAPES = {
    "robust": ((100, 100), (226, 251), (500, 1000), (2500, 108), (12558, 108)),
    "counts": ((500, 1000), (1000, 100)),
    "binary": ((500, 1000), (1000, 100)),
}
TUNE = 200


def pair(kind: str, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """The table that a kind is for, and the one beside it, samples × genes."""
    if kind == "robust":
        X = planted(shape, 0).X
        return {"gaussian": X, kind: X}
    X = counts(shape, 0, True).X if kind == "counts" else binary(shape, 0, True).X
    return {"gaussian": np.log1p(X), kind: X}


def chain(kind: str, X: np.ndarray, threads: int) -> Chain:
    """A chain at the end of its warm-up."""
    spec = preset("nsfa", **({"noise": kind} if kind == "robust" else {}))
    if kind in ("counts", "binary"):
        spec = preset("nsfa", likelihood=kind)
    data = observe_discrete(X, kind) if spec.likelihood != "gaussian" else observe(X)
    made = Chain(samples_of(data, spec, get_kernels("numba", threads)), spec, chain_generator(0, 0), start=1, tune=TUNE)
    for _ in range(TUNE):
        made.sweep()
    return made


def measure(kind: str, shape: tuple[int, int], sweeps: int, threads: int) -> str:
    """One line: milliseconds per sweep of both, their ratio, and factors."""
    with threadpool_limits(1):
        chains = {name: chain(name, X, threads) for name, X in pair(kind, shape).items()}
        seconds: dict[str, list[float]] = {name: [] for name in chains}
        for _ in range(sweeps // 5):
            for name, one in chains.items():
                started = time.perf_counter()
                for _ in range(5):
                    one.sweep()
                seconds[name].append((time.perf_counter() - started) / 5)
    plain, drawn = (1e3 * float(np.median(seconds[name])) for name in ("gaussian", kind))
    factors = " and ".join(str(one.state.n_factors) for one in chains.values())
    return f"{shape[0]} × {shape[1]}: {plain:.2f} and {drawn:.2f} ms, ratio {drawn / plain:.2f}, K {factors}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    for kind in arguments.only:
        for shape in SHAPES[kind]:
            print(f"gaussian and {kind} {measure(kind, shape, arguments.sweeps, arguments.threads)}", flush=True)


if __name__ == "__main__":
    main()
