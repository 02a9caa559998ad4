"""The data a chain sees: features × samples, centred and scaled, with its holes listed.

The one place where the user's (samples × features) becomes the model's (features × samples), where NaN becomes a
list of holes, and where results go back to the user's units.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Bools, Floats, Ints
from nsfa.columns import (
    SPARSE_NOT_FINITE,
    Columns,
    dense_columns,
    dense_values,
    power_of,
    sparse_columns,
    sparse_rows,
    sparse_values,
)
from nsfa.discrete import EXPOSURE_SPREAD, as_discrete, empty_words, given_exposure, log_exposure, usual_level
from nsfa.elsewhere import Elsewhere
from nsfa.holes import distinct_patterns, list_holes, no_holes
from nsfa.kernels import Holes
from nsfa.table import (
    as_float_table,
    as_table,
    check_finite,
    check_observed,
    check_power,
    check_shape,
    check_size,
    label,
    read_names,
    read_sample_names,
)

SCALES = ("feature", "global", None)
DTYPES = ("float64", "float32")


@dataclass(frozen=True)
class Observed:
    """Values (D, N) of the features that vary, zero-filled where missing, and what is needed to go back.

    ``values`` is dense and centred, or sparse and uncentred with ``offset`` (D,) holding the centres, or
    ``Elsewhere``. ``power`` (D,) is Σ_n y_dn² and ``count`` (D,) the number of observed entries. ``center`` and
    ``scale`` are per feature of the user's table (n_features,); ``kept`` (D,) are the positions of the
    modelled features in it.

    Where the ``likelihood`` is not "gaussian", values are what was seen, counts or zeros and ones; ``center`` is what
    the Gaussian values behind them are about, and ``exposure`` (N,) the log of how much of each sample was
    counted, within a standard deviation of ``exposure_spread``. ``sample_names`` are a frame's labels of its rows,
    ``layer`` that of an AnnData object which was fitted in place of its X.
    """

    values: Any
    offset: Floats | None
    power: Floats
    count: Floats
    feature_holes: Holes
    pattern: Ints
    pattern_holes: Holes
    center: Floats
    scale: Floats
    kept: Ints
    n_features: int
    feature_names: tuple[str, ...] | None = None
    missing: Bools | None = field(default=None, repr=False)
    likelihood: str = "gaussian"
    exposure: Floats | None = None
    exposure_spread: float = 0.0
    sample_names: tuple[str, ...] | None = field(default=None, repr=False)
    layer: str | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(features, samples) of the modelled part."""
        return self.values.shape  # type: ignore[no-any-return]

    @property
    def complete(self) -> bool:
        """Whether no entry is missing."""
        return self.missing is None

    @property
    def elsewhere(self) -> bool:
        """Whether the values are not in this process."""
        return isinstance(self.values, Elsewhere)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the table's features, or "feature 0", "feature 1", ..."""
        return self.feature_names or tuple(f"feature {d}" for d in range(self.n_features))

    @cached_property
    def total(self) -> Floats:
        """Σ_n y_dn over observed entries (D,): zero, but for rounding, where features are centred."""
        total = np.asarray(self.values.sum(axis=1, dtype=np.float64)).ravel()
        return total if self.offset is None else total - self.offset * self.shape[1]

    @cached_property
    def absent(self) -> Any:
        """Missing entries as the ones of a sparse array (D, N), for sums that leave them out; None where none is."""
        return None if self.missing is None else sp.csr_array(self.missing.astype(np.float64))

    @cached_property
    def absent_of_samples(self) -> Any:
        """``absent``, transposed, on the same memory."""
        return None if self.absent is None else self.absent.T

    def to_user(self, values: Floats, power: int = 1) -> Floats:
        """Per modelled feature (D, ...) to per feature of the table (n_features, ...), in its units to the ``power``.

        Zero for features that do not vary.
        """
        out = np.zeros((self.n_features, *values.shape[1:]))
        scale = self.scale[self.kept] ** power
        out[self.kept] = values * scale.reshape(-1, *(1,) * (values.ndim - 1))
        return out

    def log_units(self) -> Any:
        """Σ log scale over each sample's observed entries: what a log density loses in the table's units."""
        log_scale = np.log(self.scale[self.kept])
        return log_scale.sum() if self.missing is None else log_scale @ ~self.missing

    def is_from(self, table: Floats) -> bool:
        """Whether this was made of the given dense table (samples, features): same holes, same values elsewhere."""
        if table.shape != (self.shape[1], self.n_features) or self.offset is not None or self.elsewhere:
            return False
        if self.likelihood != "gaussian":
            own = np.array(self.values.T) if self.missing is None else np.where(self.missing, np.nan, self.values).T
            return np.array_equal(own, table[:, self.kept], equal_nan=True)
        scaled = ((table - self.center) / self.scale).T[self.kept]
        own = self.values if self.missing is None else np.where(self.missing, np.nan, self.values)
        return np.allclose(scaled, own, rtol=1e-6, atol=1e-6, equal_nan=True)

    def without_samples(self) -> Observed:
        """The features alone, to which other tables can be made ``like``: as small as it can be, to be sent."""
        none, no_rows = np.zeros((len(self.kept), 0)), no_holes(len(self.kept))
        bare = replace(self, values=none, offset=None, feature_holes=no_rows, pattern=np.zeros(0, dtype=np.int64))
        return replace(bare, pattern_holes=no_holes(1), missing=None, exposure=None, sample_names=None)

    def like(self, X: Any) -> Observed:
        """Another table with the same features, centred and scaled as this one was. Samples may be empty of values."""
        if self.likelihood != "gaussian":
            return self._like_discrete(X)
        if sp.issparse(X):
            return self._like_sparse(X)
        table = as_float_table(X)
        self._check_width(table.shape)
        check_finite(table, self.feature_names)
        missing = np.isnan(table)
        values = np.ascontiguousarray((np.where(missing, 0.0, table - self.center) / self.scale).T[self.kept])
        return self._with_values(values, missing.T[self.kept])

    def _like_discrete(self, X: Any) -> Observed:
        table = as_discrete(X, self.likelihood, self.feature_names)
        self._check_width(table.shape)
        own = table[:, self.kept]
        missing, exposure = np.isnan(own), None
        if self.exposure is not None:
            exposure = log_exposure(own, missing, np.exp(self.center[self.kept]))
            # those that were not to differ do not
            exposure = exposure if self.exposure.any() else np.zeros_like(exposure)
        new = self._with_values(np.ascontiguousarray(np.where(missing, 0.0, own).T), missing.T)
        return replace(new, exposure=exposure)

    def _like_sparse(self, table: Any) -> Observed:
        self._check_width(table.shape)
        rows = sparse_rows(table)
        if not np.isfinite(rows.data).all():
            raise ValueError(SPARSE_NOT_FINITE)
        return self._with_values(sparse_values(rows, 1.0 / self.scale, self.kept, np.dtype(np.float64)), None)

    def _check_width(self, shape: tuple[int, ...]) -> None:
        if shape[1] != self.n_features:
            raise ValueError(f"X has {shape[1]} features, but the model was fitted with {self.n_features}.")

    def _with_values(self, values: Any, missing: Bools | None) -> Observed:
        """The same features with other samples; sparse ``values`` are uncentred and complete."""
        n_samples = values.shape[1]
        count = np.full(len(self.kept), float(n_samples)) if missing is None else n_samples - missing.sum(axis=1)
        offset = (self.center / self.scale)[self.kept] if missing is None else None
        holes, pattern, patterns = no_holes(len(self.kept)), np.zeros(n_samples, dtype=np.int64), no_holes(1)
        if missing is not None:
            distinct, pattern = distinct_patterns(missing)
            holes, patterns = list_holes(missing), list_holes(distinct)
        return replace(
            self,
            values=values,
            offset=offset,
            power=power_of(values, offset),
            count=count.astype(np.float64),
            feature_holes=holes,
            pattern=pattern,
            pattern_holes=patterns,
            missing=missing if missing is not None and missing.any() else None,
            sample_names=None,
        )

    def replace_values(self, values: Floats) -> None:
        """Overwrite dense values in place, keeping the pattern of holes (used when data are simulated anew)."""
        self.values[:] = values if self.missing is None else np.where(self.missing, 0.0, values)
        self.values_changed()

    def values_changed(self) -> None:
        """Bring ``power`` and ``total`` up to dense values that were overwritten."""
        self.power[:] = power_of(self.values, None)
        self.__dict__.pop("total", None)


