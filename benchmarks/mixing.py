"""Do chains from different starts agree, and how soon: ``NSFA_DATA_DIR=… python -m benchmarks.mixing [--quick]``.

NSFA on a synthetic set and the paper's three real ones, under four schedules: the paper's moves and priors ("paper"),
its moves with our priors ("plain"), its priors with all our moves ("paper prior"), and the default. Four chains from
dispersed starts, of the default length. Rows of gene scale, 108 samples and 2,500 or 12,558 genes (every fifth of the
prostate table's, all of them, and planted factors: ten sparse, twenty dense), have the default schedule alone, and come
by name (``--data prostate,planted-12558``). Tables in Markdown go to standard output; ``-o DIR`` also writes all
numbers as csv, and a figure of the traces.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from benchmarks.controls import dense, planted
from nsfa import Priors
from nsfa.chain import Chain, chain_generator
from nsfa.data import observe
from nsfa.datasets import fetch_breast, fetch_ecoli, fetch_prostate, make_sparse_factors
from nsfa.draw import feature_pairs
from nsfa.kernels import get_kernels
from nsfa.length import Length
from nsfa.model import preset
from nsfa.model.start import starting_factors
from nsfa.posterior import Posterior
from nsfa.posterior.diagnostics import ess_bulk, split_rhat
from nsfa.samples import Samples

CHAINS = 4
SCHEDULES = {
    "paper": {"moves": "plain", "priors": Priors.paper()},
    "plain": {"moves": "plain"},
    "paper prior": {"priors": Priors.paper()},
    "default": {},
}
# data set: warm-up sweeps, sweeps after it
LENGTHS = {"synthetic": (150, 2000), "ecoli": (150, 2000), "breast": (500, 6000)}
GENE_SCALE = {
    "planted-2500": (500, 1000), "planted-12558": (500, 500), "dense-2500": (500, 1000), "dense-12558": (500, 500),
    "prostate-2500": (500, 1000), "prostate": (500, 500),
}  # fmt: skip
QUANTITIES = ("log p(Y|G,psi)", "K", "active", "alpha", "|GG'|", "cov 1", "cov 2", "cov 3", "cov 4", "cov 5")


class Run(NamedTuple):
    """The trace of one chain (sweeps, quantities), the seconds after each sweep, and some draws of its second part."""

    trace: np.ndarray
    seconds: np.ndarray
    draws: list[Any]


def table(name: str) -> np.ndarray:
    """Samples × genes of one of the data sets."""
    if name == "synthetic":
        return make_sparse_factors(100, pattern=fetch_ecoli().connectivity, random_state=0).X
    kind, _, genes = name.partition("-")
    if kind in ("planted", "dense"):
        return {"planted": planted, "dense": dense}[kind]((int(genes), 108), 0).X
    X = np.asarray({"ecoli": fetch_ecoli, "breast": fetch_breast, "prostate": fetch_prostate}[kind]().X, float)
    return X[:, ::5][:, : int(genes)] if genes else X


def run_one(name: str, schedule: str, number: int, length: tuple[int, int]) -> Run:
    """One chain. Dispersed starts for all schedules, so that their plateaus can be compared."""
    tune, sweeps = length
    data, spec = observe(table(name)), preset("nsfa", **SCHEDULES[schedule])
    start = starting_factors(preset("nsfa"), data.shape, number)
    pairs = feature_pairs(data.shape[0])
    trace, seconds, draws = np.empty((tune + sweeps, len(QUANTITIES))), np.empty(tune + sweeps), []
    with threadpool_limits(1):
        chain = Chain(Samples(data, get_kernels()), spec, chain_generator(0, number), start, tune)
        used, began = 0.0, time.process_time()
        for i in range(tune + sweeps):
            births = chain.sweep()
            used += time.process_time() - began
            g = chain.state.loadings
            norm = np.linalg.norm(g.T @ g)
            entries = np.einsum("pk,pk->p", g[pairs[:, 0]], g[pairs[:, 1]])
            trace[i] = (
                chain.samples.log_evidence, chain.state.n_factors, chain.state.usage.sum(), chain.state.concentration,
                norm, *entries,
            )  # fmt: skip
            seconds[i] = used
            if i >= tune and (i - tune) % max(1, sweeps // 250) == 0:
                draws.append(chain.draw(births, used))
            began = time.process_time()
    return Run(trace, seconds, draws)


def plateau(runs: list[Run]) -> tuple[np.ndarray, np.ndarray]:
    """First sweep, and second, at which log p(Y|G,ψ), K and the active count are all within the pooled 90 % range."""
    later = np.concatenate([run.trace[len(run.trace) // 2 :, :3] for run in runs])
    low, high = np.quantile(later, [0.05, 0.95], axis=0)
    inside = [((run.trace[:, :3] >= low) & (run.trace[:, :3] <= high)).all(axis=1) for run in runs]
    first = np.array([np.argmax(i) if i.any() else len(i) - 1 for i in inside])
    return first + 1, np.array([run.seconds[i] for run, i in zip(runs, first, strict=True)])


def shared_factors(name: str, schedule: str, runs: list[Run]) -> tuple[int, int]:
    """Substantial consensus factors, and how many of them every chain's own mean loadings show at |cos| > 0.9."""
    data, spec = observe(table(name)), preset("nsfa", **SCHEDULES[schedule])
    posterior = Posterior(data, spec, tuple(tuple(run.draws) for run in runs), Length(), 0, True)
    pooled = posterior.consensus().loadings / data.scale[:, None]
    large = (np.abs(pooled) > 0.1).sum(axis=0) >= 5
    found = np.ones(large.sum(), dtype=bool)
    aligned, _ = posterior.aligned()
    for chain in aligned:
        mean = chain.mean(axis=0)[:, large] / data.scale[:, None]
        norms = np.linalg.norm(mean, axis=0) * np.linalg.norm(pooled[:, large], axis=0)
        found &= np.abs((mean * pooled[:, large]).sum(axis=0)) > 0.9 * np.maximum(norms, 1e-300)
    return int(large.sum()), int(found.sum())


