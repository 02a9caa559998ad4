"""The report as a file: what it says, that nothing in it is read as markup, and how large it is."""

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from nsfa import AFA, BFRM, NSFA, SFA
from nsfa.datasets import make_sparse_factors
from nsfa.enrichment import enrich_both
from nsfa.length import Length
from nsfa.posterior.align import evenly
from nsfa.report import loadings, pack, page, prose, samples, write_report
from report_cases import checks_of, made_up

ROOT = Path(__file__).parents[2]
SCRIPT = "<script>alert(1)</script>"


def written(tmp_path, posterior, **settings):
    path = tmp_path / "report.html"
    write_report(path, posterior, **settings)
    return path.read_text(encoding="utf-8")


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))


def array_of(entries, name, kind):
    return np.frombuffer(base64.b64decode(entries[name]["base64"]), kind)


def words_of(text):
    """The page's text without scripts and tags."""
    text = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


@pytest.fixture(scope="module")
def fitted():
    data = make_sparse_factors(40, 20, 2, density=0.4, snr=20, missing=0.1, random_state=0)
    X = pd.DataFrame(data.X, columns=[f"g{d}" for d in range(20)])
    return data, NSFA(chains=2, tune=200, draws=100, thin=1, random_state=0).fit(X)


def test_a_fit_is_told_in_words(fitted, tmp_path):
    data, model = fitted
    text = words_of(written(tmp_path, model))
    assert model.posterior_.diagnostics().verdict in text.replace("&lt;", "<")
    n, large = model.n_components_, model.posterior_.consensus().n_substantial
    smaller = f", and {n - large} smaller," if n > large else ""
    assert f"{large} substantial factors (5 genes or more){smaller} were found in more than half of the draws" in text
    assert "The number of substantial factors was most often" in text and "With those of fewer genes K was" in text
    assert f"factors settled {model.posterior_.diagnostics().settled} of {n}" in text
    missing = f"missing {100 * np.isnan(data.X).mean():.0f} %"
    for fact in ("samples 40", "genes 20", missing, "chains × draws 2 × 100"):
        assert fact in text
    assert (
        "10.1214/10-AOAS435" in text and "We ran 2 Markov chains of 200 warm-up sweeps and 100 kept draws each" in text
    )


def test_the_page_holds_the_lists_of_the_consensus(fitted, tmp_path):
    consensus = fitted[1].posterior_.consensus()
    data = data_of(written(tmp_path, fitted[1].posterior_))
    entries, spread = data["entries"], array_of(data["heatmap"], "spread", "<f8")
    kinds = {"gene": "<u2", "loading": "<i2", "inclusion": "<u2", "relevance": "<u2"}
    gene, loading, inclusion, relevance = (array_of(entries, name, kind) for name, kind in kinds.items())
    core, place = entries["core"], array_of(entries["core"], "place", "<u2")
    for k in range(consensus.n_factors):
        own = slice(entries["start"][k], entries["start"][k + 1])
        for rate in ("0.01", "0.05", "0.1", "0.2"):
            cut = entries["cuts"][rate][k]
            np.testing.assert_array_equal(gene[own][:cut], consensus.genes(k, float(rate), effect=0))
            cut = core["start"][k] + core["cuts"][rate][k]
            np.testing.assert_array_equal(gene[own][place[core["start"][k] : cut]], consensus.genes(k, float(rate)))
        unit = spread[gene[own]]
        np.testing.assert_allclose(
            loading[own] * entries["step"][k], consensus.loadings[gene[own], k] / unit, atol=entries["step"][k]
        )
        np.testing.assert_allclose(inclusion[own] / 65535, consensus.inclusion[gene[own], k], atol=1e-5)
        np.testing.assert_allclose(relevance[own] / 65535, consensus.relevance[gene[own], k], atol=1e-5)
        left_out = np.setdiff1d(np.arange(20), gene[own])
        assert (consensus.inclusion[left_out, k] < 0.05).all()