def observe(X: Any, scale: str | None = "feature", center: bool = True, dtype: str = "float64") -> Observed:
    """Check a samples × features table and prepare it for sampling.

    Accepts an ndarray, a DataFrame, anything NumPy can read, or a scipy sparse matrix (zeros are observed zeros). NaN
    is missing. Values are kept in the precision ``dtype``, "float64" or "float32"; everything that is said of a feature
    in double. Raises ValueError with one sentence when the table cannot be used; warns about features that do not
    vary, which are left out of the model and get zero loadings.
    """
    check_settings(scale, dtype)
    names = read_names(X)
    if sp.issparse(X):
        return _observe_sparse(X, scale, center, names, dtype)
    table = as_table(X)
    check_shape(*table.shape)
    return replace(_observe_dense(table, scale, center, names, dtype), sample_names=read_sample_names(X))


def check_settings(scale: Any, dtype: Any) -> None:
    """Raise ValueError unless these are ways to scale and to keep a table."""
    if scale not in SCALES:
        raise ValueError(f"scale must be 'feature', 'global' or None. Got {scale!r}.")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype must be 'float64' or 'float32'. Got {dtype!r}.")


def observe_discrete(X: Any, likelihood: str, size_factors: Any = "total", dtype: str = "float64") -> Observed:
    """Check a samples × features table of counts or of zeros and ones, and prepare it for sampling.

    As ``observe``, but values are kept as they are. ``size_factors`` of counts: "total" infers them, about what each
    sample's counts in all are beside what is usual of its observed features; None takes all samples alike, and an array
    (n_samples,) gives them.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be 'float64' or 'float32'. Got {dtype!r}.")
    names = read_names(X)
    table = as_discrete(X, likelihood, names)
    check_shape(*table.shape)
    missing = np.isnan(table)
    check_observed(missing, names)
    mean = np.nanmean(table, axis=0)
    kept = _varying(np.nanstd(table, axis=0), np.ones(len(mean)), names)
    own, gone = table[:, kept], missing[:, kept]
    empty = empty_words("sample", np.nansum(table, axis=1), read_sample_names(X)) if likelihood == "counts" else None
    if empty is not None:
        warnings.warn(f"{empty}: nothing is known of their scores. Drop them to silence this.", stacklevel=4)
    exposure, spread = np.zeros(len(table)), 0.0
    if likelihood == "counts" and size_factors is not None:
        if isinstance(size_factors, str) and size_factors == "total":
            exposure, spread = log_exposure(own, gone, mean[kept]), EXPOSURE_SPREAD
        else:
            exposure = given_exposure(size_factors, len(table))
    center = mean.copy()
    center[kept] = usual_level(own, gone, likelihood, exposure)
    values = np.ascontiguousarray(np.where(gone, 0.0, own).T, dtype=dtype)
    distinct, pattern = distinct_patterns(gone.T)
    return Observed(
        values=values,
        offset=None,
        power=power_of(values, None),
        count=(~gone).sum(axis=0).astype(np.float64),
        feature_holes=list_holes(gone.T),
        pattern=pattern,
        pattern_holes=list_holes(distinct),
        center=center,
        scale=np.ones(len(mean)),
        kept=kept,
        n_features=table.shape[1],
        feature_names=names,
        missing=np.ascontiguousarray(gone.T) if gone.any() else None,
        likelihood=likelihood,
        exposure=exposure if likelihood == "counts" else None,
        exposure_spread=spread,
        sample_names=read_sample_names(X),
    )


def _scales(deviation: Floats, count: Floats, kept: Ints, scale: str | None) -> Floats:
    """Divisor per feature from its standard deviation; 1 where there is nothing to divide by."""
    if scale is None:
        return np.ones_like(deviation)
    if scale == "global":
        top = deviation.max() or 1.0
        share = np.average((deviation[kept] / top) ** 2, weights=count[kept])
        deviation = np.full_like(deviation, top * np.sqrt(share))
    out: Floats = np.where(deviation > 0, deviation, 1.0)
    return out


def _varying(spread: Floats, size: Floats, names: tuple[str, ...] | None) -> Ints:
    """Positions of the features that vary; warn once about the others."""
    flat = np.flatnonzero(spread <= 1e-12 * size)
    if len(flat):
        shown = ", ".join(label(names, i) for i in flat[:5]) + (" …" if len(flat) > 5 else "")
        warnings.warn(
            f"{len(flat)} feature(s) do not vary and get zero loadings: {shown}. Drop them to silence this.",
            UserWarning,
            stacklevel=5,
        )
    kept = np.setdiff1d(np.arange(len(spread)), flat)
    if len(kept) < 2:
        raise ValueError(f"At least 2 features must vary. Got {len(kept)}; check how the table was scaled.")
    return kept


def _observe_dense(table: Any, scale: str | None, center: bool, names: tuple[str, ...] | None, dtype: str) -> Observed:
    columns = dense_columns(table, names)
    if columns.missing is not None:
        check_observed(columns.missing.T, names)
    mean, kept, divisor = centring(columns, scale, center, names)
    values = dense_values(table, columns, mean, columns.unit / divisor, kept, np.dtype(dtype))
    gone = None
    if columns.missing is not None:
        gone = columns.missing if len(kept) == len(columns.missing) else columns.missing[kept]
        gone = gone if gone.any() else None
    distinct, pattern = (None, np.zeros(len(table), dtype=np.int64)) if gone is None else distinct_patterns(gone)
    return Observed(
        values=values,
        offset=None,
        power=_checked_power(values, None),
        count=columns.observed[kept],
        feature_holes=no_holes(len(kept)) if gone is None else list_holes(gone),
        pattern=pattern,
        pattern_holes=no_holes(1) if distinct is None else list_holes(distinct),
        center=mean * columns.unit,
        scale=divisor,
        kept=kept,
        n_features=table.shape[1],
        feature_names=names,
        missing=gone,
    )


def _observe_sparse(X: Any, scale: str | None, center: bool, names: tuple[str, ...] | None, dtype: str) -> Observed:
    if X.ndim != 2:
        raise ValueError(f"X must be a 2-D table, samples × features. Got a sparse array of shape {X.shape}.")
    check_shape(*X.shape)
    if X.dtype.kind not in "buif":
        raise ValueError(f"X must hold real numbers. Got a sparse matrix of dtype {X.dtype}.")
    rows = sparse_rows(X)
    columns = sparse_columns(rows)
    mean, kept, divisor = centring(columns, scale, center, names)
    values = sparse_values(rows, 1.0 / divisor, kept, np.dtype(dtype))
    offset = (mean * columns.unit / divisor)[kept]
    return Observed(
        values=values,
        offset=offset,
        power=_checked_power(values, offset),
        count=columns.observed[kept],
        feature_holes=no_holes(len(kept)),
        pattern=np.zeros(X.shape[0], dtype=np.int64),
        pattern_holes=no_holes(1),
        center=mean * columns.unit,
        scale=divisor,
        kept=kept,
        n_features=X.shape[1],
        feature_names=names,
    )


def centring(
    columns: Columns, scale: str | None, center: bool, names: tuple[str, ...] | None
) -> tuple[Floats, Ints, Floats]:
    """The features' centres, in their units, which of them are kept, and what they are divided by."""
    check_size(columns.size)
    n_features, deviation = len(columns.size), np.sqrt(columns.variance)
    mean, kept = np.zeros(n_features), np.arange(n_features)
    if center:
        mean, kept = columns.mean, _varying(deviation, np.ones(n_features), names)
    return mean, kept, _scales(deviation * columns.unit, columns.observed, kept, scale)


def _checked_power(values: Any, offset: Floats | None) -> Floats:
    power = power_of(values, offset)
    check_power(power)
    return power
