"""Samples whose scores pass: tables on a device, on the workers of a cluster, or in blocks that come and go.

Gaussian scores are drawn anew in every sweep given all else. Between two draws only their sums matter: S = XᵀX, T = Y X
and Σ x_n, and whatever turns or shifts the scores does so to these. So a table need not keep scores, and is behind two
verbs: draw all scores and return their sums; multiply by Y Yᵀ.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from nsfa.arrays import Floats, Ints, beside, contiguous, to_host
from nsfa.data import Observed
from nsfa.holes import no_holes
from nsfa.kernels import Kernels, Projection
from nsfa.kernels.streams import fresh_key
from nsfa.samples import Samples, project
from nsfa.state import State

Generator = np.random.Generator

_POWER_STEPS = 2
_RESIDUAL_STEPS = 6


class Passed(NamedTuple):
    """Sums over all samples of scores that were drawn: XᵀX (K, K), Y X (D, K), Σ x_n (K,), and what they gain.

    ``gain`` is Σ_n [½ aᵀΛ⁻¹a − ½ log|Λ|], the part of log p(Y | G, τ, μ) that needs them. Arrays per feature are where
    the loadings were.
    """

    gram: Floats
    cross: Floats
    sums: Floats
    gain: float


class Table(Protocol):
    """A complete table Y (D, N), centred and scaled, wherever it is."""

    shape: tuple[int, int]
    count: Floats
    total: Floats
    power: Floats

    def pass_scores(self, loadings: Floats, noise_precision: Floats, intercept: Floats | None, key: int) -> Passed:
        """Draw x_n ~ N(Λ⁻¹ Gᵀ diag(τ) (y_n − μ), Λ⁻¹), Λ = I + Gᵀ diag(τ) G, for all samples. Cost O(D N K).

        Random numbers are keyed by the sample's number in the whole table.
        """

    def second(self, right: Floats) -> Floats:
        """Y (Yᵀ right), (D, k)."""


class PassingSamples(Samples):
    """The samples of a chain over a ``Table``. No moves that go through values or scores; nothing may be missing."""

    def __init__(self, table: Table, kernels: Kernels, at_once: bool = False) -> None:
        self.table, self.kernels, self.at_once = table, kernels, at_once
        self.n_features, self.n_samples = table.shape
        self.count, self.power, self.residual = table.count, table.power, table.power
        self.n_observed = float(self.n_features) * self.n_samples
        self.log_evidence, self.cluster, self.valid = math.nan, None, False
        self.holes = no_holes(self.n_features)
        self._set(np.zeros((0, 0)), self._columns(0), np.zeros(0))

    def _columns(self, width: int) -> Floats:
        """Zeros (D, width) where the table's arrays are."""
        out: Floats = np.zeros_like(self.power, shape=(self.n_features, width))
        return out

    def _set(self, gram: Floats, cross: Floats, sums: Floats) -> None:
        """Take sums of new scores; T is that of values not yet reduced by the intercepts."""
        self.gram, self.cross, self.sums = gram, cross, sums
        self._reduced_by: Floats | None = None
        self.valid = False

    @property
    def can(self) -> frozenset[str]:
        """What moves may ask for: see ``Samples``."""
        return passing_abilities(self.at_once)

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        return True

    @property
    def table_power(self) -> Floats:
        """Σ_n y_dn² (D,), whatever the intercepts."""
        return self.table.power

    @property
    def total(self) -> Floats:
        """Σ_n y_dn (D,)."""
        return self.table.total

    @property
    def scores(self) -> Floats:
        """No scores are kept: (0, K)."""
        return np.zeros((0, len(self.gram)))

    @property
    def score_power(self) -> float:
        """Σ x² over all scores."""
        return float(self.gram.trace())

    def begin(self, state: State, rng: Generator, towards_data: bool = False, clustered: bool = False) -> None:
        """Scores for the state's factors, at random or towards the data: see ``Samples``. Cost O(D N K)."""
        width = state.n_factors
        if towards_data and width:
            self._set(*self._towards_data(width, rng))
        elif width:
            nothing = self._columns(width)
            self._set(*self.table.pass_scores(nothing, np.ones_like(self.power), None, fresh_key(rng))[:3])
        self.refresh(state)

    def _towards_data(self, width: int, rng: Generator) -> tuple[Floats, Floats, Floats]:
        """S, T and Σ x of X = Yᵀ V A: V near the largest directions of Y Yᵀ, A such that S is N times the identity."""
        directions: Any = beside(rng.standard_normal((self.n_features, width)), self.power)
        for _ in range(_POWER_STEPS - 1):
            directions = np.linalg.qr(self.table.second(directions))[0]
        product = self.table.second(directions)
        size, axes = np.linalg.eigh(to_host(directions.T @ product))
        size = np.maximum(size, np.finfo(float).eps * max(size.max(), 1.0))
        rotation = np.linalg.qr(rng.standard_normal((width, width)))[0]
        mix = np.sqrt(self.n_samples) * (axes / np.sqrt(size)) @ rotation
        sums = to_host(self.total @ directions) @ mix
        return self.n_samples * np.eye(width), product @ beside(mix, product), sums

    def refresh(self, state: State) -> None:
        """Bring T and q to the present intercepts. Cost O(D K)."""
        intercept = state.intercept
        if intercept is not None and intercept is not self._reduced_by:
            less = intercept if self._reduced_by is None else intercept - self._reduced_by
            self.cross -= less[:, None] * self.score_sums()
            # a copy: the state's may change in place
            self._reduced_by = intercept.copy()
            self.power = self._power_about(intercept)
        self.valid = True

    def _power_about(self, intercept: Floats) -> Floats:
        """Σ_n (y_dn − μ_d)² (D,)."""
        out: Floats = np.maximum(self.table.power - intercept * (2.0 * self.total - intercept * self.count), 0.0)
        return out

    def turn(self, by: Floats, which: Ints | None = None, gram: Floats | None = None) -> None:
        """Scores → scores · ``by``, as in ``Samples``; cost O(D K²)."""
        if by.ndim == 1:
            self.cross *= beside(by, self.cross)
            self.gram, self.sums = self.gram * np.outer(by, by), self.sums * by
            return
        every = by
        if which is not None:
            every = np.eye(len(self.gram))
            every[np.ix_(which, which)] = by
        self.cross = self._turned(every)
        self.gram = every.T @ self.gram @ every if gram is None else gram
        self.sums = self.sums @ every

    def _turned(self, by: Floats) -> Floats:
        """T · ``by`` (K, K)."""
        return self.cross @ by

    def keep(self, order: Ints) -> None:
        """Keep the factors ``order`` and put them in this order."""
        self.cross = contiguous(self.cross[:, beside(order, self.cross)])
        self.gram, self.sums = np.ascontiguousarray(self.gram[np.ix_(order, order)]), self.sums[order]

    def mean_scores(self) -> Floats:
        """The factors' mean scores (K,)."""
        return self.sums / self.n_samples

    def shift(self, by: Floats) -> None:
        """Add ``by`` (K,) to the scores of every sample; ``refresh`` must follow."""
        total = self.total if self._reduced_by is None else self.total - self.count * self._reduced_by
        self.cross += total[:, None] * by
        self._shift_sums(by)

    def _shift_sums(self, by: Floats) -> None:
        both = np.outer(self.sums, by)
        self.gram = self.gram + both + both.T + self.n_samples * np.outer(by, by)
        self.sums = self.sums + self.n_samples * by
        self.valid = False

    def score_sums(self) -> Floats:
        """Σ_n x_n (1, K)."""
        return beside(self.sums[None, :], self.power)  # type: ignore[no-any-return]

    def draw_scores(self, state: State, key: int) -> float:
        """Draw all scores given everything else: see ``Samples``. ``refresh`` must follow."""
        if not state.n_factors:
            self._set(np.zeros((0, 0)), self._columns(0), np.zeros(0))
            return 0.0
        passed = self.table.pass_scores(state.loadings, state.noise_precision, state.intercept, key)
        self._set(*passed[:3])
        return passed.gain

    def observed_squares(self, state: State) -> tuple[Floats, Floats]:
        """Σ x² (1, K), and S g_d (D, K)."""
        gram = beside(self.gram, self.cross)
        return gram.diagonal()[None, :], state.loadings @ gram

    def log_volume(self, weight: Floats) -> Floats:
        """N log(1 + Σ_d w_dk) (K,)."""
        out: Floats = self.n_samples * np.log1p(np.maximum(weight.sum(axis=0), 0.0))
        return out

    def add_directions(self, state: State, most: int, beyond: float, rng: Generator) -> Floats | None:
        """Add scores in directions beyond noise, as in ``Samples``; in the space of features. Cost O(D N).

        The left singular vectors U of B = diag(√τ) Y P, P leaving the mean and the scores out, come by iteration of
        B Bᵀ = diag(√τ) (Y Yᵀ − T S⁻¹ Tᵀ) diag(√τ); the scores √N Bᵀ U / σ have a mean of zero and S = N I.
        """
        width = min(most, (self.n_samples - len(self.gram) - 1) // 2, self.n_features)
        if width < 1:
            return None
        root = np.sqrt(state.noise_precision)[:, None]
        directions: Any = beside(rng.standard_normal((self.n_features, width)), self.power)
        product = directions
        for _ in range(_RESIDUAL_STEPS):
            directions = np.linalg.qr(product)[0]
            product = root * self._second_residual(root * directions)
        power, axes = np.linalg.eigh(to_host(directions.T @ product))
        clear = power > beyond * (np.sqrt(self.n_features) + np.sqrt(self.n_samples)) ** 2
        if not clear.any():
            return None
        loadings = product @ beside(axes[:, clear] / np.sqrt(power[clear] * self.n_samples), product) / root
        self._append(loadings * self.n_samples)
        return loadings  # type: ignore[no-any-return]

    def _second_residual(self, right: Any) -> Any:
        """Y P Yᵀ right: what is left of Y Yᵀ without the samples' mean and the scores."""
        reduced = np.zeros_like(self.total) if self._reduced_by is None else self._reduced_by
        cross = np.concatenate([self.total[:, None], self.cross + reduced[:, None] * self.score_sums()], axis=1)
        corner = np.block(
            [[np.full((1, 1), float(self.n_samples)), self.sums[None, :]], [self.sums[:, None], self.gram]]
        )
        inside = beside(np.linalg.solve(corner, to_host(cross.T @ right)), right)
        return self.table.second(right) - cross @ inside

    def _append(self, cross: Floats) -> None:
        """Factors whose scores have S = N I, are at right angles to all others and to the mean, and T = ``cross``."""
        old, new = len(self.gram), cross.shape[1]
        gram = np.zeros((old + new, old + new))
        gram[:old, :old] = self.gram
        gram[old:, old:] = self.n_samples * np.eye(new)
        self.gram, self.sums = gram, np.concatenate([self.sums, np.zeros(new)])
        self.cross = np.concatenate([self.cross, cross], axis=1)

    def snapshot(self) -> dict[str, Any]:
        """What the next sweeps depend on: the sums of the scores, not the scores."""
        reduced = None if self._reduced_by is None else to_host(self._reduced_by)
        sums = {"gram": self.gram, "cross": to_host(self.cross), "sums": self.sums, "reduced_by": reduced}
        return {**sums, "log_evidence": self.log_evidence}

    def restore(self, snapshot: dict[str, Any], state: State) -> None:
        """Go on from a snapshot."""
        if "sums" not in snapshot:
            raise ValueError("The checkpoint is of another backend; go on with the one the run was begun with.")
        self._set(snapshot["gram"], beside(snapshot["cross"], self.power), snapshot["sums"])
        self.log_evidence = snapshot["log_evidence"]
        if snapshot["reduced_by"] is not None:
            self._reduced_by = beside(snapshot["reduced_by"], self.power)
        self.power = self.table.power if state.intercept is None else self._power_about(state.intercept)
        self.valid = True


def passing_abilities(at_once: bool) -> frozenset[str]:
    """What samples can do that keep no scores: see ``Samples.can``."""
    return frozenset({"whole", "complete", "at once"} if at_once else {"whole", "complete"})


class ObservedTable:
    """A table in this process's memory, or a block of one; ``first`` is its first sample's number in the whole."""

    def __init__(self, data: Observed, kernels: Kernels, first: int = 0) -> None:
        self.data, self.kernels, self.first = data, kernels, first
        self.shape, self.count, self.total, self.power = data.shape, data.count, data.total, data.power

    def pass_scores(self, loadings: Floats, noise_precision: Floats, intercept: Floats | None, key: int) -> Passed:
        """Draw all scores; see ``Table``."""
        return self.sums_of(*self._drawn(project(self.data, loadings, noise_precision, intercept, self.kernels), key))

    def _drawn(self, problem: Projection, key: int) -> tuple[Floats, float]:
        """Scores (N, K), and what they gain."""
        scores = np.empty(problem.projection.shape)
        return scores, self.kernels.draw_scores(problem, scores, key, self.first)

    def sums_of(self, scores: Floats, gain: float = math.nan) -> Passed:
        """The sums that given scores (N, K) have."""
        cross = np.empty((self.shape[0], scores.shape[1]))
        self.kernels.cross(self.data, scores, cross)
        return Passed(scores.T @ scores, cross, scores.sum(axis=0), gain)

    def second(self, right: Floats) -> Floats:
        """Y (Yᵀ right); see ``Table``."""
        out = np.empty(right.shape)
        self.kernels.cross(self.data, self.kernels.project(self.data, right, np.ones(len(right)))[0], out)
        return out