def test_factors_of_one_or_two_samples_are_marked_and_told(tmp_path):
    posterior, plain = made_up(), made_up()
    posterior.consensus().scores[:, 1] *= 0.001
    posterior.consensus().scores[4, 1] = 5.0
    sentence = "1 factor rests on one or two samples (factor 1): look at these samples before you read it."
    cure = " If outliers make it, noise='robust' (--noise robust) takes these as they are."
    told = prose.verdict(posterior, posterior.diagnostics())
    assert told.sentences[-1] == sentence + cure
    page = written(tmp_path, posterior)
    assert page.count('<span class="few">') == 1 and "settled on 1–2 samples" in words_of(page)
    # one chain: no verdict beside which the mark could stand
    alone = replace(posterior, chains=posterior.chains[:1])
    alone.__dict__["_consensus"] = replace(posterior.consensus(), checks=None)
    assert written(tmp_path, alone).count('<span class="few">') == 1
    # what has no use for robust noise is not advised to take it
    for changes in ({"noise": "robust"}, {"likelihood": "counts"}, {"likelihood": "binary"}):
        other = replace(posterior, spec=replace(posterior.spec, **changes))
        other.__dict__["_consensus"] = posterior.consensus()
        assert prose.verdict(other, posterior.diagnostics()).sentences[-1] == sentence
    assert "samples (factor" not in written(tmp_path, plain) and "1–2" not in written(tmp_path, plain)


def test_no_name_is_read_as_markup(tmp_path):
    names = (SCRIPT, "</script><b>", "a&b\u2028c", *(f"g{d}" for d in range(17)))
    posterior = made_up(2, 20, 10, names=names)
    posterior.consensus().inclusion[:3] = 1.0
    notes = pd.DataFrame({SCRIPT: [SCRIPT, "x"] * 5}, index=[SCRIPT, *"bcdefghij"])
    sets = {SCRIPT: names[:5]}
    text = written(tmp_path, posterior, annotations=notes, gene_sets=sets, settings={SCRIPT: SCRIPT}, title=SCRIPT)
    assert (
        SCRIPT not in text
        and "</script><b>" not in text
        and "\u2028" not in text.split('id="data">')[1].split("</script>")[0]
    )
    assert text.count("<script") == 3
    data = data_of(text)
    assert data["genes"][:3] == list(names[:3]) and data["samples"]["annotations"][0]["levels"] == [SCRIPT, "x"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_small_factors_alone_are_told_plainly():
    posterior = SimpleNamespace(spec=SimpleNamespace(n_components=None, pattern="ibp"))
    told = prose._count(posterior, SimpleNamespace(n_factors=2, n_substantial=0))
    assert told.startswith("There are no substantial factors (5 genes or more); 2 smaller were found in more than half")


def test_nothing_points_outside_but_the_doi(tmp_path):
    text = written(tmp_path, made_up())
    markup = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)
    assert re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', markup) == ["https://doi.org/10.1214/10-AOAS435"]


def test_no_factor_is_a_page_too(tmp_path):
    text = words_of(written(tmp_path, made_up(0, 20, 10), gene_sets={"a": ["GENE1", "GENE2", "GENE3"]}))
    assert "No factor was found in more than half of the draws" in text and "What to check" in text
    assert "No gene set could be tested: there are no factors." in text and "none was found in more than half" in text


def test_one_chain_has_no_rhat(tmp_path):
    text = words_of(written(tmp_path, made_up(2, 20, 10, chains=1)))
    assert "One chain only" in text and "there is none for a single chain" in text
    assert "R-hat (at most" not in text and "1.0 of 1" not in text


def test_verdicts_say_what_to_do_next(tmp_path):
    good = made_up(draws=400)
    assert prose.verdict(good, good.diagnostics()).tone == "good"
    stopped = replace(good, finished=False, length=Length(100, 900))
    told = prose.verdict(stopped, good.diagnostics())
    assert told.tone == "caution" and "400 of 900 draws per chain" in told.sentences[0]
    short = made_up(draws=20)
    told = prose.verdict(short, short.diagnostics())
    assert told.tone == "partly" and "What to do: " in told.sentences[-1] and "draws=" in told.sentences[-1]
    assert told.sentences[-1] == short.diagnostics().advice.for_report()
    few = made_up(draws=3)
    few.__dict__["_consensus"] = replace(few.consensus(), checks=checks_of(3, 4, *["not judged"] * 3))
    assert prose.verdict(few, few.diagnostics()).headline == "Too few draws."


