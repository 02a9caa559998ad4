"""The documentation site: it builds without a warning, loads nothing from elsewhere, and its reference is complete."""

import importlib.util
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import Bunch

import nsfa

ROOT = Path(__file__).parent.parent
TUTORIAL = ROOT / "docs" / "tutorial.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
# what a browser fetches by itself; links to click on are free to lead anywhere
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built site."""
    for module in ("mkdocs", "material", "mkdocstrings_handlers"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"the site needs {module}: pip install 'nsfa[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def outside(address: str) -> bool:
    return re.match(r"\s*(https?:)?//", address, re.IGNORECASE) is not None


class Fetches(HTMLParser):
    """Collects the addresses outside the site that a page makes the browser load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        address = given.get(FETCHED.get(tag, ""))
        if address and outside(address):
            self.found.append(address)


def css_fetches(text: str) -> list[str]:
    quoted = re.findall(r"""(?:url\(|@import)\s*['"]?([^'")\s;]+)""", text)
    return [address for address in quoted if outside(address)]


def test_every_page_is_built_and_in_the_navigation(site):
    assert PAGES
    # a page without text of its own: all its links are the navigation's
    linked = set(re.findall(r'href="/?([\w-]+)\.html"', (site / "404.html").read_text(encoding="utf-8")))
    assert linked == {page.stem for page in PAGES}
    assert all((site / f"{name}.html").is_file() for name in linked)


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.glob("**/*.html"):
        assert Fetches(page.read_text(encoding="utf-8")).found == [], page.name
    for sheet in site.glob("**/*.css"):
        assert css_fetches(sheet.read_text(encoding="utf-8")) == [], sheet.name


def test_what_looks_for_outside_addresses_finds_them():
    html = '<a href="https://a"></a><link href="//b"><img src="c.png"><script src="HTTPS://d"></script>'
    assert Fetches(html).found == ["//b", "HTTPS://d"]
    css = "@import 'https://e'; a { b: url(f.woff) } c { d: url(\"https://g\") }"
    assert css_fetches(css) == ["https://e", "https://g"]


def public_names() -> list[str]:
    """All that a user may call, by its shortest name."""
    out = []
    for name in nsfa.__all__:
        thing = getattr(nsfa, name)
        if inspect.ismodule(thing):
            names = getattr(thing, "__all__", None) or [
                n for n, f in inspect.getmembers(thing, inspect.isfunction) if f.__module__ == thing.__name__
            ]
            out += [f"nsfa.{name}.{n}" for n in names if not n.startswith("_")]
        elif callable(thing):
            out.append(f"nsfa.{name}")
    return out


def test_the_reference_has_every_public_name(site):
    names = public_names()
    assert {"nsfa.NSFA", "nsfa.compare", "nsfa.metrics.rmse", "nsfa.pl.loadings", "nsfa.tl.transform"} <= set(names)
    ids = Fetches((site / "api.html").read_text(encoding="utf-8")).ids
    assert [name for name in names if name not in ids] == []


@pytest.fixture
def make_tutorial():
    """The script that runs the tutorial."""
    spec = importlib.util.spec_from_file_location("make_tutorial", ROOT / "docs" / "make_tutorial.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in():
    """A small table in place of the prostate's, with several probes of a gene."""
    data = nsfa.datasets.make_sparse_factors(n_samples=36, n_features=320, n_components=3, density=0.3, random_state=0)
    genes = [f"GENE{d // 2}" + (".2" if d % 2 else "") if d < 20 else f"GENE{d}" for d in range(320)]
    tissue = np.array(["normal", "primary", "metastasis"])[np.arange(36) % 3]
    return Bunch(X=data.X + 9, feature_names=genes, sample_names=[f"S{n:02d}" for n in range(36)], target=tissue)


@pytest.mark.filterwarnings("ignore")
def test_the_tutorial_runs(make_tutorial, tmp_path, monkeypatch):
    """All its code, on a small table and with short chains; without scanpy all but that block."""
    pytest.importorskip("anndata")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nsfa.datasets, "fetch_prostate", stand_in)
    scanpy = importlib.util.find_spec("scanpy") and importlib.util.find_spec("umap")

    def shorter(code):
        if "scanpy" in code and not scanpy:
            return ""
        return code.replace(
            "tl.nsfa(adata, random_state=0,", "tl.nsfa(adata, random_state=0, chains=2, tune=20, draws=20,"
        )

    page = TUTORIAL.read_text(encoding="utf-8")
    assert shorter(page) != page
    done = list(make_tutorial.run_blocks(page, shorter))
    assert len(done) == page.count("```python") and "X_nsfa_weighted" in page
    # what is shown is of blocks that print, and every block that prints shows it
    assert [bool(block["text"]) for block, _ in done] == [bool(printed) for _, printed in done]
    assert (tmp_path / "prostate.h5ad").exists() and (tmp_path / "prostate-fit").is_dir()


def test_the_tutorial_s_figures_are_there_and_small():
    pictures = re.findall(r"\((figures/tutorial-[\w-]+\.png)\)", TUTORIAL.read_text(encoding="utf-8"))
    assert len(pictures) >= 4
    assert all((ROOT / "docs" / name).stat().st_size < 150_000 for name in pictures)


def test_the_tutorial_is_written_from_its_code(make_tutorial, tmp_path, monkeypatch):
    page = tmp_path / "tutorial.md"
    drawn = "```python\nimport matplotlib.pyplot as plt\nprint(1 + 1)\nplt.plot([x, 2])\n```\n"
    page.write_text(f"# A\n\n```python\nx = 1\n```\n\nand\n\n{drawn}\n```text\n3\n```\n\n![A line](a.png)\n\nend\n")
    monkeypatch.setattr(make_tutorial, "PAGE", page)
    monkeypatch.setattr(make_tutorial, "DOCS", tmp_path)
    before = page.read_text()
    make_tutorial.write_page()
    assert page.read_text() == before.replace("3\n", "2\n") and (tmp_path / "a.png").exists()
