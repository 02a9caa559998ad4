"""Where a chain's samples live and who multiplies them: the one place that knows which backends there are."""

from __future__ import annotations

from typing import Any

from nsfa.data import Observed
from nsfa.kernels import get_kernels
from nsfa.passing import PassingSamples
from nsfa.samples import Samples

BACKENDS = ("auto", "cpu", "gpu")
NEEDS_GPU = (
    "backend='gpu' needs an NVIDIA GPU and CuPy. Got {}; install nsfa[gpu] on a machine with one, or use backend='cpu'."
)


def check_backend(backend: Any, tf32: Any) -> None:
    """Raise ValueError with one sentence unless this is a backend, and ``tf32`` one of its settings."""
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise ValueError(f"backend must be 'auto', 'cpu' or 'gpu'. Got {backend!r}.")
    if not isinstance(tf32, bool):
        raise ValueError(f"tf32 must be True or False. Got {tf32!r}.")
    if tf32 and backend == "cpu":
        raise ValueError("tf32=True is for GPUs. Got it with backend='cpu'; leave it out, or use backend='gpu'.")


def resolve_backend(backend: str, data: Observed) -> str:
    """What "auto" is for this table on this machine, any other as it is; ValueError where there is no such machine."""
    if backend == "gpu" and data.elsewhere:
        raise ValueError("Tables in blocks need backend='cpu' or 'auto'. Got 'gpu'; leave it out.")
    if backend == "gpu":
        raise ValueError(NEEDS_GPU.format("a version of nsfa without it"))
    return "cpu" if backend == "auto" or data.elsewhere else backend


def open_samples(data: Observed, backend: str = "cpu", tf32: bool = False, threads: int = 1) -> Samples:
    """The samples of a chain over ``data``, on a backend that ``resolve_backend`` gave.

    Beside these it takes the names of kernels, "numba" and "reference": what tests and earlier stores call the CPU.
    """
    if data.elsewhere:
        return PassingSamples(data.values.table, get_kernels("numba", threads))
    return Samples(data, get_kernels("numba" if backend == "cpu" else backend, threads))
