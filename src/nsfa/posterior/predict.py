"""Predictions of entries of a table, draw by draw, with the scores integrated out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from nsfa.arrays import Bools, Floats, Ints
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.kernels import Kernels, Projection
from nsfa.posterior.latent import Tables, seen_draw, seen_mean
from nsfa.posterior.project import cluster_fits, project

# Draws kept for intervals, of entries or of loadings, are thinned to stay below this many bytes.
INTERVAL_BYTES = 200_000_000


class Entries(NamedTuple):
    """Entries of the table, sorted by sample: sample n, modelled feature d, and column of the user's table of each."""

    sample: Ints
    row: Ints
    column: Ints

    def to_user(self, data: Observed, values: Floats) -> Floats:
        """Values of these entries in the user's units; counts, and zeros and ones, are in them."""
        if data.likelihood != "gaussian":
            return values
        out: Floats = values * data.scale[self.column] + data.center[self.column]
        return out

    def level(self, data: Observed) -> Floats:
        """What the Gaussian values of counts, or of zeros and ones, are to be raised by; zero for others."""
        if data.likelihood == "gaussian":
            return np.zeros(len(self.row))
        level = data.center[self.column]
        return level if data.exposure is None else level + data.exposure[self.sample]


def modelled(data: Observed, mask: Bools) -> Entries:
    """The True entries of a mask of the user's table, in the modelled one; −1 for features that are not in it."""
    position = np.full(data.n_features, -1)
    position[data.kept] = np.arange(len(data.kept))
    sample, column = np.nonzero(mask)
    return Entries(sample, position[column], column)


def held_out(data: Observed, where: Any) -> tuple[Bools, Entries]:
    """Check a mask of the user's table that marks entries missing in the fit, and find these in the modelled one."""
    mask, expected = np.asarray(where), (data.shape[1], data.n_features)
    if mask.dtype != np.bool_ or mask.shape != expected:
        raise ValueError(f"where must be a boolean mask of shape {expected}. Got {mask.dtype} {mask.shape}.")
    entries = modelled(data, mask)
    if (entries.row < 0).any():
        raise ValueError("where must not mark features that do not vary: they have no predictive density.")
    if data.missing is None or not data.missing[entries.row, entries.sample].all():
        raise ValueError("where must mark only entries that were missing (NaN) in the fit; others were seen by it.")
    return mask, entries


def to_table(data: Observed, values: Floats) -> Floats:
    """A table (D, N) on the model's scale as the user's (n_samples, n_features); constant features have their value."""
    return data.to_user(values).T + data.center


def fitted_table(data: Observed) -> Floats:
    """The fitted table (n_samples, n_features) in the user's units, NaN where missing."""
    values = data.values if data.offset is None else data.values.toarray() - data.offset[:, None]
    if data.likelihood != "gaussian":
        out = np.tile(data.center, (data.shape[1], 1))
        out[:, data.kept] = (values if data.missing is None else np.where(data.missing, np.nan, values)).T
        return out
    return to_table(data, values if data.missing is None else np.where(data.missing, np.nan, values))


class Moments(NamedTuple):
    """Predictive mean and variance of some entries under one draw, noise included, on the model's scale.

    ``level`` is what counts' log rates, or the values behind zeros and ones, are to be raised by under it. With robust
    noise also their samples' shares of ordinary entries and of outliers (entries, J + 1).
    """

    mean: Floats
    variance: Floats
    level: Any = 0.0
    outlier_share: Any = None


def moments_of(tables: Tables, draws: list[Draw], entries: Entries) -> Iterator[Moments]:
    """``predictive_moments`` of a table as each draw sees it, on one core."""
    with threadpool_limits(1):
        for number, draw in enumerate(draws):
            data, share = tables.under(draw, number)
            level, shares = entries.level(data), None if share is None else share[entries.sample]
            for moments in predictive_moments(data, [draw], entries, tables.kernels, tables.fitted):
                yield moments._replace(level=level, outlier_share=shares)


