"""What a default fit finds where the answer is known: ``NSFA_DATA_DIR=… python -m benchmarks.controls``.

    python -m benchmarks.controls [--only TEXT ...] [--without TEXT ...] [--seed 0] [-o DIRECTORY]

Tables of noise, of planted factors, and real ones whose genes were shuffled, genes × samples. A row says how many
factors a draw has (K), how many of five genes or more (``substantial``; ``per start``, the same for each chain, which
start with a quarter, none, a half and an eighth of the factors a table can have), how many are in the consensus, how
many of these have five genes or more, of those how many are false, and how many true ones are missed, at |cosine| 0.9.
``least cosine`` is that of the worst pair of a planted factor and its counterpart, and ``ceiling`` what the best
estimate reaches that is told the true scores, variances, density and tails, and has only the loadings to find (under t
noise by Gibbs sampling, in tables of up to 300,000 entries).
Real tables are left out where there are no files. With ``-o`` the rows are kept in controls.csv and controls.md there.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from nsfa import NSFA
from nsfa.datasets import fetch_breast, fetch_prostate
from nsfa.metrics import match_factors

SHAPES = ((100, 100), (1000, 50), (2500, 20), (2500, 108), (500, 1000), (12558, 108))
DISCRETE = ((500, 1000), (1000, 100))
PLANTED = 10
FOUND = 0.9
CEILING_ENTRIES = 300_000


class Control(NamedTuple):
    """A table (samples × genes), its true loadings (genes × factors) if one can tell, and how many factors it has.

    Scores (samples × factors) where they were planted, settings of the fit beside the default ones, and the degrees of
    freedom of t noise.
    """

    X: np.ndarray
    loadings: np.ndarray | None
    n_factors: int
    scores: np.ndarray | None = None
    settings: Mapping[str, object] = MappingProxyType({})
    degrees: float = np.inf


def noise(shape: tuple[int, int], seed: int, degrees: float = np.inf) -> Control:
    """Nothing but noise, Gaussian or Student's t."""
    rng = np.random.default_rng([seed, *shape])
    size = shape[::-1]
    X = rng.standard_normal(size) if np.isinf(degrees) else rng.standard_t(degrees, size)
    return Control(X, np.zeros((shape[0], 0)), 0)


def planted(shape: tuple[int, int], seed: int, degrees: float = np.inf) -> Control:
    """Ten factors, each on a twentieth of the genes, but ten at least; loadings of variance one, noise as above."""
    rng = np.random.default_rng([seed, *shape, 1])
    loadings, scores = _factors(shape, rng)
    size = shape[::-1]
    error = rng.standard_normal(size) if np.isinf(degrees) else rng.standard_t(degrees, size)
    return Control(scores @ loadings.T + error, loadings, PLANTED, scores, degrees=degrees)


