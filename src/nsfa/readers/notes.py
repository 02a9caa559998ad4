"""Notes on tables that are probably not what the model expects: a function for each, None if there is nothing to say.

None of them makes a sparse table dense, and of a large one they look at some of the genes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from nsfa.arrays import Floats
from nsfa.discrete import empty_words
from nsfa.readers.sheet import show, show_some

# so few values say nothing about what they are
LEAST = 100
_MOST = 2_000_000
# logarithms to the base 2 of what can be measured end here
_LARGEST_LOG = 30
# so few samples can show next to nothing
_FEW_SAMPLES = 5
# totals of samples that differ by more than this make a factor of their own
_DEPTHS = 2.0
# Tails are looked at from so many samples on, in about so many values; they are heavy where a share of more than
# _HEAVY is more than _FAR robust deviations from its gene's median (of normal values 0.4 % in 20 samples, 0.01 % in
# many).
_TAIL_SAMPLES, _TAIL_VALUES = 20, 500_000
_FAR, _HEAVY = 4.0, 0.005
# as spreadsheets write them: apr-1 and sep-1 are genes of the worm
_MONTH = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)"
_DATE = re.compile(
    rf"\d{{1,2}}-{_MONTH}(-\d+)?|{_MONTH}-\d\d(\d\d)?|\d{{4}}-\d\d-\d\d( .*)?|\d{{1,2}}/\d{{1,2}}/\d{{2,4}}"
)


def notes_on(values: Any, samples: Sequence[str], genes: Sequence[str], log2: bool) -> list[str]:
    """All notes on a table (n_samples, n_genes), dense or sparse, before its logarithm is taken if it is to be."""
    found = [date_names(genes)]
    seen = look(values)
    if seen.size >= LEAST:
        stands_out = sentinel(seen)
        rest = seen if stands_out is None else seen.without(stands_out)
        missing = None if stands_out is None else sentinels(seen, stands_out)
        kinds = [binary(rest), counts(rest, log2), negative_counts(rest), logged(rest, log2)]
        kinds += [depths(values) if log2 and rest.ends[0] >= 0 and rest.whole and stands_out is None else None]
        if rest.ends[0] >= 0 and rest.ends[1] > 1 and rest.whole:
            kinds.append(empty(values, samples, genes))
        found += [few_samples(len(samples)), missing, *kinds, same_samples(values, samples)]
    return [text for text in found if text is not None]


@dataclass(frozen=True)
class Seen:
    """The finite values of a table, or one in ``step`` of them, and how many zeros a sparse one does not store."""

    values: Floats
    zeros: int
    step: int = 1

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values) + self.zeros

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        also = [0.0] if self.zeros else []
        return min([self.values.min(initial=np.inf), *also]), max([self.values.max(initial=-np.inf), *also])

    @property
    def whole(self) -> bool:
        """Whether all are whole numbers."""
        some = self.values[:1000]
        return bool((some == np.rint(some)).all() and (self.values == np.rint(self.values)).all())

    def equal(self, value: float) -> int:
        """How many are ``value``."""
        return int((self.values == value).sum()) + (self.zeros if value == 0 else 0)

    def without(self, value: float) -> Seen:
        """The others."""
        return Seen(self.values[self.values != value], 0 if value == 0 else self.zeros, self.step)

    def tell(self, number: int) -> str:
        """So many of these values, as a number of all."""
        return f"{number:,}" if self.step == 1 else f"about {number * self.step:,}"


def look(values: Any) -> Seen:
    """What there is to see of a table, of evenly spaced genes if it is large."""
    step = -(-(values.nnz if sp.issparse(values) else values.size) // _MOST) or 1
    if sp.issparse(values):
        stored = values.data[::step]
        return Seen(stored[np.isfinite(stored)], (values.shape[0] * values.shape[1] - values.nnz) // step, step)
    some = values[:, ::step]
    return Seen(some[np.isfinite(some)], 0, step)


def sentinel(seen: Seen) -> float | None:
    """A value that stands for a missing one, such as -999: repeated, and far outside the rest or alone below zero."""
    for value in seen.ends:
        rest = seen.without(value)
        if not 3 <= seen.equal(value) <= rest.size or len(np.unique(rest.values[:1000])) < 10:
            continue
        low, high = rest.ends
        gap = max(low - value, value - high)
        if gap > high - low or (value <= -1 and low >= 0):
            return float(value)
    return None


def sentinels(seen: Seen, value: float) -> str:
    """A note about values that stand for missing ones."""
    low, high = seen.without(value).ends
    return (
        f"{seen.tell(seen.equal(value))} entries are {value:g}, apart from all others ({low:.4g} to {high:.4g}): write "
        "NA instead if it stands for a missing value."
    )


def binary(seen: Seen) -> str | None:
    """A note about a table of zeros and ones."""
    if seen.ends != (0.0, 1.0) or not seen.whole:
        return None
    return (
        "The table holds only 0 and 1, which the model takes for measurements with normal noise: use "
        "--likelihood binary (likelihood='binary'), or the values behind them if there are any."
    )


def counts(seen: Seen, log2: bool) -> str | None:
    """A note about counts whose logarithm is not taken."""
    low, high = seen.ends
    if log2 or low < 0 or high <= 1 or not seen.whole:
        return None
    return (
        "The values are whole numbers, as counts are, and the model is for logarithms: use --log2 "
        "(log2=True), best of counts that are normalised for each sample's total; or, where many are zero, "
        "--likelihood counts (likelihood='counts')."
    )


def depths(values: Any) -> str | None:
    """A note about counts of samples whose totals differ, of which a logarithm makes one factor on all genes."""
    totals = np.asarray(values.sum(axis=1)).ravel() if sp.issparse(values) else np.nansum(values, axis=1)
    low, high = np.quantile(totals, [0.05, 0.95])
    if high <= _DEPTHS * low:
        return None
    return (
        f"The counts of a sample add up to {low:,.0f} to {high:,.0f} in nine tenths of the samples: divide each by its "
        "total before --log2 (log2=True), or expect a factor that is this total."
    )


def empty(values: Any, samples: Sequence[str], genes: Sequence[str]) -> str | None:
    """A note about samples and genes in which nothing was counted."""
    totals = [
        np.asarray(np.nansum(values, axis=axis) if not sp.issparse(values) else values.sum(axis=axis)).ravel()
        for axis in (1, 0)
    ]
    found = [empty_words("sample", totals[0], samples), empty_words("gene", totals[1], genes)]
    told = " and ".join(text for text in found if text is not None)
    return f"{told}: leave them out, since they say nothing about the factors." if told else None


def tails(values: Any) -> str | None:
    """A note about a dense table of measurements (n_samples, n_genes) with heavy tails."""
    if sp.issparse(values) or len(values) < _TAIL_SAMPLES:
        return None
    some = values[:, :: -(-values.size // _TAIL_VALUES)]
    some = some[:, np.isfinite(some).any(axis=0)]
    off = np.abs(some - np.nanmedian(some, axis=0))
    deviation = np.nanmedian(off, axis=0) / ndtri(0.75)
    told = deviation > 0
    if 2 * told.sum() <= len(told):
        return None
    share = float((off > _FAR * deviation)[:, told].sum() / np.isfinite(off[:, told]).sum())
    if share <= _HEAVY or (some == np.rint(some))[np.isfinite(some)].all():
        return None
    return (
        f"{share:.1%} of the entries are more than {_FAR:g} deviations from their gene's median, where hardly one in "
        "10,000 normal ones is: try --noise robust (noise='robust'), which keeps outliers from becoming factors; "
        "nsfa compare --models nsfa,nsfa+robust says which predicts better."
    )


def few_samples(number: int) -> str | None:
    """A note about tables of a few samples, in which more draws find no more."""
    if number >= _FEW_SAMPLES:
        return None
    return f"Factors are read from how samples differ, and {number} can show next to none: more draws will not help."


def negative_counts(seen: Seen) -> str | None:
    """A note about a few negative numbers among what looks like counts; many are no counts at all."""
    below = int((seen.values < 0).sum())
    if not 0 < below <= seen.size / 10 or not seen.whole:
        return None
    told = seen.tell(below)
    which = f"one of them is negative ({seen.ends[0]:g})"
    if told != "1":
        which = f"{told} of them are negative (down to {seen.ends[0]:g})"
    missing = "it is" if told == "1" else "they are"
    return (
        f"The values are whole numbers, as counts are, but {which}, as no count is: write NA instead if {missing} "
        "missing, or ask how the table was made."
    )


def logged(seen: Seen, log2: bool) -> str | None:
    """A note about logarithms of logarithms."""
    high = seen.ends[1]
    if not log2 or high > _LARGEST_LOG or seen.whole:
        return None
    return (
        f"No value is larger than {high:.4g}, as if they were logarithms already: leave out --log2 (log2=False) if so."
    )


def same_samples(values: Any, samples: Sequence[str]) -> str | None:
    """A note about samples that have all values of another."""
    first: dict[int, int] = {}
    table = sp.csr_array(values) if sp.issparse(values) else values
    twins = [(i, first[key]) for i, key in enumerate(_keys(table)) if first.setdefault(key, i) != i]
    if not twins:
        return None
    some = ", ".join(f"{show(samples[i])} is {show(samples[j])}" for i, j in twins[:3])
    more = f" and {len(twins) - 3} more" if len(twins) > 3 else ""
    return (
        f"{len(twins)} sample(s) have exactly the values of another ({some}{more}): leave them out, since copies make "
        "factors look surer than they are."
    )


def _keys(table: Any) -> list[int]:
    """A number for each row that only equal rows share, but for one chance in 2⁶⁴."""
    if not sp.issparse(table):
        return [hash(row.tobytes()) for row in table]
    table.sum_duplicates()
    rows = [slice(start, end) for start, end in zip(table.indptr[:-1], table.indptr[1:], strict=True)]
    return [hash((table.indices[row].tobytes(), table.data[row].tobytes())) for row in rows]


def date_names(genes: Sequence[str]) -> str | None:
    """A note about genes that a spreadsheet has made dates of."""
    dates = [name for name in genes if _DATE.fullmatch(name)]
    if not dates:
        return None
    return (
        f"{len(dates)} gene name(s) are dates, which spreadsheets make of MARCHF1 or SEPTIN2: {show_some(dates)}; take "
        "the names from the file as it was before."
    )