def predictive_moments(
    data: Observed, draws: Iterable[Draw], entries: Entries, kernels: Kernels, fitted: bool
) -> Iterator[Moments]:
    """For each draw, y_dn | observed entries of sample n ~ N(μ_d + g_d·E[x_n], g_dᵀ Cov[x_n] g_d + 1/τ_d).

    Integrating the scores out given (G, τ) gives the same predictive density as averaging over drawn scores, with less
    Monte Carlo error. Dirichlet-process scores are part of the draw: those of a ``fitted`` table are used as they are,
    new samples mix over its clusters.
    """
    for draw in draws:
        noise = 1.0 / draw.noise_precision[entries.row]
        center = np.zeros(len(noise)) if draw.intercept is None else draw.intercept[entries.row]
        if draw.n_factors == 0:
            yield Moments(center, noise)
        elif draw.scores is not None and fitted:
            mean = np.einsum("ik,ik->i", draw.loadings()[entries.row], draw.scores[entries.sample])
            yield Moments(center + mean, noise)
        else:
            problem = project(data, draw, kernels)
            mean, variance = kernels.predict(problem, entries.sample, entries.row)
            if draw.scores is not None:
                mean, variance = _over_clusters(problem, draw, entries, Moments(mean, variance), kernels)[:2]
            yield Moments(center + mean, variance + noise)


def summarise(tables: Tables, draws: list[Draw], entries: Entries, level: float | None) -> list[Floats]:
    """Posterior mean of entries over the draws, and with ``level`` the bounds of their central predictive intervals.

    Bounds are quantiles of one predictive draw per posterior draw, thinned where there are very many entries. Those of
    counts, and of zeros and ones, are values that were drawn, the outer ones where a quantile lies between two.
    """
    if level is not None and not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1. Got {level!r}.")
    total: Floats | float = 0.0
    rng, drawn, step = np.random.default_rng(0), [], 1
    spec, n_draws = tables.spec, len(draws)
    ceiling = None if tables.ceiling is None else tables.ceiling[entries.row]
    for i, (mean, variance, raised, share) in enumerate(moments_of(tables, draws, entries)):
        total = total + seen_mean(spec, mean, variance, raised, ceiling) / n_draws
        if level is not None:
            if i == 0:
                step = max(1, -(-n_draws * 4 * len(mean) // INTERVAL_BYTES))
            if i % step == 0:
                noise = 1.0 / draws[i].noise_precision[entries.row]
                value = seen_draw(spec, share, mean, variance, noise, raised, rng)
                drawn.append(value.astype(np.float32))
    if level is None:
        return [np.asarray(total)]
    tail, values = (1 - level) / 2, np.array(drawn)
    methods: tuple[Any, Any] = ("weibull",) * 2 if spec.likelihood == "gaussian" else ("lower", "higher")
    ends = zip((tail, 1 - tail), methods, strict=True)
    return [np.asarray(total), *(np.quantile(values, end, axis=0, method=method) for end, method in ends)]


def fill_holes(tables: Tables, table: Floats, draws: list[Draw], level: float | None) -> tuple[Floats, ...]:
    """The user's ``table``, which ``tables`` are made of, with its holes filled; with ``level`` also the bounds."""
    data = tables.data
    filled, holes = table.copy(), np.isnan(table)
    flat = np.setdiff1d(np.arange(data.n_features), data.kept)
    filled[:, flat] = np.where(holes[:, flat], data.center[flat], table[:, flat])
    holes[:, flat] = False
    bounds = filled.copy(), filled.copy()
    if holes.any():
        entries = modelled(data, holes)
        for target, values in zip((filled, *bounds), summarise(tables, draws, entries, level), strict=False):
            target[holes] = entries.to_user(data, values)
    return (filled,) if level is None else (filled, *bounds)


def _over_clusters(problem: Projection, draw: Draw, entries: Entries, alone: Moments, kernels: Kernels) -> Moments:
    """Mean and variance of g_d·x_n over the draw's clusters and over scores of the sample's own."""
    values, sizes, fit = cluster_fits(problem, draw)
    own = np.log(draw.scalars["urn_concentration"]) + kernels.score_moments(problem)[2]
    weight = softmax(np.column_stack([np.log(sizes) + fit, own]), axis=1)[entries.sample]
    each = problem.loadings[entries.row] @ values.T
    mean = np.einsum("ic,ic->i", weight[:, :-1], each) + weight[:, -1] * alone.mean
    square = np.einsum("ic,ic->i", weight[:, :-1], each**2) + weight[:, -1] * (alone.variance + alone.mean**2)
    return Moments(mean, np.maximum(square - mean**2, 0.0))
