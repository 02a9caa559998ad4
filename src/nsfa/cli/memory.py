"""Will it fit? An estimate of the memory a run needs, beside what there is."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

from nsfa.model.presets import PRESETS

GB = 1e9
# the interpreter with its libraries and compiled code, per process
_PROCESS = 0.2e9
# active share of the loadings of sparse models; real tables have less
_DENSITY = 0.3
# bytes per sample and draw that outliers' shares take
_PER_SAMPLE = 24


def guess_factors(n_samples: int, n_features: int, n_components: int | None) -> int:
    """A generous guess at the number of factors: tables rarely support more than a few times √N."""
    return n_components or min(n_samples, n_features, 10 + round(4 * sqrt(n_samples)))


def guess_draw_bytes(
    n_features: int, n_factors: int, model: str = "nsfa", n_samples: int = 0, latent: bool = False
) -> float:
    """Bytes of one kept draw: a bit per loading, the active ones, and a noise precision per feature.

    Clustered scores are kept, too, and where values are drawn (``latent``) scores and what else samples have.
    """
    from nsfa.draw import HUGE, LARGE

    active = n_features * n_factors * (1.0 if PRESETS[model].pattern == "dense" else _DENSITY)
    each = 4 if active <= LARGE else 2 if active <= HUGE else 1
    scores = 4 * n_samples * n_factors if latent or PRESETS[model].scores == "dirichlet" else 0
    scores += _PER_SAMPLE * n_samples if latent else 0
    return n_features * n_factors / 8 + active * each + 8 * n_features + scores


def table_bytes(shape: tuple[int, int], single: bool = False, stored: int | None = None) -> float:
    """Bytes of a table in memory: in ``single`` precision or double, or sparse with so many ``stored`` entries."""
    each = 4.0 if single else 8.0
    return each * shape[0] * shape[1] if stored is None else (each + 4.0) * stored


def estimate(
    shape: tuple[int, int],
    *,
    chains: int,
    draws: int,
    processes: int,
    model: str,
    n_components: int | None,
    single: bool = False,
    stored: int | None = None,
    latent: bool = False,
) -> float:
    """Bytes a run needs at its height, for a table of ``shape`` (samples, features).

    ``single`` precision takes half of a table's room; a sparse one has ``stored`` entries, each with its place.
    """
    from nsfa.samples import SMALL
    from nsfa.schedule import PARALLEL_FROM

    n_samples, n_features = shape
    n_factors = guess_factors(n_samples, n_features, n_components)
    given, table = table_bytes(shape, stored=stored), table_bytes(shape, single, stored)
    # per chain at work: the table, and where features are gone through one by one a copy and residuals in double
    # precision; loadings and scores in several forms
    by_row = stored is None and (n_features < PARALLEL_FROM or n_samples * n_features <= SMALL)
    working = table + 2 * given * by_row + 8.0 * n_factors * 6 * (n_features + n_samples)
    kept = chains * draws * guess_draw_bytes(n_features, n_factors, model, n_samples, latent)
    # the summary walks over the draws with a handful of dense (D, K) tables and a sample of draws for intervals
    summary = 8.0 * n_features * n_factors * 10 + min(200e6, 8.0 * n_features * n_factors * chains * draws)
    return _PROCESS * (processes + 1) + given + table + max(processes * working + kept, kept + summary)


def available() -> float | None:
    """Bytes that can be had: of the machine, and of the container's limit; None where the system does not say."""
    found = [_machine(), _container("memory.max", "memory.current", "/sys/fs/cgroup"),
             _container("memory.limit_in_bytes", "memory.usage_in_bytes", "/sys/fs/cgroup/memory")]  # fmt: skip
    known = [value for value in found if value is not None]
    return min(known) if known else None


def _machine() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024.0 * int(sizes[0]) if sizes else None


def _container(limit: str, used: str, folder: str) -> float | None:
    try:
        return float(int((Path(folder) / limit).read_text()) - int((Path(folder) / used).read_text()))
    except (OSError, ValueError):  # no container, or "max": no limit
        return None


def check(needed: float) -> None:
    """Raise ValueError, with the numbers and what to change, if a run will not fit."""
    there = available()
    if there is not None and needed > there:
        raise ValueError(
            f"This run needs about {needed / GB:.1f} GB of memory, {there / GB:.1f} GB are available: use --top-genes, "
            "fewer --draws (with a larger --thin as long a run), --chains or --jobs; nsfa fit --dask leaves h5ad and "
            "zarr files in blocks on workers; --ignore-memory starts it anyway."
        )


def check_file(path: Path) -> None:
    """Raise ValueError if a file that can be left in blocks is larger than the memory that it would be read into."""
    there = available()
    if path.suffix == ".h5ad" and path.is_file() and there is not None and path.stat().st_size > there:
        raise ValueError(
            f"{path.name} has {path.stat().st_size / GB:.1f} GB, and {there / GB:.1f} GB of memory are available: "
            "--dask leaves it in blocks on workers; --ignore-memory reads it anyway."
        )
