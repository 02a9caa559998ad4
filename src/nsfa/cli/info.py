"""``nsfa info``: about the installation, a run, or a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from nsfa.cli import memory
from nsfa.cli.errors import in_command_words
from nsfa.cli.options import TableOptions, TalkOptions, takes
from nsfa.cli.output import DRAWS, files, half_compared, holds_run
from nsfa.cli.run import resume_words
from nsfa.cli.settings import read_config, versions
from nsfa.cli.words import say, say_json

# Deviations of genes that differ by more than this factor should not be left as they are.
FAR_APART = 100.0
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
        notes, moves = found.pop("notes", []), found.pop("moves", [])
        for key, value in found.items():
            say(f"{key.replace('_', ' '):<22}{_text(value)}")
        for i, (when, names) in enumerate(_lines(moves).items()):
            say(f"{'' if i else 'moves':<22}{when}: {names}")
        for text in notes:
            say(f"{'note':<22}{text}")


def about_here() -> dict[str, Any]:
    """Versions, cores, memory, and which optional packages are missing."""
    from nsfa.counts import core_count

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
    from nsfa.draws.lock import is_locked

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
        running = is_locked(out / DRAWS)
        try:
            posterior = nsfa.load(out / DRAWS)
        except (ValueError, RuntimeError) as error:
            found["state"] = "running; no draws yet" if running else in_command_words(str(error))
        else:
            found |= _state(posterior, sampling.get("chains"), running, out)
    elif half_compared(out):
        found["state"] = "running" if is_locked(out) else f"unfinished; {resume_words(out)}"
    found["files"] = files(out)
    return {key: value for key, value in found.items() if value is not None}


def _state(posterior: Any, chains: int | None, running: bool, out: Path) -> dict[str, Any]:
    made, wanted = [len(chain) for chain in posterior.chains], posterior.length.draws
    chains = len(made) if chains is None else chains
    # chains that have not begun have none
    made += [0] * (chains - len(made))
    unfinished = "running" if running else f"unfinished; {resume_words(out)}"
    state = "finished" if posterior.finished else unfinished
    diagnostics = posterior.diagnostics()
    return {
        "state": state,
        "chains": chains,
        "draws_per_chain": made[0] if len(set(made)) == 1 else made,
        "draws_wanted": wanted,
        "converged": posterior.finished and diagnostics.converged,
        "verdict": diagnostics.verdict,
        "moves": [move._asdict() for move in diagnostics.moves],
    }


def _lines(moves: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The moves of a sweep by their frequency, accepted shares beside them, and those not used by their reason."""
    found: dict[str, list[str]] = {}
    for move in moves:
        share = "" if move["accepted"] is None else f" ({move['accepted']:.1%} accepted)"
        found.setdefault(move["when"], []).append(move["name"] + share)
    return {when: ", ".join(names) for when, names in found.items()}


def about_table(path: Path, reading: TableOptions) -> dict[str, Any]:
    """Size, holes and range of a table, and what was noticed when reading it."""
    import numpy as np
    import scipy.sparse as sp

    from nsfa.cli.fit import read_input

    read = read_input(path, reading, quiet=True)
    n_samples, n_genes = read.shape
    sparse = sp.issparse(read.X)
    values = read.X.data if sparse else read.X.to_numpy()
    known = values[np.isfinite(values)]
    if sparse and read.X.nnz < n_samples * n_genes:
        # the places that are empty are zeros
        known = np.append(known, 0.0)
    return {
        "table": str(path),
        "samples": n_samples,
        "genes": n_genes,
        "missing_entries": int(np.isnan(values).sum()),
        "smallest": float(known.min()) if known.size else None,
        "largest": float(known.max()) if known.size else None,
        "first_samples": list(read.sample_names[:3]),
        "first_genes": list(read.gene_names[:3]),
        "checksum": read.checksum,
        **_scaling(read.X if sparse else values),
        "moves": _moves_of_table(read.X),
        "notes": list(read.notes),
    }


def _moves_of_table(X: Any) -> list[dict[str, Any]]:
    """The moves of the default model on a table; none for one that cannot be fitted."""
    import warnings

    from nsfa.data import observe
    from nsfa.model import preset
    from nsfa.posterior.moves import moves_of

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [move._asdict() for move in moves_of(preset("nsfa"), observe(X))]
    except ValueError:
        return []


def _scaling(X: Any) -> dict[str, Any]:
    """How far the genes' standard deviations are apart, and what that says about --scale (docs/controls.md)."""
    import numpy as np
    import scipy.sparse as sp
    from sklearn.utils.sparsefuncs import mean_variance_axis

    if sp.issparse(X):
        deviation = np.sqrt(mean_variance_axis(sp.csr_matrix(X), axis=0)[1])
    else:
        # infinities are for the fit to refuse
        deviation = np.sqrt(np.nanvar(np.where(np.isfinite(X), X, np.nan)[:, np.isfinite(X).any(axis=0)], axis=0))
    if not (deviation > 0).any():
        return {}
    low, high = np.quantile(deviation[deviation > 0], [0.05, 0.95])
    if high > FAR_APART * low:
        advice = "--scale feature, the default; with global, factors of quiet genes would be lost"
    else:
        advice = "--scale feature, the default; where genes share a unit, global does nearly as well"
    return {"deviations_of_genes": f"{low:.3g} to {high:.3g} (nine tenths of the genes)", "scaling": advice}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