def test_chains_that_disagree_are_advised_to_run_longer():
    posterior = made_up(draws=400)
    for i, chain in enumerate(posterior.chains):
        for draw in chain:
            draw.scalars["log_evidence"] += 10 * i
    told = prose.verdict(posterior, posterior.diagnostics())
    assert told.tone == "partly" and told.headline.startswith("All 3 factors are settled and can be read;")
    assert told.sentences[-1] == (
        "What to do: go on for 1000 more draws per chain (nsfa resume), or fit again with tune=200 and draws=1400. "
        "Until the chains agree, what is not settled may still change."
    )


@pytest.mark.parametrize(
    ("verdicts", "tone", "headline"),
    [
        (("settled", "unsettled", "some chains"), "partly", "1 of 3 factors is settled and can be read"),
        (("unsettled", "unsettled", "some chains"), "caution", "The chains have not converged"),
    ],
)
def test_some_factors_can_be_read_before_others(verdicts, tone, headline, tmp_path):
    posterior = made_up(draws=400, density=0.3)
    for i, chain in enumerate(posterior.chains):
        for draw in chain:
            draw.scalars["log_evidence"] += 10 * i
    consensus = replace(posterior.consensus(), checks=checks_of(3, 4, *verdicts))
    posterior.__dict__["_consensus"] = consensus
    told = prose.verdict(posterior, posterior.diagnostics())
    assert told.tone == tone and told.headline.startswith(headline)
    text = written(tmp_path, posterior)
    cells = re.findall(r'<td class="([a-z-]+)">(settled|unsettled|some chains)</td>', text)
    assert cells == [(word.replace(" ", "-"), word) for word in verdicts]
    assert f'class="verdict {tone}"' in text
    assert ("were settled: in at least 80 %" in words_of(text)) == (tone == "partly")


def test_minor_factors_are_folded_away(tmp_path):
    posterior = made_up(4, 60, 20, density=0.2)
    posterior.consensus().variance_explained[3] = 0.0005
    text = written(tmp_path, posterior)
    major, folded = text.split("<details")[0], text.split("<details")[1].split("</details>")[0]
    numbers = [re.findall(r'data-factor="(\d)"', part) for part in (major, folded)]
    assert numbers == [["0", "1", "2"], ["3"]]
    assert "<summary>1 minor factor: below 0.1 % of the variance, or 3 genes or fewer</summary>" in folded
    assert folded.split(">")[0] == ' id="minor"' and 'id="heatmap-minor"' in text
    assert data_of(text)["minor"] == [False, False, False, True]
    assert "<details" not in written(tmp_path, made_up(4, 60, 20, density=0.2))
    posterior.consensus().variance_explained[:] = 0.0005
    text = written(tmp_path, posterior)
    assert '<details id="minor" open>' in text and 'id="heatmap-minor"' not in text


def test_the_numbers_of_factors_in_the_page(fitted, tmp_path):
    posterior = fitted[1].posterior_
    substantial, every = data_of(written(tmp_path, posterior))["k"]
    for shown, counts in ((substantial, posterior.n_substantial), (every, posterior.n_factors)):
        values, times = np.unique(counts, return_counts=True)
        shares = dict(zip(shown["values"], shown["share"], strict=True))
        assert {int(v): pytest.approx(t / counts.size) for v, t in zip(values, times, strict=True)} == {
            v: s for v, s in shares.items() if s
        }
    assert "substantial" in substantial["label"] and "K" in every["label"]


@pytest.mark.parametrize("estimator", [SFA(2), AFA(2), BFRM(2)], ids=lambda e: type(e).__name__)
def test_other_models_and_tables_without_names(estimator, fitted, tmp_path):
    posterior = estimator.set_params(chains=2, tune=30, draws=20, random_state=0).fit(fitted[0].X).posterior_
    text = written(tmp_path, posterior, gene_sets={"a": [f"feature {d}" for d in range(6)]})
    data = data_of(text)
    dense = isinstance(estimator, AFA)
    assert (data["k"] is None) == dense and (dense or len(data["k"]) == 1) and data["genes"][3] == "feature 3"
    assert ("substantial" in words_of(text)) != dense
    assert data["dense"] == isinstance(estimator, AFA) == ("P(in factor)" not in words_of(text))
    assert set(data["enrichment"]["columns"]["method"]) == {"hypergeometric", "rank"}
    assert "core genes" in words_of(text) and ("all genes" in words_of(text))
    assert "The model was given 2 factors" in text
    assert ("log p(Y | G, ψ)" in [trace["label"] for trace in data["traces"]]) != isinstance(estimator, BFRM)