def _factors(shape: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Loadings and scores of ten factors."""
    n_genes, n_samples = shape
    loadings = np.zeros((n_genes, PLANTED))
    for k in range(PLANTED):
        own = rng.choice(n_genes, max(n_genes // 20, 10), replace=False)
        loadings[own, k] = rng.standard_normal(len(own))
    return loadings, rng.standard_normal((n_samples, PLANTED))


def robust(control: Control) -> Control:
    """The same, fitted with robust noise."""
    return control._replace(settings={"noise": "robust"})


def half_zeros(shape: tuple[int, int], seed: int) -> Control:
    """Noise of which 70 % are exactly zero."""
    rng = np.random.default_rng([seed, *shape, 2])
    X = rng.standard_normal(shape[::-1]) * (rng.random(shape[::-1]) < 0.3)
    return Control(X, np.zeros((shape[0], 0)), 0, settings={"noise": "robust"})


def counts(
    shape: tuple[int, int], seed: int, factors: bool, mean: float = 0.5, spread: float = 0.3, depth: float = 0.3
) -> Control:
    """Poisson counts: genes' levels, samples' depths and over-dispersion are lognormal; ten factors or none."""
    rng = np.random.default_rng([seed, *shape, 3])
    loadings, scores = _factors(shape, rng)
    loadings = 0.7 * loadings if factors else loadings[:, :0]
    log_rate = (scores @ loadings.T if factors else 0.0) + 0.5 * rng.standard_normal(shape[0])
    log_rate = log_rate + depth * rng.standard_normal((shape[1], 1)) + spread * rng.standard_normal(shape[::-1])
    log_rate += np.log(mean / np.exp(log_rate).mean())
    X = rng.poisson(np.exp(log_rate)).astype(float)
    return Control(X, loadings, PLANTED * factors, scores, {"likelihood": "counts"})


def binary(shape: tuple[int, int], seed: int, factors: bool) -> Control:
    """Zeros and ones by a probit; ten factors or none."""
    rng = np.random.default_rng([seed, *shape, 4])
    loadings, scores = _factors(shape, rng)
    loadings = 0.7 * loadings if factors else loadings[:, :0]
    values = rng.standard_normal(shape[::-1]) + 0.5 * rng.standard_normal(shape[0])
    X = (values + (scores @ loadings.T if factors else 0.0) > 0).astype(float)
    return Control(X, loadings, PLANTED * factors, scores, {"likelihood": "binary"})


def dense(shape: tuple[int, int], seed: int, n_factors: int = 20) -> Control:
    """Twenty factors on all genes; loadings, scores and noise of variance one. Only their space can be known."""
    rng = np.random.default_rng([seed, *shape, 2])
    loadings, scores = rng.standard_normal((shape[0], n_factors)), rng.standard_normal((shape[1], n_factors))
    return Control(scores @ loadings.T + rng.standard_normal(shape[::-1]), None, n_factors, scores)


def ceiling(X: np.ndarray, loadings: np.ndarray, scores: np.ndarray, most: int = 4) -> np.ndarray:
    """Cosines of the planted loadings with their posterior means given the scores and all else but the genes' means.

    Sums over all patterns of up to ``most`` factors per gene, slabs N(0, 1), noise 1, means with a flat prior.
    """
    Y, S = X - X.mean(axis=0), scores - scores.mean(axis=0)
    gram, cross, odds = S.T @ S, S.T @ Y, (loadings != 0).mean() / (loadings == 0).mean()
    n_factors = S.shape[1]
    total, weight = np.zeros((n_factors, X.shape[1])), np.zeros(X.shape[1])
    # the same for all patterns of a gene: keeps the exponentials finite
    base = 0.5 * (cross * np.linalg.solve(gram + np.eye(n_factors), cross)).sum(axis=0)
    for size in range(most + 1):
        for pattern in map(list, combinations(range(n_factors), size)):
            precision, b = gram[np.ix_(pattern, pattern)] + np.eye(size), cross[pattern]
            mean = np.linalg.solve(precision, b)
            evidence = 0.5 * (b * mean).sum(axis=0) - 0.5 * np.linalg.slogdet(precision)[1] - base
            w = odds**size * np.exp(evidence)
            weight += w
            total[pattern] += w * mean
    best = (total / weight).T
    return (best * loadings).sum(axis=0) / np.linalg.norm(best, axis=0) / np.linalg.norm(loadings, axis=0)


def ceiling_under_tails(control: Control, sweeps: int = 600) -> np.ndarray:
    """``ceiling`` under t noise: Gibbs sampling of loadings, means and the entries' variances given the true scores."""
    rng, degrees, scores, truth = np.random.default_rng(0), control.degrees, control.scores, control.loadings
    loadings, logit = truth.copy(), np.log((truth != 0).mean() / (truth == 0).mean())
    error, mean, total = control.X.T - loadings @ scores.T, np.zeros(len(truth)), np.zeros(truth.shape)
    for sweep in range(sweeps):
        # Student's t: normals whose precisions are gammas of mean one
        weight = rng.gamma((degrees + 1) / 2, 2 / (degrees + (error - mean[:, None]) ** 2))
        power = weight.sum(axis=1)
        mean = (weight * error).sum(axis=1) / power + rng.standard_normal(len(error)) / np.sqrt(power)
        centred = error - mean[:, None]
        for k, x in enumerate(scores.T):
            centred += np.outer(loadings[:, k], x)
            precision, b = 1.0 + weight @ x**2, (weight * centred) @ x
            chance = expit(logit + 0.5 * b**2 / precision - 0.5 * np.log(precision))
            if 3 * sweep >= sweeps:
                total[:, k] += chance * b / precision
            drawn = b / precision + rng.standard_normal(len(b)) / np.sqrt(precision)
            loadings[:, k] = np.where(rng.random(len(b)) < chance, drawn, 0.0)
            centred -= np.outer(loadings[:, k], x)
        error = centred + mean[:, None]
    return (total * truth).sum(axis=0) / np.linalg.norm(total, axis=0) / np.linalg.norm(truth, axis=0)


def best_possible(control: Control) -> float | str:
    """The least cosine of the best estimate that is told the true scores; nothing where there is none to be had."""
    if not np.isinf(control.degrees) and control.X.size <= CEILING_ENTRIES:
        return round(float(ceiling_under_tails(control).min()), 3)
    if np.isinf(control.degrees) and not control.settings:
        return round(float(ceiling(*control[:2], control.scores).min()), 3)
    return ""


def shuffled(X: np.ndarray, seed: int) -> Control:
    """A table each of whose genes had its values shuffled: what genes share is gone, their distributions are not."""
    return Control(np.random.default_rng(seed).permuted(X, axis=0), np.zeros((X.shape[1], 0)), 0)


def low_rank(X: np.ndarray, seed: int, rank: int = 20) -> Control:
    """A scaled table's best approximation by dense factors, and Gaussian noise of each gene's residual variance."""
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    u, s, v = np.linalg.svd(Z, full_matrices=False)
    fit = (u[:, :rank] * s[:rank]) @ v[:rank]
    error = np.random.default_rng(seed).standard_normal(Z.shape) * (Z - fit).std(axis=0)
    return Control(fit + error, None, rank)


def tables(seed: int) -> Iterator[tuple[str, Callable[[], Control]]]:
    """Names of all controls, and how to make each."""
    for shape in SHAPES:
        size = f"{shape[0]} × {shape[1]}"
        yield f"noise {size}", lambda shape=shape: noise(shape, seed)
        yield f"t noise {size}", lambda shape=shape: noise(shape, seed, degrees=4.0)
        yield f"planted {size}", lambda shape=shape: planted(shape, seed)
        yield f"robust noise {size}", lambda shape=shape: robust(noise(shape, seed))
        yield f"robust t noise {size}", lambda shape=shape: robust(noise(shape, seed, degrees=4.0))
        yield f"robust t planted {size}", lambda shape=shape: robust(planted(shape, seed, degrees=4.0))
        yield f"robust zeros {size}", lambda shape=shape: half_zeros(shape, seed)
    for shape in DISCRETE:
        size = f"{shape[0]} × {shape[1]}"
        yield f"counts noise {size}", lambda shape=shape: counts(shape, seed, factors=False)
        yield f"counts over-dispersed {size}", lambda shape=shape: counts(shape, seed, factors=False, spread=1.0)
        yield f"counts sparse {size}", lambda shape=shape: counts(shape, seed, factors=False, mean=0.05)
        yield f"counts planted {size}", lambda shape=shape: counts(shape, seed, factors=True)
        yield f"binary noise {size}", lambda shape=shape: binary(shape, seed, factors=False)
        yield f"binary planted {size}", lambda shape=shape: binary(shape, seed, factors=True)
    yield "robust shuffled prostate 12558 × 108", lambda: robust(shuffled(fetch_prostate().X, seed))
    yield "shuffled breast 226 × 251", lambda: shuffled(fetch_breast().X, seed)
    yield "shuffled prostate 12558 × 108", lambda: shuffled(fetch_prostate().X, seed)
    yield "rank 20 prostate 12558 × 108", lambda: low_rank(fetch_prostate().X, seed)


def row(name: str, control: Control, seed: int, **settings: object) -> dict[str, object]:
    """Fit a control and say what was found."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        posterior = NSFA(random_state=seed, **control.settings, **settings).fit(control.X).posterior_
    consensus = posterior.consensus()
    found = posterior.diagnostics()
    substantial = posterior.n_substantial.mean(axis=1)
    large = np.flatnonzero(consensus.sizes >= 5)
    out: dict[str, object] = {
        "table": name,
        "seed": seed,
        "truth": control.n_factors,
        "K": round(float(posterior.n_factors.mean()), 1),
        "substantial": round(float(substantial.mean()), 2),
        "per start": " ".join(f"{value:.1f}" for value in substantial),
        "consensus": consensus.n_factors,
        "with >= 5 genes": len(large),
        "false": "",
        "missed": "",
        "least cosine": "",
        "ceiling": "",
        "settled": found.settled,
        "worst R-hat": round(max(d.rhat for d in found.table), 3),
        "seconds": round(time.perf_counter() - started, 1),
    }
    if control.loadings is not None:
        hits = 0
        if control.n_factors and len(large):
            cosines = np.abs(match_factors(control.loadings, consensus.loadings[:, large])[2])
            hits = int((cosines > FOUND).sum())
            out["least cosine"] = round(float(cosines.min()), 3)
            out["ceiling"] = best_possible(control)
        # in a table of nothing, factors of any size are false
        out["false"] = (len(large) if control.n_factors else consensus.n_factors) - hits
        out["missed"] = control.n_factors - hits
    return out


def markdown(rows: pd.DataFrame) -> str:
    """The rows as a table for docs/controls.md, in the order of ``tables``."""
    order = {name: i for i, (name, _) in enumerate(tables(0))}
    rows = rows.drop(columns=["seed", "settled", "worst R-hat"]).sort_values(
        "table", key=lambda names: names.map(order)
    )
    lines = [rows.columns, ["---"] * rows.shape[1], *rows.fillna("").astype(str).to_numpy()]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="controls whose names contain one of these")
    parser.add_argument("--without", nargs="*", default=[], help="none whose names contain one of these")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, help="keep the rows in this folder")
    arguments = parser.parse_args()
    path = arguments.out and arguments.out / "controls.csv"
    for name, make in tables(arguments.seed):
        if not any(part in name for part in arguments.only) or any(part in name for part in arguments.without):
            continue
        try:
            control = make()
        except FileNotFoundError as error:
            print(f"{name}: left out: {error}", flush=True)
            continue
        new = row(name, control, arguments.seed)
        print(", ".join(f"{key} {value}" for key, value in new.items()), flush=True)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = pd.read_csv(path, dtype=str).to_dict("records") if path.exists() else []
            rows = [old for old in rows if (old["table"], int(old["seed"])) != (name, arguments.seed)]
            every = pd.DataFrame([*rows, new])
            every.to_csv(path, index=False)
            path.with_suffix(".md").write_text(markdown(every), encoding="utf-8")


if __name__ == "__main__":
    main()
