"""Shared fixtures. Seeds are fixed; NSFA_TEST_SEED changes those of the distributional tests."""

from __future__ import annotations

import itertools
import os
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (its own BLAS must be there to be limited)
from threadpoolctl import threadpool_limits

# two test processes with a pool of BLAS threads each would mostly wait for each other
threadpool_limits(1)

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(12345)


# Where a size decides which code runs: module and name, with a size that every table of the tests exceeds.
THRESHOLDS = {
    "nsfa.kernels.numba_cpu._SMALL_SCORES": 0,
    "nsfa.kernels.numba_cpu._WORTH_A_THREAD": 1,
    "nsfa.kernels.products._WORK_PER_BLOCK": 20,
    "nsfa.moves.loadings._LIST_ALL": 0,
    "nsfa.moves.simplify.ROTATED_ON": 5,
}


@pytest.fixture(params=["small", "large"])
def either_size(request, monkeypatch) -> None:
    """Run a test on both sides of every threshold: with the code for small tables, and with that for large ones."""
    if request.param == "large":
        for name, size in THRESHOLDS.items():
            monkeypatch.setattr(name, size)


@pytest.fixture(autouse=True)
def seeds_that_come_again(request, monkeypatch) -> None:
    """Fits without a seed of their own draw the same in every run of a test, and differ within it."""
    test, calls = zlib.crc32(request.node.nodeid.encode()), itertools.count()

    def seed() -> int:
        return int(np.random.SeedSequence([test, next(calls)]).generate_state(1)[0])

    monkeypatch.setattr("nsfa.runner.fresh_seed", seed)
    monkeypatch.setattr("nsfa.estimators.fresh_seed", seed)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The directory with the paper's data; tests that need it skip without it."""
    folder = os.environ.get("NSFA_DATA_DIR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("NSFA_DATA_DIR is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def compiled_kernels(tmp_path_factory) -> Path:
    """Where the CUDA kernels' libraries for the host are, one folder for all processes of a test run."""
    from cuda_host import compiler

    if compiler() is None:
        pytest.skip("CUDA kernels run on the host under Linux with a C++ compiler (g++, clang++ or $CXX)")
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder


@pytest.fixture
def host_device(compiled_kernels):
    """A device made of NumPy and a C++ compiler in place of a GPU."""
    from cuda_host import HostDevice

    return HostDevice(compiled_kernels)
