"""The options of the commands, in groups that several of them share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import BadParameter, Option

from nsfa.model.presets import PRESETS
from nsfa.model.spec import LIKELIHOODS, NAMED_PRIORS, NOISES

# the options that name files of what comes with a table
COMPANIONS = ("annotations", "gene_sets", "gene_names")
TABLE, MODEL, SAMPLING, REPORT, RUNNING = "Table", "Model", "Sampling", "Results", "Running"

if TYPE_CHECKING:
    ModelName = str
    NoiseName = str
    LikelihoodName = str
    PriorName = str
else:
    # classes that the library's own lists make, for the help and the checks of the command line
    ModelName, NoiseName, LikelihoodName, PriorName = (
        StrEnum(title, {name: name for name in names})
        for title, names in (
            ("ModelName", PRESETS),
            ("NoiseName", NOISES),
            ("LikelihoodName", LIKELIHOODS),
            ("PriorName", NAMED_PRIORS),
        )
    )


class DtypeName(StrEnum):
    """The precision in which a table is kept."""

    float64 = "float64"
    float32 = "float32"


class BackendName(StrEnum):
    """Where chains run."""

    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


class SizeName(StrEnum):
    """How much was counted of each sample."""

    total = "total"
    none = "none"


class ScaleName(StrEnum):
    """What features are divided by."""

    feature = "feature"
    common = "global"
    none = "none"


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return Option(*names, help=text, rich_help_panel=panel, **more)


def _warm_up(text: str) -> int | str:
    """A number of sweeps, or "auto"."""
    if text == "auto":
        return text
    if not text.isdecimal():
        raise BadParameter(f"must be an int >= 0, or auto. Got {text!r}.")
    return int(text)


@dataclass(frozen=True)
class ReadingOptions:
    """How to read the table."""

    samples_in_rows: Annotated[
        bool, _option(TABLE, "Samples are rows; else genes are.", "--samples-in-rows")
    ] = False  # fmt: skip
    log2: Annotated[bool, _option(TABLE, "Take log2(x + 1) of the values first.", "--log2")] = False
    layer: Annotated[str | None, _option(TABLE, "Layer of an h5ad file to read instead of its X.")] = None


@dataclass(frozen=True)
class TableOptions(ReadingOptions):
    """... and what of it."""

    min_variance: Annotated[
        float | None, _option(TABLE, "Drop genes whose variance is smaller.", min=0.0)
    ] = None  # fmt: skip
    top_genes: Annotated[int | None, _option(TABLE, "Keep only so many genes, the most variable.", min=2)] = None
    genes: Annotated[Path | None, _option(TABLE, "Keep only the genes listed in this file, one a line.")] = None


@dataclass(frozen=True)
class ModelOptions:
    """Which model."""

    model: Annotated[
        ModelName, _option(MODEL, "nsfa infers the number of factors; the others need --n-components.")
    ] = "nsfa"
    n_components: Annotated[
        int | None, _option(MODEL, "Number of factors, for the models that do not infer it.", "--n-components", min=1)
    ] = None
    concentration: Annotated[
        str, _option(MODEL, "Concentration of the buffet process: a number, or infer (nsfa and sfa).")
    ] = "infer"
    noise: Annotated[
        NoiseName, _option(MODEL, "A noise variance per gene, one for all, per gene and similar, or with outliers.")
    ] = "diagonal"
    likelihood: Annotated[LikelihoodName, _option(MODEL, "Measurements, counts as they are, or zeros and ones.")] = (
        "gaussian"
    )
    size_factors: Annotated[
        SizeName, _option(MODEL, "Samples of counts differ by how much was counted, or not.", "--size-factors")
    ] = SizeName.total
    scale: Annotated[ScaleName, _option(MODEL, "Divide by each gene's standard deviation, a common one, or not.")] = (
        ScaleName.feature
    )
    prior: Annotated[PriorName, _option(MODEL, "The default priors, the paper's, or former ones.")] = "default"
    dtype: Annotated[DtypeName, _option(MODEL, "Precision of the table in memory; float32 takes half the room.")] = (
        DtypeName.float64
    )
    backend: Annotated[BackendName, _option(MODEL, "Where chains run; auto takes a GPU if there is gain in it.")] = (
        BackendName.auto
    )
    tf32: Annotated[bool, _option(MODEL, "Let a GPU round to ten bits in products, for speed.", "--tf32")] = False


@dataclass(frozen=True)
class SamplingOptions:
    """How long, and from which seed."""

    chains: Annotated[int, _option(SAMPLING, "Independent chains.", min=1)] = 4
    tune: Annotated[
        Any,
        _option(
            SAMPLING,
            "Warm-up sweeps per chain, not kept; auto: until the chain has arrived; if not given, by the table's size.",
            parser=_warm_up,
            metavar="INTEGER|auto",
        ),
    ] = None
    draws: Annotated[int, _option(SAMPLING, "Draws to keep per chain.", min=1)] = 500
    thin: Annotated[
        int | None, _option(SAMPLING, "Sweeps per kept draw; if not given, by the table's size.", min=1)
    ] = None
    preview: Annotated[
        bool, _option(SAMPLING, "A first look in a tenth of the time: a tenth of the sweeps.", "--preview")
    ] = False  # fmt: skip
    seed: Annotated[int, _option(SAMPLING, "Same seed, same draws, whatever the number of cores.", min=0)] = 0


@dataclass(frozen=True)
class ReportOptions:
    """What the results should hold."""

    annotations: Annotated[
        Path | None, _option(REPORT, "Table with a row per sample, for the report; in place of an h5ad file's obs.")
    ] = None
    gene_sets: Annotated[Path | None, _option(REPORT, "Gene sets (.gmt) to test the factors against.")] = None
    gene_names: Annotated[
        Path | None, _option(REPORT, "Table of gene ids and symbols, to show and match genes by symbol.")
    ] = None  # fmt: skip
    title: Annotated[str | None, _option(REPORT, "Title of the report.")] = None
    impute: Annotated[bool, _option(REPORT, "Write imputed.csv: the table with its holes filled.", "--impute")] = False
    report: Annotated[
        bool, _option(REPORT, "Write report.html and figures, or only the tables.", "--report/--no-report")
    ] = True  # fmt: skip


@dataclass(frozen=True)
class TalkOptions:
    """What the command says."""

    quiet: Annotated[bool, _option(RUNNING, "Say nothing but errors and warnings.", "--quiet", "-q")] = False
    json: Annotated[bool, _option(RUNNING, "Print the result as one JSON object.", "--json")] = False


@dataclass(frozen=True)
class VerdictOptions(TalkOptions):
    """... and by its exit code."""

    require_convergence: Annotated[
        bool,
        _option(
            RUNNING,
            "Exit with code 2 if the chains have not converged, 3 if some factors are settled.",
            "--require-convergence",
        ),
    ] = False


@dataclass(frozen=True)
class WorkOptions(VerdictOptions):
    """... and on how many cores it works."""

    jobs: Annotated[
        int | None,
        _option(RUNNING, "Chains that run at once; as many as there are cores if not given.", "--jobs", "-j"),
    ] = None


@dataclass(frozen=True)
class RunOptions(WorkOptions):
    """... and when it refuses to begin."""

    ignore_memory: Annotated[bool, _option(RUNNING, "Start even if memory looks too small.", "--ignore-memory")] = False
    force: Annotated[bool, _option(RUNNING, "Replace an earlier run in the output directory.", "--force")] = False


@dataclass(frozen=True)
class ClusterOptions:
    """Where a table that is too large for one process is."""

    dask: Annotated[
        bool, _option(RUNNING, "Leave the table (zarr, h5ad) in blocks on Dask workers: two new ones.", "--dask")
    ] = False  # fmt: skip
    scheduler: Annotated[
        str | None, _option(RUNNING, "... or those of the Dask scheduler at this address.", metavar="ADDRESS")
    ] = None  # fmt: skip


@dataclass(frozen=True)
class TaskOptions(ClusterOptions):
    """Where fits run that are independent of each other."""

    dask: Annotated[bool, _option(RUNNING, "Make each fit a task of Dask workers: two new ones.", "--dask")] = False


def takes(*groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of ``groups``; it is called with an instance of each, then its own parameters."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def called(**given: Any) -> None:
            built = [group(**{field.name: given.pop(field.name) for field in fields(group)}) for group in groups]
            command(*built, **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[len(groups) :]
        shared = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hint)
            for group in groups
            for field, hint in zip(fields(group), _hints(group), strict=True)
        ]
        every = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
        called.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in every}
        called.__name__, called.__doc__ = command.__name__, one_line_paragraphs(command.__doc__ or "")
        return called

    return decorate


def one_line_paragraphs(text: str) -> str:
    """A docstring whose paragraphs are one line each, for the help to break where the terminal ends."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _hints(group: type) -> list[Any]:
    hints = get_type_hints(group, include_extras=True)
    return [hints[field.name] for field in fields(group)]
