"""The kernels in plain NumPy: the specification that every other backend is compared with.

Written to be read beside docs/model.md, one loop per product of the formula; memory and speed come second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from nsfa.kernels import Born, Own, few_missing, products, reference_carried, reference_latent
from nsfa.kernels.reference_columns import draw_columns
from nsfa.kernels.reference_doublets import doublets
from nsfa.kernels.reference_modules import climb
from nsfa.kernels.reference_moves import (
    gamma_draw,
    log_scale_density,
    marginal_row,
    slice_update,
    split_features,
    tilt_pair,
)
from nsfa.kernels.reference_rotation import rotate_pair
from nsfa.kernels.streams import (
    EXTRA,
    STRETCH,
    VALUES,
    WIDTH,
    Numbers,
    normals,
    normals_at,
    numbered,
    uniform_pairs,
)

if TYPE_CHECKING:
    from nsfa.arrays import Bools, Floats, Ints
    from nsfa.kernels import (
        Births,
        Centred,
        Doubled,
        Doublets,
        Holes,
        Marginal,
        Pairs,
        Projection,
        Rows,
        Scales,
        Split,
        Splits,
    )


def _gram(base: Floats, empty: Floats, vectors: Floats, weights: Floats, holes: Holes, row: int) -> Floats:
    """Σ w x xᵀ over the entries observed in ``row``: ``base`` less the missing ones, or built from the observed."""
    listed = holes.entry[holes.pointer[row] : holes.pointer[row + 1]]
    part = (weights[listed, None] * vectors[listed]).T @ vectors[listed]
    return empty + part if holes.rebuild[row] else base - part


def _row_gram(rows: Rows, d: int) -> Floats:
    """S_d = Σ x_n x_nᵀ over the samples observed for feature d."""
    ones = np.ones(len(rows.scores))
    return _gram(rows.gram, np.zeros_like(rows.gram), rows.scores, ones, rows.holes, d)


def _slab(rows: Rows, d: int) -> Floats:
    """Precisions (K,) of feature d's loadings under their slabs."""
    precision: Floats = rows.loading_precision[d if len(rows.loading_precision) > 1 else 0]
    return precision * rows.noise_precision[d] if rows.relative else precision


def _scores_from_shared(problem: Projection, n: int, noise: Floats, stream: tuple[int, int]) -> tuple[Floats, float]:
    """Scores of sample n and its evidence, from the precision L Lᵀ that complete samples share.

    Λ_n = L (I − W Wᵀ) Lᵀ, W = L⁻¹ √τ_d g_d of the missing features, and (I − W Wᵀ)⁻¹ = I + W R⁻ᵀ R⁻¹ Wᵀ with
    R Rᵀ = I − WᵀW: one normal more for each of them draws from it.
    """
    holes, row = problem.holes, problem.pattern[n]
    missing = holes.entry[holes.pointer[row] : holes.pointer[row + 1]]
    root = cholesky(problem.information + np.eye(len(problem.information)), lower=True)
    b = solve_triangular(root, problem.projection[n], lower=True)
    columns = (np.sqrt(problem.noise_precision[missing])[:, None] * problem.loadings[missing]).T
    W = solve_triangular(root, columns, lower=True)
    small = np.linalg.cholesky(np.eye(len(missing)) - W.T @ W)
    z = np.linalg.solve(small, W.T @ b)
    gain = 0.5 * (b @ b + z @ z) - np.log(np.diag(root)).sum() - np.log(np.diag(small)).sum()
    extra = normals_at(*stream, EXTRA + np.arange(len(missing)))
    v = b + noise + W @ np.linalg.solve(small.T, z + extra)
    return solve_triangular(root, v, lower=True, trans=1), float(gain)


def entry_conditional(covariate: float, gram: float, tau: float, precision: float) -> tuple[float, float, float]:
    """Precision ℓ and mean μ of one loading's conditional, and the log Bayes factor of its being active.

    ``covariate`` is T_dk less the other factors' part: ℓ = τ S_kk + λ, μ = τ covariate/ℓ, ½(log λ − log ℓ + ℓμ²).
    """
    ell = tau * gram + precision
    mean = tau * covariate / ell
    return ell, mean, 0.5 * (np.log(precision) - np.log(ell) + ell * mean**2)


def log_marginal(square: float, residual: float, tau: float, count: float) -> float:
    """Log likelihood of a feature with its own factors' scores integrated out, relative to having none.

    −(N_d/2) log(1 + τΣg²) + ½ τ r (1 − 1/(1 + τΣg²)), r being its residual sum of squares without them.
    """
    gain = 1 + tau * square
    return float(-0.5 * count * np.log(gain) + 0.5 * tau * residual * (1 - 1 / gain))


