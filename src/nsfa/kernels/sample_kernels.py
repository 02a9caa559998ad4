"""Compiled loops over samples: scores, their moments, predictions, and the Pólya urn (docs/model.md)."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from nsfa.kernels.compiled import (
    corrected_gram,
    jit,
    normal_at,
    solve_lower,
    solve_transposed,
    uniform_pair,
)
from nsfa.kernels.streams import EXTRA, VALUES


@jit
def information_of_pattern(p, problem, empty, full):
    """Gᵀ diag(τ) G over the features observed under missing pattern p, plus ``empty`` (and ``full`` plus it)."""
    holes = problem.holes
    base = empty if holes.rebuild[p] else full
    index = holes.entry[holes.pointer[p] : holes.pointer[p + 1]]
    return corrected_gram(base, problem.loadings, problem.noise_precision, index, holes.rebuild[p])


@jit
def inverse_root(root):
    """L⁻¹ of a lower triangular L."""
    size = root.shape[0]
    inverse = np.zeros((size, size))
    for i in range(size):
        # row i from the rows above it
        for k in range(i):
            part = root[i, k] / root[i, i]
            for j in range(np.uint64(k + 1)):
                inverse[i, j] -= part * inverse[k, j]
        inverse[i, i] = 1.0 / root[i, i]
    return inverse


@jit
def moments_by_pattern(lo, hi, order, first, problem, mean, variance, evidence):
    """Means and variances of the scores of the samples with missing patterns lo..hi, and their evidence (N,)."""
    n_factors = problem.information.shape[0]
    identity = np.eye(n_factors)
    shared = problem.information + identity
    spread = np.empty(n_factors)
    for p in range(lo, hi):
        root = np.linalg.cholesky(information_of_pattern(p, problem, identity, shared))
        inverse = inverse_root(root)
        samples = order[first[p] : first[p + 1]]
        picked = np.empty((samples.shape[0], n_factors))
        for i in range(samples.shape[0]):
            for k in range(n_factors):
                picked[i, k] = problem.projection[samples[i], k]
        half = np.dot(picked, inverse.T)
        picked = np.dot(half, inverse)
        log_root = 0.0
        for k in range(n_factors):
            log_root += math.log(root[k, k])
            spread[k] = 0.0
            for i in range(k, n_factors):
                spread[k] += inverse[i, k] * inverse[i, k]
        for i in range(samples.shape[0]):
            total = 0.0
            for k in range(n_factors):
                total += half[i, k] * half[i, k]
                mean[samples[i], k] = picked[i, k]
                variance[samples[i], k] = spread[k]
            evidence[samples[i]] = 0.5 * total - log_root


@jit
def small_root(matrix):
    """Cholesky factor L (lower triangle) by plain loops: for small matrices, and no linear algebra to compile."""
    size = matrix.shape[0]
    root = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= root[i, k] * root[j, k]
            if i == j and not total > 0.0:
                raise np.linalg.LinAlgError("Matrix is not positive definite.")
            root[i, j] = math.sqrt(total) if i == j else total / root[j, j]
    return root


@jit
def scores_small(problem, scores, normals):
    """Scores of a small table with nothing missing, x = L⁻ᵀ(L⁻¹a + ε), Λ = L Lᵀ; returns the evidence."""
    n_samples, n_factors = normals.shape
    matrix = problem.information.copy()
    for k in range(n_factors):
        matrix[k, k] += 1.0
    root = small_root(matrix)
    inverse, turned, log_root = inverse_root(root), matrix, 0.0
    for k in range(n_factors):
        log_root += math.log(root[k, k])
        for j in range(n_factors):
            turned[j, k] = inverse[k, j]
    total, half, size = 0.0, np.empty(n_factors), np.uint64(n_factors)
    for n in range(n_samples):
        for k in range(size):
            half[k], scores[n, k] = 0.0, 0.0
        # sums run over the outer index, so that the inner loops become vector instructions
        for j in range(size):
            a = problem.projection[n, j]
            for k in range(size):
                half[k] += a * turned[j, k]
        for j in range(size):
            total += half[j] * half[j]
            h = half[j] + normals[n, j]
            for k in range(size):
                scores[n, k] += h * inverse[j, k]
    return 0.5 * total - n_samples * log_root


@jit
def scores_by_pattern(which, order, first, problem, scores, normals, evidence):
    """Scores of the samples with missing patterns ``which``; ``order[first[p]:first[p+1]]`` are pattern p's samples.

    ``evidence[p]`` receives Σ_n [½ aᵀΛ⁻¹a − ½ log|Λ|] over those samples.
    """
    n_factors = scores.shape[1]
    identity = np.eye(n_factors)
    shared = problem.information + identity
    b = np.empty(n_factors)
    for p in which:
        factor = np.linalg.cholesky(information_of_pattern(p, problem, identity, shared))
        log_root = 0.0
        for k in range(n_factors):
            log_root += math.log(factor[k, k])
        total = 0.0
        for position in range(first[p], first[p + 1]):
            n = order[position]
            for k in range(n_factors):
                b[k] = problem.projection[n, k]
            solve_lower(factor, b)
            for k in range(n_factors):
                total += 0.5 * b[k] * b[k]
                b[k] += normals[n, k]
            solve_transposed(factor, b)
            for k in range(n_factors):
                scores[n, k] = b[k]
            total -= log_root
        evidence[p] = total


@jit
def scores_from_shared(which, order, first, holes, weighted, b, drawn, key, numbers, evidence):
    """The same for patterns with fewer features missing than there are factors, from what all samples share.

    With Λ = L Lᵀ of a complete sample, W the columns L⁻¹ √τ_d g_d of the missing features (rows of ``weighted``) and
    R Rᵀ = I − WᵀW, x = L⁻ᵀ v, v = b + ε + W R⁻ᵀ (R⁻¹ Wᵀ b + ε'), b = L⁻¹ a. ``drawn`` arrives with ε and returns v;
    ``evidence`` lacks the samples' −log|L|.
    """
    n_factors = np.uint64(b.shape[1])
    for p in which:
        start, n_missing = holes.pointer[p], holes.pointer[p + 1] - holes.pointer[p]
        W, u = np.empty((n_missing, b.shape[1])), np.empty(n_missing)
        for i in range(n_missing):
            for k in range(n_factors):
                W[i, k] = weighted[holes.entry[start + i], k]
        left = np.dot(W, W.T)
        for i in range(n_missing):
            for j in range(n_missing):
                left[i, j] = (1.0 if i == j else 0.0) - left[i, j]
        root, total, log_root = small_root(left), 0.0, 0.0
        for i in range(n_missing):
            log_root += math.log(root[i, i])
        for position in range(first[p], first[p + 1]):
            n = order[position]
            for k in range(n_factors):
                total += 0.5 * b[n, k] * b[n, k]
                drawn[n, k] += b[n, k]
            for i in range(n_missing):
                u[i] = 0.0
                for k in range(n_factors):
                    u[i] += W[i, k] * b[n, k]
            solve_lower(root, u)
            for i in range(n_missing):
                total += 0.5 * u[i] * u[i]
                u[i] += normal_at(key, numbers[n], EXTRA + i)
            solve_transposed(root, u)
            for i in range(n_missing):
                for k in range(n_factors):
                    drawn[n, k] += u[i] * W[i, k]
            total -= log_root
        evidence[p] = total


@jit
def predict_by_pattern(lo, hi, order, first, problem, entry, row, mean, variance):
    """Mean and variance of g_d·x_n given sample n's observed entries, for listed entries of patterns lo..hi.

    ``row[entry[n]:entry[n + 1]]`` are the features wanted for sample n; ``mean`` and ``variance`` go with ``row``.
    """
    n_factors = problem.information.shape[0]
    identity = np.eye(n_factors)
    shared = problem.information + identity
    for p in range(lo, hi):
        inverse = inverse_root(np.linalg.cholesky(information_of_pattern(p, problem, identity, shared)))
        for position in range(first[p], first[p + 1]):
            n = order[position]
            wanted = row[entry[n] : entry[n + 1]]
            picked = np.empty((wanted.shape[0], n_factors))
            for i in range(wanted.shape[0]):
                for k in range(n_factors):
                    picked[i, k] = problem.loadings[wanted[i], k]
            w, b = np.dot(picked, inverse.T), np.dot(inverse, problem.projection[n])
            for i in range(wanted.shape[0]):
                centre, spread = 0.0, 0.0
                for k in range(n_factors):
                    centre += w[i, k] * b[k]
                    spread += w[i, k] * w[i, k]
                mean[entry[n] + i], variance[entry[n] + i] = centre, spread


@jit
def _cluster_fit(problem, n, value, information):
    """a_nᵀ x − ½ xᵀ M x: log density of sample n under cluster value x, up to a constant of n."""
    total = 0.0
    for i in range(value.shape[0]):
        partial = 0.0
        for j in range(value.shape[0]):
            partial += information[i, j] * value[j]
        total += value[i] * (problem.projection[n, i] - 0.5 * partial)
    return total


@jit
def urn_assign(problem, values, cluster, sizes, concentration, key):
    """Give each sample in turn an existing cluster or a new one (whose value is drawn at once).

    ``values`` (N + 1, K) holds cluster values in the slots with ``sizes`` > 0. P(existing c) ∝ n_c N(y_n; G x_c, Ψ),
    P(new) ∝ α₀ N(y_n; 0, GGᵀ + Ψ).
    """
    n_samples, n_factors = problem.projection.shape
    identity = np.eye(n_factors)
    zero = np.zeros((n_factors, n_factors))
    b = np.empty(n_factors)
    log_weight = np.empty(values.shape[0])
    for n in range(n_samples):
        plain = information_of_pattern(problem.pattern[n], problem, zero, problem.information)
        sizes[cluster[n]] -= 1
        free = -1
        for slot in range(values.shape[0]):
            log_weight[slot] = -np.inf
            if sizes[slot] > 0:
                log_weight[slot] = math.log(sizes[slot]) + _cluster_fit(problem, n, values[slot], plain)
            elif free < 0:
                free = slot
        b[:] = problem.projection[n]
        factor = np.linalg.cholesky(plain + identity)
        solve_lower(factor, b)
        fresh = math.log(concentration)
        for k in range(n_factors):
            fresh += 0.5 * b[k] * b[k] - math.log(factor[k, k])
        log_weight[free] = fresh
        chosen = _pick(log_weight, uniform_pair(key, n, 0)[0])
        if chosen == free:
            for k in range(n_factors):
                b[k] += normal_at(key, n, k + 1)
            solve_transposed(factor, b)
            for k in range(n_factors):
                values[free, k] = b[k]
        cluster[n] = chosen
        sizes[chosen] += 1


@jit
def _pick(log_weight, u):
    """Index drawn with probability ∝ exp(log_weight), by inversion of one uniform."""
    top = -np.inf
    for i in range(log_weight.shape[0]):
        top = max(top, log_weight[i])
    total = 0.0
    for i in range(log_weight.shape[0]):
        total += math.exp(log_weight[i] - top)
    target, running, last = u * total, 0.0, 0
    for i in range(log_weight.shape[0]):
        weight = math.exp(log_weight[i] - top)
        if weight > 0.0:
            running += weight
            last = i
            if running >= target:
                return i
    return last


@jit
def urn_values(problem, values, cluster, sizes, key):
    """Draw every cluster's value given its members: N(Λ⁻¹ Σ a_n, Λ⁻¹), Λ = I + Σ M_n."""
    n_samples, n_factors = problem.projection.shape
    zero = np.zeros((n_factors, n_factors))
    for slot in range(values.shape[0]):
        if sizes[slot] == 0:
            continue
        factor, b = np.eye(n_factors), np.zeros(n_factors)
        for n in range(n_samples):
            if cluster[n] == slot:
                factor += information_of_pattern(problem.pattern[n], problem, zero, problem.information)
                b += problem.projection[n]
        factor = np.linalg.cholesky(factor)
        solve_lower(factor, b)
        for k in range(n_factors):
            b[k] += normal_at(key, VALUES + slot, k)
        solve_transposed(factor, b)
        for k in range(n_factors):
            values[slot, k] = b[k]
