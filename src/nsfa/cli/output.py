"""The output directory: nothing of the user's is overwritten, and every file is there whole or not at all."""

from __future__ import annotations

import csv
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nsfa.atomic import replacing

DRAWS, REPORT, SAMPLES, GENE_SETS, FIGURES = "draws", "report.html", "samples.csv", "gene_sets.gmt", "figures"
COMPARISON, TABLE, FACTOR_GENES, ENRICHMENT = "comparison.csv", "table.csv", "factor_genes.gmt", "enrichment.csv"
OUTLIERS, OUTLIER_SHARES, SIZE_FACTORS = "outliers.csv", "outlier_shares.csv", "size_factors.csv"
GENE_NAMES, SAMPLE_KINDS = "gene_names.csv", "samples.json"
# scores of a table in blocks, as its workers wrote them
SCORES = "scores.zarr"
# the finished fits of a comparison that is not
FITS = "fits.csv"
# there while a command writes
LOCK = "lock"
# all that a command writes, in the order in which results are listed
NAMES = (
    REPORT, "factors.csv", "genes.csv", FACTOR_GENES, ENRICHMENT, "loadings.csv", "inclusion.csv", "scores.csv", SCORES,
    OUTLIERS, OUTLIER_SHARES, SIZE_FACTORS, "imputed.csv", COMPARISON, FIGURES, "diagnostics.json", "config.toml",
    SAMPLES, SAMPLE_KINDS, GENE_SETS, GENE_NAMES, TABLE, DRAWS, FITS,
)  # fmt: skip


def holds_run(out: Path) -> bool:
    """Whether a directory is the output of an earlier run."""
    return (out / "config.toml").is_file() or (out / DRAWS).exists()


def half_compared(out: Path) -> bool:
    """Whether a directory holds a comparison that was interrupted."""
    return (out / FITS).is_file() and not (out / COMPARISON).exists()


def check_free(out: Path, force: bool) -> None:
    """Raise ValueError unless ``out`` may be written to: it is new, empty, or an earlier run that may be replaced."""
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise ValueError(f"The output must be a directory. Got the file {out}; choose another name.")
    if all(path.name == LOCK for path in out.iterdir()):
        return
    if not holds_run(out):
        raise ValueError(
            f"The output directory must be new or empty. Got {out}, which has files that are not of a run; "
            "choose another name."
        )
    if not force:
        again = f"go on with that run (nsfa resume {shlex.quote(str(out))}), "
        raise ValueError(
            f"The output directory must be new or empty. Got {out}, which holds an earlier run; choose another name, "
            f"{again if (out / DRAWS).exists() or half_compared(out) else ''}or replace it with --force."
        )


@contextmanager
def claim(out: Path, force: bool, sign: str = DRAWS) -> Iterator[None]:
    """Make and hold ``out``, putting an earlier run aside until the new one has written ``sign``; else put it back."""
    check_free(out, force)
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    try:
        with held(out):
            # again: another may have been quicker
            check_free(out, force)
            with _replaced(out, sign):
                yield
    finally:
        for folder in missing:
            # another's file in it stays
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Be the only one to write to a directory: StoreError if another command does. The lock's file goes in the end."""
    from nsfa.draws.lock import locked

    with locked(out):
        try:
            if (out / DRAWS).is_dir():
                # what goes on with a fit holds this one alone
                with locked(out / DRAWS):
                    pass
            yield
        finally:
            # Windows keeps files that are open
            with suppress(PermissionError):
                (out / LOCK).unlink(missing_ok=True)


@contextmanager
def _replaced(out: Path, sign: str) -> Iterator[None]:
    aside = _put_aside(out)
    try:
        yield
    finally:
        if not (out / sign).exists():
            remove(out)
            for path in [] if aside is None else aside.iterdir():
                path.rename(out / path.name)
        if aside is not None:
            shutil.rmtree(aside)


def _put_aside(out: Path) -> Path | None:
    """Move what an earlier run wrote, and nothing else, into a folder beside it; None if there is nothing."""
    earlier = [out / name for name in NAMES if os.path.lexists(out / name)]
    if not earlier:
        return None
    aside = Path(tempfile.mkdtemp(prefix=".replaced-", dir=out))
    for path in earlier:
        path.rename(aside / path.name)
    return aside


def remove(out: Path) -> None:
    """Delete what a run wrote into ``out``, and nothing else."""
    for name in NAMES:
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_csv(path: Path, frame: Any, index: str | None, digits: int | None = 6) -> None:
    """Write a DataFrame, whole, with its index under the name ``index``; numbers to so many digits, None: all."""
    form = None if digits is None else f"%.{digits}g"
    texts = [*frame.index, *frame.columns, *frame.select_dtypes(exclude="number").to_numpy().ravel()]
    # the writer quotes a line feed in a name, but not a carriage return, which readers take for the end of a line
    broken = any("\r" in str(text) for text in texts)
    with replacing(path) as part:
        frame.to_csv(
            part, index=index is not None, index_label=index, float_format=form, encoding="utf-8",
            quoting=csv.QUOTE_ALL if broken else csv.QUOTE_MINIMAL,
        )  # fmt: skip


def write_figures(out: Path, drawings: Mapping[str, Callable[[], Any]]) -> None:
    """Draw figures, without a display, and write each under its name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    (out / FIGURES).mkdir(exist_ok=True)
    for name, draw in drawings.items():
        plt.close("all")
        draw()
        with replacing(out / FIGURES / f"{name}.png") as part:
            plt.gcf().savefig(part, format="png", dpi=120)
        plt.close("all")


def files(out: Path) -> list[str]:
    """What a run has written, by name; figures one by one."""
    found = [name for name in NAMES if (out / name).exists() and name != FIGURES]
    return found + sorted(f"{FIGURES}/{path.name}" for path in (out / FIGURES).glob("*.png"))
