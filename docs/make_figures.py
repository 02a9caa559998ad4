"""Draw the README's figure: ``python docs/make_figures.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from nsfa import NSFA
from nsfa.datasets import make_sparse_factors
from nsfa.metrics import match_factors

BLUE = "#0072B2"


def main() -> None:
    """Posterior of K, and true beside inferred loadings, of the data that ``nsfa demo`` simulates."""
    data = make_sparse_factors(n_samples=100, n_features=100, n_components=16, random_state=0)
    model = NSFA(chains=4, tune=1000, draws=1000, thin=4, concentration=1.0, random_state=0).fit(data.X)
    posterior = model.posterior_
    draw = posterior.scaled_loadings(posterior.draws[-1])
    truth, found, cosine = match_factors(data.loadings, draw)
    order = np.argsort(-np.abs(data.loadings[:, truth]), axis=0)[0].argsort()
    shown = [data.loadings[:, truth[order]], draw[:, found[order]] * np.sign(cosine[order])]

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), width_ratios=[1.1, 1, 1])
    values, counts = np.unique(posterior.n_components, return_counts=True)
    axes[0].bar(values, counts / counts.sum(), color=BLUE)
    axes[0].axvline(16, color="black", linestyle="--", linewidth=1)
    top = max(counts / counts.sum())
    axes[0].text(16.08, 1.12 * top, "truth", va="top")
    axes[0].set(xlabel="number of factors K", ylabel="posterior probability", xticks=values, ylim=(0, 1.15 * top))
    axes[0].spines[["top", "right"]].set_visible(False)
    limit = np.abs(shown[0]).max()
    for axis, loadings, title in zip(axes[1:], shown, ["true loadings", "one posterior draw"], strict=True):
        image = axis.imshow(
            np.ma.masked_equal(loadings, 0), aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="none"
        )
        axis.set(title=title, xlabel="factor", yticks=[], xticks=[])
        axis.set_facecolor("0.93")
    axes[1].set_ylabel("100 genes")
    figure.colorbar(image, ax=axes[1:], label="loading", fraction=0.04)
    path = Path(__file__).parent / "figures" / "demo.png"
    figure.savefig(path, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
