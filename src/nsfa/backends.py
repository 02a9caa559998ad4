"""Where a chain's samples live and who multiplies them: the one place that knows which backends there are."""

from __future__ import annotations

from typing import Any

from nsfa.data import Observed
from nsfa.gpu_samples import gpu_samples
from nsfa.kernels import get_kernels
from nsfa.kernels.device import gpu_missing
from nsfa.latent_samples import abilities_of, samples_of
from nsfa.model.spec import ModelSpec
from nsfa.passing import PassingSamples, passing_abilities
from nsfa.samples import Samples
from nsfa.schedule import PARALLEL_FROM

BACKENDS = ("auto", "cpu", "gpu")
# Entries from which a GPU gains more than its start costs.
WORTH_GPU, WORTH_GPU_SHORT = 1_000_000, 50_000_000


def check_backend(backend: Any, tf32: Any) -> None:
    """Raise ValueError with one sentence unless this is a backend, and ``tf32`` one of its settings."""
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise ValueError(f"backend must be 'auto', 'cpu' or 'gpu'. Got {backend!r}.")
    if not isinstance(tf32, bool):
        raise ValueError(f"tf32 must be True or False. Got {tf32!r}.")
    if tf32 and backend == "cpu":
        raise ValueError("tf32=True is for GPUs. Got it with backend='cpu'; leave it out, or use backend='gpu'.")


def resolve_backend(backend: str, data: Observed, spec: ModelSpec) -> str:
    """What "auto" is for this table on this machine, any other as it is; ValueError where there is no such machine.

    A GPU is taken where there is one, the table is large enough to gain, and the model and the table can be there;
    those of workers only where they are asked for.
    """
    if data.elsewhere and backend == "auto":
        return "cpu"
    if backend == "gpu":
        why = data.values.table.no_device() if data.elsewhere else no_gpu_for(data, spec) or gpu_missing()
        if why is not None:
            raise ValueError(why)
    if backend != "auto":
        return backend
    # dense tables have moves on the CPU that a GPU does without: many in short ones, where only very large tables are
    # worth that; in long ones births of two and of many features at once, which its speed makes up for
    long, entries = data.offset is not None or data.shape[0] >= PARALLEL_FROM, data.shape[0] * data.shape[1]
    gains = entries >= (WORTH_GPU if long else WORTH_GPU_SHORT)
    return "gpu" if gains and no_gpu_for(data, spec) is None and gpu_missing() is None else "cpu"


def no_gpu_for(data: Observed, spec: ModelSpec) -> str | None:
    """Why a table or a model cannot be on a GPU, or None."""
    if spec.latent:
        return f"backend='gpu' is for Gaussian noise and likelihood. Got {spec.latent_setting}; use backend='cpu'."
    if data.offset is not None and data.values.nnz >= 2**31:
        return f"backend='gpu' takes sparse tables of up to 2³¹ entries. Got {data.values.nnz:,}; use backend='cpu'."
    if not data.complete:
        return "backend='gpu' needs a table without missing entries. Got some; use backend='cpu'."
    if spec.scores != "gaussian" or spec.precision == "element" or spec.pattern == "two-level":
        return "backend='gpu' is for NSFA, SFA, FA and AFA. Got another model; use backend='cpu'."
    if spec.sweep == "collapsed":
        return "backend='gpu' sweeps features in parallel. Got sweep='collapsed'; use 'auto', or backend='cpu'."
    return None


def abilities_on(backend: str, data: Observed, spec: ModelSpec) -> frozenset[str]:
    """What the samples of a chain on a backend can do: see ``Samples.can``."""
    on_device = backend == "gpu" and not data.elsewhere
    return passing_abilities(at_once=True) if on_device else abilities_of(data, spec)


def open_samples(
    data: Observed, spec: ModelSpec, backend: str = "cpu", tf32: bool = False, threads: int = 1
) -> Samples:
    """The samples of a chain over ``data``, as the model sees them, on a backend that ``resolve_backend`` gave.

    Beside these it takes the names of kernels, "numba" and "reference": what tests and earlier stores call the CPU.
    """
    if data.elsewhere:
        table = data.values.table
        return PassingSamples(table.on_devices(tf32) if backend == "gpu" else table, get_kernels("numba", threads))
    if backend == "gpu":
        return gpu_samples(data, tf32, threads)
    return samples_of(data, spec, get_kernels("numba" if backend == "cpu" else backend, threads))
