"""Chains on a device: what they draw is what the CPU draws from the same random numbers."""

import copy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import nsfa.kernels.device as kernels_device
from nsfa import SFA, backends, block_devices
from nsfa.arrays import to_host
from nsfa.backends import resolve_backend
from nsfa.chain import Chain, chain_generator
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.gpu_blocks import DenseBlocks, StreamedBlocks
from nsfa.gpu_samples import DeviceState, DeviceTable, gpu_samples
from nsfa.kernels import Rows
from nsfa.kernels.device import GpuError
from nsfa.kernels.gpu import GpuKernels
from nsfa.length import Length
from nsfa.model import Priors, preset
from nsfa.moves.info import Info
from nsfa.runner import sample
from nsfa.state import State

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.gpu import on_cpu


def table(shape=(30, 40), components=3, dtype="float64", sparse=False):
    X = make_sparse_factors(*shape, n_components=components, density=0.3, random_state=0).X
    return observe(sp.csr_array(np.where(np.abs(X) > 0.3, X, 0.0)) if sparse else X, dtype=dtype)


SETTINGS = {
    "nsfa": {},
    "sfa": {"n_components": 3},
    "sfa, shared": {"n_components": 3, "precision": "shared"},
    "nsfa, absolute": {"priors": Priors.learned()},
    "nsfa, isotropic": {"noise": "isotropic"},
    "nsfa, shared": {"noise": "shared"},
    "afa": {"n_components": 3},
    "fa": {"n_components": 3},
    "nsfa, known": {},
    "sfa, known": {"n_components": 3},
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_chain_on_a_device_draws_what_the_cpu_does(name, sparse, host_device):
    data, spec = table(sparse=sparse), preset(name.split(",")[0], **SETTINGS[name])
    start = 4 if spec.n_components is None else 0
    kinds = on_cpu(data), gpu_samples(data, device=host_device)
    known = np.random.default_rng(1).normal(0, 2, (40, 2)) if "known" in name else None
    cpu, gpu = (Chain(samples, spec, chain_generator(3, 0), start, tune=20, known=known) for samples in kinds)
    for _ in range(12):
        cpu.sweep()
        gpu.sweep()
    state = gpu.state.on_host()
    state.check_invariants()
    assert cpu.state.n_factors == state.n_factors > 0
    np.testing.assert_array_equal(cpu.state.active, state.active)
    np.testing.assert_allclose(cpu.state.loadings, state.loadings, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(cpu.state.noise_precision, state.noise_precision, rtol=1e-6)
    np.testing.assert_allclose(sum(cpu.log_density()), sum(gpu.log_density()), rtol=1e-9)
    assert cpu.samples.log_evidence == pytest.approx(gpu.samples.log_evidence, rel=1e-9)


@pytest.mark.parametrize("model", ["nsfa", "sfa"])
def test_a_restored_chain_draws_the_same_bits(model, host_device):
    data, spec = table(), preset(model, **({"n_components": 3} if model == "sfa" else {}))
    start = 4 if model == "nsfa" else 0
    one, other = (
        Chain(gpu_samples(data, device=host_device), spec, chain_generator(seed, 0), start, tune=20) for seed in (0, 5)
    )
    for _ in range(6):
        one.sweep()
    other.restore(copy.deepcopy(one.snapshot()))
    for _ in range(3):
        one.sweep()
        other.sweep()
    a, b = one.state.on_host(), other.state.on_host()
    np.testing.assert_array_equal(a.loadings, b.loadings)
    np.testing.assert_array_equal(a.noise_precision, b.noise_precision)
    assert one.draw(Info(0, 0), 0.0).scalars == other.draw(Info(0, 0), 0.0).scalars


def test_tables_that_do_not_fit_pass_through_in_blocks(host_device, monkeypatch):
    data = table((70, 25))
    kernels = GpuKernels(host_device)
    whole = DeviceTable.of(data, kernels)
    # room for two blocks of 32 samples
    monkeypatch.setattr(host_device, "free_bytes", int(2.1 * 32 * 25 * 8 / 0.75))
    passing = DeviceTable.of(data, kernels)
    assert type(whole._blocks) is DenseBlocks and type(passing._blocks) is StreamedBlocks
    assert passing._blocks.width == 32
    rng = np.random.default_rng(0)
    parts = (
        host_device.put(rng.standard_normal((25, 3))),
        host_device.put(rng.gamma(2, 1, 25)),
        host_device.put(rng.random(25)),
    )
    a, b = (one.pass_scores(*parts, 7) for one in (whole, passing))
    for name in ("gram", "cross", "sums", "gain"):
        np.testing.assert_allclose(to_host(getattr(a, name)), to_host(getattr(b, name)), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(to_host(whole.second(parts[0])), to_host(passing.second(parts[0])), rtol=1e-10)
    passing.release()
    assert not host_device._pinned


def test_a_device_without_room_for_two_samples_says_so(host_device, monkeypatch):
    monkeypatch.setattr(host_device, "free_bytes", 100)
    with pytest.raises(GpuError, match=r"must have room for .* GB, two samples .* use backend='cpu'"):
        gpu_samples(table(), device=host_device)


def test_memory_that_may_not_be_pinned_is_one_sentence():
    class Refused(Exception):
        """CuPy's."""

    def refuse(*_):
        raise Refused("cudaErrorMemoryAllocation: out of memory")

    runtime = SimpleNamespace(hostRegister=refuse, CUDARuntimeError=Refused)
    device = object.__new__(kernels_device.CupyDevice)
    device._cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    with pytest.raises(GpuError, match=r"must pin 0.80 GB .* not \(cudaErrorMemory.*\); .* or backend='cpu'.$"):
        device.pinned(np.broadcast_to(np.zeros(1), (100_000, 1000)))


class OutOfMemoryError(MemoryError):
    """CuPy's."""


@pytest.fixture
def fake_cupy(monkeypatch):
    """What is asked of CuPy where memory runs out; a table that is released leaves more of it."""
    left = [1_000_000_000]
    for kind in (DeviceTable, StreamedBlocks):

        def released(it, release=kind.release):
            left.append(7_000_000_000)
            release(it)

        monkeypatch.setattr(kind, "release", released)
    cuda = SimpleNamespace(
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        runtime=SimpleNamespace(memGetInfo=lambda: (left[-1], 8_000_000_000)),
    )
    pool = SimpleNamespace(free_bytes=lambda: 500_000_000)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: pool))


class Full:
    """Work on the device that needs an array of CuPy's own for which there is no room."""

    def __init__(self, after):
        self.left = after

    def __call__(self, *_, **__):
        self.left -= 1
        if self.left < 0:
            raise OutOfMemoryError("Out of memory allocating 2,250,000,000 bytes (allocated so far: 512 bytes).")


@pytest.mark.parametrize("when", ["start", "sweep", "send"])
def test_memory_that_runs_out_in_cupy_s_own_arrays_is_one_sentence(when, host_device, fake_cupy, monkeypatch):
    full, passes = Full({"start": 0, "sweep": 3, "send": 0}[when]), DeviceTable.pass_scores
    monkeypatch.setattr(DeviceTable, "pass_scores", lambda *given: (full(), passes(*given))[1])
    if when == "send":
        monkeypatch.setattr(host_device, "sparse", full)
    monkeypatch.setattr(backends, "gpu_samples", lambda data, *_: gpu_samples(data, device=host_device))
    data = table(sparse=when == "send")
    how = {"chains": 1, "length": Length(20, 1, 1), "seed": 0, "n_jobs": 1}
    monkeypatch.setattr(backends, "gpu_missing", lambda: None)
    with pytest.raises(GpuError, match=r"must have room for 2.25 GB more. It has 1.50 GB left; .* backend='cpu'"):
        sample(data, preset("nsfa"), backend="gpu", **how)
    assert full.left == -1


@pytest.mark.parametrize("stays", [True, False])
def test_a_worker_s_sentence_counts_a_table_that_passes_through(stays, host_device, fake_cupy, monkeypatch):
    monkeypatch.setattr(block_devices, "kernels_here", lambda tf32: GpuKernels(host_device))
    if not stays:
        monkeypatch.setattr(host_device, "free_bytes", host_device.total_bytes // 5)
    unit, full = block_devices.UnitOnDevice(table(), 0, False), Full(0)
    monkeypatch.setattr(DeviceTable, "second", lambda *_: full())
    with pytest.raises(GpuError, match=r"must have room for 2.25 GB more. It has 1.50 GB left; "):
        unit.second(np.ones((40, 2)))
    assert (unit._sent is not None) == stays


def test_a_table_whose_sums_find_no_room_leaves_nothing_pinned(host_device, fake_cupy, monkeypatch):
    # as where it passes through in blocks
    monkeypatch.setattr(host_device, "free_bytes", int(2.1 * 32 * 25 * 8 / 0.75))
    pinned, pin, full = [], host_device.pinned, Full(0)
    monkeypatch.setattr(host_device, "pinned", lambda array: (pinned.append(array), pin(array))[1])
    monkeypatch.setattr(host_device, "put_all", full)
    with (
        pytest.raises(GpuError, match=r"must have room for 2.25 GB more. It has 1.50 GB left; "),
        kernels_device.enough_memory(),
    ):
        DeviceTable.of(table((70, 25)), GpuKernels(host_device))
    assert len(pinned) == 1 and not host_device._pinned and full.left == -1


def test_memory_that_this_process_lacks_is_not_the_gpu_s(fake_cupy):
    with pytest.raises(MemoryError, match="^here$"), kernels_device.enough_memory():
        raise MemoryError("here")


def test_very_many_factors_have_a_warp_a_block(host_device, monkeypatch):
    """Work space of the rows is shared memory, of which there is little."""
    launched = []
    monkeypatch.setattr(host_device, "launch", lambda name, blocks, threads, *_, **__: launched.append(threads))
    rows = Rows(
        *(host_device.zeros(shape) for shape in ((2, 2000), (2000, 2000))), *[host_device.zeros(2)] * 2, None,
        host_device.zeros(2), np.ones((1, 2000)), False, np.zeros((2, 0)),
    )  # fmt: skip
    few = rows._replace(cross=host_device.zeros((2, 30)), gram=np.zeros((30, 30)), loading_precision=np.ones((1, 30)))
    for one in (few, rows._replace(gram=np.zeros((2000, 2000)))):
        width = one.cross.shape[1]
        GpuKernels(host_device).sweep_independent(
            host_device.zeros((2, width)), None, one, np.zeros((1, width)), np.zeros(width, np.int64), 1
        )
    assert launched == [128, 32]


SPECS = {
    "missing": preset("nsfa"),
    "another model": preset("bfrm", n_components=2),
    "'collapsed'": preset("nsfa", sweep="collapsed"),
}


@pytest.mark.parametrize("words", ["missing", "another model", "'collapsed'"])
def test_what_cannot_be_on_a_gpu_is_said_in_one_sentence(words):
    X = make_sparse_factors(12, 6, 2, missing=0.2 if words == "missing" else 0.0, random_state=0).X
    with pytest.raises(ValueError, match=words) as caught:
        resolve_backend("gpu", observe(X), SPECS[words])
    assert "backend='cpu'" in str(caught.value)


def test_where_there_is_no_gpu_that_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    kernels_device._cupy.cache_clear()
    words = r"backend='gpu' needs an NVIDIA GPU and CuPy. Got no CuPy; install nsfa\[gpu\]"
    with pytest.raises(ValueError, match=words):
        resolve_backend("gpu", table(), preset("nsfa"))
    with pytest.raises(ValueError, match=words):
        SFA(2, chains=1, tune=1, draws=1, backend="gpu").fit(np.random.default_rng(0).standard_normal((9, 4)))
    assert resolve_backend("auto", table(), preset("nsfa")) == "cpu"
    with pytest.warns(UserWarning, match="^tf32 is for GPUs and has no effect: these chains run on the CPU.$"):
        SFA(2, chains=1, tune=1, draws=1, preview=True, tf32=True).fit(np.random.default_rng(0).random((9, 4)))
    kernels_device._cupy.cache_clear()


def test_auto_takes_a_gpu_where_it_gains(monkeypatch):
    monkeypatch.setattr(backends, "gpu_missing", lambda: None)
    data = table()
    assert resolve_backend("auto", data, preset("nsfa")) == "cpu"
    monkeypatch.setattr(backends, "WORTH_GPU", 1000)
    assert resolve_backend("auto", data, preset("nsfa")) == "cpu"
    assert resolve_backend("auto", table(sparse=True), preset("nsfa")) == "gpu"
    monkeypatch.setattr(backends, "WORTH_GPU_SHORT", 1000)
    assert resolve_backend("auto", data, preset("nsfa")) == "gpu"
    assert resolve_backend("auto", data, preset("bfrm", n_components=2)) == "cpu"


def test_a_fit_on_a_device_is_one_like_any_other(host_device, monkeypatch):
    monkeypatch.setattr(backends, "gpu_missing", lambda: None)
    monkeypatch.setattr(backends, "gpu_samples", lambda data, *_: gpu_samples(data, device=host_device))
    X = make_sparse_factors(30, 20, 2, density=0.4, random_state=0).X
    model = SFA(2, chains=2, tune=10, draws=5, thin=1, random_state=0, backend="gpu", preview=False)
    with pytest.warns(ConvergenceWarning):
        model.fit(X)
    assert model.backend_ == "gpu" and len(model.posterior_.draws) == 10
    unused = {move.name: move.when for move in model.posterior_.diagnostics().moves if "not used" in move.when}
    given = "not used, the number of factors is given"
    there = "not used, the table is on a device"
    assert unused == {"marginal": there, "column": there, "doublet": given, "module": given}
    assert model.transform(X).shape == (30, model.n_components_)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"n_jobs": "dask"}, "^n_jobs='dask' has no effect: .* this machine's GPU; use backend='cpu' for tasks.$"),
        ({"workers": "processes"}, "^workers='processes' has no effect: .*; use backend='cpu' for processes.$"),
    ],
)
def test_chains_that_take_turns_against_the_caller_s_wish_say_so(wish, words, host_device, monkeypatch):
    monkeypatch.setattr(backends, "gpu_missing", lambda: None)
    monkeypatch.setattr(backends, "gpu_samples", lambda data, *_: gpu_samples(data, device=host_device))
    with pytest.warns(UserWarning, match=words) as said:
        found = sample(table(), preset("nsfa"), backend="gpu", chains=2, length=Length(2, 2, 1), seed=0, **wish)
    assert len(said) == 1 and [len(one.draws) for one in found] == [2, 2]