def _slab_precision(problem: Births, key: int, d: int, j: int) -> float:
    """Slab precision of feature d's j-th new factor: from its prior, or the shared one."""
    if problem.slab_shape == 0:
        return float(problem.slab_rate)
    return gamma_draw(problem.slab_shape, key, d, (j + 1) * STRETCH + 1) / problem.slab_rate


class ReferenceKernels:
    """Plain-NumPy kernels; see ``nsfa.kernels.Kernels`` for what each does."""

    def cross(self, data: Centred, scores: Floats, out: Floats) -> None:
        products.cross(data, scores, out, map)

    def project(self, data: Centred, loadings: Floats, noise_precision: Floats) -> tuple[Floats, Floats]:
        return products.project(data, loadings, noise_precision, map)

    def residuals(self, loadings: Floats, active: Bools, rows: Rows, which: Ints, skip: Bools) -> Floats:
        out = np.empty(len(which))
        for i, d in enumerate(which):
            g = np.where(skip, 0.0, loadings[d])
            out[i] = rows.power[d] - 2 * g @ rows.cross[d] + g @ _row_gram(rows, d) @ g
        return np.maximum(out, 0.0)

    def _all_residuals(self, loadings: Floats, active: Bools, rows: Rows) -> Floats:
        every, none = np.arange(len(loadings)), np.zeros(loadings.shape[1], dtype=np.bool_)
        return self.residuals(loadings, active, rows, every, none)

    def sweep_collapsed(
        self, loadings: Floats, active: Bools, rows: Rows, usage: Ints, prior: tuple[float, float], key: int
    ) -> Floats:
        n_features, n_factors = loadings.shape
        for d in range(n_features):
            gram = _row_gram(rows, d)
            for k in range(n_factors):
                others = usage[k] - active[d, k]
                weight = others + prior[0]
                known = rows.known[d, k] if k < rows.known.shape[1] else 0.0
                odds = np.log(weight / (prior[1] + n_features - 1 - others)) + known if weight > 0 else None
                on = self._draw_entry(loadings, active, rows, gram, d, k, odds, key)
                usage[k] += int(on) - int(active[d, k])
                active[d, k] = on
        return self._all_residuals(loadings, active, rows)

    def sweep_independent(
        self, loadings: Floats, active: Bools, rows: Rows, logit: Floats, anchor: Ints, key: int
    ) -> tuple[Ints, Floats]:
        n_features, n_factors = loadings.shape
        prior = np.broadcast_to(logit, loadings.shape)
        for d in range(n_features):
            gram = _row_gram(rows, d)
            for k in range(n_factors):
                held = anchor[k] == d
                active[d, k] = self._draw_entry(
                    loadings, active, rows, gram, d, k, np.inf if held else prior[d, k], key
                )
        return active.sum(axis=0).astype(np.int64), self._all_residuals(loadings, active, rows)

    @staticmethod
    def _draw_entry(
        loadings: Floats, active: Bools, rows: Rows, gram: Floats, d: int, k: int, log_prior: float | None, key: int
    ) -> bool:
        """Draw one (z, g); ``log_prior`` None keeps z. Returns z and writes g."""
        precision = _slab(rows, d)[k]
        covariate = rows.cross[d, k] - gram[k] @ loadings[d] + gram[k, k] * loadings[d, k]
        ell, mean, log_bayes = entry_conditional(covariate, gram[k, k], rows.noise_precision[d], precision)
        u = float(uniform_pairs(key, d, k)[0])
        on = bool(active[d, k]) if log_prior is None else bool(np.log(u) - np.log1p(-u) < log_prior + log_bayes)
        loadings[d, k] = mean + float(normals_at(key, d, k)) / np.sqrt(ell) if on else 0.0
        return on

    def rescale(self, problem: Scales, key: int) -> Floats:
        square, power = problem.square, problem.power
        t = np.empty(len(power))
        for k in range(len(power)):
            column = iter(range(1000))
            terms = (problem.n, power[k], square[k], int(problem.usage[k]), problem.shape, problem.rate)
            t[k] = slice_update(
                lambda t, terms=terms: log_scale_density(t, *terms),  # type: ignore[misc]
                0.0,
                WIDTH,
                lambda k=k, column=column: uniform_pairs(key, k, next(column)),  # type: ignore[misc]
            )
        return np.exp([t, -t])

    def draw_shears(
        self, gram: Floats, inner: Floats, precision: Floats, inside: Bools, key: int
    ) -> tuple[Floats, Floats]:
        M, W = np.eye(len(gram)), np.eye(len(gram))
        for k, j in np.argwhere(inside & ~np.eye(len(gram), dtype=np.bool_)):
            q = gram[j, j] + precision[j] * inner[k, k]
            a = (precision[j] * inner[j, k] - gram[j, k]) / q + float(normals_at(key, k, j)) / np.sqrt(q)
            scores_step, loadings_step = np.eye(len(gram)), np.eye(len(gram))
            scores_step[j, k], loadings_step[k, j] = a, -a
            gram[:], inner[:] = scores_step.T @ gram @ scores_step, loadings_step.T @ inner @ loadings_step
            M, W = M @ scores_step, W @ loadings_step
        return M, W

    def draw_dense(self, loadings: Floats, rows: Rows, key: int) -> Floats:
        n_features, n_factors = loadings.shape
        for d in range(n_features):
            tau = rows.noise_precision[d]
            root = cholesky(tau * _row_gram(rows, d) + np.diag(_slab(rows, d)), lower=True)
            noise = normals_at(key, d, np.arange(n_factors))
            loadings[d] = _solve_and_perturb(root, tau * rows.cross[d], noise)
        return self._all_residuals(loadings, np.ones(loadings.shape, dtype=np.bool_), rows)

    def draw_scores(self, problem: Projection, scores: Floats, key: int, numbers: Numbers = 0) -> float:
        noise, rows = normals(key, len(scores), scores.shape[1], numbers), numbered(numbers, len(scores))
        few = few_missing(problem.holes, scores.shape[1])
        evidence = 0.0
        for n in range(len(scores)):
            if few[problem.pattern[n]]:
                scores[n], gain = _scores_from_shared(problem, n, noise[n], (key, int(rows[n])))
                evidence += gain
                continue
            root = cholesky(_sample_information(problem, n) + np.eye(scores.shape[1]), lower=True)
            half = solve_triangular(root, problem.projection[n], lower=True)
            evidence += 0.5 * half @ half - np.log(np.diag(root)).sum()
            scores[n] = solve_triangular(root, half + noise[n], lower=True, trans=1)
        return float(evidence)

    def score_moments(self, problem: Projection) -> tuple[Floats, Floats, Floats]:
        mean, variance = np.empty_like(problem.projection), np.empty_like(problem.projection)
        evidence = np.empty(len(mean))
        for n, a in enumerate(problem.projection):
            precision = _sample_information(problem, n) + np.eye(len(a))
            mean[n], variance[n] = np.linalg.solve(precision, a), np.diag(np.linalg.inv(precision))
            evidence[n] = 0.5 * a @ mean[n] - 0.5 * np.linalg.slogdet(precision)[1]
        return mean, variance, evidence

    def predict(self, problem: Projection, sample: Ints, row: Ints) -> tuple[Floats, Floats]:
        mean, variance = np.empty(len(row)), np.empty(len(row))
        for i, (n, d) in enumerate(zip(sample, row, strict=True)):
            information = _sample_information(problem, int(n)) + np.eye(len(problem.information))
            mean[i] = problem.loadings[d] @ np.linalg.solve(information, problem.projection[n])
            variance[i] = problem.loadings[d] @ np.linalg.solve(information, problem.loadings[d])
        return mean, variance

    def sweep_marginal(self, problem: Marginal, values: Floats, key: int) -> None:
        for d in range(len(values)):
            marginal_row(problem, values, d, key)

    def draw_gammas(self, shape: Floats, rate: Floats, key: int, numbers: Numbers = 0) -> Floats:
        rows = numbered(numbers, len(shape)).tolist()
        return np.array([gamma_draw(a, key, i, 0) for i, a in zip(rows, shape, strict=True)]) / rate

    def own_factors(self, loadings: Floats, active: Bools, rows: Rows, usage: Ints, residual: Floats) -> Own:
        single = usage == 1
        factor = np.flatnonzero(single)
        owner = active[:, factor].argmax(axis=0)
        left = residual.copy()
        left[owner] = self.residuals(loadings, active, rows, owner, single)
        count = np.bincount(owner, minlength=len(loadings))
        square = np.bincount(owner, loadings[owner, factor] ** 2, minlength=len(loadings)).astype(np.float64)
        return Own(factor, owner, count, square, left)

    def draw_births(self, problem: Births, key: int) -> Born:
        own, accepted = problem.own, np.zeros(len(problem.noise_precision), dtype=np.bool_)
        rows: list[int] = []
        loadings: list[float] = []
        precisions: list[float] = []
        for d, noise in enumerate(problem.noise_precision):
            # where slabs are relative, all is in units of the feature's noise
            unit, tau = (noise, 1.0) if problem.relative else (1.0, noise)
            u, v = (float(x) for x in uniform_pairs(key, d, 0))
            wanted = min(int(np.searchsorted(problem.cumulative, u)), len(problem.cumulative) - 1)
            have = own.number[d]
            if wanted == 0 and have == 0:
                continue
            precision = [_slab_precision(problem, key, d, j) for j in range(wanted)]
            g = np.array([normals_at(key, d, (j + 1) * STRETCH) for j in range(wanted)]) / np.sqrt(precision)
            terms = own.residual[d] * unit, tau, problem.n_observed[d]
            log_ratio = log_marginal(float(g @ g), *terms) - log_marginal(float(own.square[d] * unit), *terms)
            if np.log(v) < log_ratio + problem.weight[wanted] - problem.weight[have]:
                accepted[d] = True
                rows += [d] * wanted
                loadings += (g / np.sqrt(unit)).tolist()
                precisions += precision
        return Born(accepted, np.array(rows, dtype=np.int64), np.array(loadings), np.array(precisions))

    def draw_splits(self, problem: Splits, key: int) -> Split:
        return split_features(problem, key)

    def draw_doublets(
        self, problem: Doublets, residual: Floats, scores: Floats, attempts: int, key: int
    ) -> tuple[Doubled, Floats]:
        return doublets(problem, residual, scores, attempts, key)

    def tilt(self, problem: Pairs, pairs: Ints, key: int) -> int:
        return sum(tilt_pair(problem, int(k), int(j), p, key) for p, (k, j) in enumerate(pairs))

    def rotate(self, problem: Pairs, pairs: Ints, key: int) -> int:
        return sum(rotate_pair(problem, int(j), int(k), p, key) for p, (j, k) in enumerate(pairs))

    climb = staticmethod(climb)
    draw_columns = staticmethod(draw_columns)
    draw_outliers = staticmethod(reference_latent.draw_outliers)
    draw_concentrations = staticmethod(reference_latent.draw_concentrations)
    draw_rates = staticmethod(reference_latent.draw_rates)
    draw_signs = staticmethod(reference_latent.draw_signs)
    carry_intercepts = staticmethod(reference_carried.carry_intercepts)
    carry_loadings = staticmethod(reference_carried.carry_loadings)
    carry_scores = staticmethod(reference_carried.carry_scores)

    def draw_urn(self, problem: Projection, scores: Floats, cluster: Ints, concentration: float, key: int) -> None:
        n_samples, n_factors = scores.shape
        values = np.zeros((n_samples + 1, n_factors))
        values[cluster] = scores
        identity = np.eye(n_factors)
        for n in range(n_samples):
            cluster[n] = -1
            sizes = np.bincount(cluster[cluster >= 0], minlength=n_samples + 1)
            free = int(np.flatnonzero(sizes == 0)[0])
            plain, a = _sample_information(problem, n), problem.projection[n]
            log_weight = np.full(n_samples + 1, -np.inf)
            for c in np.flatnonzero(sizes):
                log_weight[c] = np.log(sizes[c]) + a @ values[c] - 0.5 * values[c] @ plain @ values[c]
            root = cholesky(plain + identity, lower=True)
            half = solve_triangular(root, a, lower=True)
            log_weight[free] = np.log(concentration) + 0.5 * half @ half - np.log(np.diag(root)).sum()
            weight = np.exp(log_weight - log_weight.max())
            cumulative = np.where(weight > 0, np.cumsum(weight), -np.inf)
            cluster[n] = int(np.flatnonzero(cumulative >= uniform_pairs(key, n, 0)[0] * weight.sum())[0])
            if cluster[n] == free:
                noise = normals_at(key, n, np.arange(1, n_factors + 1))
                values[free] = _solve_and_perturb(root, a, noise)
        for c in np.unique(cluster):
            members = np.flatnonzero(cluster == c)
            information = identity + np.sum([_sample_information(problem, int(n)) for n in members], axis=0)
            noise = normals_at(key, VALUES + c, np.arange(n_factors))
            root = cholesky(information, lower=True)
            values[c] = _solve_and_perturb(root, problem.projection[members].sum(axis=0), noise)
        scores[:] = values[cluster]


def _sample_information(problem: Projection, n: int) -> Floats:
    """Σ τ_d g_d g_dᵀ over the features observed in sample n."""
    base, empty = problem.information, np.zeros_like(problem.information)
    return _gram(base, empty, problem.loadings, problem.noise_precision, problem.holes, int(problem.pattern[n]))


def _solve_and_perturb(root: Floats, linear: Floats, noise: Floats) -> Floats:
    """Λ⁻¹ linear + L⁻ᵀ noise, for Λ = L Lᵀ: a draw from N(Λ⁻¹ linear, Λ⁻¹)."""
    half = solve_triangular(root, linear, lower=True)
    out: Floats = solve_triangular(root, half + noise, lower=True, trans=1)
    return out