def measure(name: str, schedule: str, length: tuple[int, int], jobs: int) -> tuple[dict[str, Any], list[Run]]:
    """A row of the table."""
    runs = Parallel(n_jobs=jobs)(delayed(run_one)(name, schedule, chain, length) for chain in range(CHAINS))
    tune = length[0]
    kept = np.array([run.trace[tune:] for run in runs])
    seconds = sum(run.seconds[-1] - run.seconds[tune - 1] for run in runs)
    sweeps, began = plateau(runs)
    row: dict[str, Any] = {
        "data": name, "schedule": schedule, "ms/sweep": 1e3 * seconds / (CHAINS * length[1]),
        "plateau sweeps": "-".join(map(str, sorted(sweeps)[:: CHAINS - 1])),
        "plateau s": "-".join(f"{s:.1f}" for s in sorted(began)[:: CHAINS - 1]),
    }  # fmt: skip
    for i, quantity in enumerate(QUANTITIES):
        row[f"mean {quantity}"] = kept[..., i].mean()
        row[f"R-hat {quantity}"] = split_rhat(kept[..., i])
        row[f"ESS/s {quantity}"] = ess_bulk(kept[..., i]) / seconds
    row["factors"], row["in all chains"] = shared_factors(name, schedule, runs)
    return row, runs


def markdown(frame: pd.DataFrame) -> str:
    """Two tables: how soon and how well chains agree, and effective samples per second."""
    covariances = [q for q in QUANTITIES if q.startswith("cov")]
    names = {"log p(Y|G,psi)": "log p(Y given G, ψ)", "active": "active", "alpha": "α", "|GG'|": "‖GGᵀ‖", "K": "K"}
    agree = ["data", "schedule", "K", "ms per sweep", "plateau, sweeps", "plateau, s"]
    agree += [f"R-hat of {name}" for name in names.values()] + ["worst of 5 covariances", "factors in all chains"]
    speed = ["data", "schedule", *(f"{name}" for name in names.values()), "worst of 5 covariances"]
    first, second = [agree, ["---"] * len(agree)], [speed, ["---"] * len(speed)]
    for row in frame.to_dict("records"):
        head = [str(row["data"]), str(row["schedule"])]
        rhat = [*(row[f"R-hat {q}"] for q in names), max(row[f"R-hat {q}"] for q in covariances)]
        ess = [*(row[f"ESS/s {q}"] for q in names), min(row[f"ESS/s {q}"] for q in covariances)]
        cells = [f"{row['mean K']:.1f}", f"{row['ms/sweep']:.2g}", row["plateau sweeps"], row["plateau s"]]
        shared = f"{row['in all chains']} of {row['factors']}"
        first.append([*head, *map(str, cells), *(f"{r:.3f}" for r in rhat), shared])
        second.append([*head, *(f"{e:.3g}" for e in ess)])
    return "\n\n".join("\n".join("| " + " | ".join(line) + " |" for line in part) for part in (first, second))


def draw(runs: dict[tuple[str, str], list[Run]], path: Path) -> None:
    """Traces of K and the active count, a row per data set and a column per schedule; dense starts are cut off."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names, schedules = sorted({n for n, _ in runs}), [s for s in SCHEDULES if any(k[1] == s for k in runs)]
    figure, axes = plt.subplots(
        2 * len(names), len(schedules), figsize=(4 * len(schedules), 3.2 * len(names)), squeeze=False, sharey="row"
    )
    for (name, schedule), chains in runs.items():
        for i, quantity in enumerate(("K", "active")):
            axis = axes[2 * names.index(name) + i, schedules.index(schedule)]
            for run in chains:
                axis.plot(run.trace[:, 1 + i], lw=0.6)
            axis.set_title(f"{name}, {schedule}", fontsize=9) if i == 0 else axis.set_xlabel("sweep", fontsize=8)
            axis.set_ylabel(quantity, fontsize=8)
            axis.tick_params(labelsize=7)
    for i, name in enumerate(names):
        late = [run.trace[len(run.trace) // 2 :, 1:3] for (n, _), chains in runs.items() if n == name for run in chains]
        for row, top in zip(axes[2 * i : 2 * i + 2], np.concatenate(late).max(axis=0), strict=True):
            row[0].set_ylim(0, 1.6 * top)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the length")
    parser.add_argument("--data", default=",".join(LENGTHS), help="data sets, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="chains at a time; seconds are those of a chain's core")
    parser.add_argument("-o", "--output", type=Path, help="folder for mixing.csv and mixing.png")
    arguments = parser.parse_args()
    rows, runs = [], {}
    for name in arguments.data.split(","):
        length = tuple(max(20, n // (10 if arguments.quick else 1)) for n in (LENGTHS | GENE_SCALE)[name])
        for schedule in ("default",) if name in GENE_SCALE else SCHEDULES:
            print(f"{name}, {schedule}", file=sys.stderr)
            row, runs[name, schedule] = measure(name, schedule, length, arguments.jobs)
            rows.append(row)
    frame = pd.DataFrame(rows)
    print(markdown(frame))
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        frame.to_csv(arguments.output / "mixing.csv", index=False)
        draw(runs, arguments.output / "mixing.png")


if __name__ == "__main__":
    main()
