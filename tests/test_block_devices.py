"""A table in blocks whose passes the workers' devices do: what the workers themselves draw, but for rounding."""

from weakref import WeakSet

import dask.array as da
import distributed
import numpy as np
import pytest
import scipy.sparse as sp

import nsfa
from nsfa import SFA, block_devices
from nsfa.backends import open_samples, resolve_backend
from nsfa.blocks import Named, observe_blocks
from nsfa.chain import Chain, chain_generator
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import dask_blocks, device
from nsfa.kernels.gpu import GpuKernels
from nsfa.model import preset

N = 9_000
SHORT = {"chains": 2, "tune": 12, "draws": 6, "thin": 1, "random_state": 0, "preview": True}


@pytest.fixture(scope="module")
def table():
    return make_sparse_factors(N, 30, 3, density=0.4, snr=5, random_state=0).X


def local(n_workers):
    return distributed.LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address=":0")


@pytest.fixture(scope="module")
def client():
    with local(2) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def with_devices(host_device, monkeypatch):
    """Workers with a device made of NumPy and a C++ compiler."""
    monkeypatch.setattr(device, "gpu_missing", lambda: None)
    monkeypatch.setattr(block_devices, "kernels_here", lambda tf32: GpuKernels(host_device))
    return host_device


def swept(data, backend, sweeps=8):
    spec = preset("nsfa")
    chain = Chain(open_samples(data, spec, backend), spec, chain_generator(1, 0), start=5, tune=40)
    for _ in range(sweeps):
        chain.sweep()
    return chain


def same(a, b):
    np.testing.assert_array_equal(a.state.loadings, b.state.loadings)
    assert a.log_density() == b.log_density() and a.samples.log_evidence == b.samples.log_evidence


@pytest.mark.parametrize("kind", ["dense", "sparse", "single"])
def test_devices_draw_what_their_workers_do(kind, table, client, with_devices):
    blocks = da.from_array(np.where(np.abs(table) > 1, table, 0.0) if kind == "sparse" else table, chunks=(4000, 30))
    blocks = blocks.map_blocks(sp.csr_array) if kind == "sparse" else blocks
    data = observe_blocks(client, Named(blocks), dtype="float32" if kind == "single" else "float64")
    launched, launch = [], with_devices.launch
    with_devices.launch = lambda name, *rest, **more: (launched.append(name), launch(name, *rest, **more))[1]
    cpu, gpu = (swept(data, backend, 3 if kind == "single" else 8) for backend in ("cpu", "gpu"))
    assert {"add_normals", "convert_float" if kind == "single" else "convert_double"} <= set(launched)
    np.testing.assert_array_equal(cpu.state.active, gpu.state.active)
    tolerance = {"rtol": 1e-3, "atol": 1e-4} if kind == "single" else {"rtol": 1e-6, "atol": 1e-8}
    np.testing.assert_allclose(cpu.state.loadings, gpu.state.loadings, **tolerance)
    assert gpu.samples.log_evidence == pytest.approx(cpu.samples.log_evidence, rel=1e-6)


def test_draws_depend_neither_on_workers_nor_on_blocks_nor_on_room(table, client, with_devices, monkeypatch):
    kept = observe_blocks(client, Named(da.from_array(table, chunks=(3000, 30))))
    first = swept(kept, "gpu")
    with local(1) as cluster, distributed.Client(cluster, set_as_default=False) as one:
        same(swept(observe_blocks(one, Named(da.from_array(table, chunks=(N, 30)))), "gpu"), first)
    sent, put = [], with_devices.padded
    monkeypatch.setattr(
        with_devices, "padded", lambda rows, columns, dtype: (sent.append(columns), put(rows, columns, dtype))[1]
    )
    same(swept(kept, "gpu"), first)
    assert 4096 not in sent, "units stay on the device"
    # less than what must be left over
    monkeypatch.setattr(with_devices, "free_bytes", with_devices.total_bytes // 5)
    fresh = observe_blocks(client, Named(da.from_array(table, chunks=(5000, 30))))
    same(swept(fresh, "gpu"), first)
    assert sent.count(4096) > 8
    monkeypatch.setattr(dask_blocks, "memory", lambda client: 1.0)
    same(swept(observe_blocks(client, Named(da.from_array(table, chunks=(5000, 30)))), "gpu"), first)


def test_an_estimator_s_draws_and_a_run_that_goes_on(table, client, with_devices, tmp_path):
    blocks = da.from_array(table, chunks=(4000, 30))
    model = SFA(3, backend="gpu", **SHORT).fit(blocks, store=tmp_path / "draws")
    assert model.backend_ == "gpu"
    cpu = SFA(3, **SHORT).fit(blocks)
    assert cpu.backend_ == "cpu"
    np.testing.assert_allclose(model.components_, cpu.components_, rtol=1e-5, atol=1e-7)
    again = nsfa.resume(tmp_path / "draws", draws=2, X=blocks)
    assert again.backend_ == "gpu" and len(again.draws) == len(model.posterior_.draws) + 4


def test_a_closed_table_leaves_the_devices(table, client, with_devices, monkeypatch):
    """At once: workers forget their pieces some time later. A table that stays is sent again."""
    blocks, trimmed = da.from_array(table, chunks=(4000, 30)), []
    monkeypatch.setattr(with_devices, "trim", lambda: trimmed.append([unit._sent for unit in units]))
    one, other, cpu = (observe_blocks(client, Named(blocks)) for _ in range(3))
    monkeypatch.setattr(block_devices, "_units", units := WeakSet())
    chain = swept(one, "gpu", 1)
    swept(other, "gpu", 1)
    swept(cpu, "cpu", 1)
    cpu.values.table.close()
    assert len(units) == 6 and all(unit._sent is not None for unit in units) and not trimmed
    other.values.table.close()
    assert trimmed and not any(filter(None, trimmed[0]))
    chain.sweep()
    same(chain, swept(one, "gpu", 2))


def test_a_table_is_closed_where_its_workers_are_lost(table, with_devices):
    with local(1) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        data = observe_blocks(client, Named(da.from_array(table, chunks=(4000, 30))))
        swept(data, "gpu", 1)
    data.values.table.close()


def test_every_worker_needs_a_device(table, client):
    data = observe_blocks(client, Named(da.from_array(table, chunks=(4000, 30))))
    assert resolve_backend("auto", data, preset("nsfa")) == "cpu"
    with pytest.raises(
        ValueError, match="^On the worker .*: backend='gpu' needs an NVIDIA GPU and CuPy.* or use backend='cpu'"
    ):
        resolve_backend("gpu", data, preset("nsfa"))
