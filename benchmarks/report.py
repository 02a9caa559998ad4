"""Size of reports, time to write them, and time to open them in Chromium: ``python -m benchmarks.report``.

Opening is measured from the start of the navigation until the last figure is drawn, in a headless browser that has not
seen the page before. With --keep the pages stay in the given folder; --picture takes a picture of the top of each.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from nsfa import NSFA
from nsfa.datasets import fetch_breast, make_sparse_factors
from nsfa.report import write_report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from report_cases import made_up


def simulated():
    """100 samples × 100 genes with 16 factors, with annotations and gene sets."""
    data = make_sparse_factors(100, 100, 16, random_state=1, missing=0.05)
    genes = [f"GENE{d:02d}" for d in range(100)]
    X = pd.DataFrame(data.X, columns=genes)
    model = NSFA(chains=4, tune=1000, draws=1000, thin=4, concentration=1.0, random_state=1).fit(X)
    rng = np.random.default_rng(0)
    score = data.scores
    notes = pd.DataFrame(
        {
            "subtype": np.array(["luminal", "basal", "HER2", "normal-like"])[(score[:, 0] > 0) * 2 + (score[:, 1] > 0)],
            "age": 55 + 9 * score[:, 2] + rng.normal(0, 4, 100),
            "batch": rng.choice(["A", "B", "C"], 100),
            "grade": np.digitize(score[:, 3] + rng.normal(0, 0.5, 100), [-0.7, 0.7]) + 1,
        },
        index=[f"patient {i:03d}" for i in range(100)],
    )
    sets = {f"REGULON_{k:02d}": [genes[d] for d in np.flatnonzero(data.active[:, k])] for k in range(16)}
    sets |= {f"RANDOM_{i}": list(rng.choice(genes, 12, replace=False)) for i in range(8)}
    return model.posterior_, {"annotations": notes, "gene_sets": sets, "title": "Sparse factors of 100 simulated genes"}


def breast():
    """The breast cancer table, a short fit."""
    data = fetch_breast()
    X = pd.DataFrame(data.X, columns=data.feature_names)
    model = NSFA(chains=2, tune=200, draws=100, random_state=0).fit(X)
    return model.posterior_, {"annotations": pd.DataFrame(index=data.sample_names), "title": "Breast cancer, 226 genes"}


def large():
    """80 factors × 20,000 genes, made up."""
    posterior = made_up(80, 20_000, 500, draws=1000)
    rng = np.random.default_rng(0)
    notes = pd.DataFrame(
        {"tissue": rng.choice([f"tissue {i}" for i in range(12)], 500), "age": rng.normal(50, 10, 500)}
    )
    return posterior, {"annotations": notes, "title": "80 factors × 20,000 genes"}


CASES = {"simulated": simulated, "breast": breast, "large": large}


@contextmanager
def opened(path: Path, **settings):
    """The page in a new headless browser, all figures drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(**settings)
        page.goto(path.as_uri(), wait_until="commit")
        page.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)
        yield page
        browser.close()


def open_seconds(path: Path) -> float:
    """Seconds from navigation to the last figure."""
    with opened(path) as page:
        return page.evaluate("performance.getEntriesByName('nsfa-drawn')[0].startTime") / 1e3


def take_picture(path: Path, picture: Path) -> None:
    """The top of the page, down to its first figures."""
    with opened(path, viewport={"width": 1040, "height": 900}, device_scale_factor=1.75) as page:
        box = page.locator("#plot-k").bounding_box()
        clip = {"x": 0, "y": 0, "width": 1040, "height": box["y"] + box["height"]}
        page.screenshot(path=picture, clip=clip, full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--picture", type=Path, help="take a picture of the top of each page")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp())
    warnings.simplefilter("ignore")
    for name in [arguments.only] if arguments.only else CASES:
        posterior, extra = CASES[name]()
        posterior.consensus()
        started = time.perf_counter()
        write_report(folder / f"{name}.html", posterior, **extra)
        wrote = time.perf_counter() - started
        path = (folder / f"{name}.html").resolve()
        seconds = min(open_seconds(path) for _ in range(3))
        print(f"{name:<10}{path.stat().st_size / 1e6:6.1f} MB  written in {wrote:4.1f} s, opens in {seconds:4.2f} s")
        if arguments.picture:
            take_picture(path, arguments.picture)


if __name__ == "__main__":
    main()
