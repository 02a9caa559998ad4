"""The current point of a chain: everything the model draws, in buffers with room to grow."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from nsfa.arrays import Bools, Floats, Ints, beside

_SPARE = 8
# Log odds beyond this say no more, and their exponentials overflow.
MOST_KNOWN = 100.0


@dataclass
class State:
    """Loadings, pattern and hyperparameters of one chain: all but what has a sample axis (``nsfa.samples``).

    The matrices live in buffers with at least one spare column, so that factors come and go without copying; the
    properties ``loadings`` and ``active`` (D, K) are views of the columns in use.

    ``loading_precision`` is 0-d when shared, (K,) per factor, (D, K) per element; where slabs are ``relative`` it
    counts in units of the features' noise precisions. ``intercept`` (D,) are the features' means, None where held.
    With robust noise, ``outlier_concentration`` (J + 1,) are the parameters of the Dirichlet distribution from which
    each sample has its shares of ordinary entries and of outliers of each scale, and ``outlier_weight`` (2, D) each
    feature's number of outliers and the sum of their squared deviations over their scales.
    ``known`` (D, K₀), set by ``know``, is added to the prior log odds of the first K₀ factors, which then are never
    born and never die.
    """

    n_factors: int
    noise_precision: Floats
    loading_precision: Floats
    usage: Ints
    concentration: float = 1.0
    stickiness: float = 1.0
    noise_rate: float = 1.0
    loading_rate: float = 1.0
    sparsity: Floats | None = None
    urn_concentration: float = 1.0
    relative: bool = False
    intercept: Floats | None = None
    known: Floats | None = None
    outlier_concentration: Floats | None = None
    outlier_weight: Floats | None = None
    buffers: dict[str, Any] = field(default_factory=dict, repr=False)
    # whether listing the users of every factor costs next to nothing
    lists_users: ClassVar[bool] = False

    @classmethod
    def from_arrays(cls, loadings: Floats, active: Bools, **values: Any) -> State:
        """Build a state from exact-size arrays; the buffers are copies."""
        n_factors = loadings.shape[1]
        buffers = {
            "loadings": widened(np.asarray(loadings, float), n_factors + _SPARE),
            "active": widened(np.asarray(active, bool), n_factors + _SPARE),
        }
        return cls(n_factors=n_factors, usage=active.sum(axis=0).astype(np.int64), buffers=buffers, **values)

    @property
    def loadings(self) -> Floats:
        """Factor loadings (D, K), exact zeros where inactive."""
        return self.buffers["loadings"][:, : self.n_factors]  # type: ignore[no-any-return]

    @property
    def active(self) -> Bools:
        """Which loadings are in use (D, K)."""
        return self.buffers["active"][:, : self.n_factors]  # type: ignore[no-any-return]

    @property
    def pattern(self) -> Any:
        """``active`` for kernels that change loadings; None where these go by the zeros."""
        return self.active

    @property
    def width(self) -> int:
        """Columns of the buffers: the scores' is as wide, since strides can decide the last bit of a product."""
        return self.buffers["loadings"].shape[1]  # type: ignore[no-any-return]

    @property
    def prior_offset(self) -> Floats:
        """What is added to prior log odds (D, K₀) as the kernels take it: of no columns where nothing is known."""
        return np.zeros((len(self.noise_precision), 0)) if self.known is None else self.known

    def know(self, known: Floats) -> None:
        """Set what is known: (D, K₀) log odds of the first K₀ factors, which must be there, else ValueError."""
        known = np.ascontiguousarray(known, dtype=np.float64)
        if known.ndim != 2 or len(known) != len(self.noise_precision) or known.shape[1] > self.n_factors:
            raise ValueError(
                f"known must be (D, K₀) with D = {len(self.noise_precision)} features and at most K = {self.n_factors} "
                f"factors, those there are. Got shape {known.shape}."
            )
        if not (np.abs(known) <= MOST_KNOWN).all():
            raise ValueError(f"known must hold log odds between ±{MOST_KNOWN:g}. Got {np.abs(known).max():g}.")
        self.known = known

    @property
    def free_usage(self) -> Ints:
        """The usage (K,) that births and deaths see: factors of which something is known are never single or few."""
        if self.known is None:
            return self.usage
        return np.where(np.arange(self.n_factors) < self.known.shape[1], len(self.noise_precision) + 1, self.usage)

    @property
    def precision_rows(self) -> Floats:
        """Slab precisions as (1, K), or (D, K) per element, in C order as the kernels take them."""
        if self.loading_precision.ndim == 0:
            return np.full((1, self.n_factors), self.loading_precision)
        if self.loading_precision.ndim == 1:
            return self.loading_precision[None, :]
        return np.ascontiguousarray(self.loading_precision)

    @property
    def slab_rows(self) -> Floats:
        """Precisions of the loadings themselves, (1, K) or (D, K): relative ones times the noise precisions."""
        rows: Floats = beside(self.precision_rows, self.noise_precision)
        return rows * self.noise_precision[:, None] if self.relative else rows

    @property
    def loading_squares(self) -> Floats:
        """Σ_d g_dk² of every factor (K,), in units of the features' noise where slabs are relative."""
        square = self.loadings**2
        out: Floats = self.noise_precision @ square if self.relative else square.sum(axis=0)
        return out

    @property
    def weighted_squares(self) -> Floats:
        """Σ_d g_dk² times the precisions of the loadings' slabs (K,)."""
        out: Floats = (self.loadings**2 * self.slab_rows).sum(axis=0)
        return out

    def uses(self, features: Ints) -> Bools:
        """Whether feature ``features[k]`` uses factor k (K,)."""
        out: Bools = self.active[features, np.arange(self.n_factors)]
        return out

    def nth_users(self, factors: Ints, ranks: Ints) -> Ints:
        """Of the features that use each of the ``factors``, number ``ranks`` (from 0)."""
        usage = self.usage[factors]
        found: Ints = np.nonzero(self.active[:, factors].T)[1][np.cumsum(usage) - usage + ranks]
        return found

    @property
    def slab_weight(self) -> Floats:
        """What relative slabs say of each feature's noise (2, D): its active loadings m_d, and Σ_k λ_k g_dk²."""
        rows, square = self.precision_rows, self.loadings**2
        return np.stack([self.active.sum(axis=1), square @ rows[0] if len(rows) == 1 else (square * rows).sum(axis=1)])

    @property
    def products(self) -> tuple[Floats, Any]:
        """Of every two factors (K, K): Σ_d g_dj g_dk, weighted as ``loading_squares``; how many features use both."""
        g, active = np.ascontiguousarray(self.loadings), self.active.astype(np.float32)
        return g.T @ self.noise_units(g, 2), active.T @ active

    def turn_loadings(self, by: Floats) -> None:
        """Loadings → loadings · ``by``, (K, K) or (K,) for a diagonal one; zeros must stay zeros."""
        if by.ndim == 1:
            self.loadings[:] *= by
        else:
            self.loadings[:] = np.ascontiguousarray(self.loadings) @ by

    def lower_intercept(self, by: Floats) -> None:
        """Subtract the fit of scores ``by`` (K,) from the features' means, in place."""
        self.intercept -= self.loadings @ by  # type: ignore[operator]

    @property
    def noise_weight(self) -> Floats:
        """What bears on each feature's noise beside its entries, relative loadings and outliers' deviations (2, D).

        How many numbers, and the sum of their squares in units of the noise variance.
        """
        shape = 2, len(self.noise_precision)
        out = self.slab_weight if self.relative else np.zeros_like(self.noise_precision, shape=shape)
        return out if self.outlier_weight is None else out + self.outlier_weight

    @property
    def given_weight(self) -> Any:
        """``noise_weight`` for kernels that are given it; None where they work it out."""
        return self.noise_weight

    def noise_units(self, values: Floats, power: int = 1) -> Floats:
        """Values (D, ...) in units of the features' noise, to the ``power``; as they are if slabs are not relative."""
        if not self.relative:
            return values
        unit = np.sqrt(self.noise_precision) ** power
        out: Floats = values * unit.reshape(-1, *(1,) * (values.ndim - 1))
        return out

    def drop(self, factors: Ints) -> Ints:
        """Remove factors, each hole filled by the last factor. Returns which of the former ones the others were."""
        order = without(self.n_factors, factors)
        moved = np.flatnonzero(order != np.arange(len(order)))
        self._move(moved, order[moved])
        self.usage = self.usage[order]
        if self.loading_precision.ndim:
            self.loading_precision = np.ascontiguousarray(self.loading_precision[..., order])
        self.n_factors = len(order)
        return order

    def replace_singletons(
        self, dead: tuple[Ints, Ints], rows: Ints, values: Floats, precisions: Floats | None
    ) -> None:
        """Remove the singletons ``dead`` (features, factors); add one factor per entry of ``rows``, used by it alone.

        ``precisions`` is (new,) per factor, (D, new) per element, None when shared. A dead factor's column is reused
        where there is a new one for it: it holds a single loading, so nothing of size D is touched. The new factors'
        scores are not set.
        """
        factors = dead[1]
        reused = min(len(factors), len(rows))
        extra = len(rows) - reused
        columns = np.concatenate([factors[:reused], np.arange(self.n_factors, self.n_factors + extra)])
        if extra:
            self._append(extra)
        # the new ones last: a feature may put one where it had one
        places = np.concatenate([dead[0], rows]), np.concatenate([factors, columns])
        self._write(*places, np.concatenate([np.zeros(len(factors)), values]))
        if len(rows):
            self.usage[columns] = 1
            if precisions is not None:
                self.loading_precision[..., columns] = precisions
        if reused < len(factors):
            self.drop(factors[reused:])

    def add(self, feature: Ints, values: Floats, precisions: Floats | None) -> None:
        """Append factors: features and loadings (new, m) of their users, precisions as above."""
        first = self.n_factors
        self._append(len(feature))
        columns = np.arange(first, self.n_factors)
        self._write(feature, columns[:, None], values)
        self.usage[first:] = feature.shape[1]
        if precisions is not None:
            self.loading_precision[..., first:] = precisions

    def _write(self, features: Ints, factors: Ints, values: Floats) -> None:
        """Set single loadings, those that are zero out of use."""
        self.loadings[features, factors] = values
        self.active[features, factors] = values != 0

    def _move(self, to: Ints, source: Ints) -> None:
        """Columns ``source`` of the buffers take the places ``to``, which none of them has."""
        for buffer in self.buffers.values():
            buffer[:, to] = buffer[:, source]

    def _append(self, extra: int) -> None:
        """Make room for ``extra`` factors with zero loadings; their precisions are the caller's to set."""
        first, total = self.n_factors, self.n_factors + extra
        for name, buffer in self.buffers.items():
            if total >= buffer.shape[1]:
                self.buffers[name] = widened(buffer[:, :first], total + _SPARE)
            self.buffers[name][:, first:total] = 0
        self.usage = np.concatenate([self.usage, np.zeros(extra, np.int64)])
        if self.loading_precision.ndim:
            room = np.ones((*self.loading_precision.shape[:-1], extra))
            self.loading_precision = np.concatenate([self.loading_precision, room], axis=-1)
        self.n_factors = total

    def on_host(self) -> State:
        """The same with every array in this process's memory: itself."""
        return self

    def snapshot(self) -> dict[str, Any]:
        """Every field as it is; of the buffers the columns in use, and their widths."""
        out = {item.name: getattr(self, item.name) for item in fields(self)}
        used = {name: buffer[:, : self.n_factors] for name, buffer in self.buffers.items()}
        return {**out, "buffers": used, "widths": {name: b.shape[1] for name, b in self.buffers.items()}}

    @classmethod
    def from_snapshot(cls, snapshot: dict[str, Any]) -> State:
        """The state of a snapshot, its buffers as wide as they were."""
        widths, known = snapshot["widths"], {item.name for item in fields(cls)}
        # former versions had others, of no use where they are empty
        values = {name: value for name, value in snapshot.items() if name in known}
        values["buffers"] = {name: widened(used, widths[name]) for name, used in snapshot["buffers"].items()}
        return cls(**values)

    def check_invariants(self) -> None:
        """Raise ValueError if the parts contradict each other: for tests and for states read from disk."""
        if (self.loadings[~self.active] != 0).any():
            raise ValueError("an inactive loading is not zero")
        if (self.usage != self.active.sum(axis=0)).any():
            raise ValueError("usage does not count the active loadings")
        if not all(np.isfinite(a).all() for a in (self.loadings, self.noise_precision)):
            raise ValueError("the state holds NaN or infinity")
        if min(self.noise_precision.min(), self.precision_rows.min(initial=1.0)) <= 0:
            raise ValueError("a precision is not positive")


def without(n_factors: int, factors: Ints) -> Ints:
    """The factors that are left, in their new order: each hole is filled by the last of them."""
    order = list(range(n_factors))
    for k in sorted((int(k) for k in factors), reverse=True):
        last = order.pop()
        if k < len(order):
            order[k] = last
    return np.array(order, dtype=np.int64)


def widened(array: Any, width: int) -> Any:
    """A copy of (n, K) as the first columns of a wider array of zeros."""
    out = np.zeros_like(array, shape=(array.shape[0], width))
    out[:, : array.shape[1]] = array
    return out