def test_a_large_report_is_small_and_does_not_list_the_names_for_every_gene(tmp_path, monkeypatch):
    posterior, listed = made_up(80, 20_000, 100, draws=20), []
    names = type(posterior.data).names.fget
    monkeypatch.setattr(type(posterior.data), "names", property(lambda data: listed.append(1) or names(data)))
    text = written(tmp_path, posterior)
    assert len(listed) < 10
    assert len(text.encode()) < 15e6
    data = data_of(text)
    assert data["heatmap"]["n"] == 2000 < data["heatmap"]["of"]


def test_a_long_core_list_is_in_the_page_to_its_end():
    """At 20 % a core of eight has two more genes; those of the factor go on after it, as far as they are probable."""
    consensus = made_up(1, 30, 10).consensus()
    consensus.inclusion[:, 0] = np.r_[np.ones(8), np.full(10, 0.06), 0.5, 0.5, np.full(10, 0.04)]
    consensus.relevance[:, 0] = np.r_[np.ones(8), np.full(10, 0.05), 0.5, 0.5, np.zeros(10)]
    consensus.loadings[:, 0] = np.r_[np.full(8, 5.0), np.full(10, 0.1), 1.0, 1.0, np.zeros(10)]
    lists = loadings.gene_lists(consensus, np.ones(len(consensus.feature_names)))
    gene, place = array_of(lists, "gene", "<u2"), array_of(lists["core"], "place", "<u2")
    assert consensus.genes(0, 0.2).tolist() == [*range(8), 18, 19] and lists["complete"]
    assert sorted(gene) == list(range(20)) and lists["core"]["cuts"]["0.2"] == [10]
    np.testing.assert_array_equal(gene[place][:10], consensus.genes(0, 0.2))


def test_too_many_entries_keep_core_genes_and_the_certain_ones(monkeypatch):
    consensus = made_up(3, 50, 10, density=0.5).consensus()
    # the core's most certain gene is the least certain of the factor
    last = consensus.genes(1, 0.2, effect=0)[-1]
    consensus.relevance[last, 1] = 1.0
    monkeypatch.setattr(loadings, "MOST_ENTRIES", 60)
    lists = loadings.gene_lists(consensus, np.ones(len(consensus.feature_names)))
    gene, start = array_of(lists, "gene", "<u2"), lists["start"]
    kept = {(int(d), k) for k in range(3) for d in gene[start[k] : start[k + 1]]}
    core = {(int(d), k) for k in range(3) for d in consensus.genes(k, 0.2)}
    assert not lists["complete"] and len(kept) == 60 > len(core) and core < kept and (last, 1) in core
    others = {(d, k): value for (d, k), value in np.ndenumerate(consensus.inclusion) if (d, k) not in core}
    assert kept - core == set(sorted(others, key=others.get)[-(60 - len(core)) :])
    for rate in ("0.05", "0.2"):
        assert lists["core"]["cuts"][rate] == [len(consensus.genes(k, float(rate))) for k in range(3)]
        found = [sum((d, k) in kept for d in consensus.genes(k, float(rate), effect=0)) for k in range(3)]
        assert lists["cuts"][rate] == found


def rows_of(text):
    """The cells of the table of factors from the core genes on, row by row, the heading first."""
    table = re.search(r'<table class="factor-table judged">(.*?)</table>', text, re.S).group(1)
    rows = [re.findall(r"<t[hd].*?</t[hd]>", row) for row in table.split("<tr>")[1:]]
    return [[words_of(cell).strip() for cell in row[5:]] for row in rows]


