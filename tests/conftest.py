"""Shared fixtures. Seeds are fixed; NSFA_TEST_SEED changes those of the distributional tests."""

from __future__ import annotations

import os
import sys
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


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The directory with the paper's data; tests that need it skip without it."""
    folder = os.environ.get("NSFA_DATA_DIR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("NSFA_DATA_DIR is not set")
    return Path(folder)
