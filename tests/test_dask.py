"""Tables in blocks on Dask workers: the same draws whatever the workers and blocks, and whoever is lost on the way."""

import gc
import os
import pickle
import signal
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from threading import Barrier
from types import SimpleNamespace
from unittest.mock import Mock

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import nsfa
from nsfa import BFRM, NSFA, SFA
from nsfa.backends import open_samples
from nsfa.blocks import Asked, Named, Piece, observe_blocks, sum_group
from nsfa.chain import Chain, chain_generator
from nsfa.columns import dense_columns
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.draws.files import StoreError
from nsfa.kernels import dask_blocks, get_kernels
from nsfa.model import preset
from nsfa.passing import ObservedTable, PassingSamples
from nsfa.threads import one_thread
from nsfa.units import Node, add_columns, cuts, finish, joined, units_of

SHORT = {"chains": 2, "tune": 12, "draws": 6, "thin": 1, "random_state": 0}
LONG_ENOUGH = SHORT | {"tune": 40}
N = 10_000


@pytest.fixture(scope="module")
def table():
    return make_sparse_factors(N, 30, 3, density=0.4, snr=5, random_state=0).X


def local(n_workers, processes=False, **settings):
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=processes, dashboard_address=":0", **settings
    )


@pytest.fixture(scope="module")
def client():
    with local(2) as cluster, distributed.Client(cluster) as client:
        yield client


def chain_of(data, **settings):
    spec = preset("nsfa")
    return Chain(open_samples(data, spec), spec, chain_generator(1, 0), **{"start": 5, "tune": 40, **settings})


def swept(data, sweeps=12, before=None):
    chain = chain_of(data)
    for number in range(sweeps):
        if number == 4 and before is not None:
            before()
        chain.sweep()
    return chain


@pytest.fixture(scope="module")
def drawn(table, client):
    return swept(observe_blocks(client, Named(da.from_array(table, chunks=(3000, 11)))))


def same(a, b):
    np.testing.assert_array_equal(a.state.loadings, b.state.loadings)
    np.testing.assert_array_equal(a.state.noise_precision, b.state.noise_precision)
    assert a.log_density() == b.log_density() and a.samples.log_evidence == b.samples.log_evidence


def test_the_tree_gives_one_sum_for_any_partition(rng):
    terms = rng.standard_normal(37) * 10.0 ** rng.integers(-8, 8, 37)
    sums = set()
    for _ in range(50):
        edges = [0, *sorted(rng.choice(np.arange(1, 37), rng.integers(0, 9), replace=False)), 37]
        parts = [joined((Node(i, 1, terms[i]) for i in range(a, b)), float.__add__) for a, b in pairwise(edges)]
        some = rng.integers(0, len(parts) + 1)
        parts = [joined([node for part in parts[:some] for node in part], float.__add__), *parts[some:]]
        sums.add(finish(parts, float.__add__))
    assert len(sums) == 1 and sums.pop() == pytest.approx(terms.sum())
    # what the test could not fail without: the order does matter
    assert len({float(np.add.reduce(rng.permutation(terms))) for _ in range(50)}) > 1


@pytest.mark.parametrize("lengths", [(10,), (3, 4, 3), (1,) * 10, (9, 1), (100, 7, 30)])
def test_cuts_take_every_row_once_and_begin_with_units(lengths):
    rows = np.arange(sum(lengths))[:, None]
    chunks = np.split(rows, np.cumsum(lengths)[:-1])
    found, sizes = [], []
    for cut, some in cuts(lengths, 4):
        tables = list(units_of(cut, [chunks[i] for i in some]))
        assert tables[0][0, 0] == 4 * cut.first and all(len(unit) == 4 for unit in tables[:-1])
        found += tables
        sizes.append(len(tables))
    np.testing.assert_array_equal(np.concatenate(found), rows)
    # each cut is a node of the tree
    assert all(size & (size - 1) == 0 for size in sizes[:-1])


