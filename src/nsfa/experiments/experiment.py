"""One experiment from start to end: plan, tasks, figures, claims."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from nsfa import __version__
from nsfa.experiments import NAMES
from nsfa.experiments.claims import Claim, write_claims
from nsfa.tasks import Ledger, Step, Task, run_tasks

NUMBERS, SETTINGS, CLAIMS = "numbers.csv", "settings.json", "claims.json"
PACKAGES = ("nsfa", "numpy", "scipy", "numba", "scikit-learn", "pandas", "matplotlib", "mofapy2")


class Experiment(Protocol):
    """What the module of an experiment has."""

    TITLE: str
    DATA: tuple[str, ...]

    def plan(self, quick: bool) -> list[Task]:
        """The tasks, in the order of the figures, those for which a package is missing included."""

    def figures(self, frame: Any, quick: bool) -> dict[str, Any]:
        """Matplotlib figures of the numbers, by file name."""

    def claims(self, frame: Any, quick: bool) -> Sequence[Claim]:
        """What the numbers say about the paper's claims."""


def load(name: str) -> Experiment:
    """The module of the named experiment."""
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}. Got {name!r}.")
    module: Any = importlib.import_module(f"nsfa.experiments.{name}")
    return module  # type: ignore[no-any-return]


def run(
    name: str,
    out: str | Path,
    quick: bool = False,
    progress: Callable[[Step], Any] | None = None,
    n_jobs: int | None = None,
) -> Path:
    """See ``nsfa.experiments.run``."""
    from nsfa.counts import worker_count

    experiment, folder = load(name), Path(out)
    tasks = _possible(experiment.plan(quick))
    settings = _settings(name, quick, tasks)
    _check_folder(folder, settings)
    _get_tables(experiment.DATA)
    _make_folder(folder, settings)
    ledger = Ledger(folder / NUMBERS)
    run_tasks(tasks, ledger, progress, worker_count(n_jobs))
    ledger.finish(tasks)
    draw(name, folder)
    return folder


def _get_tables(names: Sequence[str]) -> None:
    """Read or download the tables once, before anything is written and many tasks ask for them at the same time."""
    from nsfa import datasets

    for name in names:
        getattr(datasets, f"fetch_{name}")()


def _possible(tasks: list[Task]) -> list[Task]:
    """The tasks whose packages are installed; a warning names the packages of the others."""
    modules = sorted({task.module for task in tasks if task.module is not None})
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if absent:
        warnings.warn(f"Runs without {', '.join(absent)}; pip install 'nsfa[experiments]' includes it.", stacklevel=4)
    return [task for task in tasks if task.module not in absent]


def draw(name: str, folder: Path) -> None:
    """Write the figures and the claims of a finished run from its numbers."""
    from nsfa.experiments import style

    experiment, frame = load(name), read_numbers(folder)
    quick = bool(read_settings(folder)["quick"])
    with style.in_style():
        for stem, figure in experiment.figures(frame, quick).items():
            style.save(figure, folder / stem)
    write_claims(folder / CLAIMS, experiment.claims(frame, quick))


def read_numbers(folder: Path) -> Any:
    """The numbers of a run as a pandas DataFrame."""
    import pandas as pd

    return pd.read_csv(folder / NUMBERS, dtype={"task": str, "model": str, "quantity": str})


def read_settings(folder: Path) -> dict[str, Any]:
    """What a run was started with."""
    try:
        settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except json.JSONDecodeError:
        raise ValueError(f"{folder / SETTINGS} is damaged; delete {folder} and run again.") from None
    return settings


def _make_folder(folder: Path, settings: dict[str, Any]) -> None:
    """Make the directory and note the settings there, unless an earlier part of the same run has."""
    path = folder / SETTINGS
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    aside.replace(path)


def _check_folder(folder: Path, settings: dict[str, Any]) -> None:
    """See that the directory is new or empty, or holds an earlier part of the same run."""
    if not (folder / SETTINGS).exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(f"out must be a new or empty directory, or one to go on with. Got {str(folder)!r}.")
        return
    before = read_settings(folder)
    for key, what in (
        ("experiment", "experiment"),
        ("quick", "size"),
        ("version", "version of nsfa"),
        ("plan", "plan"),
    ):
        if before.get(key) != settings[key]:
            raise ValueError(
                f"{str(folder)!r} holds a run with another {what} ({key}: {before.get(key)!r}, now {settings[key]!r}); "
                "choose another directory."
            )


def _settings(name: str, quick: bool, tasks: list[Task]) -> dict[str, Any]:
    identity = hashlib.sha256("\n".join(task.identity for task in tasks).encode()).hexdigest()
    return {
        "experiment": name,
        "quick": quick,
        "version": __version__,
        "plan": identity[:16],
        "tasks": len(tasks),
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "packages": _versions(),
    }


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
