"""Holes for methods that take none: fill them, fit, fill them by what the fit says, until they stand still."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nsfa.arrays import Floats
from nsfa.model.priors import normal_log_density

ROUNDS = 50
# of expectation maximisation, for factor analysis
STEPS = 100
# of a feature's standard deviation
STANDS_STILL = 1e-3
# noise of a feature, relative to its variance
LEAST_NOISE = 1e-6


class Filled(NamedTuple):
    """Mean and, or None, variance of every entry (n_samples, n_features), scores, and whether the holes stand still."""

    mean: Floats
    variance: Floats | None
    scores: Floats
    settled: bool


def fill(model: Any, table: Floats, rounds: int = ROUNDS) -> Filled:
    """Fit a scikit-learn transformer to a table (n_samples, n_features) with NaN for holes.

    These are filled with the features' means to begin with, and after each fit with what it makes of them, until none
    moves by a thousandth of its feature's standard deviation. Leaves ``model`` fitted. Factor analysis goes on from
    there with the observed entries alone: filled ones would count as data without noise.
    """
    holes = np.isnan(table)
    filled = np.where(holes, np.nanmean(table, axis=0), table)
    unit = np.nanstd(table, axis=0)
    close = np.broadcast_to(STANDS_STILL * np.where(unit > 0, unit, 1.0), table.shape)[holes]
    for _ in range(rounds if holes.any() else 1):
        scores = np.asarray(model.fit(filled).transform(filled))
        mean, variance = _entries(model, table, scores)
        still = bool((np.abs(mean - filled)[holes] < close).all())
        filled[holes] = mean[holes]
        if still:
            break
    if holes.any() and variance is not None:
        still = _maximise(model, table)
        scores = np.asarray(model.transform(filled))
        mean, variance = _entries(model, table, scores)
    return Filled(mean, variance, scores, still)


def _entries(model: Any, table: Floats, scores: Floats) -> tuple[Floats, Floats | None]:
    """What a fitted model makes of every entry: ``inverse_transform`` of the scores.

    Factor analysis, told by a ``noise_variance_`` for every feature, has a Gaussian for each entry given the sample's
    observed ones instead.
    """
    noise = np.asarray(getattr(model, "noise_variance_", 0.0))
    if noise.shape == table.shape[1:] and hasattr(model, "components_") and hasattr(model, "mean_"):
        mean, variance = conditional(table - model.mean_, np.asarray(model.components_).T, noise)
        return mean + model.mean_, variance
    if not hasattr(model, "inverse_transform"):
        raise ValueError(f"a model must have impute, or transform and inverse_transform. Got {type(model).__name__}.")
    out = np.asarray(model.inverse_transform(scores), dtype=float)
    if out.shape != table.shape or not np.isfinite(out).all():
        what = f"shape {out.shape}" if out.shape != table.shape else "values that are not finite"
        raise ValueError(f"inverse_transform must give numbers for a table of shape {table.shape}. Got {what}.")
    return out, None


def _maximise(model: Any, table: Floats) -> bool:
    """Bring a factor analysis to the maximum of the likelihood of the observed entries; whether its noise settled.

    Expectation maximisation with the means as loadings of a score that is always 1. O(N K² D) per step.
    """
    seen, start = ~np.isnan(table), np.array(model.mean_)
    known = np.where(seen, table - start, 0.0)
    size, counts = (known**2).sum(axis=0), seen.sum(axis=0)
    least = LEAST_NOISE * np.where(size > 0, size / counts, 1.0)
    loadings = np.column_stack([np.asarray(model.components_).T, np.zeros(len(start))])
    noise = np.maximum(model.noise_variance_, least)
    for _ in range(STEPS):
        x, covariance = _scores(table - start - loadings[:, -1], loadings[:, :-1], noise)
        x = np.column_stack([x, np.ones(len(x))])
        square = _outer(x)
        square[:, :-1, :-1] += covariance
        both = known.T @ x
        squares = (seen.T @ square.reshape(len(x), -1)).reshape(-1, *square.shape[1:])
        loadings = np.linalg.solve(squares, both[:, :, None])[:, :, 0]
        before, noise = noise, np.maximum((size - (loadings * both).sum(axis=1)) / counts, least)
        if (np.abs(noise - before) < STANDS_STILL * before).all():
            break
    model.components_, model.mean_, model.noise_variance_ = loadings[:, :-1].T, start + loadings[:, -1], noise
    # noise on its way to 0 never stands still by its own measure
    return bool((np.abs(noise - before) < STANDS_STILL / LEAST_NOISE * least).all())


def conditional(table: Floats, loadings: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of every entry given the sample's observed ones, y = G x + e, with e's variances ``noise``."""
    noise = np.maximum(noise, LEAST_NOISE * ((loadings**2).sum(axis=1) + noise) + np.finfo(float).tiny)
    x, covariance = _scores(table, loadings, noise)
    spread = covariance.reshape(len(x), -1) @ _outer(loadings).reshape(len(loadings), -1).T
    return x @ loadings.T, spread + noise


def _scores(table: Floats, loadings: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Means (n_samples, K) and covariances (n_samples, K, K) of scores given the observed entries."""
    (D, K), seen = loadings.shape, ~np.isnan(table)
    precision = np.eye(K) + (seen @ (_outer(loadings) / noise[:, None, None]).reshape(D, -1)).reshape(-1, K, K)
    covariance = np.asarray(np.linalg.inv(precision), dtype=float)
    both = np.where(seen, table, 0.0) @ (loadings / noise[:, None])
    return (covariance @ both[:, :, None])[:, :, 0], covariance


def _outer(rows: Floats) -> Floats:
    """Every row times itself (n, K, K)."""
    return rows[:, :, None] * rows[:, None, :]


def log_density(mean: Floats, variance: Floats, truth: Floats) -> Floats:
    """Log densities of Gaussians, entry by entry."""
    out: Floats = normal_log_density(truth - mean, 1.0 / variance)
    return out