def test_moments_of_parts_are_those_of_the_whole(rng):
    X = np.column_stack([1e120 * rng.standard_normal(50), 5 + 1e-9 * rng.standard_normal(50), np.zeros(50)])
    X[20:, 1] *= 3
    whole, both = dense_columns(X, None), add_columns(dense_columns(X[:17], None), dense_columns(X[17:], None))
    for name in ("observed", "size", "mean", "variance"):
        np.testing.assert_allclose(getattr(both, name), getattr(whole, name), rtol=1e-12, atol=1e-25)


@pytest.mark.parametrize(("kind", "dtype"), [("dense", "float64"), ("dense", "float32"), ("sparse", "float64")])
def test_a_table_in_blocks_is_centred_and_scaled_as_in_memory(kind, dtype, table, client):
    X = np.where(np.abs(table) > 1, table, 0.0)
    blocks = da.from_array(X, chunks=(2500, 30))
    if kind == "sparse":
        blocks = blocks.map_blocks(sp.csr_array)
    whole, found = observe(X, dtype=dtype), observe_blocks(client, Named(blocks), dtype=dtype)
    for name in ("center", "scale", "power", "count"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-6, atol=1e-12)
    ours, theirs = found.values.table, ObservedTable(whole, get_kernels())
    right = np.random.default_rng(0).standard_normal((30, 4))
    np.testing.assert_allclose(ours.second(right), theirs.second(right), rtol=1e-4, atol=1e-6 * N)
    passed, other = (t.pass_scores(right, np.ones(30), right[:, 0], 5) for t in (ours, theirs))
    for a, b in zip(passed, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3 if dtype == "float32" else 1e-8, atol=1e-4 * np.abs(b).max())


def test_blocks_draw_what_a_table_in_memory_draws(table, drawn):
    samples = PassingSamples(ObservedTable(observe(table), get_kernels()), get_kernels())
    chain = Chain(samples, preset("nsfa"), chain_generator(1, 0), start=5, tune=40)
    for _ in range(12):
        chain.sweep()
    np.testing.assert_array_equal(chain.state.active, drawn.state.active)
    np.testing.assert_allclose(chain.state.loadings, drawn.state.loadings, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("n_workers", "rows"), [(1, 9000), (2, 9000), (1, N), (3, 700)])
def test_draws_depend_neither_on_workers_nor_on_blocks(n_workers, rows, table, drawn):
    with local(n_workers) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        same(swept(observe_blocks(client, Named(da.from_array(table, chunks=(rows, 30))))), drawn)


def test_tables_larger_than_memory_are_kept_in_files_and_draw_the_same(table, drawn, client, monkeypatch, tmp_path):
    monkeypatch.setattr(dask_blocks, "memory", lambda client: 1.0)
    monkeypatch.setattr(dask_blocks, "scratch_folder", lambda: str(tmp_path))
    data = observe_blocks(client, Named(da.from_array(table, chunks=(5000, 30))))
    assert len(list(tmp_path.iterdir())) == 3
    same(swept(data), drawn)
    data.values.table.close()
    for _ in range(100):
        client.run(gc.collect)
        if not list(tmp_path.iterdir()):
            return
        time.sleep(0.1)
    pytest.fail("the files are still there")


def test_a_piece_in_files_is_sent_with_what_is_in_them(table, tmp_path):
    data = observe(table)
    piece = Piece(2, N, [data], str(tmp_path))
    sent = pickle.loads(pickle.dumps(piece))
    (number, unit), nodes = next(iter(sent.units())), sum_group([sent], Asked("second", (np.ones((30, 1)),)))
    assert number == 2 and nodes[0].first == 2
    np.testing.assert_array_equal(unit.values, data.values)
    assert piece.__sizeof__() < 10_000 < data.values.nbytes < sent.__sizeof__()
    assert len(list(tmp_path.iterdir())) == 1
    del piece
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("memory", [1e12, 1.0], ids=["in memory", "in files"])
def test_a_killed_worker_changes_nothing(memory, table, drawn, monkeypatch):
    monkeypatch.setattr(dask_blocks, "memory", lambda client: memory)
    with local(2, processes=True) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        data = observe_blocks(client, Named(da.from_array(table, chunks=(3000, 30))))
        victim, *_ = client.run(os.getpid).values()
        held = client.has_what()
        assert all(held.values())
        same(swept(data, before=partial(os.kill, victim, signal.SIGKILL)), drawn)
        assert victim not in client.run(os.getpid).values()


