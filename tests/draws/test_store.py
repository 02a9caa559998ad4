"""Stores: what is written is what is read, and a restored chain goes on to the same bits."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import nsfa
from cases import holes
from crashing import assert_part_of, assert_same_draws, difference, problem
from nsfa.chain import Chain, chain_generator, run_chain
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.draw import factor_counts
from nsfa.draws import codec, files, lock, store
from nsfa.kernels import get_kernels
from nsfa.length import Length
from nsfa.model import Gamma, ModelSpec, Priors, preset
from nsfa.monitor import Progress
from nsfa.samples import Samples

X = make_sparse_factors(20, 12, 3, density=0.4, random_state=1).X
GAPS = np.where(holes("mixed", 12, 20, np.random.default_rng(0)).T, np.nan, X)
TABLES = {
    "dense": X,
    "missing": GAPS,
    "sparse": sp.csr_array(np.where(np.random.default_rng(1).random(X.shape) < 0.5, 0.0, X)),
}
SPECS = {
    **{name: preset(name, n_components=3) for name in ("fa", "afa", "fok", "sfa", "bfrm")},
    "nsfa": preset("nsfa", noise="shared", stickiness="infer"),
    "parallel": preset("nsfa", sweep="parallel"),
    "element": preset("nsfa", precision="element"),
    "shared": preset("nsfa", precision="shared", noise="isotropic"),
}  # fmt: skip


def write_always(monkeypatch, every=0.0):
    """Checkpoints after every sweep, or nearly."""
    monkeypatch.setattr(store, "EVERY", every)
    monkeypatch.setattr("nsfa.draws.log._PATIENCE", 0.0)


def through_disk(tree, path):
    files.write_tree(path, tree)
    return files.read_tree(path)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", SPECS)
def test_a_restored_chain_goes_on_to_the_same_bits(name, kind, tmp_path):
    data, spec = observe(TABLES[kind]), SPECS[name]
    chain = Chain(Samples(data, get_kernels()), spec, chain_generator(3, 0))
    for _ in range(12):
        chain.sweep()
    table = codec.unpack_data(through_disk(codec.pack_data(data), tmp_path / "data"))
    other = Chain(Samples(table, get_kernels()), spec, chain_generator(99, 5))
    other.restore(through_disk(chain.snapshot(), tmp_path / "state"))
    for _ in range(8):
        draws = [c.draw(c.sweep(), 0.0) for c in (chain, other)]
        assert not difference(*draws)
    np.testing.assert_array_equal(chain.samples.scores, other.samples.scores)
    widths = [[b.shape for b in (*c.state.buffers.values(), c.samples._buffer)] for c in (chain, other)]
    assert widths[0] == widths[1]
    other.state.check_invariants()


def test_snapshots_carry_every_field_of_the_state():
    chain = Chain(Samples(observe(X), get_kernels()), SPECS["bfrm"], chain_generator(3, 0))
    assert set(chain.snapshot()["state"]) == {*vars(chain.state), "widths"}


def test_a_store_stays_where_it_was_made(tmp_path, monkeypatch):
    """Also for worker processes, whose directory may be another."""
    monkeypatch.chdir(tmp_path)
    X = make_sparse_factors(12, 6, 2, random_state=0).X
    nsfa.NSFA(chains=1, tune=2, draws=3, random_state=0).fit(X, store="run/draws")
    opened = store.open_store("run/draws")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert opened.finished and opened.path == tmp_path / "run" / "draws"


def test_draws_of_every_size_come_back(tmp_path):
    rng = np.random.default_rng(0)
    draws = []
    for kind, step in ((np.float32, None), (np.int16, rng.random(7)), (np.int8, rng.random(7))):
        active = rng.random((9, 7)) < 0.5
        value = rng.integers(1, 100, active.sum()).astype(kind)
        precision = rng.random(7) if kind == np.int8 else np.array(2.5)
        scores = rng.random((4, 7)).astype(np.float32) if kind == np.float32 else None
        scalars = {"n_factors": 7, "log_joint": np.float64(-1.5), **factor_counts(active.sum(axis=0))}
        draws.append(
            nsfa.draw.Draw((9, 7), np.packbits(active), value, step, rng.random(9), precision, scalars, scores)
        )
    draws.append(
        nsfa.draw.Draw(
            (9, 0), *(np.zeros(0, k) for k in (np.uint8, np.float32)), None, rng.random(9), np.zeros(0), scalars
        )
    )
    back = codec.unpack_draws(through_disk(codec.pack_draws(draws), tmp_path / "draws"))
    assert [difference(*pair) for pair in zip(draws, back, strict=True)] == [""] * 4
    assert type(back[0].scalars["n_factors"]) is int
    # nothing of the block stays in memory
    assert all(part.base.nbytes == part.nbytes for part in (back[0].value, back[1].noise_precision))


@pytest.mark.parametrize("name", ["nsfa", "fa"])
def test_draws_of_earlier_versions_are_counted_when_read(name, tmp_path):
    model = nsfa.NSFA() if name == "nsfa" else nsfa.FA(3)
    model.set_params(chains=1, tune=5, draws=4, random_state=0).fit(X, store=tmp_path / "new")
    new = model.posterior_
    counts = ("n_shared", "n_substantial")
    scalars = [{k: v for k, v in draw.scalars.items() if k not in counts} for draw in new.draws]
    old = [replace(draw, scalars=own) for draw, own in zip(new.draws, scalars, strict=True)]
    back = codec.unpack_draws(through_disk(codec.pack_draws(old), tmp_path / "old"))
    assert [difference(*pair) for pair in zip(new.draws, back, strict=True)] == [""] * 4
    assert back[0].scalars["n_shared"] <= back[0].n_factors


def test_draws_with_one_share_of_outliers_for_all_samples_are_read(tmp_path):
    nsfa.NSFA(noise="robust", chains=1, tune=5, draws=4, thin=1, random_state=0).fit(GAPS, store=tmp_path / "new")
    new, share = nsfa.load(tmp_path / "new"), np.array([0.9, 0.05, 0.02, 0.01, 0.01, 0.01])
    old = [replace(draw, outlier_share=share, outlier_concentration=None) for draw in new.draws]
    back = codec.unpack_draws(through_disk(codec.pack_draws(old), tmp_path / "old"))
    np.testing.assert_allclose(back[0].outlier_share, np.tile(share, (len(GAPS), 1)), rtol=1e-6)
    posterior = replace(new, chains=(tuple(back),))
    np.testing.assert_allclose(posterior.outlier_shares(), 0.1, rtol=1e-5)
    assert np.isfinite(posterior.log_predictive_density(X, np.isnan(GAPS))).all()
    assert np.isfinite(posterior.impute(GAPS[:3])).all()


@pytest.mark.parametrize("kind", TABLES)
def test_tables_come_back_with_names_and_units(kind, tmp_path):
    given = TABLES[kind] if kind == "sparse" else pd.DataFrame(TABLES[kind], columns=[f"g{i}" for i in range(12)])
    data = observe(given)
    back = codec.unpack_data(through_disk(codec.pack_data(data), tmp_path / "data"))
    assert back.feature_names == data.feature_names and back.names == data.names
    assert back.n_features == 12 and type(back.feature_holes) is type(data.feature_holes)
    dense = [d.values.toarray() if kind == "sparse" else d.values for d in (data, back)]
    np.testing.assert_array_equal(*dense)
    for name in ("offset", "power", "center", "scale", "kept", "missing"):
        np.testing.assert_array_equal(getattr(data, name), getattr(back, name))


def test_models_come_back():
    priors = Priors(loading_rate=2.0, urn=Gamma(2, 3), sparsity=(4.0, 0.2))
    for spec in (*SPECS.values(), ModelSpec(pattern="finite", n_components=np.int64(3), priors=priors)):
        text = json.dumps(codec.pack_spec(spec), default=codec.plain)
        assert codec.unpack_spec(json.loads(text)) == spec


def test_models_of_earlier_versions_keep_their_priors():
    tree = codec.pack_spec(ModelSpec(priors=Priors.learned()))
    for name in ("relative", "intercept"):
        del tree["priors"][name]
    assert codec.unpack_spec(tree).priors == Priors.learned()


def test_files_are_plain_npz_without_pickles(tmp_path):
    files.write_tree(tmp_path / "a.npz", {"x": np.arange(3.0), "y": [1, None, {"z": np.float64(2)}]})
    with np.load(tmp_path / "a.npz", allow_pickle=False) as members:
        assert any(np.array_equal(members[name], np.arange(3.0)) for name in members)
    back = files.read_tree(tmp_path / "a.npz")
    assert back["y"] == [1, None, {"z": 2.0}] and isinstance(back["y"][2]["z"], np.float64)


def fitted(path=None, **changes):
    model, table = problem("holes")
    return model.set_params(**changes).fit(table, store=path).posterior_


def test_a_fit_with_a_store_is_the_fit_without_and_can_be_read(tmp_path):
    reports: list[Progress] = []
    model, table = problem("holes")
    expected = model.fit(table).posterior_
    posterior = model.fit(
        pd.DataFrame(table).add_prefix("gene"), store=tmp_path / "a" / "s", monitor=reports.append
    ).posterior_
    loaded = nsfa.load(tmp_path / "a" / "s")
    for other in (posterior, loaded, nsfa.resume(tmp_path / "a" / "s")):
        assert_same_draws(other, expected)
        assert other.finished and other.seed == 5 and other.spec == expected.spec and other.length == expected.length
    assert loaded.data.names[1] == "gene1"
    np.testing.assert_array_equal(loaded.noise_variance(), expected.noise_variance())
    assert reports[-1].log_joint == expected.chains[1][-1].scalars["log_joint"]
    assert 0 < reports[-1].acceptance < 1 and reports[-1].seconds > 0


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_draws_added_to_a_finished_run_are_those_of_a_longer_one(workers, tmp_path, monkeypatch):
    from nsfa import saved

    monkeypatch.setattr(
        saved, "sample", lambda *a, **k: __import__("nsfa.runner").runner.sample(*a, **k, workers=workers)
    )
    expected = fitted(draws=20)
    fitted(tmp_path / "s")
    assert_same_draws(nsfa.resume(tmp_path / "s", draws=5, n_jobs=2), fitted(draws=17))
    assert_same_draws(nsfa.resume(str(tmp_path / "s"), draws=3, n_jobs=1), expected)
    longer = nsfa.load(tmp_path / "s")
    assert_same_draws(longer, expected)
    assert longer.finished and longer.length.draws == 20
    assert (np.diff(longer.trace("seconds")) > 0).all()


def interrupted(path, at=3, **changes):
    """A run stopped by Ctrl-C at a report."""
    reports = []

    def watch(report):
        reports.append(report)
        if len(reports) == at:
            os.kill(os.getpid(), signal.SIGINT)

    model, table = problem("holes")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return model.set_params(**changes).fit(table, store=path, monitor=watch).posterior_
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path):
    part = interrupted(tmp_path / "s", chains=1, draws=1500)
    assert not part.finished and not nsfa.load(tmp_path / "s").finished
    with pytest.raises(
        nsfa.StoreError, match="must be finished before draws are added. Got an unfinished run; resume it first"
    ):
        nsfa.resume(tmp_path / "s", draws=10)
    part.save(tmp_path / "copy")
    assert not nsfa.load(tmp_path / "copy").finished
    expected = fitted(chains=1, draws=1500)
    assert_part_of(part, expected)
    assert_same_draws(nsfa.resume(tmp_path / "s"), expected)


@pytest.mark.parametrize("stop", [7, 33, 10**6])
def test_a_warm_up_that_ends_by_itself_resumes_to_the_same_bits(stop, tmp_path):
    """Stopped within it and after it; a run that was at its end has nothing left to do."""
    data, spec, length = observe(next(iter(TABLES.values()))), SPECS["nsfa"], Length(tune=12, draws=30, thin=1, most=48)
    chain, other = (Chain(Samples(data, get_kernels()), spec, chain_generator(seed, 0), 0, 12) for seed in (3, 99))
    made, snapshot = [], None
    for sweep in run_chain(chain, length):
        made += [sweep.draw] if sweep.draw is not None else []
        if sweep.number == min(stop, sweep.total):
            snapshot, before = through_disk(chain.snapshot(), tmp_path / "state"), len(made)
    assert len(made) == 30 and 12 <= chain.warmed <= 48
    other.restore(snapshot)
    again = [sweep.draw for sweep in run_chain(other, length) if sweep.draw is not None]
    assert len(again) == 30 - before and other.warmed == chain.warmed
    assert not any(difference(*pair) for pair in zip(made[before:], again, strict=True))


def test_draws_come_after_a_warm_up_that_ended_by_itself(tmp_path):
    fitted(tmp_path / "s", tune="auto", draws=20)
    longer = nsfa.resume(tmp_path / "s", draws=5)
    assert_same_draws(longer, fitted(tune="auto", draws=25))
    assert longer.finished and longer.length.warm_up == "150 to 1,200" and "150 to 1,200" in repr(longer)


def test_a_run_stopped_in_its_warm_up_says_so_and_goes_on(tmp_path):
    with pytest.raises(nsfa.StoreError, match="holds no draws yet: .* Go on with nsfa.resume"):
        interrupted(tmp_path / "s", tune=1500)
    with pytest.raises(nsfa.StoreError, match="holds no draws yet"):
        nsfa.load(tmp_path / "s")
    assert_same_draws(nsfa.resume(tmp_path / "s"), fitted(tune=1500))


def test_a_saved_posterior_can_be_read_but_not_continued(tmp_path):
    posterior = fitted()
    posterior.save(tmp_path / "s")
    loaded = nsfa.load(tmp_path / "s")
    assert_same_draws(loaded, posterior)
    assert loaded.finished
    assert_same_draws(nsfa.resume(tmp_path / "s"), posterior)
    with pytest.raises(nsfa.StoreError, match="must come from a fit with store=... to be continued"):
        nsfa.resume(tmp_path / "s", draws=5)
    with pytest.raises(nsfa.StoreError, match="already holds a run"):
        posterior.save(tmp_path / "s")


def test_existing_paths_are_refused_and_untouched(tmp_path):
    fitted(tmp_path / "s")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    (tmp_path / "file").write_text("x")
    before = sorted(tmp_path.glob("**/*"))
    for name, sentence in (
        ("s", "already holds a run; use nsfa.resume(.*), or another path"),
        ("mine", "must be empty or new. Got a folder with thesis.txt in it; choose another path"),
        ("file", "must be empty or new. Got a file; choose another path"),
        ("file/below", "cannot be made: Not a directory. Choose another place"),
    ):
        with pytest.raises(nsfa.StoreError, match=sentence):
            fitted(tmp_path / name)
    assert sorted(tmp_path.glob("**/*")) == before


def test_bad_settings_make_no_store(tmp_path):
    for changes in ({"chains": 0}, {"n_jobs": 0}, {"draws": 0}, {"noise": "loud"}):
        with pytest.raises(ValueError):
            fitted(tmp_path / "s", **changes)
    with pytest.raises(ValueError, match="n_components must be at most"):
        nsfa.FA(15).fit(X, store=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_folder_left_by_a_kill_during_creation_can_be_used(tmp_path):
    path = tmp_path / "s"
    path.mkdir()
    (path / lock.NAME).touch()
    (path / store.TABLE).write_bytes(b"half")
    (path / f".{store.HEADER}.123.tmp").write_bytes(b"{")
    assert_same_draws(fitted(path), fitted())


def test_what_is_not_a_store_gets_one_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    for path, seen in (
        (tmp_path, "a folder without store.json"),
        (tmp_path / "file", "a file"),
        (tmp_path / "no", "nothing there"),
    ):
        for call in (nsfa.load, nsfa.resume):
            with pytest.raises(nsfa.StoreError, match=f"must be a folder that a fit with store=.* wrote. Got {seen}"):
                call(path)


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (
            {"version": 2, "nsfa": "9.9"},
            "must be a store of version 1 or older. Got version 2, written by nsfa 9.9; update",
        ),
        ({"format": "zarr"}, "must be of format 'nsfa store'. Got 'zarr': another program wrote it"),
        ({"seed": 6}, "store.json is damaged. Put back a copy of it; the draws beside it are untouched"),
    ],
)
def test_newer_foreign_and_changed_headers_are_refused(header, sentence, tmp_path):
    fitted(tmp_path / "s")
    path = tmp_path / "s" / store.HEADER
    path.write_text(json.dumps({**json.loads(path.read_text()), **header}))
    before = {p: p.read_bytes() for p in tmp_path.glob("**/*") if p.is_file()}
    for call in (nsfa.load, nsfa.resume):
        with pytest.raises(nsfa.StoreError, match=sentence):
            call(tmp_path / "s")
    assert {p: p.read_bytes() for p in tmp_path.glob("**/*") if p.is_file()} == before


def test_another_version_of_the_program_warns(tmp_path, monkeypatch):
    fitted(tmp_path / "s")
    monkeypatch.setattr("nsfa.saved.__version__", "77.0")
    with pytest.warns(UserWarning, match="begun by nsfa .* and goes on with 77.0"):
        nsfa.resume(tmp_path / "s", draws=1)


def test_a_second_process_is_refused_and_reading_is_not(tmp_path):
    expected = fitted(tmp_path / "s")
    with lock.locked(tmp_path / "s"):
        code = "import nsfa; from nsfa.draws import lock; lock.PATIENCE = 0\n"
        code += f"nsfa.resume({str(tmp_path / 's')!r}, draws=5)"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        assert "StoreError" in done.stderr and "is in use: another process is writing to it. Wait" in done.stderr
        assert_same_draws(nsfa.load(tmp_path / "s"), expected)
    assert nsfa.resume(tmp_path / "s", draws=5).length.draws == 17


def test_a_second_run_in_one_process_is_refused_too(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 0)
    refusals = []

    def watch(report):
        if not refusals:
            with pytest.raises(nsfa.StoreError, match="is in use") as caught:
                nsfa.resume(tmp_path / "s")
            refusals.append(caught.value)

    model, table = problem("holes")
    model.set_params(draws=800, chains=1).fit(table, store=tmp_path / "s", monitor=watch)
    assert refusals and nsfa.load(tmp_path / "s").finished


def test_a_folder_that_cannot_be_written_gets_one_sentence(tmp_path, monkeypatch):
    fitted(tmp_path / "s")
    denied = os.open

    def refuse(path, flags, *mode):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied")
        return denied(path, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(nsfa.StoreError, match="s must be writable. Got: Permission denied; check its permissions"):
            nsfa.resume(tmp_path / "s", draws=5)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", lambda *a, **k: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
        with pytest.raises(nsfa.StoreError, match="cannot be made: Read-only file system. Choose another place"):
            fitted(tmp_path / "t")
    assert nsfa.load(tmp_path / "s").finished


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_can_be_read(tmp_path):
    fitted(tmp_path / "s")
    (tmp_path / "s").chmod(0o500)
    try:
        assert nsfa.load(tmp_path / "s").finished and nsfa.resume(tmp_path / "s").finished
        (tmp_path / "s" / lock.NAME).chmod(0o400)
        with pytest.raises(nsfa.StoreError, match="must be writable"):
            nsfa.resume(tmp_path / "s", draws=5)
    finally:
        (tmp_path / "s").chmod(0o700)


def test_a_damaged_block_is_named_kept_aside_and_drawn_again(tmp_path):
    expected = fitted(tmp_path / "s")
    block = tmp_path / "s" / "chain-0" / "draws-00000001.npz"
    block.write_bytes(content := block.read_bytes()[:-100])
    with pytest.warns(
        UserWarning, match=r"draws-00000001.npz is missing or damaged: draws of chain 0 after the first 1 are"
    ):
        part = nsfa.load(tmp_path / "s")
    assert not part.finished
    assert_part_of(part, expected)
    assert_same_draws(nsfa.resume(tmp_path / "s"), expected)
    assert block.with_name(block.name + ".damaged").read_bytes() == content
    assert nsfa.load(tmp_path / "s").finished


def test_files_of_another_run_are_named(tmp_path):
    fitted(tmp_path / "s")
    fitted(tmp_path / "t", random_state=6)
    other = tmp_path / "t" / "chain-0" / "draws-00000001.npz"
    (tmp_path / "s" / "chain-0" / "draws-00000001.npz").write_bytes(other.read_bytes())
    with pytest.raises(
        nsfa.StoreError, match="draws-00000001.npz belongs to another run or another place. Move it out"
    ):
        nsfa.load(tmp_path / "s")


def test_checkpoints_follow_the_clock_and_old_states_go(tmp_path, monkeypatch):
    write_always(monkeypatch, 0.02)
    fitted(tmp_path / "s", draws=300, chains=1)
    folder = tmp_path / "s" / "chain-0"
    assert 3 < len(list(folder.glob("draws-*"))) < 300
    assert len(list(folder.glob("state-*"))) == 2


def test_large_draws_do_not_wait_in_memory(tmp_path, monkeypatch):
    from nsfa.draws import log

    monkeypatch.setattr(log, "LARGEST_BLOCK", 600)
    expected = fitted(tmp_path / "s")
    folder = tmp_path / "s" / "chain-0"
    assert 3 < len(list(folder.glob("draws-*"))) < 12 and len(list(folder.glob("state-*"))) == 2
    assert_same_draws(nsfa.load(tmp_path / "s"), expected)
    expected.save(tmp_path / "t")
    assert len(list((tmp_path / "t" / "chain-0").glob("draws-*"))) > 3
    assert_same_draws(nsfa.load(tmp_path / "t"), expected)


def test_states_written_while_draws_are_made_again_are_kept(tmp_path, monkeypatch):
    """A gap in old draws: the states before the newest ones count until the gap is filled."""
    from nsfa.draws import log

    write_always(monkeypatch)
    expected = fitted(tmp_path / "s", chains=1)
    folder = tmp_path / "s" / "chain-0"
    (folder / "draws-00000004.npz").unlink()
    real = log.write_draws

    def failing(run, chain, first, draws):
        if first == 6:
            raise OSError(5, "Input/output error")
        real(run, chain, first, draws)

    (folder / "draws-00000005.npz").unlink()
    (folder / "draws-00000006.npz").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(log, "write_draws", failing)
        with pytest.raises(nsfa.StoreError, match="6 draws of chain 0"):
            nsfa.resume(tmp_path / "s")
    names = sorted(path.name for path in folder.glob("state-*"))
    assert names == [f"state-{n:08d}.npz" for n in (17, 18, 23, 24)]
    assert_same_draws(nsfa.resume(tmp_path / "s"), expected)


def test_an_error_while_writing_stops_the_other_chains_and_their_draws_are_safe(tmp_path, monkeypatch):
    from nsfa.draws import log

    real, once = log.write_draws, threading.Event()

    def failing(run, chain, first, draws):
        if chain == 1 and first:
            once.set()
            raise OSError(5, "Input/output error")
        real(run, chain, first, draws)

    monkeypatch.setattr(log, "write_draws", failing)
    monkeypatch.setattr(store, "EVERY", 0.3)
    data, spec = observe(GAPS), SPECS["nsfa"]
    length = Length(5, 10**6)
    with store.created(tmp_path / "s", data, store.Settings(spec, length, 1, 2)) as run:
        with pytest.raises(
            nsfa.StoreError, match="failed: Input/output error. The run was stopped; 1 draws of chain 1 and"
        ):
            nsfa.runner.sample(data, spec, chains=2, length=length, seed=1, n_jobs=2, workers="threads", store=run)
        assert once.is_set() and run.n_draws(0) > 1 and run.n_draws(1) == 1


def test_a_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
    from nsfa.draws import log

    posterior = fitted()
    monkeypatch.setattr(log, "write_draws", lambda *a: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(nsfa.StoreError, match="No space left on device. Nothing was saved; make room"):
        posterior.save(tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("folder", [".", "chain-1"])
def test_a_lock_is_waited_for(folder, tmp_path):
    """Of the run, and of a chain: its holder may have been killed, and not be gone yet."""
    fitted(tmp_path / "s")
    held, ended = threading.Event(), threading.Event()

    def hold():
        with lock.locked(tmp_path / "s" / folder):
            held.set()
            time.sleep(0.5)
            ended.set()

    assert not lock.is_locked(tmp_path) and not lock.is_locked(tmp_path / "s" / folder)
    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10) and lock.is_locked(tmp_path / "s" / folder)
    assert nsfa.resume(tmp_path / "s", draws=5).length.draws == 17 and ended.is_set()
    holder.join()


def test_counting_draws_leaves_the_arrays_alone(tmp_path, monkeypatch):
    fitted(tmp_path / "s")
    run = store.open_store(tmp_path / "s")
    with monkeypatch.context() as patched:
        patched.setattr(files, "digest", lambda content: pytest.fail("every byte was looked at"))
        patched.setattr(files, "_rebuild", lambda *args: pytest.fail("the arrays were read"))
        assert [run.n_draws(chain) for chain in range(2)] == [12, 12] and run.finished
    # damage elsewhere in the file is not seen by counting, and is by all that goes on from there
    block = run.block(0, 0)
    content = bytearray(block.read_bytes())
    content[-1] ^= 1
    block.write_bytes(content)
    assert run.n_draws(0) == 12 and run.whole_draws(0) == 0 and run.finished and not run.intact