def test_factors_come_and_go_where_there_are_none(host_device):
    """Products of empty matrices, which a device's library refuses."""
    X = np.random.default_rng(0).standard_normal((30, 40))
    data, spec = observe(X), preset("nsfa", concentration=0.5)
    kinds = on_cpu(data), gpu_samples(data, device=host_device)
    cpu, gpu = (Chain(samples, spec, chain_generator(3, 0)) for samples in kinds)
    numbers = []
    for _ in range(12):
        cpu.sweep()
        gpu.sweep()
        numbers.append(gpu.state.n_factors)
        assert cpu.state.n_factors == numbers[-1]
    assert 0 in numbers and max(numbers) > 0


@pytest.mark.parametrize("relative", [False, True])
def test_squares_turn_with_the_loadings(relative, host_device, rng):
    """What products have shown is known until somebody gets hold of the loadings."""
    G = np.where(rng.random((30, 4)) < 0.5, rng.standard_normal((30, 4)), 0.0)
    ones, noise = np.ones(4), rng.gamma(2, 1, 30)
    state = State.from_arrays(G, G != 0, noise_precision=noise, loading_precision=ones, relative=relative)
    there, shear, scale = DeviceState.of(state, GpuKernels(host_device)), np.eye(4), rng.gamma(4, 1, 4)
    shear[1, 2] = -0.7
    launched, launch = [], host_device.launch
    host_device.launch = lambda name, *given, **how: (launched.append(name), launch(name, *given, **how))[1]
    np.testing.assert_allclose(there.products[0], state.products[0], rtol=1e-12)
    for by in (shear, scale):
        for one in (state, there):
            one.turn_loadings(by)
        np.testing.assert_allclose(there.loading_squares, state.loading_squares, rtol=1e-12)
    assert "column_squares" not in launched
    for one in (state, there):
        one.loadings[:] *= 2.0
    np.testing.assert_allclose(there.loading_squares, state.loading_squares, rtol=1e-12)
    assert launched[-1] == "column_squares"
