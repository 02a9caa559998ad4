"""One experiment from start to end: plan, tasks, figures, claims."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, cast

from nsfa import __version__
from nsfa.atomic import replacing
from nsfa.experiments.claims import Finding, judge
from nsfa.tasks import Ledger, Step, Task, run_tasks

NAMES = ("ibp", "synthetic", "convergence", "ecoli", "breast", "prostate")
NUMBERS, SETTINGS, CLAIMS = "numbers.csv", "settings.json", "claims.json"
PACKAGES = ("nsfa", "numpy", "scipy", "numba", "scikit-learn", "pandas", "matplotlib", "mofapy2")


class Experiment(Protocol):
    """What the module of an experiment has."""

    DATA: tuple[str, ...]

    def plan(self, quick: bool) -> list[Task]:
        """The tasks, in the order of the figures, those for which a package is missing included."""

    def figures(self, frame: Any, quick: bool) -> dict[str, Any]:
        """Matplotlib figures of the numbers, by file name."""

    def findings(self, frame: Any, quick: bool) -> Iterable[Finding]:
        """What the numbers say about the paper's claims."""


def load(name: str) -> Experiment:
    """The module of the named experiment."""
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}. Got {name!r}.")
    return cast(Experiment, importlib.import_module(f"nsfa.experiments.{name}"))


def run(
    name: str,
    out: str | Path,
    quick: bool = False,
    progress: Callable[[Step], Any] | None = None,
    n_jobs: int | str | None = None,
) -> Path:
    """Run one experiment, or go on with an interrupted one, and return the directory of its files.

    Parameters
    ----------
    name : one of ``NAMES``
    out : the directory to write to, new or with an unfinished run of the same experiment
    quick : a small version, a minute or two, that shows that everything works
    progress : called with a ``tasks.Step`` whenever a task is done
    n_jobs : tasks at once; None is one per core, "dask" makes each one of the Dask client in use. The numbers do not
        depend on it, times apart
    """
    from nsfa import datasets
    from nsfa.counts import on_cluster, worker_count

    experiment, folder = load(name), Path(out)
    at_once = None if on_cluster(n_jobs) else worker_count(n_jobs)
    tasks = _possible(experiment.plan(quick))
    settings = _settings(name, quick, tasks)
    _check_folder(folder, settings)
    for table in experiment.DATA:
        # read or downloaded once, before anything is written and many tasks ask for it at the same time
        getattr(datasets, f"fetch_{table}")()
    _make_folder(folder, settings)
    ledger = Ledger(folder / NUMBERS)
    run_tasks(tasks, ledger, progress, at_once)
    ledger.finish(tasks)
    draw(name, folder)
    return folder


def cost(quick: bool = False) -> dict[str, dict[str, float]]:
    """The number of tasks of every experiment, and a guess at their core seconds."""
    plans = {name: load(name).plan(quick) for name in NAMES}
    seconds = {name: round(sum(task.seconds for task in plan), 1) for name, plan in plans.items()}
    return {name: {"tasks": len(plan), "seconds": seconds[name]} for name, plan in plans.items()}


def _possible(tasks: list[Task]) -> list[Task]:
    """The tasks whose packages are installed; a warning names the packages of the others."""
    modules = sorted({task.module for task in tasks if task.module is not None})
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if absent:
        warnings.warn(f"Runs without {', '.join(absent)}; pip install 'nsfa[experiments]' includes it.", stacklevel=3)
    return [task for task in tasks if task.module not in absent]


def draw(name: str, folder: Path) -> None:
    """Write the figures and the claims of a finished run from its numbers."""
    from matplotlib import pyplot as plt

    from nsfa.experiments import style

    experiment, frame = load(name), read_numbers(folder)
    quick = bool(read_settings(folder)["quick"])
    with plt.rc_context(style.SETTINGS):
        for stem, figure in experiment.figures(frame, quick).items():
            figure.savefig(folder / f"{stem}.png", dpi=160)
            figure.savefig(folder / f"{stem}.svg", metadata={"Date": None})
            plt.close(figure)
    claims = [asdict(claim) for claim in judge(name, experiment.findings(frame, quick))]
    (folder / CLAIMS).write_text(json.dumps(claims, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_numbers(folder: Path) -> Any:
    """The numbers of a run as a pandas DataFrame."""
    import pandas as pd

    return pd.read_csv(folder / NUMBERS, dtype={"task": str, "model": str, "quantity": str})


def read_settings(folder: Path) -> dict[str, Any]:
    """What a run was started with."""
    try:
        return cast(dict[str, Any], json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    except json.JSONDecodeError:
        raise ValueError(f"{folder / SETTINGS} is damaged; delete {folder} and run again.") from None


def _make_folder(folder: Path, settings: dict[str, Any]) -> None:
    """Make the directory and note the settings there, unless an earlier part of the same run has."""
    path = folder / SETTINGS
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(path) as aside:
        aside.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _check_folder(folder: Path, settings: dict[str, Any]) -> None:
    """See that the directory is new or empty, or holds an earlier part of the same run."""
    if not (folder / SETTINGS).exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(f"out must be a new or empty directory, or one to go on with. Got {str(folder)!r}.")
        return
    before = read_settings(folder)
    must_agree = {"experiment": "experiment", "quick": "size", "version": "version of nsfa", "plan": "plan"}
    for key, what in must_agree.items():
        if before.get(key) != settings[key]:
            raise ValueError(
                f"{str(folder)!r} holds a run with another {what} ({key}: {before.get(key)!r}, now {settings[key]!r}); "
                "choose another directory."
            )


def _settings(name: str, quick: bool, tasks: list[Task]) -> dict[str, Any]:
    identity = hashlib.sha256("\n".join(task.identity for task in tasks).encode()).hexdigest()
    return {
        "experiment": name, "quick": quick, "version": __version__, "plan": identity[:16], "tasks": len(tasks),
        "python": platform.python_version(), "system": platform.system(), "machine": platform.machine(),
        "processor": _processor(), "cores": os.cpu_count(), "packages": {some: _version(some) for some in PACKAGES},
    }  # fmt: skip


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
