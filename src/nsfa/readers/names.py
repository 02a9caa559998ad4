"""Names of samples and genes: all there, all different, and what they say about which way round the table is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from nsfa.readers.sheet import Sheet, show, show_some

# names that only genes, transcripts or probes have
_GENE = re.compile(
    r"ENS[A-Z]*[GTP]\d{11}(\.\d+)?|\d+(_[a-z]+)*_at|ILMN_\d+|[NX][MR]_\d+(\.\d+)?|(?i:gene|probe|feature)[ _.-]?\d+"
)
# genes of nearly every expression table of man or mouse
_KNOWN = {
    "actb", "b2m", "brca1", "cd4", "cd8a", "eef1a1", "egfr", "esr1", "gapdh", "hprt", "hprt1", "krt18", "mki67", "myc",
    "ppia", "pten", "ptprc", "tp53", "trp53",
}  # fmt: skip
_RIBOSOMAL = re.compile(r"rp[ls]p?\d+[a-z]?\d?|mt-[a-z0-9]+")
_SAMPLE = re.compile(
    r"GSM\d+|[SED]RR\d+|TCGA-\w\w-\w{4}.*|[ACGT]{10,}(-\d+)?|(sample|patient|cell|subject)[ _.-]?\d+", re.IGNORECASE
)
# words above the row names that say what the rows are
_GENE_WORD = re.compile(r"gene|probe|transcript|feature|hgnc|entrez|ensembl|protein", re.IGNORECASE)
_SAMPLE_WORD = re.compile(r"sample|cell|patient|subject|donor|barcode", re.IGNORECASE)
_LOPSIDED = 3
# smaller tables are read at a glance
_LEAST = 8


def complete(names: Sequence[str] | None, count: int, kind: str) -> tuple[list[str], list[str]]:
    """A different name for each of ``count`` samples or genes, and notes about those that had to be changed."""
    if names is None:
        return [f"{kind} {i + 1}" for i in range(count)], []
    out, notes = [name.strip() for name in names], []
    blank = [i for i, name in enumerate(out) if not name]
    for i in blank:
        out[i] = f"{kind} {i + 1}"
    if blank:
        notes.append(f"{len(blank)} {kind}(s) without a name were numbered: {show_some([out[i] for i in blank])}.")
    twins = [name for name, times in Counter(out).items() if times > 1]
    if twins:
        out = _distinct(out, set(twins))
        notes.append(
            f"{len(twins)} {kind} name(s) occur more than once and were made unique (x, x.1, …): {show_some(twins)}."
        )
    return out, notes


def _distinct(names: list[str], twins: set[str]) -> list[str]:
    taken, times, out = set(names), Counter[str](), []
    for name in names:
        new = name
        if name in twins:
            while times[name] and new in taken:
                new = f"{name}.{times[name]}"
                times[name] += 1
            times[name] = times[name] or 1
            taken.add(new)
        out.append(new)
    return out


def doubts(sheet: Sheet, samples_in_rows: bool) -> list[str]:
    """A note when names, the word above them, or else the shape, say that the table is the other way round.

    Also when none of them says anything, nor the user.
    """
    rows, columns, shape = sheet.rows, sheet.columns, sheet.values.shape
    genes, samples = (columns, rows) if samples_in_rows else (rows, columns)
    n_genes, n_samples = shape[::-1] if samples_in_rows else shape
    if samples_in_rows:
        remedy = "leave out --samples-in-rows (samples_in_rows=False) if its rows are genes"
    else:
        remedy = "use --samples-in-rows (samples_in_rows=True) if its rows are samples"
    read = f"it was read as {n_genes} genes of {n_samples} samples; {remedy}."
    right, wrong = _genes(genes) or _samples(samples), _genes(samples) or _samples(genes)
    if wrong and not right:
        side = ("rows", "columns") if samples_in_rows else ("columns", "rows")
        what = f"{side[0]} have names of genes" if _genes(samples) else f"{side[1]} have names of samples"
        return [f"The table's {what}, but {read}"]
    says = (_GENE_WORD if samples_in_rows else _SAMPLE_WORD).search(sheet.corner)
    agrees = (_SAMPLE_WORD if samples_in_rows else _GENE_WORD).search(sheet.corner)
    if says and not agrees and not right:
        return [f"The row names stand under {show(sheet.corner)}, but {read}"]
    if not right and not agrees and n_samples > _LOPSIDED * n_genes:
        return [f"The table has {shape[0]} rows and {shape[1]} columns: {read}"]
    told = samples_in_rows or right or agrees or n_genes >= _LOPSIDED * n_samples
    if not told and min(shape) >= _LEAST:
        return [f"Neither names nor shape tell whether the table's rows are genes: {read}"]
    return []


def _genes(names: Sequence[str] | None) -> bool:
    """Whether names are surely those of genes."""
    if not names:
        return False
    first = [name.strip() for name in names[:1000]]
    known = {name.casefold() for name in names} & _KNOWN
    ribosomal = sum(_RIBOSOMAL.fullmatch(name.casefold()) is not None for name in names)
    return 2 * sum(_GENE.fullmatch(name) is not None for name in first) > len(first) or len(known) + ribosomal >= 2


def _samples(names: Sequence[str] | None) -> bool:
    """Whether names are surely those of samples."""
    first = [name.strip() for name in (names or ())[:1000]]
    return bool(first) and 2 * sum(_SAMPLE.fullmatch(name) is not None for name in first) > len(first)
