"""Tables that only hint at their Gaussian values, under a draw: the values, and what they say of entries as seen."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr

from nsfa.arrays import Floats, Ints
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.kernels import Kernels
from nsfa.latent_samples import CountSamples, LatentSamples, samples_of
from nsfa.model.priors import normal_log_density, outlier_scales
from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State

# New samples: rounds of scores and values by turns, and of how many draws at most.
ROUNDS = 60
NEW_DRAWS = 60
# Metropolis steps that bring log rates behind the fit's counts from what these show to what a draw has for them.
STEPS = 2
# Means of counts take rates for this many times the largest that was seen of their feature, if they are larger.
MOST_RATE = 2.0
# Nodes of the integrals over a log rate.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_LOG_WEIGHTS = np.log(_WEIGHTS) - 0.5 * np.log(2 * np.pi)
_NEWTON_STEPS = 8


class Seen(NamedTuple):
    """A Gaussian table under a draw, and with robust noise the shares of its samples (N, J + 1)."""

    data: Observed
    outlier_share: Any = None


class Tables(NamedTuple):
    """A table as each draw sees it: as it is, or with the Gaussian values drawn that it only hints at.

    ``fitted`` says that it is the one of the fit, whose samples have scores in the draws; others begin with values near
    what they show, and ``ROUNDS`` times their scores and values are drawn by turns, with random numbers that hang on
    the sample's own entries alone: whatever others are beside it. ``backend`` is where the chains were. ``ceiling``
    (D,), of counts, is where log rates less their level end in means.
    """

    data: Observed
    spec: ModelSpec
    kernels: Kernels
    fitted: bool
    backend: str = "cpu"
    ceiling: Any = None

    def under(self, draw: Draw, number: int) -> Seen:
        """The Gaussian table under a draw, whose ``number`` keys the random numbers. Cost O(D N K)."""
        if not self.spec.latent:
            return Seen(self.data)
        rng = np.random.default_rng([number, 22, 0])
        samples, state = samples_of(self.data, self.spec, self.kernels), state_of(draw)
        if isinstance(samples, LatentSamples):
            # the noise is the draw's, as is all else that is not the samples' own
            samples.hold()
        if self.fitted and draw.drawn_scores is not None:
            samples.set_scores(draw.drawn_scores.astype(np.float64))
            if isinstance(samples, CountSamples):
                if draw.exposure is not None:
                    samples.expose(draw.exposure.astype(np.float64))
                for _ in range(STEPS - 1):
                    samples.draw_latent(state, rng)
            if draw.outlier_share is not None:
                samples.outlier_share = draw.outlier_share.astype(np.float64)
            return Seen(_drawn(samples, state, rng), draw.outlier_share)
        if isinstance(samples, LatentSamples):
            samples.part(row_numbers(self.data), state)
        for _ in range(ROUNDS):
            samples.draw_scores(state, int(rng.bit_generator.random_raw()))
            _drawn(samples, state, rng)
        return Seen(_drawn(samples, state, rng), samples.outlier_share)

    def enough(self, draws: int) -> int:
        """Of how many draws at most the table is to be seen."""
        return min(draws, NEW_DRAWS) if self.spec.latent and not self.fitted else draws


def row_numbers(data: Observed) -> Ints:
    """A number below 2³¹ for each sample (N,), made of its entries alone: by it its random numbers are keyed."""
    rows = np.ascontiguousarray(data.values.T, dtype=np.float64)
    missing = np.zeros(rows.shape, np.bool_) if data.missing is None else data.missing.T
    holes = np.packbits(missing, axis=1)
    found = [zlib.crc32(hole.tobytes(), zlib.crc32(row.tobytes())) for row, hole in zip(rows, holes, strict=True)]
    return np.array(found, dtype=np.int64) & 0x7FFFFFFF


def _drawn(samples: Samples, state: State, rng: np.random.Generator) -> Observed:
    """The samples' table with values drawn anew, and exposures with them."""
    samples.draw_latent(state, rng)
    return replace(samples.data, exposure=getattr(samples, "exposure", None))


def state_of(draw: Draw) -> State:
    """As much of a chain's state as the values' and scores' conditionals need."""
    loadings = draw.loadings()
    state = State.from_arrays(
        loadings,
        draw.active(),
        noise_precision=draw.noise_precision,
        loading_precision=np.ones(draw.n_factors),
        intercept=draw.intercept,
        outlier_concentration=draw.outlier_concentration,
    )
    return state