def test_a_worker_killed_while_it_draws_changes_nothing(table, drawn, monkeypatch):
    """The kill comes from within a task, so that one is under way."""
    with local(2, processes=True) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        data = observe_blocks(client, Named(da.from_array(table, chunks=(3000, 30))))
        victim, *_ = client.run(os.getpid).values()
        chain = chain_of(data)
        for number in range(12):
            monkeypatch.setattr("nsfa.blocks.sum_group", partial(_dying, victim) if number == 4 else sum_group)
            chain.sweep()
        same(chain, drawn)
        assert victim not in client.run(os.getpid).values()


def _dying(victim, pieces, shared):
    if os.getpid() == victim:
        os.kill(victim, signal.SIGKILL)
    return sum_group(pieces, shared)


class Cluster:
    """What ``Kept`` asks of a client: who is there, and who has what, as it changes from one look to the next."""

    def __init__(self, *looks):
        self.looks = list(looks)

    def nthreads(self):
        return dict.fromkeys(self.looks[0][0], 1)

    def who_has(self, futures):
        return {
            future.key: ["ab"[int(holder == "b")]]
            for future, holder in zip(futures, self.looks[0][1], strict=True)
            if holder
        }

    def look(self, *_):
        if len(self.looks) > 1:
            self.looks.pop(0)


def kept_by(monkeypatch, *looks):
    client = Cluster(*looks)
    monkeypatch.setattr(dask_blocks.time, "sleep", client.look)
    monkeypatch.setattr(distributed, "wait", lambda futures, timeout=None: None)
    futures = [SimpleNamespace(key=f"piece {i}", status="finished") for i in range(3)]
    return client, dask_blocks.Kept(client, futures)


@pytest.mark.parametrize(
    "before",
    [("ab", ["a", "b", None]), ("a", ["a", "b", "b"]), ("", [None, None, None])],
    ids=["nobody has a piece", "its worker has gone", "nobody is there"],
)
def test_no_piece_is_left_out_while_it_is_made_anew(before, monkeypatch):
    _, what = kept_by(monkeypatch, before, ("ab", ["a", "b", "b"]))
    found = what.groups()
    assert [(where, [future.key[-1] for future in group]) for where, group in found] == [
        ("a", ["0"]),
        ("b", ["1", "2"]),
    ]


def test_what_was_forgotten_is_not_waited_for(monkeypatch):
    client, what = kept_by(monkeypatch, ("ab", ["a", "b", "b"]))
    what.groups()
    what.forget()
    monkeypatch.setattr(client, "who_has", Mock(side_effect=AssertionError("nothing is there to ask for")))
    with pytest.raises(ValueError, match="^The table must be with its workers. Got one that they were let forget; "):
        what.groups()


def test_each_of_two_chains_sees_that_a_worker_was_lost(monkeypatch):
    """The first one looks for its pieces anew before the second one asks; that one must not wait for those it had."""
    client, what = kept_by(monkeypatch, ("ab", ["a", "b", "b"]), ("a", ["a", "a", "a"]))
    one, other = what.groups(), what.groups()
    assert not what.moved(one) and not what.moved(other)
    client.look()
    assert what.moved(one)
    anew = what.groups()
    assert what.moved(other) and what.groups() is anew and not what.moved(anew)


def test_two_chains_at_once_outlive_a_worker(table, drawn):
    with local(2, processes=True) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        data = observe_blocks(client, Named(da.from_array(table, chunks=(3000, 30))))
        victim, *_ = client.run(os.getpid).values()
        killed = Barrier(2, partial(os.kill, victim, signal.SIGKILL))
        with ThreadPoolExecutor(2) as pool:
            chains = [pool.submit(swept, data, before=partial(killed.wait, 60)) for _ in range(2)]
            for chain in chains:
                same(chain.result(timeout=120), drawn)


