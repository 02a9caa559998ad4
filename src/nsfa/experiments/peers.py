"""Other people's methods on the same held-out entries: a Gaussian for every hidden entry, as each method has it.

Every peer sees the table with each feature centred and scaled by its observed entries, as the models here do, and its
predictions go back to the table's units. FactorAnalysis and SparsePCA take no missing entries: they are fitted, used to
fill the holes, and fitted again until the filled values stand still; FactorAnalysis then goes on to the maximum of the
likelihood of the observed entries alone, since filled ones would count as data without noise. SparsePCA and soft-impute
have no noise model: each feature gets the variance of its residuals, times one number for all that makes a tenth of the
observed entries, hidden from a first fit, as likely as can be.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nsfa import filling
from nsfa.arrays import Floats
from nsfa.comparison import hide
from nsfa.filling import STANDS_STILL

ROUNDS, SPARSE_ROUNDS = 15, 5
SOFT_STEPS, SOFT_PATH = 60, np.geomspace(0.5, 0.02, 8)
LEAST_VARIANCE = 1e-6


class Prediction(NamedTuple):
    """Mean and variance (n_samples, n_features) of every entry, loadings (n_features, K), and the number of factors."""

    mean: Floats
    variance: Floats
    loadings: Floats
    n_factors: float


class Peer(NamedTuple):
    """A method: its name on the figures, the module it needs, and the function that fits it."""

    label: str
    module: str
    fit: Callable[[Floats, int, int], Prediction]


def predict(name: str, table: Floats, n_factors: int, seed: int) -> Prediction:
    """Fit the named peer to a table (n_samples, n_features) with NaN for missing, and predict every entry of it."""
    center, scale = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    found = PEERS[name].fit((table - center) / scale, n_factors, seed)
    variance = np.maximum(found.variance, LEAST_VARIANCE) * scale**2
    loadings = found.loadings * scale[:, None]
    return Prediction(found.mean * scale + center, variance, loadings, found.n_factors)


def log_density(prediction: Prediction, truth: Floats, where: Any) -> Floats:
    """Log predictive density of the entries that ``where`` marks."""
    return filling.log_density(prediction.mean[where], prediction.variance[where], truth[where])


def _mofa(table: Floats, n_factors: int, seed: int, spike_and_slab: bool = False) -> Prediction:
    """mofapy2, with the predictive variance of its own ``impute``."""
    from mofapy2.run.entry_point import entry_point

    # it announces itself and every option on standard output, and takes logs of zero
    with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        run = entry_point()
        run.set_data_options(scale_views=False)
        run.set_data_matrix([[table.copy()]])
        run.set_model_options(factors=n_factors, spikeslab_weights=spike_and_slab, ard_weights=True)
        run.set_train_options(iter=1000, convergence_mode="fast", seed=seed, quiet=True)
        run.build()
        run.run()
    nodes = run.model.getNodes()
    scores, weights = nodes["Z"].getExpectations(), nodes["W"].getExpectations()[0]
    z, w = scores["E"], weights["E"]
    spread = scores["E2"] @ weights["E2"].T - z**2 @ (w**2).T
    noise = 1.0 / nodes["Tau"].getExpectations()[0]["E"]
    loadings = w * z.std(axis=0)
    used = (loadings**2).sum(axis=0) > 1e-3
    return Prediction(z @ w.T, np.maximum(spread, 0.0) + noise, loadings, float(used.sum()))


def _mofa_sparse(table: Floats, n_factors: int, seed: int) -> Prediction:
    return _mofa(table, n_factors, seed, spike_and_slab=True)


def _factor_analysis(table: Floats, n_factors: int, seed: int) -> Prediction:
    """scikit-learn's maximum likelihood, of the observed entries alone in the end."""
    from sklearn.decomposition import FactorAnalysis

    model = FactorAnalysis(n_factors, svd_method="lapack", max_iter=200)
    found = filling.fill(model, table, ROUNDS)
    return Prediction(found.mean, np.asarray(found.variance), model.components_.T, float(n_factors))


