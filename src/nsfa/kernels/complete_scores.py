"""Scores of samples of which nothing is missing: they share one precision matrix, and two products draw them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nsfa.kernels import sample_kernels

if TYPE_CHECKING:
    from nsfa.arrays import Floats
    from nsfa.kernels import Projection


def shared_root(problem: Projection) -> tuple[Floats, Floats]:
    """L and L⁻¹ of Λ = I + Gᵀ diag(τ) G = L Lᵀ, the precision of a sample's scores when nothing is missing."""
    root = np.asarray(np.linalg.cholesky(problem.information + np.eye(len(problem.information))), dtype=np.float64)
    return root, sample_kernels.inverse_root(root)


def scores_complete(projection: Floats, shared: tuple[Floats, Floats], scores: Floats, normals: Floats) -> float:
    """Scores when nothing is missing: all samples share Λ = L Lᵀ, so X = (A L⁻ᵀ + ε) L⁻¹ by two products.

    ``shared`` is (L, L⁻¹). Returns Σ_n [½ aᵀΛ⁻¹a − ½ log|Λ|].
    """
    root, inverse = shared
    half = projection @ inverse.T
    gain = 0.5 * float(np.vdot(half, half)) - len(half) * float(np.log(root.diagonal()).sum())
    half += normals
    scores[:] = half @ inverse
    return gain


def moments_complete(problem: Projection) -> tuple[Floats, Floats, Floats]:
    """Means, variances and evidence of the scores when nothing is missing, by two products."""
    root, inverse = shared_root(problem)
    half = problem.projection @ inverse.T
    evidence = 0.5 * np.einsum("nk,nk->n", half, half) - np.log(root.diagonal()).sum()
    variance = np.einsum("ik,ik->k", inverse, inverse)
    return half @ inverse, np.tile(variance, (len(half), 1)), evidence