def seen_log_density(
    spec: ModelSpec, share: Any, y: Floats, mean: Floats, variance: Floats, noise: Floats, level: Floats
) -> Floats:
    """Log density, or log mass, of entries as seen, given mean and variance of the Gaussian values behind them.

    ``share`` (entries, J + 1), with robust noise, are their samples' shares of ordinary entries and of outliers of each
    scale. ``noise`` is the part of the variance that is noise, ``level`` what counts' log rates are above their values.
    """
    if spec.likelihood == "counts":
        return poisson_normal_log_mass(y, mean + level, variance)
    if spec.likelihood == "binary":
        return np.asarray(log_ndtr(np.where(y > 0.5, 1.0, -1.0) * (mean + level) / np.sqrt(variance)))
    if share is None:
        return np.asarray(normal_log_density(y - mean, 1.0 / variance))
    logs = [
        np.log(w) + normal_log_density(y - mean, 1.0 / (variance + v * noise))
        for w, v in zip(share.T, outlier_scales(spec.priors), strict=True)
    ]
    return np.asarray(logsumexp(logs, axis=0))


def poisson_normal_log_mass(y: Floats, mean: Floats, variance: Floats) -> Floats:
    """Log ∫ Poisson(y; eˡ) N(l; mean, variance) dl, by quadrature about the integrand's mode."""
    tau = 1.0 / variance
    at = np.where(y > 0, (tau * mean + y * np.log(np.maximum(y, 1.0))) / (tau + y), np.minimum(mean, 0.0))
    for _ in range(_NEWTON_STEPS):
        rate = np.exp(np.minimum(at, 700.0))
        at = at + (y - rate - tau * (at - mean)) / (tau + rate)
    spread = 1.0 / np.sqrt(tau + np.exp(at))
    total = np.full(np.shape(y), -np.inf)
    for node, log_weight in zip(_NODES, _LOG_WEIGHTS, strict=True):
        x = at + spread * node
        height = y * x - np.exp(np.minimum(x, 700.0)) + normal_log_density(x - mean, tau)
        total = np.logaddexp(total, height + log_weight + 0.5 * node * node + np.log(spread))
    out: Floats = total + 0.5 * np.log(2 * np.pi) - gammaln(y + 1.0)
    return out


def ceiling_of(data: Observed) -> Floats | None:
    """Of counts, the log of ``MOST_RATE`` times each feature's largest count per exposure, less its level (D,)."""
    if data.likelihood != "counts":
        return None
    # entries that are missing are zeros here
    largest = (data.values * np.exp(-np.asarray(data.exposure))).max(axis=1)
    out: Floats = np.log(MOST_RATE * largest) - data.center[data.kept]
    return out


def seen_mean(spec: ModelSpec, mean: Floats, variance: Floats, level: Floats, ceiling: Any = None) -> Floats:
    """The mean of entries as seen, given that of the Gaussian values behind them.

    Of counts E[exp(min(z, c))] with the ``ceiling`` c: the noise's own distribution has such heavy tails, where few
    counts tell of it, that E[exp(z)] over all draws does not exist.
    """
    if spec.likelihood == "counts":
        deviation = np.sqrt(variance)
        room = (ceiling - mean) / deviation
        below = np.exp(mean + level + 0.5 * variance + log_ndtr(room - deviation))
        return np.asarray(below + np.exp(ceiling + level) * ndtr(-room))
    if spec.likelihood == "binary":
        return np.asarray(ndtr((mean + level) / np.sqrt(variance)))
    return mean


def seen_draw(
    spec: ModelSpec, share: Any, mean: Floats, variance: Floats, noise: Floats, level: Floats, rng: Any
) -> Floats:
    """One predictive draw of entries as seen; ``share`` as above."""
    if share is not None:
        # outliers first: the rest of the unit interval is that of ordinary entries
        kind = (rng.random(len(mean))[:, None] < np.cumsum(share[:, :0:-1], axis=1)).sum(axis=1)
        variance = variance + outlier_scales(spec.priors)[kind] * noise
    value: Floats = mean + np.sqrt(variance) * rng.standard_normal(len(mean))
    if spec.likelihood == "counts":
        return np.asarray(rng.poisson(np.exp(np.minimum(value + level, 30.0))), dtype=np.float64)
    if spec.likelihood == "binary":
        return np.asarray(value + level > 0, dtype=np.float64)
    return value
