"""One kept draw: only active loadings are stored, in single precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsfa.kernels import Floats
from nsfa.state import State

SCALARS = ("concentration", "stickiness", "noise_rate", "loading_rate", "urn_concentration")


@dataclass(frozen=True)
class Draw:
    """A posterior draw on the scale of the centred and scaled data.

    The loadings are in compressed rows: feature d uses factors ``column[start[d]:start[d + 1]]`` with the loadings
    ``value`` there. Scores are kept only where they cannot be integrated out (Dirichlet-process scores).
    """

    shape: tuple[int, int]
    start: NDArray[np.int32]
    column: NDArray[np.uint16]
    value: NDArray[np.float32]
    noise_precision: NDArray[np.float32]
    loading_precision: NDArray[np.float32]
    scalars: dict[str, float]
    scores: NDArray[np.float32] | None = None

    @property
    def n_factors(self) -> int:
        """K of this draw."""
        return self.shape[1]

    @property
    def n_active(self) -> int:
        """Number of active loadings."""
        return len(self.value)

    def loadings(self) -> Floats:
        """Dense loadings (D, K) in double precision."""
        out = np.zeros(self.shape)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.start))
        out[rows, self.column] = self.value
        return out


def record(state: State, scalars: dict[str, float], keep_scores: bool = False) -> Draw:
    """Copy the current state into a ``Draw``. Cost O(D K)."""
    active = state.active
    rows, columns = np.nonzero(active)
    start = np.zeros(len(active) + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=len(active)), out=start[1:])
    every = dict(scalars)
    every.update({name: float(getattr(state, name)) for name in SCALARS})
    every["n_factors"] = state.n_factors
    every["n_active"] = len(rows)
    every["loading_power"] = float(np.vdot(state.loadings, state.loadings))
    precision = state.loading_precision
    return Draw(
        shape=(len(active), state.n_factors),
        start=start,
        column=columns.astype(np.uint16),
        value=state.loadings[rows, columns].astype(np.float32),
        noise_precision=state.noise_precision.astype(np.float32),
        # per-element precisions are as large as dense loadings and nothing reads them
        loading_precision=precision.astype(np.float32) if precision.ndim < 2 else np.zeros(0, np.float32),
        scalars=every,
        scores=state.scores.astype(np.float32) if keep_scores else None,
    )
