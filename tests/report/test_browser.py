"""The report in a real browser: nothing fails, nothing is fetched, and what can be clicked works."""

import io
import os
import shutil

import numpy as np
import pandas as pd
import pytest

from nsfa.report import write_report
from report_cases import crowded, made_up

SCRIPT = "<script>alert(1)</script>"
NAMES = ["chromium", "chromium-browser", "google-chrome"]


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium of the system; NSFA_CHROMIUM names another."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("NSFA_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium found: install chromium, or set NSFA_CHROMIUM")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.name == "posix" else [])
        yield browser
        browser.close()


class Visit:
    """A page with everything that went wrong on it."""

    def __init__(self, browser, path, **settings):
        self.page = browser.new_page(**settings)
        self.wrong, self.fetched = [], []
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.wrong.append(str(e)))
        self.page.on("dialog", lambda d: (self.wrong.append(d.message), d.dismiss()))
        self.page.on("request", lambda r: None if r.url.startswith(("data:", "blob:")) else self.fetched.append(r.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)

    def becomes(self, expression, value):
        """Wait for a value: the page's policy forbids what Playwright's own waiting would evaluate in it."""
        for _ in range(100):
            if self.page.evaluate(expression) == value:
                return
            self.page.wait_for_timeout(50)
        assert self.page.evaluate(expression) == value

    def cells(self, column, table="gene-table"):
        return self.page.locator(f"#{table} tbody tr td:nth-child({column})").all_text_contents()

    def saved(self, button):
        with self.page.expect_download() as download:
            self.page.click(button)
        with open(download.value.path(), encoding="utf-8") as file:
            return download.value.suggested_filename, pd.read_csv(io.StringIO(file.read()))


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A report with all its parts, and the consensus it shows."""
    names = (SCRIPT, '=TP53,"x"', "a & b", *(f"GENE{d}" for d in range(57)))
    posterior = made_up(4, 60, 30, names=names, seed=1)
    consensus = posterior.consensus()
    # the gene with the awkward name is surely in factor 0, and the most certain of it
    consensus.inclusion[:3, 0], consensus.relevance[:3, 0], consensus.loadings[0, 0] = 1.0, 1.0, 9.0
    consensus.relevance[:8, 1], consensus.inclusion[:8, 1] = np.linspace(1.0, 0.9, 8), 1.0
    notes = pd.DataFrame(
        {"type": ["<b>a</b>", "b", "c"] * 10, "age": np.arange(30) / 7, "id": [f"p{i}" for i in range(30)]},
        index=[f"{SCRIPT} {i}" for i in range(30)],
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    sets = {f"{SCRIPT} set": list(names[:8]), "other": list(names[20:40])}
    write_report(path, posterior, annotations=notes, gene_sets=sets, settings={SCRIPT: SCRIPT}, title=SCRIPT)
    return path, consensus


@pytest.fixture(scope="module")
def visit(browser, case):
    return Visit(browser, case[0], viewport={"width": 1280, "height": 900})


def listed(consensus, k):
    return {*consensus.genes(k, 0.2, effect=0), *np.flatnonzero(consensus.inclusion[:, k] >= 0.05)}


def factor(visit, value, rate="0.05", search="", which="core"):
    visit.page.select_option("#gene-factor", value)
    visit.page.select_option("#gene-list", which)
    visit.page.select_option("#gene-rate", rate)
    visit.page.fill("#gene-search", search)


def test_every_figure_is_drawn_without_an_error_or_a_request(visit, case):
    ids = ["k", "variance", "heatmap", "shared", "scores", "levels", "explained", "traces"]
    assert [i for i in ids if visit.page.locator(f"#plot-{i} .main-svg").count() == 0] == []
    assert visit.wrong == []
    assert visit.fetched == [case[0].as_uri()]


def test_names_are_text_everywhere(visit):
    assert visit.page.title() == SCRIPT
    assert visit.page.locator("h1").inner_text() == SCRIPT
    assert SCRIPT in visit.page.locator(".factor-table").first.inner_text()
    factor(visit, "0")
    assert visit.cells(1)[0] == SCRIPT
    assert f"{SCRIPT} set" in visit.cells(2, "set-table")
    assert visit.page.locator("script").count() == 3 and visit.wrong == []


def test_the_core_comes_first_and_the_full_list_on_request(visit, case):
    consensus, page = case[1], visit.page
    factor(visit, "1")
    core, every = consensus.genes(1), consensus.genes(1, effect=0)
    assert 0 < len(core) < len(every)
    assert visit.cells(1) == [consensus.feature_names[d] for d in core]
    assert visit.cells(5) == [f"{p:.3f}" if p < 0.9995 else "1" for p in consensus.relevance[core, 1]]
    error = np.cumsum(1 - consensus.relevance[core, 1]) / np.arange(1, len(core) + 1)
    np.testing.assert_allclose([float(text) for text in visit.cells(7)], error, atol=6e-4)
    assert f"factor 1 ({100 * consensus.variance_explained[1]:.0f} % of variance, {len(core)} core genes)" in (
        page.locator("#gene-factor option").all_text_contents()
    )
    assert f"{len(core)} core genes in factor 1" in page.inner_text("#gene-words")
    page.click("#gene-words .link")
    assert page.input_value("#gene-list") == "all"
    assert visit.cells(1) == [consensus.feature_names[d] for d in every][:25]
    error = np.cumsum(1 - consensus.inclusion[every, 1]) / np.arange(1, len(every) + 1)
    np.testing.assert_allclose([float(text) for text in visit.cells(7)], error[:25], atol=6e-4)


def test_the_list_is_that_of_the_consensus_and_sorts(visit, case):
    consensus = case[1]
    factor(visit, "1", which="all")
    genes = consensus.genes(1, 0.05, effect=0)
    expected = [consensus.feature_names[d] for d in genes]
    assert visit.cells(1) == expected[:25]
    visit.page.click("#gene-table th:has-text('loading') button")
    falling = genes[np.argsort(-consensus.loadings[genes, 1])]
    assert visit.cells(1) == [consensus.feature_names[d] for d in falling][:25]
    visit.page.click("#gene-table th:has-text('loading') button")
    assert visit.cells(1) == [consensus.feature_names[d] for d in falling[::-1]][:25]
    assert visit.page.get_attribute("#gene-table th:has-text('loading')", "aria-sort") == "ascending"
    visit.page.click("#gene-table th:has-text('gene') button")
    numbers = [int(name[4:]) for name in visit.cells(1) if name.startswith("GENE")]
    assert numbers == sorted(numbers)


def test_a_search_finds_the_factors_of_a_gene(visit, case):
    consensus = case[1]
    where = [k for k in range(4) if 10 in listed(consensus, k)]
    factor(visit, "all", "1", "gene7", which="all")
    assert set(visit.cells(1)) == {"GENE7"}
    assert sorted(map(int, visit.cells(2))) == where
    factor(visit, "all", "1", "gene7")
    core = [k for k in range(4) if consensus.relevance[10, k] >= 0.05]
    assert len(core) < len(where) and sorted(map(int, visit.cells(2))) == core
    assert f"show all genes ({len(where) - len(core)} more, weaker)" in visit.page.inner_text("#gene-words")
    factor(visit, "all", "1", "gene7, gene8", which="all")
    assert set(visit.cells(1)) == {"GENE7", "GENE8"}
    factor(visit, "0", "1", "nonsense")
    assert "No gene of the table has such a name" in visit.page.inner_text("#gene-words")


def test_downloads_hold_the_numbers(visit, case):
    consensus = case[1]
    factor(visit, "2", "0.1", which="all")
    name, table = visit.saved("#gene-download")
    genes = consensus.genes(2, 0.1, effect=0)
    assert name == "factor-2.csv" and len(table) == len(genes)
    table = table.set_index("gene").loc[[consensus.feature_names[d] for d in genes]]
    np.testing.assert_allclose(table["loading"], consensus.loadings[genes, 2], atol=2e-4)
    np.testing.assert_allclose(table["inclusion_probability"], consensus.inclusion[genes, 2], atol=1e-4)
    name, table = visit.saved("#all-download")
    assert name == "all-genes.csv" and len(table) == sum(len(listed(consensus, k)) for k in range(4))
    assert {SCRIPT, '=TP53,"x"', "a & b"} <= set(table["gene"])
    for k, own in table.groupby("factor"):
        core = [consensus.feature_names[d] for d in consensus.genes(k)]
        assert own[own["core"]]["gene"].tolist() == core == own["gene"].tolist()[: len(core)]
    known = table["gene"].map({name: d for d, name in enumerate(consensus.feature_names)})
    np.testing.assert_allclose(table["relevance"], consensus.relevance[known, table["factor"]], atol=1e-4)
    name, table = visit.saved("#score-download")
    np.testing.assert_allclose(table.iloc[:, 1:], consensus.scores, atol=1e-3)


def test_the_heatmap_names_gene_factor_loading_and_probability(visit):
    page = visit.page
    page.locator("#plot-heatmap").scroll_into_view_if_needed()
    # the first row is the gene with the largest loading of factor 0
    area = page.locator("#plot-heatmap .nsewdrag").first.bounding_box()
    page.mouse.move(area["x"] + area["width"] / 8, area["y"] + 3)
    text = page.locator("#plot-heatmap .hoverlayer text").first
    text.wait_for(timeout=5000)
    assert text.text_content().replace(" ", " ").startswith(f"factor 0: {SCRIPT}")
    assert "loading 9.00" in text.text_content() and "P(in factor) 1" in text.text_content()
    # a grey cell speaks too
    row = page.evaluate("document.getElementById('plot-heatmap').data[0].z.findIndex((row) => row[3] === null)")
    rows = page.evaluate("document.getElementById('plot-heatmap').data[0].z.length")
    page.mouse.move(area["x"] + area["width"] * 7 / 8, area["y"] + (row + 0.5) * area["height"] / rows)
    page.locator("#plot-heatmap .hoverlayer text:has-text('factor 3: ')").wait_for(timeout=5000)


def test_the_heatmap_zooms_and_changes(visit):
    page = visit.page
    ticks = "document.getElementById('plot-heatmap').layout.yaxis.ticktext.length"
    every = page.evaluate(ticks)
    page.evaluate("Plotly.relayout('plot-heatmap', {'yaxis.range': [9.5, -0.5]})")
    visit.becomes(ticks, 10)
    page.click("#heatmap-reset")
    visit.becomes(ticks, every)
    for what, values in {"colour": ["scaled", "inclusion"], "order": ["clusters", "blocks"]}.items():
        for value in values:
            page.select_option(f"#heatmap-{what}", value)
    assert visit.wrong == []


def test_scores_are_coloured_by_annotation(visit):
    page = visit.page
    assert page.locator("#score-colour option").all_text_contents() == ["type", "age", "none"]
    assert "each with the reason: id" in page.inner_text("#scores")
    page.select_option("#score-colour", label="type")
    assert page.locator("#plot-scores .legendtext").all_text_contents()[0] == "<b>a</b> (10)"
    for label in ("age", "none"):
        page.select_option("#score-colour", label=label)
        page.select_option("#score-y", "order")
    assert visit.wrong == []


def test_gene_sets_are_chosen_by_test(visit):
    page = visit.page
    every = len(visit.cells(1, "set-table"))
    shown = {}
    for method, word in {"hypergeometric": "core: odds", "rank": "ranks: score"}.items():
        page.select_option("#set-method", method)
        shown[method] = visit.cells(4, "set-table")
        assert shown[method] and all(text.startswith(word) for text in shown[method])
    page.select_option("#set-method", "all")
    assert every == len(visit.cells(1, "set-table")) == min(sum(map(len, shown.values())), 15)
    _, table = visit.saved("#set-download")
    assert (table["score"].isna() == (table["method"] == "hypergeometric")).all()
    assert visit.wrong == []


def test_a_factor_of_the_table_opens_its_genes(visit):
    visit.page.click(".factor-table [data-factor='3']")
    assert visit.page.input_value("#gene-factor") == "3"


def test_minor_factors_are_shown_when_asked_for(browser, tmp_path):
    posterior = made_up(6, 60, 30, density=0.3, seed=1)
    posterior.consensus().variance_explained[4:] = 0.0005
    write_report(tmp_path / "report.html", posterior)
    visit = Visit(browser, tmp_path / "report.html")
    page, columns = visit.page, "document.getElementById('plot-heatmap').data[0].z[0].length"
    assert page.locator("#minor .factor-table").is_visible() is False and page.evaluate(columns) == 4
    assert "2 minor factors are left out" in page.inner_text("#heatmap-words")
    assert page.locator("#gene-factor optgroup option").count() == 2
    page.click("#minor summary")
    page.click("#minor [data-factor='5']")
    assert page.input_value("#gene-factor") == "5"
    page.check("#heatmap-minor")
    visit.becomes(columns, 6)
    assert "left out" not in page.inner_text("#heatmap-words") and visit.wrong == []


def test_a_phone_scrolls_only_downwards(browser, case):
    phone = Visit(browser, case[0], viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert phone.wrong == []


def test_printing_draws_everything_within_the_page(browser, case):
    visit = Visit(browser, case[0])
    assert len(visit.page.pdf(format="A4")) > 50_000
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    widths = visit.page.evaluate(
        "[...document.querySelectorAll('.plot .main-svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert widths and max(widths) <= 680
    assert visit.wrong == []


@pytest.mark.parametrize("kind", ["none", "one", "dense", "large"])
def test_other_fits_open_too(browser, tmp_path, kind):
    posterior = {
        "none": lambda: made_up(0, 20, 10, chains=1),
        "one": lambda: made_up(1, 20, 10, chains=1),
        "dense": lambda: made_up(2, 20, 10, model="fa"),
        "large": lambda: made_up(80, 20_000, 60, draws=50),
    }[kind]()
    path = tmp_path / "report.html"
    write_report(path, posterior)
    assert path.stat().st_size < 15e6
    visit = Visit(browser, path)
    assert visit.wrong == [] and visit.fetched == [path.as_uri()]
    assert (visit.page.locator("#gene-table tbody tr").count() > 0) == (kind != "none")


# how high the plot is, how far its legend stands above it, and how much of the legend is to be seen
ROOM = """(id) => {
  const root = document.getElementById(id), { _size, legend } = root._fullLayout;
  const top = root.getBoundingClientRect().top + _size.t;
  return [_size.h, top - root.querySelector(".legend").getBoundingClientRect().bottom, legend._effHeight / legend._height];
}"""


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """The report of a crowded posterior, with symbols."""
    posterior, notes = crowded()
    path = tmp_path_factory.mktemp("crowd") / "report.html"
    symbols = {f"GENE{d}": f"Symbol{d // 2}" for d in range(290)}
    write_report(path, posterior, annotations=pd.DataFrame(notes), gene_names=symbols)
    return path, posterior.consensus()


@pytest.mark.parametrize("width", [1280, 390])
def test_many_groups_and_numbers_stay_readable(browser, crowd, width):
    visit = Visit(browser, crowd[0], viewport={"width": width, "height": 900})
    bars = visit.page.evaluate(
        "document.getElementById('plot-k').data.filter((t) => t.type === 'bar').map((t) => t.x.length)"
    )
    assert len(bars) == 2 and max(bars) <= 40
    names = visit.page.evaluate("document.getElementById('plot-scores').data.map((t) => t.name)")
    assert len(names) == len({name.rsplit(" ", 1)[0] for name in names}) == 20, "names that can be told apart"
    height, above, seen = visit.page.evaluate(ROOM, "plot-scores")
    assert height > 260 and above >= 0 and seen == 1 and visit.wrong == []
    visit.page.close()


def test_symbols_are_shown_and_ids_found(browser, crowd):
    visit, consensus = Visit(browser, crowd[0], viewport={"width": 1280, "height": 900}), crowd[1]
    factor(visit, "all", rate="1", which="all", search="GENE14")
    assert set(visit.cells(3)) <= {"GENE14", *(f"GENE{d}" for d in range(140, 150))} and "Symbol7" in visit.cells(1)
    factor(visit, "all", rate="1", which="all", search="Symbol7")
    assert {"GENE14", "GENE15"} <= set(visit.cells(3))
    name, table = visit.saved("#all-download")
    assert table.columns[:4].tolist() == ["factor", "gene", "symbol", "core"] and name == "all-genes.csv"
    assert table[table.gene == "GENE14"].symbol.unique().tolist() == ["Symbol7"]
    assert table[table.gene == "GENE295"].symbol.unique().tolist() == ["GENE295"]
    assert set(table.gene) <= set(consensus.feature_names) and visit.wrong == []
    visit.page.close()
