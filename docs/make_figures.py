"""Draw the figures of the first pages: ``python docs/make_figures.py`` (the report's needs Chromium)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from nsfa import NSFA
from nsfa.datasets import make_sparse_factors
from nsfa.metrics import match_factors

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
BLUE = "#0072B2"


def draw_report() -> None:
    """The top of the report that ``nsfa demo`` writes."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.report import take_picture

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "nsfa", "demo", "-o", f"{folder}/demo"], check=True)
        take_picture(Path(folder) / "demo" / "report.html", FIGURES / "report.png")


def draw_demo() -> None:
    """Posterior of K, and true beside inferred loadings, of the data that ``nsfa demo`` simulates."""
    data = make_sparse_factors(n_samples=100, n_features=100, n_components=16, random_state=0)
    model = NSFA(random_state=0).fit(data.X)
    posterior = model.posterior_
    draw = posterior.scaled_loadings(posterior.draws[-1])
    truth, found, cosine = match_factors(data.loadings, draw)
    order = np.argsort(-np.abs(data.loadings[:, truth]), axis=0)[0].argsort()
    shown = [data.loadings[:, truth[order]], draw[:, found[order]] * np.sign(cosine[order])]

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), width_ratios=[1.1, 1, 1])
    values, counts = np.unique(posterior.n_factors, return_counts=True)
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
    figure.savefig(FIGURES / "demo.png", dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    draw_demo()
    draw_report()
