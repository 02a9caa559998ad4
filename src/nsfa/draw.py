"""One kept draw: only active loadings are stored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsfa.arrays import Bools, Floats, Ints
from nsfa.state import State

SCALARS = ("concentration", "stickiness", "noise_rate", "loading_rate", "urn_concentration")

# A factor that so many features use is shared; from the second number on it is substantial.
SHARED, SUBSTANTIAL = 2, 5
# Above so many active loadings a draw keeps them as 16-bit, and above so many as 8-bit, multiples of a step per factor.
LARGE = 50_000
HUGE = 120_000
# Entries of the covariance G Gᵀ whose traces are kept, and from how many features at most its norm is taken.
COVARIANCES = tuple(f"covariance_{i}" for i in range(1, 6))
_MOST_FEATURES = 1000


@dataclass(frozen=True)
class Draw:
    """A posterior draw on the scale of the centred and scaled data.

    Only active loadings are stored: ``pattern`` has one bit per entry of the (D, K) matrix, ``value`` the loadings of
    the active ones, row by row. They are single precision; in draws with more than 50,000 of them, 16-bit integers
    times the factor's ``step``, a rounding of at most 1/65,534 of the factor's largest loading; with more than 120,000,
    8-bit integers, at most 1/254: still far below posterior standard deviations. Scores are kept only where they cannot
    be integrated out (Dirichlet-process scores), ``intercept`` (D,) where the features' means are drawn. Where the
    Gaussian values are, ``drawn_scores`` (N, K) are those they were drawn with; with robust noise ``outlier_share``
    (N, J + 1) are each sample's shares of ordinary entries and of outliers of each scale, ``outlier_concentration``
    (J + 1,) the parameters of the Dirichlet distribution they are from, and of counts ``exposure`` (N,) is the log of
    how much of each sample was counted.
    """

    shape: tuple[int, int]
    pattern: NDArray[np.uint8]
    value: NDArray[Any]
    step: NDArray[np.float64] | None
    noise_precision: Floats
    loading_precision: Floats
    scalars: dict[str, float]
    scores: NDArray[np.float32] | None = None
    intercept: Floats | None = None
    drawn_scores: NDArray[np.float32] | None = None
    outlier_share: NDArray[np.float32] | None = None
    outlier_concentration: Floats | None = None
    exposure: NDArray[np.float32] | None = None

    @property
    def n_factors(self) -> int:
        """K of this draw."""
        return self.shape[1]

    @property
    def n_active(self) -> int:
        """Number of active loadings."""
        return len(self.value)

    def active(self) -> Bools:
        """Which loadings are in use (D, K)."""
        size = self.shape[0] * self.shape[1]
        return np.unpackbits(self.pattern, count=size).reshape(self.shape).view(np.bool_)

    def usage(self) -> Ints:
        """Number of features that use each factor (K,)."""
        out: Ints = self.active().sum(axis=0)
        return out

    def loadings(self, dtype: Any = np.float64) -> Floats:
        """Dense loadings (D, K), in double precision unless asked otherwise."""
        out = np.zeros(self.shape, dtype)
        out[self.active()] = self.value
        if self.step is not None:
            out *= self.step.astype(dtype)
        return out


def record(state: State, scalars: dict[str, float], columns: dict[str, NDArray[np.float32]]) -> Draw:
    """Copy the current state into a ``Draw``; ``columns`` is what it keeps of the samples (``Samples.recorded``).

    Cost O(D K + min(D, 1000) K²).
    """
    active = np.ascontiguousarray(state.active)
    value, step = _compact(state.loadings, active)
    every = dict(scalars)
    every.update({name: float(getattr(state, name)) for name in SCALARS})
    every["n_factors"] = state.n_factors
    every["n_active"] = len(value)
    every.update(factor_counts(state.usage))
    every["loading_power"] = float(np.vdot(state.loadings, state.loadings))
    every.update(_covariance(state.loadings))
    precision = state.loading_precision
    return Draw(
        shape=(len(active), state.n_factors),
        pattern=np.packbits(active),
        value=value,
        step=step,
        noise_precision=state.noise_precision.copy(),
        # per-element precisions are as large as dense loadings and nothing reads them
        loading_precision=precision.copy() if precision.ndim < 2 else np.zeros(0),
        scalars=every,
        intercept=None if state.intercept is None else state.intercept.copy(),
        outlier_concentration=None if state.outlier_concentration is None else state.outlier_concentration.copy(),
        **columns,
    )


def factor_counts(usage: Ints) -> dict[str, float]:
    """How many factors are shared and how many substantial, by the number of features that use each (K,)."""
    return {"n_shared": int((usage >= SHARED).sum()), "n_substantial": int((usage >= SUBSTANTIAL).sum())}


def _covariance(loadings: Floats) -> dict[str, float]:
    """The norm of G Gᵀ, over evenly spaced features where there are many, and some of its entries. Cost O(D K²)."""
    some = loadings[:: -(-len(loadings) // _MOST_FEATURES)]
    first, second = feature_pairs(len(loadings)).T
    entries = np.einsum("pk,pk->p", loadings[first], loadings[second])
    return {
        "covariance_norm": float(np.linalg.norm(some.T @ some)),
        **dict(zip(COVARIANCES, entries.tolist(), strict=True)),
    }


@lru_cache(maxsize=16)
def feature_pairs(n_features: int) -> NDArray[np.int64]:
    """The pairs (5, 2) of different features whose covariances are kept: a function of their number only."""
    first = np.random.default_rng(0).integers(0, n_features, len(COVARIANCES))
    step = np.random.default_rng(1).integers(1, n_features, len(COVARIANCES))
    return np.stack([first, (first + step) % n_features], axis=1)


def _compact(loadings: Floats, active: Bools) -> tuple[NDArray[Any], Floats | None]:
    """Active loadings in row order, in single precision or, where there are many, as multiples of a step."""
    if np.count_nonzero(active) <= LARGE:
        return loadings[active].astype(np.float32), None
    small: Any = np.int16 if np.count_nonzero(active) <= HUGE else np.int8
    step: Floats = np.maximum(np.abs(loadings).max(axis=0) / np.iinfo(small).max, np.finfo(float).tiny)
    exact = (loadings / step)[active]
    code = np.rint(exact)
    # an active loading is never zero
    return np.where(code == 0, np.copysign(1.0, exact), code).astype(small), step
