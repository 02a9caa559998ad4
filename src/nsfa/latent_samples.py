"""Samples whose Gaussian values are drawn: outliers taken off, log rates behind counts, normals behind zeros and ones.

Given these values everything else is as for any table (docs/model.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from nsfa.arrays import Floats, Ints
from nsfa.columns import power_of
from nsfa.data import Observed
from nsfa.kernels import Hidden, Kernels
from nsfa.kernels.streams import Numbers, fresh_key, normals_at
from nsfa.model.priors import draw_shares, normal_log_density, outlier_scales, shares_of
from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples, abilities
from nsfa.state import State

Generator = np.random.Generator

# At the start, values of a feature are at most so many robust standard deviations from its median.
_FAR = 3.0
_NORMAL_MAD = 0.6745
# At the start, so many of each sample's entries are outliers.
_AT_START = 0.1
# As in moves/noise.py: copies of each other leave no residual at all.
LARGEST_PRECISION = 1e10


def samples_of(data: Observed, spec: ModelSpec, kernels: Kernels, first: int = 0) -> Samples:
    """The samples of a table, as the model sees them."""
    if data.likelihood == "counts":
        return CountSamples(data, kernels, spec, first)
    if data.likelihood == "binary":
        return BinarySamples(data, kernels, spec, first)
    if spec.noise == "robust":
        return RobustSamples(data, kernels, spec, first)
    return Samples(data, kernels, first)


def abilities_of(data: Observed, spec: ModelSpec) -> frozenset[str]:
    """What these samples can do: see ``Samples.can``."""
    found = {"latent"} if spec.latent else set()
    return abilities(data) | found | ({"carry"} if spec.likelihood == "counts" else set())


class LatentSamples(Samples):
    """Samples with values of their own, ``start`` (D, N), behind what is ``seen`` of them (D, N)."""

    def __init__(self, data: Observed, kernels: Kernels, spec: ModelSpec, start: Any, first: int = 0) -> None:
        values = start if data.missing is None else np.where(data.missing, 0.0, start).astype(start.dtype)
        own = replace(data, values=np.ascontiguousarray(values), power=power_of(values, None))
        super().__init__(own, kernels, first)
        self.seen = data.values
        self._missing = np.zeros((0, 0), dtype=np.bool_) if data.missing is None else data.missing
        self._start_power = own.power.copy()
        # one noise for all features cannot move feature by feature
        self._noise_shape = spec.priors.noise.shape if spec.noise_of_features else 0.0
        self._own: Ints | None = None

    @property
    def can(self) -> frozenset[str]:
        """What others can, and "latent"."""
        return super().can | {"latent"}

    @property
    def table_power(self) -> Floats:
        """That of the values at the start: later ones follow the noise, whose measure this is."""
        return self._start_power

    def hidden(self, state: State) -> Hidden:
        """The values' problem, for the kernels."""
        return Hidden(
            values=self.data.values,
            seen=self.seen,
            missing=self._missing,
            loadings=np.ascontiguousarray(state.loadings),
            scores=np.ascontiguousarray(self.scores.T),
            intercept=np.zeros(self.n_features) if state.intercept is None else state.intercept,
            noise_precision=state.noise_precision,
        )

    def draw_latent(self, state: State, rng: Generator) -> None:
        """Draw the values given what is seen of them, after which ``refresh`` must follow."""
        self._draw(state, rng)
        self.data.values_changed()
        self.valid = False

    def _draw(self, state: State, rng: Generator) -> None:
        raise NotImplementedError

    def hold(self) -> None:
        """Draw what is the samples' own from now on, and not the features' noise, or anything else, with it."""
        self._noise_shape = 0.0

    def part(self, numbers: Ints, state: State) -> None:
        """Begin anew with samples that know nothing of each other: random numbers are keyed by these ``numbers``.

        What is drawn for a sample is then the same whatever others are beside it. To be called before any draw.
        """
        self._own = numbers

    @property
    def numbers(self) -> Numbers:
        """As for others, or those that were given to ``part``."""
        return self.first if self._own is None else self._own

    def _noise_prior(self, state: State) -> Floats:
        """Shape and rate (2, D) of the noise precisions given their loadings alone; shapes of 0 hold them."""
        out: Floats = np.tile([[self._noise_shape], [state.noise_rate]], self.n_features)
        if self._noise_shape and state.relative:
            number, square = state.slab_weight
            out[0] += 0.5 * number
            out[1] += 0.5 * square
        return out