def test_a_row_says_core_genes_all_genes_and_the_best_set(tmp_path):
    posterior = made_up(2, 30, 10)
    consensus = posterior.consensus()
    consensus.inclusion[:], consensus.relevance[:], consensus.loadings[:] = 0.0, 0.0, 0.0
    consensus.inclusion[:12, 0], consensus.relevance[:6, 0] = 1.0, 1.0
    consensus.inclusion[20:24, 1] = 1.0
    consensus.loadings[:12, 0], consensus.loadings[20:24, 1] = np.linspace(3, 1, 12), 1.0
    sets = {"first six": [f"GENE{d}" for d in range(6)], "spread": [f"GENE{d}" for d in range(1, 30, 5)]}
    head, first, second = rows_of(written(tmp_path, posterior, gene_sets=sets))
    assert head == ["core genes", "all genes", "first genes", "best gene set (FDR)"]
    assert first[:3] == ["6", "12", "GENE0 , GENE1 , GENE2 , GENE3 , GENE4 , GENE5"]
    assert re.fullmatch(r"first six \(\d.*\)", first[3])
    assert second[:2] == ["0", "4"] and second[2].startswith("no core; of all genes: GENE20")
    assert second[3] == "none below 5 %"
    assert rows_of(written(tmp_path, posterior))[0][-1] == "first genes"


def test_gene_sets_are_tested_by_core_and_by_rank(fitted, tmp_path):
    consensus = fitted[1].posterior_.consensus()
    sets = {"own": [f"g{d}" for d in consensus.genes(0)[:5]], "any": ["g0", "g7", "g13", "elsewhere"]}
    text = written(tmp_path, fitted[1], gene_sets=sets)
    table = enrich_both(consensus, sets)
    shown = data_of(text)["enrichment"]
    assert shown["tested"] == [(table.method == method).sum() for method in ("hypergeometric", "rank")]
    assert shown["tested"][1] == 2 * consensus.n_factors
    rows = pd.DataFrame(shown["columns"]).set_index(["method", "factor", "gene_set"])
    for row in table[table.method == "rank"].itertuples():
        assert rows.p[row.method, row.factor, row.gene_set] == row.p
    np.testing.assert_array_equal(rows.score.isna(), rows.index.get_level_values("method") == "hypergeometric")
    assert written(tmp_path, fitted[1], enrichment=table) == text


def test_many_samples_are_thinned():
    consensus = made_up(2, 10, 12_000).consensus()
    shown = samples.scores(consensus, pd.DataFrame({"a": np.arange(12_000) % 3}))
    assert shown["n"] == len(shown["names"]) == 5000 and shown["of"] == 12_000


def test_annotations_become_labels_or_numbers(rng):
    consensus = made_up(2, 10, 60).consensus()
    score = consensus.scores[:, 1]
    frame = pd.DataFrame(
        {
            "age": 50 + 10 * score,
            "grade": np.where(score > 0, 1, 2),
            "ok": score > 0,
            "name": [f"id{i}" for i in range(60)],
            "same": 1,
            "holes": np.where(np.arange(60) < 5, np.nan, rng.normal(size=60)),
        },
        index=range(100, 160),
    )
    out = samples.scores(consensus, frame)
    assert [note["name"] for note in out["annotations"]] == ["age", "grade", "ok", "holes"]
    assert ["levels" in note for note in out["annotations"]] == [False, True, True, False]
    assert out["left_out"] == ["name (60 different labels in 60 samples)", "same (all samples alike)"]
    assert out["names"][0] == "100" and np.array(out["fdr"])[0, 1] < 1e-6
    explained = np.array(out["explained"])
    assert explained[0, 1] == pytest.approx(1.0) and explained[0, 0] < 0.2
    expected = pd.Series(score).groupby(frame["ok"].to_numpy()).transform("mean")
    r2 = 1 - ((score - expected) ** 2).sum() / ((score - score.mean()) ** 2).sum()
    assert explained[2, 1] == pytest.approx(1 - (1 - r2) * 59 / 58)