@pytest.fixture(scope="module")
def fitted(table, client, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "draws"
    return SFA(3, **LONG_ENOUGH).fit(da.from_array(table, chunks=(4000, 30)), store=path), path


def test_an_estimator_fits_a_dask_array_and_answers_without_the_table(table, fitted):
    model, _ = fitted
    assert model.n_components_ == 3 and model.n_features_in_ == 30
    posterior = pickle.loads(pickle.dumps(model)).posterior_
    assert posterior.data.shape == (30, N) and "10000 samples" in repr(posterior)
    assert posterior.diagnostics().moves and np.isnan(posterior.consensus().two_samples).all()
    assert len(posterior.summary()) == 3 and posterior.consensus().scores.shape == (0, 3)
    np.testing.assert_allclose(model.impute(np.full((1, 30), np.nan))[0], model.mean_, atol=0.2)
    with pytest.raises(ValueError, match="which are not kept"):
        posterior.data.values.sum()
    with pytest.raises(ValueError, match="which are not kept"):
        np.asarray(posterior.data.values)


def test_scores_of_a_dask_array_are_one(table, fitted):
    model, _ = fitted
    blocks = da.from_array(table, chunks=(1500, 30))
    mean, deviation = model.transform(blocks, return_std=True)
    assert mean.chunks == (blocks.chunks[0], (3,))
    expected = model.transform(table, return_std=True)
    np.testing.assert_allclose(mean.compute(), expected[0], atol=1e-10)
    np.testing.assert_allclose(deviation.compute(), expected[1], atol=1e-10)
    with pytest.raises(ValueError, match="30 features"):
        model.posterior_.transform(blocks[:, :4])


def test_what_goes_with_a_lazy_transform_is_small_or_sent_once(table, client, monkeypatch):
    """Without it, Dask warns of a large graph; one without a client is computed wherever there is one later."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SFA(3, **LONG_ENOUGH).fit(table)
    features = model.posterior_.data.without_samples()
    assert len(pickle.dumps(features)) < 10_000
    np.testing.assert_array_equal(features.like(table[:9]).values, model.posterior_.data.like(table[:9]).values)
    blocks = da.random.default_rng(0).normal(size=(60, 30), chunks=(20, 30))
    expected = model.transform(blocks.compute())
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "20kB"}), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="large graph"):
            model.transform(blocks).compute()
        monkeypatch.setattr(dask_blocks, "_SMALL", 1000)
        scores = model.transform(blocks)
        np.testing.assert_allclose(scores.compute(), expected, atol=1e-10)
        np.testing.assert_allclose(scores[:25].compute(), expected[:25], atol=1e-10)
    monkeypatch.setattr(distributed.Client, "current", Mock(side_effect=ValueError))
    np.testing.assert_allclose(model.transform(blocks).compute(scheduler="threads"), expected, atol=1e-10)


def test_a_run_goes_on_with_the_table_given_again(table, fitted, client, tmp_path):
    model, path = fitted
    blocks = da.from_array(table, chunks=(4000, 30))
    long = SFA(3, **{**LONG_ENOUGH, "draws": 10}).fit(blocks)
    with pytest.raises(StoreError, match="does not keep. Pass it again"):
        nsfa.resume(path, draws=4)
    with pytest.raises(ValueError, match="other values"):
        nsfa.resume(path, draws=4, X=2 * blocks + 1)
    again = nsfa.resume(path, draws=4, X=da.from_array(table, chunks=(5500, 30)))
    for one, other in zip(again.draws, long.posterior_.draws, strict=True):
        np.testing.assert_array_equal(one.loadings(), other.loadings())
    kept = SFA(2, **SHORT).fit(table[:40], store=tmp_path / "kept")
    with pytest.raises(ValueError, match="leave it out"):
        nsfa.resume(tmp_path / "kept", draws=1, X=blocks)
    assert nsfa.load(path).n_components_ == 3 and kept.n_components_


def test_planted_factors_are_found_and_none_in_noise(client, rng):
    planted = make_sparse_factors(N, 40, 4, density=0.3, snr=5, random_state=1)
    found = NSFA(chains=1, tune=120, draws=10, thin=1, random_state=0).fit(da.from_array(planted.X, chunks=(5000, 40)))
    assert found.n_components_ == 4
    assert nsfa.metrics.reconstruction_error(planted.loadings, found.components_.T) < 0.2
    noise = da.from_array(rng.standard_normal((N, 40)), chunks=(5000, 40))
    assert NSFA(chains=1, tune=120, draws=10, thin=1, random_state=0).fit(noise).n_substantial_draws_.max() == 0


def test_sparse_blocks_are_fitted_as_dense_ones(table, client):
    X = np.where(np.abs(table) > 1, table, 0.0)
    blocks = da.from_array(X, chunks=(3500, 30))
    dense, sparse = (SFA(2, **SHORT).fit(b) for b in (blocks, blocks.map_blocks(sp.csr_matrix)))
    assert sparse.posterior_.data.values.nbytes == 12 * np.count_nonzero(X) < dense.posterior_.data.values.nbytes
    np.testing.assert_allclose(sparse.components_, dense.components_, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        (SFA(2), lambda X: da.where(X > 3, np.nan, X), "must have no missing entries"),
        (SFA(2), lambda X: da.where(X > 3, np.inf, X), "must be finite"),
        (SFA(2), lambda X: X[X[:, 0] > 0], "compute_chunk_sizes"),
        (SFA(2), lambda X: X[:, 0], "2-D"),
        (SFA(2), lambda X: X[:, :1], "at least 2"),
        (BFRM(2), lambda X: X, "clustered"),
        (SFA(2, noise="robust"), lambda X: X, "Gaussian noise and likelihood. Got noise='robust'"),
        (SFA(2, likelihood="counts"), lambda X: X, "Got likelihood='counts'; use a table in memory"),
        (SFA(2, backend="gpu"), lambda X: X, "On the worker .* needs an NVIDIA GPU and CuPy. .* or use backend='cpu'"),
        (SFA(2, scale="rows"), lambda X: X, "scale must be"),
    ],
)
def test_what_cannot_be_fitted_in_blocks_is_said_in_a_sentence(model, change, words, table, client):
    with pytest.raises(ValueError, match=words):
        model.fit(change(da.from_array(table, chunks=(5000, 30))))


def test_constant_features_are_left_out(table, client):
    X = np.column_stack([table[:, :5], np.full(N, 7.0)])
    with pytest.warns(UserWarning, match="1 feature"):
        model = SFA(2, **SHORT).fit(da.from_array(X, chunks=(5000, 6)))
    assert not model.components_[:, 5].any() and model.mean_[5] == pytest.approx(7.0)


def test_frames_bring_their_names(table, client):
    frame = dd.from_pandas(pd.DataFrame(table[:, :6], columns=list("abcdef")), npartitions=3)
    model = SFA(2, **SHORT).fit(frame)
    assert model.posterior_.data.feature_names == tuple("abcdef")


def test_one_thread_is_given_back_by_the_last(monkeypatch):
    given = []

    class Limits:
        def __init__(self, n):
            given.append(n)

        def restore_original_limits(self):
            given.append("back")

    monkeypatch.setattr("nsfa.threads.threadpool_limits", Limits)
    with one_thread():
        with one_thread():
            pass
        assert given == [1]
    assert given == [1, "back"]


def test_workers_are_made_where_there_are_none_and_closed(monkeypatch):
    made = []
    monkeypatch.setattr(distributed.Client, "current", classmethod(lambda cls: (_ for _ in ()).throw(ValueError())))
    kind = distributed.LocalCluster

    def in_process(preload, **how):
        made.append(how)
        return kind(**how, processes=False)

    monkeypatch.setattr(distributed, "LocalCluster", in_process)
    with dask_blocks.connected(cores=8) as client:
        assert len(client.nthreads()) == 2
    assert made[0]["threads_per_worker"] == 4 and client.status == "closed"


def test_dask_does_not_warn_of_the_size_of_what_a_task_takes(client, tmp_path):
    large = np.zeros(2_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [value for _, value in dask_blocks.done(client, len_of, None, [large])] == [2_000_000]
        rows = da.from_array(np.zeros((10, 2)), chunks=(5, 2))
        dask_blocks.write_zarr(dask_blocks.mapped(rows, block_of, large, 2), tmp_path / "a.zarr")
        sources = [((0, 2), [large])]
        assert dask_blocks.read_reduced(client, lambda cut, chunks: len(chunks[0]), sources, sum, sum) == 2_000_000
        dask_blocks.kept(client, lambda cut, chunks, shared: 0, sources, large).groups()


def len_of(_, item):
    return len(item)


def block_of(chunk, payload):
    return chunk + len(payload)


def test_a_scheduler_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(dask_blocks, "_PATIENCE", "100ms")
    with pytest.raises(ValueError, match="There must be a Dask scheduler"), dask_blocks.connected("tcp://127.0.0.1:9"):
        pass


def test_chains_and_comparisons_are_tasks_where_the_table_fits_a_worker(table, client, tmp_path):
    X = table[:60, :12]
    here, there = (SFA(2, **SHORT, n_jobs=jobs).fit(X).posterior_.draws for jobs in (1, "dask"))
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one.loadings(), other.loadings())
    SFA(2, **SHORT, n_jobs="dask").fit(X, store=tmp_path / "draws")
    np.testing.assert_array_equal(nsfa.load(tmp_path / "draws").draws[-1].loadings(), here[-1].loadings())
    how = {"models": {"sfa": SFA(2, **SHORT)}, "splits": 2, "progress": False}
    one, other = (nsfa.compare(X, n_jobs=jobs, **how).drop(columns="seconds") for jobs in (1, "dask"))
    pd.testing.assert_frame_equal(one, other)
    with pytest.raises(ValueError, match="n_jobs must be None or a non-zero int"):
        SFA(2, **SHORT, n_jobs="many").fit(X)


def test_a_task_that_fails_fails_once(client, tmp_path):
    with pytest.raises(ValueError, match="no good"):
        list(dask_blocks.done(client, fail, tmp_path / "tries", [1]))
    assert (tmp_path / "tries").read_text() == "x"


def fail(path, _):
    with path.open("a") as file:
        file.write("x")
    raise ValueError("no good")


def test_a_finished_comparison_starts_no_workers(table, tmp_path, monkeypatch):
    how = {"models": {"sfa": SFA(2, **SHORT)}, "splits": 1, "progress": False, "store": tmp_path / "fits.csv"}
    one = nsfa.compare(table[:60, :12], n_jobs=1, **how)
    monkeypatch.setattr("nsfa.tasks.connected", None)
    pd.testing.assert_frame_equal(nsfa.compare(table[:60, :12], n_jobs="dask", **how), one)


def test_a_comparison_sends_its_table_once(table, client, monkeypatch):
    sent, done = [], dask_blocks.done
    monkeypatch.setattr("nsfa.tasks.done", lambda *given: (sent.append(given[2:]), done(*given))[1])
    monkeypatch.setattr(dask_blocks, "_SMALL", 1000)
    X = table[:400, :12]
    nsfa.compare(X, {"sfa": SFA(2, **SHORT), "spca": nsfa.SPCA(2)}, splits=2, n_jobs="dask", progress=False)
    ((shared, tasks),) = sent
    assert shared["table"].nbytes == X.nbytes and len(tasks) == 4
    # of each entry a byte, whether it is hidden
    assert all(len(pickle.dumps(task)) < X.size + 3000 for task in tasks)
