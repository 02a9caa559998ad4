"""How many: whole numbers that the user gives, and the cores that there are."""

from __future__ import annotations

from typing import Any

from nsfa.model.spec import is_integer


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is an int of at least ``least``."""
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} must be an int >= {least}. Got {value!r}.")


def core_count() -> int:
    """Cores this process may use: less than the machine's where a batch scheduler or a container sets a limit."""
    from joblib import cpu_count

    return int(cpu_count())


def on_cluster(n_jobs: Any) -> bool:
    """Whether work goes to the workers of a Dask cluster."""
    return isinstance(n_jobs, str) and n_jobs == "dask"


def worker_count(n_jobs: Any) -> int:
    """How many chains to run at once: None is one per core, negative counts back from the cores as in joblib."""
    cores = core_count()
    if n_jobs is None:
        return cores
    if not is_integer(n_jobs) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None or a non-zero int. Got {n_jobs!r}.")
    return max(1, cores + 1 + int(n_jobs)) if n_jobs < 0 else int(n_jobs)