class RobustSamples(LatentSamples):
    """Samples of which some entries are outliers, with deviations of their own: values are without these.

    At the start, values far from their feature's median are drawn in, and samples have alike shares of outliers.
    """

    outlier_share: Floats
    outlier_number: Floats

    def __init__(self, data: Observed, kernels: Kernels, spec: ModelSpec, first: int = 0) -> None:
        if data.offset is not None:
            raise ValueError("noise='robust' needs a dense table. Got a sparse one; use X.toarray(), or other noise.")
        super().__init__(data, kernels, spec, drawn_in(data), first)
        self._scales, self._held = outlier_scales(spec.priors), False
        self._prior = np.array(spec.priors.outlier_shares), spec.priors.outlier_rate
        kinds = len(self._scales)
        self.outlier_number = np.zeros((self.n_samples, kinds))
        self.outlier_share = np.full((self.n_samples, kinds), _AT_START / (kinds - 1))
        self.outlier_share[:, 0] = 1.0 - _AT_START

    def hold(self) -> None:
        """As others, and the parameters of the samples' shares stay."""
        super().hold()
        self._held = True

    def part(self, numbers: Ints, state: State) -> None:
        """As others; values far from what the model has for them, instead of from the others', are drawn in."""
        super().part(numbers, state)
        spread = _FAR * np.sqrt((state.loadings**2).sum(axis=1) + 1.0 / state.noise_precision)
        mean = np.zeros(self.n_features) if state.intercept is None else state.intercept
        self.data.replace_values(np.clip(self.seen, (mean - spread)[:, None], (mean + spread)[:, None]))

    def _draw(self, state: State, rng: Generator) -> None:
        """Which entries are outliers, noise precisions, the outliers' deviations, and the samples' shares.

        w_n ~ Dirichlet(a + the kinds' numbers in sample n), and before it its parameters a with all w integrated out.
        """
        given = self.outlier_share, self._scales, self._noise_prior(state), LARGEST_PRECISION
        drawn = self.kernels.draw_outliers(self.hidden(state), *given, fresh_key(rng), self.numbers)
        self.outlier_number, state.outlier_weight, state.noise_precision = drawn
        concentration = np.asarray(state.outlier_concentration)
        if not self._held:
            concentration = self.kernels.draw_concentrations(drawn[0], concentration, *self._prior, fresh_key(rng))
        state.outlier_concentration = concentration
        self.outlier_share = self._draw_shares(concentration + drawn[0], rng)

    def _draw_shares(self, weight: Floats, rng: Generator) -> Floats:
        """Shares (N, J + 1) from Dirichlet distributions with these parameters."""
        if self._own is None:
            out: Floats = draw_shares(rng, weight)
            return out
        gammas = [self.kernels.draw_gammas(w, np.ones(len(w)), fresh_key(rng), self._own) for w in weight.T]
        return np.asarray(shares_of(np.column_stack(gammas)))

    def recorded(self) -> tuple[dict[str, float], dict[str, NDArray[np.float32]]]:
        """As others, the samples' shares, and the share of outliers in all."""
        numbers, columns = super().recorded()
        # none is zero, in single precision either
        shares = np.maximum(self.outlier_share, np.finfo(np.float32).tiny).astype(np.float32)
        outliers = float(1.0 - self.outlier_share[:, 0].mean())
        return {**numbers, "outliers": outliers}, {**columns, "outlier_share": shares}

    def snapshot(self) -> dict[str, Any]:
        """What the next sweeps depend on."""
        return {**super().snapshot(), "outlier_share": self.outlier_share, "outlier_number": self.outlier_number}

    def restore(self, snapshot: dict[str, Any], state: State) -> None:
        """Go on from a snapshot."""
        self.outlier_share, self.outlier_number = snapshot["outlier_share"], snapshot["outlier_number"]
        super().restore(snapshot, state)


def drawn_in(data: Observed) -> Floats:
    """Values (D, N), those far from their feature's median brought nearer; features that hardly vary are left alone."""
    table = data.values
    if data.missing is not None:
        # a feature of which nothing is seen, as in a few new samples, has no median
        table = np.where(data.missing & ~data.missing.all(axis=1, keepdims=True), np.nan, data.values)
    median = np.nanmedian(table, axis=1, keepdims=True)
    far = _FAR * np.nanmedian(np.abs(table - median), axis=1, keepdims=True) / _NORMAL_MAD
    far = np.where(far > 0, far, np.inf)
    out: Floats = np.clip(data.values, median - far, median + far).astype(data.values.dtype)
    return out


