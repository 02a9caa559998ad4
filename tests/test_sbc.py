"""Simulation-based calibration (Talts et al. 2018): ranks of true values among posterior draws must be uniform.

Long; run with ``-m slow``. ``python tests/test_sbc.py [REPLICATES [FIGURE ...]]`` prints p-values and redraws the
figures in docs/.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from textwrap import wrap

import numpy as np
import pytest
from scipy import stats

from nsfa.chain import Chain
from nsfa.data import observe
from nsfa.kernels import get_kernels
from nsfa.latent_samples import samples_of
from nsfa.model import Gamma, Priors, preset
from nsfa.model.simulate import simulate_data, simulate_outliers, simulate_seen, simulate_state

N_FEATURES, N_SAMPLES = 10, 15
REPLICATES, DRAWS, THIN, TUNE = 400, 63, 15, 200
PRIORS = Priors(
    noise=Gamma(4.0, 2.0),
    loading_shape=3.0,
    loading_rate=Gamma(4.0, 2.0),
    concentration=Gamma(4.0, 4.0),
    sparsity=(6.0, 0.4),
    urn=Gamma(3.0, 2.0),
    outlier_scales=(4.0, 50.0),
    outlier_shares=(6.0, 1.5, 0.5),
    outlier_rate=0.6,
)
MODELS = {
    "nsfa": ("nsfa", {}),
    "sfa": ("sfa", {"n_components": 3}),
    "fa": ("fa", {"n_components": 2}),
    "bfrm": ("bfrm", {"n_components": 2}),
    "robust": ("nsfa", {"noise": "robust"}),
    "counts": ("nsfa", {"likelihood": "counts"}),
    "binary": ("nsfa", {"likelihood": "binary"}),
}
FIGURES = {"calibration.png": ("nsfa", "sfa", "fa", "bfrm"), "calibration-values.png": ("robust", "counts", "binary")}
# What counts' log rates, and the values behind zeros and ones, are raised by; exposures differ from theirs by SPREAD.
LEVEL, EXPOSURE, SPREAD = np.linspace(-1.0, 1.5, N_FEATURES), np.linspace(-0.5, 0.5, N_SAMPLES), 0.6
# Where values are seen through counts or signs, a flat prior of the means is no distribution to draw a truth from.
MEANS = ("intercepts", "mean scores", "means with rates")


def quantities(state, samples, exposure=None) -> dict[str, float]:
    """Label-free functions of the state and of what is the samples' own."""
    covariance = state.loadings @ state.loadings.T
    out = {
        "number of factors": state.n_factors,
        "active loadings": state.active.sum(),
        "concentration": state.concentration,
        "noise of feature 0": state.noise_precision[0],
        "slab rate": state.loading_rate,
        "covariance 0, 1": covariance[0, 1],
        "signal variance": np.trace(covariance),
        "fit of a missing entry": state.loadings[0] @ samples.scores[0],
    }
    if (state.noise_precision == 1.0).all():
        # of zeros and ones it is fixed
        del out["noise of feature 0"]
    if state.outlier_concentration is not None:
        out["how alike samples are"] = state.outlier_concentration.sum()
        out["share without outliers in sample 1"] = samples.outlier_share[1, 0]
        out["outliers"] = samples.outlier_number[:, 1:].sum()
    if exposure is not None:
        out["exposure of sample 1"] = exposure[1]
    return {name: float(value) for name, value in out.items()}


def simulated(spec, truth, holes, rng):
    """What is seen of a truth, as a chain's samples; the truth with its outliers; exposures of what was counted."""
    values, exposure = simulate_data(truth.state, truth.scores, rng), None
    if spec.noise == "robust":
        deviation, number = simulate_outliers(truth.state, truth.outlier_share, spec, ~holes, rng)
        values, truth = values + deviation, truth._replace(outlier_number=number)
    level = LEVEL[:, None]
    if spec.likelihood == "counts":
        exposure = EXPOSURE + SPREAD * rng.standard_normal(N_SAMPLES)
        level = level + exposure
    seen = np.where(holes, np.nan, simulate_seen(values, spec, level, rng)).T
    data = observe(seen, scale=None, center=False)
    if spec.likelihood != "gaussian":
        about = {"center": LEVEL, "exposure": EXPOSURE, "exposure_spread": SPREAD}
        data = replace(data, likelihood=spec.likelihood, **about)
    return samples_of(data, spec, get_kernels()), truth, exposure


