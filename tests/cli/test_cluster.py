"""``nsfa fit --dask``: tables that workers read, and scores that they write."""

import shutil
import tomllib
import warnings

import anndata
import distributed
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

import nsfa
from command import run, write_table
from nsfa.cli import memory
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import dask_blocks

SHORT = ["--dask", "--model", "sfa", "--n-components", "2", "--chains", "1", "--tune", "30", "--draws", "4", "--quiet"]
X = make_sparse_factors(6000, 20, 2, density=0.5, snr=10, random_state=0).X


@pytest.fixture(scope="module", autouse=True)
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same sparse table in every form."""
    folder = tmp_path_factory.mktemp("tables")
    table = np.where(np.abs(X) > 0.5, X, 0.0)
    adata = anndata.AnnData(sp.csr_matrix(table), layers={"columns": sp.csc_matrix(table), "dense": table})
    adata.var_names = [f"ENSG{d:011d}" for d in range(20)]
    adata.var["symbol"] = [f"SYM{d}" for d in range(20)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata.write_h5ad(folder / "cells.h5ad")
        adata.write_zarr(folder / "cells.zarr")
        for name, values in (("rows.zarr", table), ("columns.zarr", table.T)):
            zarr.open(folder / name, mode="w", shape=values.shape, chunks=(1000, 20), dtype="f8")[:] = values
    (folder / "table.csv").write_text("gene,a,b\nx,1,2\ny,2,1\n")
    return folder


@pytest.fixture(scope="module")
def fitted(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("fitted") / "out"
    run("fit", files / "rows.zarr", "-o", out, *SHORT, "--samples-in-rows")
    return out


def test_workers_write_the_scores_and_nothing_names_the_samples(fitted, files):
    posterior, table = nsfa.load(fitted / "draws"), zarr.open(files / "rows.zarr")[:]
    assert posterior.n_components_ == 2 and posterior.data.shape == (20, 6000)
    scores = zarr.open(fitted / "scores.zarr", mode="r")
    np.testing.assert_allclose(scores[:], posterior.transform(table), atol=1e-9)
    assert (fitted / "report.html").stat().st_size > 1000 and (fitted / "figures" / "traces.png").exists()
    assert not (fitted / "samples.csv").exists() and not (fitted / "scores.csv").exists()
    assert "--dask" in tomllib.loads((fitted / "config.toml").read_text())["command"]
    run("report", fitted, "--quiet", "--title", "again")
    np.testing.assert_array_equal(zarr.open(fitted / "scores.zarr", mode="r")[:], scores[:])


@pytest.mark.parametrize("config", [True, False])
@pytest.mark.parametrize("option", ["--impute", "--annotations"])
def test_a_report_leaves_alone_what_needs_the_samples(option, config, fitted, tmp_path):
    out, labels = shutil.copytree(fitted, tmp_path / "out"), tmp_path / "labels.csv"
    labels.write_text("sample,stage\n" + "".join(f"sample {n},early\n" for n in range(6000)))
    if not config:
        (out / "config.toml").unlink()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    said = run("report", out, option, *([labels] if option == "--annotations" else []), code=1)
    assert f"With --dask a table is fitted as it is. Got {option}; leave it out" in " ".join(said.stderr.split())
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("name", "options"),
    [("columns.zarr", []), ("cells.zarr", []), ("cells.h5ad", []), ("cells.h5ad", ["--layer", "dense"])],
)
def test_the_same_table_in_any_form_gives_the_same_factors(name, options, files, fitted, tmp_path):
    run("fit", files / name, "-o", tmp_path / "out", *SHORT, "--no-report", *options)
    one, other = (pd.read_csv(out / "loadings.csv", index_col="gene") for out in (fitted, tmp_path / "out"))
    np.testing.assert_allclose(one.to_numpy(), other.to_numpy(), rtol=1e-4, atol=1e-6)
    if name.startswith("cells"):
        assert other.index[3] == "ENSG00000000003"
        assert pd.read_csv(tmp_path / "out" / "genes.csv")["symbol"].str.startswith("SYM").all()


def test_a_run_goes_on_and_knows_its_table_again(files, tmp_path):
    lengths = {"short": ["--draws", "3"], "long": ["--draws", "5"]}
    for name, length in lengths.items():
        run("fit", files / "cells.h5ad", "-o", tmp_path / name, *SHORT, *length, "--no-report")
    run("resume", tmp_path / "short", "--draws", "2", "--quiet")
    one, other = (nsfa.load(tmp_path / name / "draws").draws for name in lengths)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.loadings(), b.loadings())
    a, b = (zarr.open(tmp_path / name / "scores.zarr", mode="r")[:] for name in lengths)
    np.testing.assert_allclose(a, b, atol=1e-12)


def test_log2_is_taken_by_the_workers(tmp_path):
    counts = np.random.default_rng(0).poisson(3.0, (5000, 6)).astype(float)
    for name, values in (("plain.zarr", counts), ("log.zarr", np.log2(counts + 1))):
        zarr.open(tmp_path / name, mode="w", shape=values.shape, chunks=(1000, 6), dtype="f8")[:] = values
    plain, log = ["plain.zarr", "--log2"], ["log.zarr"]
    for (name, *options), out in ((plain, "a"), (log, "b")):
        given = ["--samples-in-rows", "--no-report", "--tune", "3", *options]
        run("fit", tmp_path / name, "-o", tmp_path / out, *SHORT, *given)
    one, other = (nsfa.load(tmp_path / out / "draws") for out in "ab")
    np.testing.assert_allclose(one.data.center, other.data.center)
    np.testing.assert_allclose(one.noise_variance(), other.noise_variance())


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("table.csv", ["--dask"], "must be a zarr array"),
        ("none.zarr", ["--dask"], "does not exist"),
        ("cells.h5ad", ["--dask", "--top-genes", "3"], "Got --top-genes"),
        ("cells.h5ad", ["--dask", "--impute"], "Got --impute"),
        ("cells.h5ad", ["--dask", "--layer", "none"], "Got the layers"),
        ("cells.h5ad", ["--dask", "--layer", "columns"], "write it as csr"),
        ("rows.zarr", ["--dask", "--layer", "dense"], "AnnData files only"),
        ("cells.h5ad", ["--dask", "--model", "bfrm", "--n-components", "2"], "clustered"),
        ("cells.h5ad", ["--scheduler", "tcp://x:1"], "add --dask"),
        ("cells.zarr", [], "nsfa fit --dask reads it"),
        ("rows.zarr", [], "nsfa fit --dask reads it"),
    ],
)
def test_what_does_not_go_together_is_said_first(name, options, words, files, tmp_path):
    said = run("fit", files / name, "-o", tmp_path / "out", *options, code=1)
    assert words in " ".join(said.stderr.split()) and not (tmp_path / "out").exists()


def scheduler_of(out):
    return tomllib.loads((out / "config.toml").read_text())["cluster"]["scheduler"]


def test_a_scheduler_by_its_address_and_another_one_when_it_is_gone(client, files, tmp_path, monkeypatch):
    out, address = tmp_path / "out", client.scheduler.address
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        gone = cluster.scheduler_address
        run("fit", files / "cells.h5ad", "-o", out, *SHORT, "--no-report", "--scheduler", gone)
    assert scheduler_of(out) == gone
    monkeypatch.setattr(dask_blocks, "_PATIENCE", "300ms")
    said = run("resume", out, "--draws", "2", code=1)
    assert "There must be a Dask scheduler" in " ".join(said.stderr.split()) and scheduler_of(out) == gone
    run("resume", out, "--draws", "2", "--quiet", "--scheduler", address)
    assert scheduler_of(out) == address and address in tomllib.loads((out / "config.toml").read_text())["command"]
    assert len(nsfa.load(out / "draws").draws) == 6
    run("resume", out, "--draws", "2", "--quiet")


def test_a_run_without_dask_has_no_scheduler(tmp_path):
    out, short = tmp_path / "out", ["--chains", "1", "--tune", "2", "--draws", "2", "--no-report", "--quiet"]
    run("fit", write_table(tmp_path / "table.csv"), "-o", out, *short)
    said = run("resume", out, "--draws", "2", "--scheduler", "tcp://x:1", code=1)
    assert "begun with --dask" in " ".join(said.stderr.split())


def test_nothing_is_said_of_what_nobody_has_looked_for(files, tmp_path):
    said = run("fit", files / "cells.h5ad", "-o", tmp_path / "out", *SHORT[:-1], "--no-report").stderr
    assert "20 genes × 6,000 samples, in blocks that the workers read." in said and "missing" not in said
    assert "missing_entries" not in tomllib.loads((tmp_path / "out" / "config.toml").read_text())["input"]


def test_files_larger_than_memory_are_pointed_to_dask(files, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1000.0)
    said = run("fit", files / "cells.h5ad", "-o", tmp_path / "out", code=1)
    assert "--dask leaves it in blocks" in " ".join(said.stderr.split())
    said = run("fit", files / "table.csv", "-o", tmp_path / "out", code=1)
    assert "nsfa fit --dask leaves h5ad and zarr files in blocks" in " ".join(said.stderr.split())


def without_times(path):
    return [line for line in path.read_text().splitlines() if "seconds" not in line]


def test_experiments_are_tasks_of_workers(client, tmp_path):
    run("reproduce", "ibp", "-o", tmp_path / "here", "--quick", "--quiet", "--jobs", "1")
    address = ["--scheduler", client.scheduler.address]
    said = run("reproduce", "ibp", "-o", tmp_path / "there", "--quick", "--dask", *address)
    assert "6/6" in said.stderr and "large graph" not in said.stderr
    here, there = (without_times(tmp_path / name / "numbers.csv") for name in ("here", "there"))
    assert here == there
    said = run("reproduce", "ibp", "-o", tmp_path / "both", "--dask", "--jobs", "2", code=1)
    assert "--jobs is for processes of this machine" in said.stderr and not (tmp_path / "both").exists()
    said = run("reproduce", "ibp", "-o", tmp_path / "none", *address, code=1)
    assert "add --dask" in said.stderr


def test_comparisons_are_tasks_of_workers(tmp_path):
    table, how = write_table(tmp_path / "table.csv"), ["--models", "fa:2,spca:2", "--splits", "2", "--quiet"]
    short = ["--chains", "1", "--tune", "5", "--draws", "5"]
    for name, where in (("here", ["--jobs", "1"]), ("there", ["--dask"])):
        run("compare", table, "-o", tmp_path / name, *how, *short, *where)
    here, there = (
        pd.read_csv(tmp_path / name / "comparison.csv").drop(columns="seconds") for name in ("here", "there")
    )
    pd.testing.assert_frame_equal(here, there)
    assert "--dask" in tomllib.loads((tmp_path / "there" / "config.toml").read_text())["command"]


def test_an_interrupted_comparison_is_where_it_was_last(client, tmp_path, monkeypatch):
    out, table = tmp_path / "out", write_table(tmp_path / "table.csv")
    how = ["--models", "spca:2", "--splits", "2", "--chains", "1", "--tune", "5", "--draws", "5", "--quiet"]
    there = ["--dask", "--scheduler", client.scheduler.address]

    def interrupted(*_, store, **__):
        store.touch()
        return pd.DataFrame({"model": ["spca:2"], "converged": [None]})

    monkeypatch.setattr(nsfa, "compare", interrupted)
    kept = []
    for where in (there, ["--dask"], [], there, []):
        run("compare", table, "-o", out, *how, *where, code=130)
        config = tomllib.loads((out / "config.toml").read_text())
        kept.append(config["cluster"])
        assert [word for word in there if word in config["command"].split()] == where
    address = {"scheduler": client.scheduler.address}
    assert kept == [
        {"dask": True} | address,
        {"dask": True},
        {"dask": False},
        {"dask": True} | address,
        {"dask": False},
    ]
    assert "begun with --dask" in run("resume", out, "--scheduler", "tcp://x:1", code=1).stderr
