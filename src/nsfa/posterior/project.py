"""Scores and densities of samples, old or new, under one draw of the loadings and the noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from nsfa import samples
from nsfa.arrays import Floats
from nsfa.data import Observed
from nsfa.draw import Draw
from nsfa.kernels import Kernels, Projection
from nsfa.model.priors import LOG_2PI
from nsfa.posterior.columns import active_loadings, mostly_zero

# Tables with more entries are gone through in blocks of samples.
BLOCK_ENTRIES = 20_000_000
LARGE_ENTRIES = 100_000_000


class SampleMoments(NamedTuple):
    """Mean and variance of every sample's scores (N, K), and the log density of its observed entries (N,)."""

    mean: Floats
    variance: Floats
    log_density: Floats


def is_large(data: Observed) -> bool:
    """Whether a table has so many entries that every pass over them counts: all cores go through it as it is."""
    return data.shape[0] * data.shape[1] > LARGE_ENTRIES


def project(
    data: Observed, draw: Draw, kernels: Kernels, rotation: Floats | None = None, moments: bool = False
) -> Projection:
    """The samples' problem under one draw, its loadings rotated if so asked.

    For ``moments`` of scores that are integrated out it may come without loadings where nothing is missing.
    """
    tau = draw.noise_precision
    if rotation is None and mostly_zero(draw) and not is_large(data):
        unused = moments and data.complete and draw.scores is None
        loadings = np.zeros((0, draw.n_factors)) if unused else draw.loadings()
        return Projection(*_sparse_products(data, draw), loadings, tau, data.pattern, data.pattern_holes)
    loadings = draw.loadings()
    loadings = loadings if rotation is None else loadings @ rotation
    return samples.project(data, loadings, tau, draw.intercept, kernels)


def _sparse_products(data: Observed, draw: Draw) -> tuple[Floats, Floats]:
    """Yᵀ diag(τ) G (N, K), of values less intercepts, and Gᵀ diag(τ) G (K, K) of a draw that is mostly zero."""
    parts = active_loadings(draw).parts
    weighted = parts.weighted(draw.noise_precision)
    projection = np.empty((data.shape[1], draw.n_factors))
    projection[:, parts.broad] = data.values.T @ weighted.array
    projection[:, parts.narrow] = _array(weighted.matrix.T @ data.values).T
    level = np.zeros(data.shape[0]) if draw.intercept is None else draw.intercept
    whole = level if data.offset is None else level + data.offset
    projection[:, parts.broad] -= whole @ weighted.array
    projection[:, parts.narrow] -= weighted.matrix.T @ whole
    if data.absent is not None and draw.intercept is not None:
        # where values are missing they are zero
        lacking = data.absent.multiply(level[:, None]).tocsr()
        projection[:, parts.broad] += lacking.T @ weighted.array
        projection[:, parts.narrow] += _array(lacking.T @ weighted.matrix)
    return projection, weighted.products(parts)


def _array(product: Any) -> Floats:
    out: Floats = product.toarray() if sp.issparse(product) else product
    return out


def sample_moments(
    data: Observed, draw: Draw, kernels: Kernels, rotation: Floats | None = None, density: bool = True
) -> SampleMoments:
    """Scores given each sample's observed entries: x_n ~ N(Λ_n⁻¹ a_n, Λ_n⁻¹), and log N(y_n; μ, GGᵀ + Ψ).

    Densities are on the model's scale; without ``density`` only a part of them is worked out. With Dirichlet-process
    scores a sample joins one of the draw's clusters or has scores of its own, with the urn's probabilities.
    """
    n_samples = data.shape[1]
    base = np.zeros(n_samples)
    if density:
        base = noise_log_density(data, draw.noise_precision, draw.intercept)
    if draw.n_factors == 0:
        return SampleMoments(np.zeros((n_samples, 0)), np.zeros((n_samples, 0)), base)
    problem = project(data, draw, kernels, rotation, moments=True)
    alone = SampleMoments(*kernels.score_moments(problem))
    if draw.scores is not None:
        alone = _join_clusters(problem, draw, alone)
    return SampleMoments(alone.mean, alone.variance, base + alone.log_density)


def sample_blocks(data: Observed, X: Any) -> Iterator[Observed]:
    """Samples with the features of the fit, a few at a time: what is made of them need not be there for all."""
    step = max(BLOCK_ENTRIES // data.n_features, 1)
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) != 2 or shape[0] <= step:
        yield data.like(X)
        return
    rows = sp.csr_array(X) if sp.issparse(X) else getattr(X, "iloc", X)
    for first in range(0, shape[0], step):
        try:
            block = data.like(rows[first : first + step])
        except ValueError:
            # the same complaint, about the whole table
            data.like(X)
            raise
        yield block


def noise_log_density(data: Observed, tau: Floats, intercept: Floats | None = None) -> Floats:
    """Log density of every sample's observed entries if all were noise about the features' means (N,)."""
    mu = np.zeros(len(tau)) if intercept is None else intercept
    if data.offset is not None:
        # Σ τ (v − offset − μ)² without making v dense
        mu = data.offset + mu
        square = data.values.multiply(data.values).T @ tau - 2.0 * (data.values.T @ (tau * mu))
    else:
        square = np.einsum("dn,dn,d->n", data.values, data.values, tau) - 2.0 * (tau * mu) @ data.values
    # missing values are zero: only what does not depend on them is too much
    constant = np.log(tau) - LOG_2PI - tau * mu**2
    total = np.full(data.shape[1], constant.sum())
    if data.absent is not None:
        total -= data.absent.T @ constant
    out: Floats = 0.5 * (total - square)
    return out


def _join_clusters(problem: Projection, draw: Draw, alone: SampleMoments) -> SampleMoments:
    """The urn's mixture: cluster c with weight n_c N(y; G x_c, Ψ), own scores with weight α₀ N(y; 0, GGᵀ + Ψ)."""
    values, sizes, fit = cluster_fits(problem, draw)
    alpha = draw.scalars["urn_concentration"]
    log_weight = np.column_stack([np.log(sizes) + fit, np.log(alpha) + alone.log_density])
    total = logsumexp(log_weight, axis=1)
    weight = np.exp(log_weight - total[:, None])
    mean = weight[:, :-1] @ values + weight[:, -1:] * alone.mean
    square = weight[:, :-1] @ values**2 + weight[:, -1:] * (alone.variance + alone.mean**2)
    return SampleMoments(mean, np.maximum(square - mean**2, 0.0), total - np.log(sizes.sum() + alpha))


def cluster_fits(problem: Projection, draw: Draw) -> tuple[Floats, Floats, Floats]:
    """The draw's distinct scores (C, K), how many samples have each (C,), and a_n·x_c − ½ x_cᵀ M_n x_c (N, C)."""
    values, sizes = np.unique(np.asarray(draw.scores, dtype=float), axis=0, return_counts=True)
    # x_cᵀ M_n x_c = Σ over observed d of τ_d (g_d·x_c)²: the whole sum less the missing features', or those seen
    contribution = problem.noise_precision[:, None] * (problem.loadings @ values.T) ** 2
    holes = problem.holes
    quadratic = np.empty((len(holes.rebuild), len(values)))
    for p, rebuild in enumerate(holes.rebuild):
        part = contribution[holes.entry[holes.pointer[p] : holes.pointer[p + 1]]].sum(axis=0)
        quadratic[p] = part if rebuild else contribution.sum(axis=0) - part
    return values, sizes.astype(float), problem.projection @ values.T - 0.5 * quadratic[problem.pattern]
