"""The documentation site: it builds without a warning, loads nothing from elsewhere, and its reference is complete."""

import importlib.util
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import nsfa

ROOT = Path(__file__).parent.parent
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
