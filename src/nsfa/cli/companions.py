"""What comes with a table: annotations of its samples, gene sets, symbols of its genes; read first, kept by a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nsfa.cli.options import ReportOptions
from nsfa.cli.output import GENE_NAMES, GENE_SETS, SAMPLE_KINDS, SAMPLES, write_csv, write_text
from nsfa.cli.words import note


class Companions(NamedTuple):
    """What is known about samples and genes beside the table; None where nothing is."""

    annotations: Any = None
    gene_sets: dict[str, list[str]] | None = None
    gene_names: dict[str, str] | None = None


def read_companions(
    wanted: ReportOptions, samples: Sequence[str], genes: Sequence[str], given: Companions, quiet: bool
) -> Companions:
    """Read the files that the options name, in place of what is ``given``: before hours of sampling, not after."""
    annotations, sets, names = given
    notes: list[str] = []
    if wanted.annotations is not None:
        from nsfa.readers import read_annotations

        annotations = read_annotations(wanted.annotations, samples)
        notes += annotations.attrs.get("notes", [])
    if wanted.gene_names is not None:
        from nsfa.readers import read_gene_names

        names, absent = read_gene_names(wanted.gene_names, genes)
        notes += absent
    if wanted.gene_sets is not None:
        from nsfa.enrichment import read_gmt, set_notes

        sets = read_gmt(wanted.gene_sets)
        notes += set_notes(sets, genes, None if names is None else [names[gene] for gene in genes])
    if annotations is not None:
        from nsfa.annotations import left_out_note

        notes += filter(None, [left_out_note(annotations)])
    for text in [] if quiet else notes:
        note(text)
    return Companions(annotations, sets, names)


def write_gene_lists(out: Path, sets: Mapping[str, Sequence[str]] | None, names: Mapping[str, str] | None) -> None:
    """Keep gene sets and the symbols of the genes, if there are any, beside the draws."""
    import pandas as pd

    if sets is not None:
        write_text(out / GENE_SETS, "".join("\t".join([name, "", *genes]) + "\n" for name, genes in sets.items()))
    if names is not None:
        write_csv(out / GENE_NAMES, pd.DataFrame({"gene": list(names), "symbol": list(names.values())}), None)


def read_kept_names(out: Path, genes: Sequence[str]) -> dict[str, str] | None:
    """The symbol of every gene, its own name where there is none; None where a run has no symbols."""
    import pandas as pd

    path = out / GENE_NAMES
    if not path.is_file():
        return None
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if list(table.columns) != ["gene", "symbol"]:
        raise ValueError(
            f"{path} must have the columns gene and symbol. Got {', '.join(table.columns)}; restore or remove it."
        )
    kept = dict(zip(table["gene"], table["symbol"], strict=True))
    return {gene: kept.get(gene) or gene for gene in genes}


def write_samples(out: Path, names: Any, annotations: Any) -> None:
    """Keep the samples' names, and what is known about them, beside the draws."""
    import pandas as pd

    frame = pd.DataFrame(index=list(names)) if annotations is None else annotations.set_axis(list(names))
    write_csv(out / SAMPLES, frame, "sample", digits=None)
    found = [_label_kind(frame.iloc[:, i]) for i in range(frame.shape[1])]
    kinds = {name: kind for name, kind in zip(_columns(out / SAMPLES)[1:], found, strict=True) if kind is not None}
    if kinds:
        write_text(out / SAMPLE_KINDS, json.dumps(kinds, indent=2, ensure_ascii=False) + "\n")
    else:
        (out / SAMPLE_KINDS).unlink(missing_ok=True)


def read_samples(out: Path, n_samples: int) -> Any:
    """Names and annotations of the samples; numbers where the file is gone."""
    import pandas as pd

    path = out / SAMPLES
    if not path.is_file():
        return pd.DataFrame(index=[f"sample {i}" for i in range(n_samples)])
    columns = _columns(path)
    kinds = {name: kind for name, kind in _read_kinds(out / SAMPLE_KINDS).items() if name in columns[1:]}
    names = pd.read_csv(path, usecols=[0], dtype=str, keep_default_na=False).iloc[:, 0]
    # None and NA may be labels: what is missing was written as nothing
    how: dict[str, Any] = {"keep_default_na": False, "na_values": [""], "dtype": dict.fromkeys(kinds, str)}
    frame = pd.read_csv(path, header=0, names=columns, **how).iloc[:, 1:].set_axis(names.to_list())
    if len(frame) != n_samples:
        raise ValueError(f"{path} must have a row per sample, {n_samples}. Got {len(frame)}; restore or remove it.")
    for name, kind in kinds.items():
        if "categories" in kind:
            # labels that came into the file later go last
            labels = list(dict.fromkeys([*kind["categories"], *frame[name].dropna()]))
            frame[name] = pd.Categorical(frame[name], labels, ordered=kind["ordered"])
    return frame


def _read_kinds(path: Path) -> dict[str, Any]:
    """The kinds of annotations by name; none where a run has kept none."""
    try:
        kinds: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:
        raise ValueError(f"{path} must be as the run wrote it. Got other text; restore or remove it.") from None
    return kinds


def _columns(path: Path) -> list[str]:
    """The header of a csv file, names that repeat made different."""
    import pandas as pd

    return list(pd.read_csv(path, nrows=0, dtype=str).columns)


def _label_kind(column: Any) -> dict[str, Any] | None:
    """What the text of a csv file does not say: that numbers are labels, and the order of categories; else None."""
    from pandas.api.types import infer_dtype

    if hasattr(column, "cat"):
        return {"categories": [str(name) for name in column.cat.categories], "ordered": bool(column.cat.ordered)}
    return {} if infer_dtype(column, skipna=True) == "string" else None