def ranks(name: str, replicates: int, seed: int = 1) -> dict[str, np.ndarray]:
    """Rank of each true quantity among DRAWS posterior draws, ties broken at random; 10 % of entries missing."""
    family, changes = MODELS[name]
    spec = preset(family, priors=PRIORS, **changes)
    rng = np.random.default_rng(seed)
    out: dict[str, list[int]] = {}
    for _ in range(replicates):
        drawn = simulate_state(spec, N_FEATURES, N_SAMPLES, rng)
        holes = rng.random((N_FEATURES, N_SAMPLES)) < 0.1
        holes[0, 0], holes[0, 1:3], holes[1:3, 0] = True, False, False
        samples, truth, exposure = simulated(spec, drawn, holes, rng)
        chain = Chain(samples, spec, rng)
        if spec.likelihood != "gaussian":
            moves = tuple(move for move in chain.schedule.moves if move.name not in MEANS)
            chain.schedule = replace(chain.schedule, moves=moves)
        draws = []
        for sweep in range(TUNE + DRAWS * THIN):
            chain.sweep()
            if sweep >= TUNE and (sweep - TUNE) % THIN == THIN - 1:
                draws.append(quantities(chain.state, samples, samples.exposure))
        for key, value in quantities(truth.state, truth, exposure).items():
            series = np.array([d[key] for d in draws])
            if np.ptp(series) > 0 or key not in ("number of factors", "active loadings", "concentration", "outliers"):
                rank = (series < value).sum() + rng.integers(0, (series == value).sum() + 1)
                out.setdefault(key, []).append(int(rank))
    return {key: np.array(value) for key, value in out.items() if len(value) > replicates // 2}


def p_value(rank: np.ndarray) -> float:
    """χ² test of uniformity over 16 bins."""
    counts = np.bincount(rank * 16 // (DRAWS + 1), minlength=16)
    return float(stats.chisquare(counts).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_ranks_are_uniform(name):
    result = ranks(name, REPLICATES)
    worst = {key: p_value(rank) for key, rank in result.items()}
    assert min(worst.values()) > 1e-3 / len(worst), worst


def figure(path: Path, names: tuple[str, ...], replicates: int) -> None:
    """Rank histograms of some models with the band that uniform ranks stay in."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with ProcessPoolExecutor() as pool:
        results = dict(zip(names, pool.map(ranks, names, [replicates] * len(names)), strict=True))
    for name, result in results.items():
        print(name, {key: round(p_value(rank), 4) for key, rank in result.items()}, flush=True)  # noqa: T201
    keys = list({key: None for result in results.values() for key in result})
    fig, axes = plt.subplots(len(names), len(keys), figsize=(2.1 * len(keys), 1.7 * len(names)), sharey=True)
    low, high = stats.binom(replicates, 1 / 16).ppf([0.005, 0.995])
    for i, (row, (name, result)) in enumerate(zip(axes, results.items(), strict=True)):
        for ax, key in zip(row, keys, strict=True):
            ax.set(xticks=[], yticks=[])
            if i == 0:
                ax.set_title("\n".join(wrap(key, 22)), fontsize=9)
            if key not in result:
                text = {"ha": "center", "va": "center", "fontsize": 8, "color": "0.5"}
                ax.text(0.5, 0.5, "not drawn", transform=ax.transAxes, **text)
                continue
            ax.axhspan(low, high, color="0.88")
            counts = np.bincount(result[key] * 16 // (DRAWS + 1), minlength=16)
            ax.bar(np.arange(16), counts, width=0.9, color="#0072B2")
        row[0].set_ylabel(name if name in ("robust", "counts", "binary") else name.upper(), fontsize=10)
    fig.suptitle(
        f"Ranks of true values among {DRAWS} posterior draws, {replicates} data sets each; grey: 99 % band", fontsize=10
    )
    fig.tight_layout()
    fig.savefig(path, dpi=110)


if __name__ == "__main__":
    wanted = sys.argv[2:] or FIGURES
    for file in wanted:
        folder = Path(__file__).parent.parent / "docs" / "figures"
        figure(folder / file, FIGURES[file], int(sys.argv[1]) if len(sys.argv) > 1 else REPLICATES)
