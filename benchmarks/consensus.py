"""From draws to gene lists in a large posterior: ``python -m benchmarks.consensus``.

Seconds of each stage, of the clock and of the processors, and the most memory that it has beyond what was there before
the first: 4 chains × 40 draws of 12,558 genes × 108 samples with about 350 factors, made up. Draws scatter about a
common truth of some dozen broad factors and many small ones: factors come and go, in any order and sign.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nsfa.data import observe
from nsfa.draw import COVARIANCES, SCALARS, Draw, _compact, factor_counts
from nsfa.length import Length
from nsfa.model import preset
from nsfa.posterior import Posterior

BROAD = 40
# Share of the draws that contain a factor: most are in nearly all, some in few.
OFTEN = (0.99, 0.9, 0.6, 0.2, 0.03)
SHARES = (0.6, 0.15, 0.1, 0.05, 0.1)
# Of a factor's genes a draw lacks this share, and has as many others.
SCATTER = 0.06


def truth(n_genes: int, n_factors: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Loadings (genes, factors), and how often each factor is there."""
    broad = min(BROAD, n_factors // 8)
    sizes = np.concatenate(
        [rng.uniform(0.2, 0.9, broad) * n_genes, np.exp(rng.uniform(np.log(8), np.log(800), n_factors - broad))]
    )
    out = np.zeros((n_genes, n_factors), np.float32)
    for k, size in enumerate(np.maximum(sizes.astype(int), 4)):
        genes = rng.choice(n_genes, min(size, n_genes), replace=False)
        out[genes, k] = rng.normal(0, 0.3, len(genes)) + rng.choice([-0.1, 0.1], len(genes))
    often = rng.choice(OFTEN, n_factors, p=SHARES)
    often[:broad] = OFTEN[0]
    return out, often


def scattered(loadings: np.ndarray, often: np.ndarray, noise: np.ndarray, rng: np.random.Generator) -> Draw:
    """One draw: the truth, jittered and shuffled, and a few factors that nothing else has."""
    there = rng.permutation(np.flatnonzero(rng.random(len(often)) < often))
    g = loadings[:, there] * rng.choice([-1.0, 1.0], len(there)).astype(np.float32)
    row, column = np.nonzero(g)
    g[row, column] *= rng.normal(1.0, 0.2, len(row)).astype(np.float32)
    lost = rng.random(len(row)) < SCATTER
    g[row[lost], column[lost]] = 0
    other = rng.integers(len(g), size=lost.sum())
    g[other, column[lost]] = rng.normal(0, 0.08, lost.sum())
    for k in rng.integers(0, len(there), 6):
        g[:, k] = 0
        g[rng.integers(len(g), size=8), k] = rng.normal(0, 0.5, 8)
    value, step = _compact(g.astype(float), g != 0)
    scalars = {name: float(rng.gamma(4.0)) for name in (*SCALARS, *COVARIANCES, "covariance_norm")}
    scalars |= {"log_joint": float(rng.normal()), "log_evidence": float(rng.normal()), "seconds": 1.0}
    scalars |= {"n_factors": g.shape[1], "n_active": len(value), "loading_power": float(np.vdot(g, g))}
    scalars |= factor_counts((g != 0).sum(axis=0))
    precision = noise * rng.normal(1.0, 0.05, len(noise))
    return Draw(g.shape, np.packbits(g != 0), value, step, precision, np.ones(g.shape[1]), scalars)


def made_up(n_genes: int, n_samples: int, n_factors: int, chains: int, draws: int, missing: float) -> Posterior:
    """The posterior; its table is of the truth, with noise."""
    rng = np.random.default_rng(0)
    loadings, often = truth(n_genes, n_factors, rng)
    table = rng.normal(size=(n_samples, n_factors)) @ loadings.T + 0.6 * rng.normal(size=(n_samples, n_genes))
    table[rng.random(table.shape) < missing] = np.nan
    noise = rng.gamma(20.0, 1 / 8, n_genes)
    every = tuple(tuple(scattered(loadings, often, noise, rng) for _ in range(draws)) for _ in range(chains))
    return Posterior(observe(table), preset("nsfa"), every, Length(100, draws), 0, True)


class Memory:
    """What this process holds, looked at every few milliseconds."""

    def __init__(self) -> None:
        self.most, self._stop = self.now(), threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    @staticmethod
    def now() -> float:
        """MB in use."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.most = max(self.most, self.now())


def measure(name: str, stage: Callable[[], object], before: float, memory: Memory) -> float:
    """Run a stage and print its line; seconds of the clock."""
    memory.most = memory.now()
    clock, processor = time.perf_counter(), time.process_time()
    stage()
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    print(f"{name:<14}{clock:>9.2f}{processor:>11.2f}{memory.most - before:>10.0f}", flush=True)
    return clock


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consensus", description=__doc__.split("\n")[0])
    for name, default in (("genes", 12_558), ("samples", 108), ("factors", 420), ("chains", 4), ("draws", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--missing", type=float, default=0.0, help="share of missing entries")
    size = parser.parse_args()
    # what is imported and compiled at first use is not what is measured
    made_up(40, 20, 16, 2, 4, size.missing).consensus()
    posterior = made_up(size.genes, size.samples, size.factors, size.chains, size.draws, size.missing)
    memory = Memory()
    before = memory.now()
    active = np.mean([draw.n_active for draw in posterior.draws])
    print(f"{size.chains} × {size.draws} draws, K {posterior.n_factors.mean():.0f}, {active:,.0f} active loadings")
    print(f"{'stage':<14}{'seconds':>9}{'processor':>11}{'MB more':>10}")
    stages = {
        "align": posterior.alignment,
        "consensus": posterior.consensus,
        "diagnostics": posterior.diagnostics,
        "summary": posterior.summary,
        "gene lists": lambda: [posterior.consensus().gene_table(k) for k in range(posterior.n_components_)],
        "another effect": lambda: posterior.consensus().genes(0, effect=0.2),
    }
    total = sum(measure(name, stage, before, memory) for name, stage in stages.items())
    columns = posterior.alignment().pivot.shape[1]
    print(f"{'all':<14}{total:>9.2f}   {posterior.n_components_} consensus factors, {columns} columns of the pivot")


if __name__ == "__main__":
    main()