def test_clusters_are_levels_in_the_order_of_their_numbers(rng):
    """... with holes in them, as text, or as categories; and of some samples only, where a cluster may be gone."""
    consensus = made_up(2, 10, 6000).consensus()
    clusters = rng.choice([0, 1, 2, 3, 4, 6, 7, 8, 9, 10], 6000)
    clusters[np.setdiff1d(np.arange(6000), evenly(6000, samples.MOST_SAMPLES))[0]] = 5
    frame = pd.DataFrame({"whole": clusters, "holes": np.where(np.arange(6000) % 7, clusters, np.nan)})
    frame["text"] = frame["whole"].astype(str)
    frame["category"] = pd.Categorical.from_codes(clusters, [f"c{i}" for i in range(10, -1, -1)])
    notes = samples.scores(consensus, frame)["annotations"]
    shown = ["0", "1", "2", "3", "4", "6", "7", "8", "9", "10"]
    assert [note["levels"] for note in notes[:3]] == [shown, [*shown, "unlabelled"], shown]
    assert notes[3]["levels"] == [f"c{10 - int(name)}" for name in shown]


def test_the_page_says_what_was_left_out(tmp_path):
    notes = pd.DataFrame({"patient": [f"p{i % 20}" for i in range(30)], "site": ["a", "b"] * 15})
    notes["batches"] = [[1, 2]] * 30
    text = words_of(written(tmp_path, made_up(), annotations=notes))
    left_out = "patient (20 different labels in 30 samples), batches (neither numbers nor labels)"
    assert f"each with the reason: {left_out}." in text and "F test" in text


def test_wrong_input_is_one_sentence(tmp_path):
    posterior = made_up()
    with pytest.raises(ValueError, match="annotations must have one row per sample, 30, .* Got 2."):
        write_report(tmp_path / "a.html", posterior, annotations=pd.DataFrame({"a": [1, 2]}))
    with pytest.raises(TypeError, match="model must be a fitted estimator of this package or its posterior. Got dict."):
        write_report(tmp_path / "a.html", {})
    with pytest.raises(FileNotFoundError, match="The folder of the report must exist"):
        write_report(tmp_path / "none" / "a.html", posterior)
    assert list(tmp_path.iterdir()) == []


def test_an_old_report_stays_until_the_new_one_is_complete(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(page.os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        write_report(path, made_up())
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_the_same_fit_gives_the_same_page(tmp_path):
    assert written(tmp_path, made_up()) == written(tmp_path, made_up())


def test_settings_of_the_caller_come_first_and_win():
    table = prose.settings_table(made_up(), {"input": "a.csv", "seed": "7, by hand"})
    assert table[:2] == [("input", "a.csv"), ("seed", "7, by hand")]
    assert [name for name, _ in table].count("seed") == 1 and ("priors", "default") in table


def test_json_cannot_leave_its_element():
    text = pack.to_json({"a": "</script><!-- & \u2028"})
    assert not set("<>&\u2028") & set(text) and json.loads(text) == {"a": "</script><!-- & \u2028"}


@pytest.mark.parametrize(("seconds", "text"), [(0.42, "0.4 s"), (42, "42 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations(seconds, text):
    assert prose.how_long(seconds) == text


def test_the_citation_is_that_of_the_project():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert prose.PAPER["doi"] in cited and prose.PAPER["title"] in cited and prose.SOFTWARE in cited


def test_loadings_of_genes_in_any_units_keep_their_digits(tmp_path, rng):
    """One gene a million times as large as the others must not round them away."""
    X = make_sparse_factors(60, 12, 2, density=0.8, random_state=0).X * np.where(np.arange(12) == 3, 1e6, 1.0)
    posterior = NSFA(chains=1, tune=50, draws=30, random_state=0).fit(X).posterior_
    data, consensus = data_of(written(tmp_path, posterior)), posterior.consensus()
    entries, spread = data["entries"], array_of(data["heatmap"], "spread", "<f8")
    gene, loading = array_of(entries, "gene", "<u2"), array_of(entries, "loading", "<i2")
    factor = np.repeat(np.arange(consensus.n_factors), np.diff(entries["start"]))
    shown = loading * np.array(entries["step"])[factor] * spread[gene]
    np.testing.assert_allclose(shown / spread[gene], consensus.loadings[gene, factor] / spread[gene], atol=1e-4)