def _sparse_pca(table: Floats, n_factors: int, seed: int) -> Prediction:
    """scikit-learn's SparsePCA with its default penalty, alternating with the filling of the holes."""
    from sklearn.decomposition import SparsePCA

    def fit(part: Floats) -> tuple[Floats, Floats]:
        model = SparsePCA(n_factors, max_iter=50, tol=1e-4, random_state=seed, method="cd")
        found = filling.fill(model, part, SPARSE_ROUNDS)
        return found.mean, model.components_.T * found.scores.std(axis=0)

    mean, loadings = fit(table)
    return _with_residuals(table, mean, loadings, lambda part: fit(part)[0], seed)


def _soft_impute(table: Floats, n_factors: int, seed: int) -> Prediction:
    """Soft-impute (Mazumder, Hastie & Tibshirani 2010); the penalty is chosen on a tenth of the observed entries."""
    test = hide(table, 0.1, np.random.default_rng([seed, 1]))
    path = _soft_path(np.where(test, np.nan, table), SOFT_PATH)
    best = int(np.argmin([np.mean((table[test] - guess[test]) ** 2) for guess in path]))
    mean = _soft_path(table, SOFT_PATH[: best + 1])[-1]
    _, sizes, right = np.linalg.svd(mean, full_matrices=False)
    rank = int((sizes > 1e-8 * max(sizes[0], 1e-300)).sum())
    loadings = right[:rank].T * sizes[:rank] / np.sqrt(len(table))
    return _with_residuals(table, mean, loadings, lambda part: path[best], seed)


def _soft_path(table: Floats, penalties: Floats) -> list[Floats]:
    """Completed tables for falling penalties, given as shares of the largest singular value, each from the last."""
    holes = np.isnan(table)
    guess = np.zeros_like(table)
    top = np.linalg.norm(np.where(holes, 0.0, table), 2)
    out = []
    for penalty in penalties * top:
        for _ in range(SOFT_STEPS):
            new = _shrink(np.where(holes, guess, table), penalty)
            change = np.abs(new - guess).max()
            guess = new
            if change < STANDS_STILL:
                break
        out.append(guess)
    return out


def _shrink(table: Floats, penalty: float) -> Floats:
    """The table with its singular values lowered by the penalty, by way of the smaller of its two Gram matrices."""
    if len(table) > table.shape[1]:
        return _shrink(table.T, penalty).T
    squares, vectors = np.linalg.eigh(table @ table.T)
    sizes = np.sqrt(np.maximum(squares, 1e-300))
    out: Floats = (vectors * np.maximum(1.0 - penalty / sizes, 0.0)) @ (vectors.T @ table)
    return out


def _with_residuals(
    table: Floats, mean: Floats, loadings: Floats, refit: Callable[[Floats], Floats], seed: int
) -> Prediction:
    """Add the noise that the method lacks: residual variances, times a number found on a tenth of the entries."""
    test = hide(table, 0.1, np.random.default_rng([seed, 1]))
    first = refit(np.where(test, np.nan, table))
    seen = np.where(test, np.nan, table)
    spread = np.maximum(np.nanmean((seen - first) ** 2, axis=0), LEAST_VARIANCE)
    inflation = float(np.mean((table - first)[test] ** 2 / np.broadcast_to(spread, table.shape)[test]))
    variance = np.nanmean((table - mean) ** 2, axis=0) * inflation
    return Prediction(mean, np.broadcast_to(variance, table.shape), loadings, float(loadings.shape[1]))


PEERS = {
    "mofapy2": Peer("mofapy2", "mofapy2", _mofa),
    "mofapy2-sparse": Peer("mofapy2 spike-slab", "mofapy2", _mofa_sparse),
    "factor-analysis": Peer("sklearn FactorAnalysis", "sklearn", _factor_analysis),
    "sparse-pca": Peer("sklearn SparsePCA", "sklearn", _sparse_pca),
    "soft-impute": Peer("soft-impute", "numpy", _soft_impute),
}