class CountSamples(LatentSamples):
    """Samples of counts, Poisson given values that are log rates less ``level`` (D,) and ``exposure`` (N,)."""

    exposure: Floats

    def __init__(self, data: Observed, kernels: Kernels, spec: ModelSpec, first: int = 0) -> None:
        self.level, self.exposure = data.center[data.kept], np.array(data.exposure)
        expected = np.exp(self.level[:, None] + self.exposure)
        # between what is expected and what is seen
        some = 0.5 * np.minimum(expected, 1.0)
        super().__init__(data, kernels, spec, np.log((data.values + some) / (expected + some)), first)

    def _draw(self, state: State, rng: Generator) -> None:
        """Log rates given counts, noise precisions together with them, and exposures."""
        given = self.hidden(state), self.level, self.exposure, self._noise_prior(state)
        state.noise_precision = self.kernels.draw_rates(*given, fresh_key(rng), self.numbers)
        if self.data.exposure_spread:
            self._draw_exposure(state, rng)

    @property
    def can(self) -> frozenset[str]:
        """What others can, and "carry"."""
        return super().can | {"carry"}

    def carry_intercepts(self, state: State, rng: Generator) -> None:
        """Means given the counts, log rates less means held: e^t ~ Gamma(Σ y, Σ rate) for t that both go up by."""
        if state.intercept is not None:
            state.intercept = self.kernels.carry_intercepts(*self._given(state), fresh_key(rng))
            self._carried()

    def carry_loadings(self, state: State, rng: Generator) -> None:
        """Loadings given the counts, log rates less fits held: each feature's on a random line. Cost O(D N)."""
        if state.n_factors:
            hidden, level, exposure = self._given(state)
            precision = np.ascontiguousarray(np.broadcast_to(state.slab_rows, state.loadings.shape))
            state.loadings[:] = self.kernels.carry_loadings(hidden, precision, level, exposure, fresh_key(rng))
            self._carried()

    def carry_scores(self, state: State, rng: Generator) -> None:
        """Scores given the counts, log rates less fits held: each sample's on a random ellipse. Cost O(D N)."""
        if state.n_factors:
            self.scores[:] = self.kernels.carry_scores(*self._given(state), fresh_key(rng), self.numbers)
            self._carried()

    def _given(self, state: State) -> tuple[Hidden, Floats, Floats]:
        return self.hidden(state), self.level, self.exposure

    def _carried(self) -> None:
        self.data.values_changed()
        self.valid = False

    def expose(self, exposure: Floats) -> None:
        """Take these exposures (N,); log rates stay as they are."""
        self.data.replace_values(self.data.values + (self.exposure - exposure))
        self.exposure = exposure

    def _draw_exposure(self, state: State, rng: Generator) -> None:
        """e_n ~ N(e₀, s²) given the log rates, of which it is a part that all features share."""
        tau, values = state.noise_precision, self.data.values
        error, weight = tau @ values - self.scores @ (tau @ state.loadings), np.full(self.n_samples, tau.sum())
        error -= 0.0 if state.intercept is None else tau @ state.intercept
        holes = self._fit_of_holes(state)
        if holes is not None:
            if state.intercept is not None:
                holes.data += np.repeat(state.intercept, np.diff(holes.indptr))
            error, weight = error + holes.T @ tau, weight - self.data.absent_of_samples @ tau
        before, prior = np.asarray(self.data.exposure), self.data.exposure_spread**-2
        precision = weight + prior
        mean = (error + weight * self.exposure + prior * before) / precision
        own = self._own
        error = rng.standard_normal(self.n_samples) if own is None else normals_at(fresh_key(rng), own, 0)
        self.expose(mean + error / np.sqrt(precision))

    def log_seen(self) -> float:
        """Log probability of the counts given their log rates, and log density of the exposures."""
        rate = self.data.values + self.level[:, None] + self.exposure
        each = self.seen * rate - np.exp(rate) - gammaln(self.seen + 1.0)
        counts = float((each if self.data.missing is None else each[~self.data.missing]).sum())
        if not self.data.exposure_spread:
            return counts
        error = self.exposure - np.asarray(self.data.exposure)
        return counts + float(normal_log_density(error, self.data.exposure_spread**-2).sum())

    def recorded(self) -> tuple[dict[str, float], dict[str, NDArray[np.float32]]]:
        """As others, and the exposures."""
        numbers, columns = super().recorded()
        return numbers, {**columns, "exposure": self.exposure.astype(np.float32)}

    def snapshot(self) -> dict[str, Any]:
        """What the next sweeps depend on."""
        return {**super().snapshot(), "exposure": self.exposure}

    def restore(self, snapshot: dict[str, Any], state: State) -> None:
        """Go on from a snapshot."""
        self.exposure = snapshot["exposure"]
        super().restore(snapshot, state)


class BinarySamples(LatentSamples):
    """Samples of zeros and ones: whether values plus ``level`` (D,) are above zero."""

    def __init__(self, data: Observed, kernels: Kernels, spec: ModelSpec, first: int = 0) -> None:
        self.level = data.center[data.kept]
        # the middle of a normal's halves
        start = np.where(data.values > 0.5, 0.8, -0.8) - self.level[:, None]
        super().__init__(data, kernels, spec, start, first)

    def _draw(self, state: State, rng: Generator) -> None:
        self.kernels.draw_signs(self.hidden(state), self.level, fresh_key(rng), self.numbers)
