"""``nsfa resume`` and ``nsfa report``."""

import shutil
import tomllib

import pandas as pd
import pytest

from command import read_json, run
from nsfa.cli import again
from nsfa.enrichment import read_gmt

DERIVED = (
    "loadings.csv", "inclusion.csv", "scores.csv", "factors.csv", "genes.csv", "factor_genes.gmt", "enrichment.csv",
    "imputed.csv", "diagnostics.json",
)  # fmt: skip


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished run, to change."""
    return shutil.copytree(finished, tmp_path / "copy")


def test_added_draws_are_those_of_a_longer_run(copy, finished, tmp_path):
    found = read_json(run("resume", copy, "--draws", "7", "--json"))
    assert found["draws_per_chain"] == 17 and found["finished"]
    config = tomllib.loads((copy / "config.toml").read_text())
    assert config["sampling"]["draws"] == 17 and "--draws 17" in config["command"]
    table, sets, samples = (finished.parent / name for name in ("table.csv", "sets.gmt", "samples.csv"))
    long = ["--chains", "2", "--tune", "10", "--draws", "17"]
    run("fit", table, "-o", tmp_path / "long", *long, "--impute", "--gene-sets", sets, "--annotations", samples)
    for name in DERIVED:
        assert (copy / name).read_bytes() == (tmp_path / "long" / name).read_bytes(), name


def test_a_preview_says_so_and_more_draws_make_it_a_run(finished, tmp_path):
    out, table = tmp_path / "preview", finished.parent / "table.csv"
    first = run("fit", table, "-o", out, "--chains", "2", "--tune", "20", "--draws", "40", "--preview", "--no-report")
    assert "Preview:" in first.stdout and "Full run, with its whole warm-up: the same nsfa fit" in first.stdout
    config = tomllib.loads((out / "config.toml").read_text())
    assert "--preview" in config["command"] and "--draws 40" in config["command"]
    again = run("report", out)
    html = (out / "report.html").read_text(encoding="utf-8")
    assert "Preview:" in again.stdout and "A preview: a first look" in html and "This was a preview" in html

    found = read_json(run("resume", out, "--draws", "38", "--json"))
    assert not found["preview"] and found["draws_per_chain"] == 40 and "Preview" not in found["verdict"]
    config = tomllib.loads((out / "config.toml").read_text())
    assert "--preview" not in config["command"] and not config["sampling"]["preview"]
    # the command in the file repeats the run
    run(*config["command"].replace(str(out), str(tmp_path / "repeated")).split()[1:])
    assert (out / "loadings.csv").read_bytes() == (tmp_path / "repeated" / "loadings.csv").read_bytes()


def test_resuming_a_finished_run_writes_the_results_anew(copy):
    before = {name: (copy / name).read_bytes() for name in DERIVED}
    for name in (*DERIVED, "report.html"):
        (copy / name).unlink()
    run("resume", copy)
    assert {name: (copy / name).read_bytes() for name in DERIVED} == before
    assert (copy / "report.html").exists()


def test_report_is_rebuilt_from_the_directory_alone(copy, finished, tmp_path):
    """... even if it was moved, and the table, the annotations and the gene sets are gone."""
    moved = copy.rename(tmp_path / "elsewhere")
    config = (moved / "config.toml").read_text().replace(str(finished.parent), "/nowhere")
    (moved / "config.toml").write_text(config)
    (moved / "report.html").unlink()
    shutil.rmtree(moved / "figures")
    result = run("report", moved, "--title", "Another title")
    html = (moved / "report.html").read_text(encoding="utf-8")
    assert "Another title" in html and "sample14" in html
    assert len(list((moved / "figures").glob("*.png"))) >= 5
    assert str(moved / "report.html") in result.stdout
    assert tomllib.loads((moved / "config.toml").read_text())["results"]["title"] == "Another title"


def test_a_report_that_came_later_is_kept_up_to_date(finished, tmp_path):
    out = tmp_path / "out"
    run("fit", finished.parent / "table.csv", "-o", out, "--chains", "1", "--tune", "5", "--draws", "5", "--no-report")
    run("report", out)
    before = (out / "report.html").read_bytes()
    run("resume", out, "--draws", "5")
    assert (out / "report.html").read_bytes() != before
    assert "--no-report" not in tomllib.loads((out / "config.toml").read_text())["command"]


def test_resume_knows_the_chains_without_the_settings(copy, monkeypatch):
    (copy / "config.toml").unlink()
    seen = []
    monkeypatch.setattr(again, "complete", lambda out, sampler, chains, *rest: seen.append(chains))
    run("resume", copy)
    assert seen == [2]


def test_report_does_without_the_files_it_can_do_without(copy):
    for name in ("config.toml", "samples.csv", "gene_sets.gmt"):
        (copy / name).unlink()
    run("report", copy)
    assert (copy / "scores.csv").read_text().splitlines()[1].startswith("sample 0,")
    assert not (copy / "enrichment.csv").exists(), "it was of sets that are gone"


@pytest.mark.parametrize("command", ["resume", "report"])
def test_a_directory_without_a_run_is_refused(command, tmp_path):
    assert "nsfa fit" in run(command, tmp_path, code=1).stderr
    assert "nsfa fit" in run(command, tmp_path / "nowhere", code=1).stderr


def test_damage_is_a_sentence(copy):
    (copy / "config.toml").write_text("title = [")
    assert "TOML" in run("report", copy, code=1).stderr
    (copy / "config.toml").unlink()
    for path in (copy / "draws").iterdir():
        if path.is_file():
            path.write_bytes(b"rubbish")
    for command in ("resume", "report"):
        assert run(command, copy, code=1).stderr.startswith("Error: ")


def test_info_of_a_run(copy):
    said = run("info", copy).stdout
    assert "finished" in said and "Not converged" in said and "loadings.csv" in said
    found = read_json(run("info", copy, "--json"))
    assert found["samples"] == 15 and found["genes"] == 12 and found["draws_per_chain"] == found["draws_wanted"] == 10
    assert found["state"] == "finished" and found["chains"] == 2


def test_labels_and_gene_sets_that_came_later(copy, tmp_path):
    names = [f"sample{n}" for n in range(15)]
    text = "".join(f"{name},{'late' if i % 3 else 'early'}\n" for i, name in enumerate(names))
    (tmp_path / "labels.csv").write_text("sample,stage\n" + text)
    listed = pd.read_csv(copy / "genes.csv").gene
    (tmp_path / "new.gmt").write_text("\t".join(["newcomers", "", "gene0", "gene1", *listed]) + "\n")
    run("report", copy, "--annotations", tmp_path / "labels.csv", "--gene-sets", tmp_path / "new.gmt")
    html = (copy / "report.html").read_text(encoding="utf-8")
    assert "stage" in html and "newcomers" in html
    assert set(pd.read_csv(copy / "enrichment.csv")["gene_set"]) == {"newcomers"}
    tested, best = pd.read_csv(copy / "enrichment.csv"), pd.read_csv(copy / "factors.csv").set_index("factor")
    sure = tested[tested.fdr <= 0.05].factor.unique()
    assert set(best.best_gene_set.dropna().index) == set(sure) and set(best.best_gene_set.dropna()) <= {"newcomers"}
    assert str(tmp_path) not in html, "reports are mailed: no folders"
    assert tomllib.loads((copy / "config.toml").read_text())["results"]["annotations"] == str(tmp_path / "labels.csv")


def test_symbols_that_came_later_are_kept(copy, tmp_path):
    (tmp_path / "symbols.csv").write_text("id,symbol\n" + "".join(f"gene{d},SYMBOL{d // 2}\n" for d in range(11)))
    (tmp_path / "sets.gmt").write_text("by symbol\t\tSYMBOL0\tSYMBOL1\tgene11\nlost\t\tX\tY\tZ\n")
    ids, loadings = pd.read_csv(copy / "genes.csv"), (copy / "loadings.csv").read_bytes()
    said = run("report", copy, "--gene-names", tmp_path / "symbols.csv", "--gene-sets", tmp_path / "sets.gmt").stderr
    assert "1 gene(s) have no symbol in symbols.csv: 'gene11'." in said
    assert "1 of 2 gene sets have no gene in the table and are not tested: 'lost'." in said
    symbols = pd.read_csv(copy / "genes.csv")
    pd.testing.assert_frame_equal(symbols.drop(columns="symbol"), ids)
    known = {f"gene{d}": f"SYMBOL{d // 2}" for d in range(11)} | {"gene11": "gene11"}
    assert symbols.symbol.tolist() == [known[gene] for gene in ids.gene]
    assert (copy / "loadings.csv").read_bytes() == loadings, "by the table's own names"
    lists = read_gmt(copy / "factor_genes.gmt")
    assert lists and all(
        set(genes) <= set(known.values()) and len(set(genes)) == len(genes) for genes in lists.values()
    )
    assert set(pd.read_csv(copy / "enrichment.csv").set_size) == {3}, "two genes of two probes each, and one"
    top = pd.read_csv(copy / "factors.csv").top_genes.dropna()
    assert len(top) and all(set(genes.split(", ")) <= set(known.values()) for genes in top)
    html = (copy / "report.html").read_text(encoding="utf-8")
    assert "SYMBOL3" in html and "gene7" in html and "no gene in the table and are not tested" in html
    assert str(tmp_path / "symbols.csv") in (copy / "config.toml").read_text()
    # and again, without the file
    (tmp_path / "symbols.csv").unlink()
    run("report", copy)
    assert pd.read_csv(copy / "genes.csv").symbol.tolist() == symbols.symbol.tolist()
    (copy / "gene_names.csv").write_text("x,y\n1,2\n")
    assert (
        "must have the columns gene and symbol. Got x, y; restore or remove it." in run("report", copy, code=1).stderr
    )


def test_resume_of_what_does_not_exist(tmp_path):
    assert "Got nothing of that name" in run("resume", tmp_path / "nothere", code=1).stderr
