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


# room: column, row, what is in it
ROOMS = {
    "readers/": (0, 1, "files, DataFrames,\nAnnData"),
    "data.py": (1, 1, "centred, scaled,\nholes listed"),
    "samples.py": (2, 1, "values, holes, scores;\nS, T and q of them"),
    "chain.py": (3, 1, "a state, its samples,\nits moves in order"),
    "draws/": (4, 1, "records of draws,\nstore, checkpoints"),
    "posterior/": (5, 1, "consensus, verdicts,\npredictions"),
    "kernels/": (2, 0, "loops and products:\nreference, numba"),
    "moves/": (3, 0, "one conditional\neach"),
    "schedule.py": (3, 2, "from a ModelSpec:\nwhich moves, when"),
    "runner.py": (4, 2, "chains in threads\nand processes"),
    "front ends": (5, 0, "estimators, cli/,\nreport/, tl, pl/"),
}
FLOW = [("readers/", "data.py"), ("data.py", "samples.py"), ("samples.py", "chain.py"), ("chain.py", "draws/"),
        ("draws/", "posterior/"), ("posterior/", "front ends"), ("kernels/", "samples.py"), ("moves/", "chain.py"),
        ("schedule.py", "chain.py"), ("runner.py", "draws/")]  # fmt: skip


def draw_architecture() -> None:
    """The rooms of the package and how a table flows through them."""
    figure, axis = plt.subplots(figsize=(11, 4.4))
    for name, (column, row, words) in ROOMS.items():
        edge, face = (BLUE, "#dcebf7") if name == "samples.py" else ("0.6", "white")
        axis.add_patch(plt.Rectangle((column - 0.43, row - 0.31), 0.86, 0.62, edgecolor=edge, facecolor=face, zorder=2))
        axis.text(column, row + 0.17, name, ha="center", va="center", weight="bold", fontsize=8.5)
        axis.text(column, row - 0.1, words, ha="center", va="center", fontsize=8)
    for start, end in FLOW:
        (x, y, _), (to_x, to_y, _) = ROOMS[start], ROOMS[end]
        gap = np.array([0.45 * np.sign(to_x - x), 0.33 * np.sign(to_y - y)])
        line = {"arrowstyle": "-|>", "color": BLUE if y == to_y or end == "front ends" else "0.5"}
        axis.annotate("", (to_x - gap[0], to_y - gap[1]), (x + gap[0], y + gap[1]), arrowprops=line)
    axis.set(xlim=(-0.5, 5.5), ylim=(-0.4, 2.4))
    axis.axis("off")
    figure.savefig(FIGURES / "architecture.png", dpi=130, bbox_inches="tight")
    plt.close(figure)


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
    draw_architecture()
    draw_demo()
    draw_report()
