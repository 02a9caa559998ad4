"""``nsfa info``: about the installation, a run, or a table."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from nsfa.cli import memory
from nsfa.cli.options import TableOptions, TalkOptions, takes
from nsfa.cli.output import DRAWS, files, holds_run
from nsfa.cli.run import resume_words
from nsfa.cli.settings import read_config, versions
from nsfa.cli.words import say, say_json

# module: the extra that brings it, and what for
OPTIONAL = {
    "anndata": ("anndata", "AnnData objects and h5ad files"),
    "arviz": ("arviz", "export of the draws to ArviZ"),
    "pooch": ("datasets", "download of the paper's data"),
    "rdata": ("datasets", "the paper's data in R's format"),
}


@takes(TableOptions, TalkOptions)
def info(
    reading: TableOptions,
    talk: TalkOptions,
    what: Annotated[
        Path | None, Argument(metavar="OUT|TABLE", help="Output directory of a run, or a table.", show_default=False)
    ] = None,
) -> None:
    """Say what is installed here; or how far a run is; or what a table holds.

    [bold]Examples[/bold]

    nsfa info

    nsfa info results

    nsfa info expression.csv --log2
    """
    if what is None:
        found = about_here()
    elif what.is_dir() and holds_run(what):
        found = about_run(what)
    elif what.is_dir() and not any(what.glob("*matrix.mtx*")):
        raise ValueError(
            f"{what} must be the output directory of a run, a table or a 10x folder. Got another directory."
        )
    else:
        found = about_table(what, reading)
    if talk.json:
        say_json(found)
    elif not talk.quiet:
        for key, value in found.items():
            say(f"{key.replace('_', ' '):<22}{_text(value)}")


def about_here() -> dict[str, Any]:
    """Versions, cores, memory, and which optional packages are missing."""
    from nsfa.runner import core_count

    there = memory.available()
    packages = {}
    for module, (extra, purpose) in OPTIONAL.items():
        there_is = find_spec(module) is not None
        packages[module] = "installed" if there_is else f"missing: pip install 'nsfa[{extra}]' for {purpose}"
    free = {} if there is None else {"memory_available_gb": round(there / memory.GB, 1)}
    return {**versions(), "cores": core_count(), **free, **packages}


def about_run(out: Path) -> dict[str, Any]:
    """What a run is of and how far it is."""
    import nsfa

    config = read_config(out)
    source, sampling = config.get("input", {}), config.get("sampling", {})
    found = {
        "command": config.get("command"),
        "table": source.get("path"),
        "samples": source.get("n_samples"),
        "genes": source.get("n_genes"),
        "model": config.get("model", {}).get("model"),
    }
    if (out / DRAWS).exists():
        try:
            posterior = nsfa.load(out / DRAWS)
        except (ValueError, RuntimeError) as error:
            found["state"] = str(error)
        else:
            found |= _state(posterior, sampling.get("chains"), out)
    found["files"] = files(out)
    return {key: value for key, value in found.items() if value is not None}


def _state(posterior: Any, chains: int | None, out: Path) -> dict[str, Any]:
    made, wanted = len(posterior.chains[0]), posterior.length.draws
    state = "finished" if posterior.finished else f"unfinished; {resume_words(out)}"
    diagnostics = posterior.diagnostics()
    return {
        "state": state,
        "chains": chains if chains is not None else len(posterior.chains),
        "draws_per_chain": made,
        "draws_wanted": wanted,
        "converged": diagnostics.converged,
        "verdict": diagnostics.verdict,
    }


def about_table(path: Path, reading: TableOptions) -> dict[str, Any]:
    """Size, holes and range of a table, and what was noticed when reading it."""
    import numpy as np

    from nsfa.cli.fit import read_input

    read = read_input(path, reading, quiet=True)
    values = read.frame().to_numpy()
    known = values[np.isfinite(values)]
    return {
        "table": str(path),
        "samples": values.shape[0],
        "genes": values.shape[1],
        "missing_entries": int(np.isnan(values).sum()),
        "smallest": float(known.min()) if known.size else None,
        "largest": float(known.max()) if known.size else None,
        "first_samples": list(read.sample_names[:3]),
        "first_genes": list(read.gene_names[:3]),
        "checksum": read.checksum,
        "notes": list(read.notes),
    }


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
