"""How good a fit is: reconstruction error, precision and recall of the pattern, predictive scores.

Loadings are (D, K) arrays here, features in rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from nsfa.arrays import Floats, Ints


def reconstruction_error(G_true: Any, G_hat: Any) -> float:
    """Mean squared error per entry of the true loadings, each true factor matched to its nearest estimate.

    E_r = 1/(DK) Σ_k min over k̂ and sign s of Σ_d (G_dk − s Ĝ_dk̂)² (Knowles & Ghahramani 2011, Section 5.1, made free
    of sign). An estimate may be the nearest of several true factors, and spurious ones cost nothing.

    Parameters
    ----------
    G_true, G_hat
        Loadings, (D, K) and (D, K̂). No estimate (K̂ = 0) is an estimate of zero: the mean square of ``G_true``.

    Returns
    -------
    E_r, in squared units of the loadings; 0 if there is nothing to recover (K = 0).
    """
    true, hat = _pair(G_true, G_hat)
    if true.size == 0:
        return 0.0
    if hat.shape[1] == 0:
        hat = np.zeros((len(true), 1))
    distance = (true**2).sum(axis=0)[:, None] + (hat**2).sum(axis=0)[None, :] - 2 * np.abs(true.T @ hat)
    return float(np.maximum(distance.min(axis=1), 0.0).sum() / true.size)


def match_factors(G_true: Any, G_hat: Any) -> tuple[Ints, Ints, Floats]:
    """One-to-one matching of factors that maximises the sum of |cosine| of their loadings.

    Parameters
    ----------
    G_true, G_hat
        Loadings, (D, K) and (D, K̂). min(K, K̂) pairs are made; a factor of zeros has cosine 0 with all.

    Returns
    -------
    Indices into the factors of ``G_true``, ascending, those of their partners in ``G_hat``, and the signed cosines of
    the pairs: a negative one says that the partner has the opposite sign.
    """
    true, hat = _pair(G_true, G_hat)
    norms = np.linalg.norm(true, axis=0)[:, None] * np.linalg.norm(hat, axis=0)[None, :]
    cosine = np.divide(true.T @ hat, norms, out=np.zeros_like(norms), where=norms > 0)
    rows, columns = linear_sum_assignment(-np.abs(cosine))
    return rows, columns, cosine[rows, columns]


def pattern_precision_recall(active_true: Any, active_hat: Any, G_true: Any, G_hat: Any) -> tuple[float, float]:
    """Precision and recall of the active entries, after matching factors by their loadings (`match_factors`).

    Unmatched true factors count against recall, unmatched estimated ones against precision. The sign of a loading does
    not matter.

    Parameters
    ----------
    active_true, active_hat
        Which entries are active, as truth values, (D, K) and (D, K̂): Z, and e.g. inclusion probability > 0.5.
    G_true, G_hat
        The loadings to match by, same shapes.

    Returns
    -------
    Share of the entries said to be active that are, and share of the active entries that are found. A share of nothing
    is 0, but both are 1 if nothing is active and nothing is said to be.
    """
    rows, columns, _ = match_factors(G_true, G_hat)
    true, hat = np.asarray(active_true, bool), np.asarray(active_hat, bool)
    if true.shape != np.shape(G_true) or hat.shape != np.shape(G_hat):
        raise ValueError(
            f"active entries must have the shapes of their loadings, {np.shape(G_true)} and {np.shape(G_hat)}. "
            f"Got {true.shape} and {hat.shape}."
        )
    if not true.any() and not hat.any():
        return 1.0, 1.0
    hits = int((true[:, rows] & hat[:, columns]).sum())
    return hits / max(int(hat.sum()), 1), hits / max(int(true.sum()), 1)


def lppd(log_density: Any) -> float:
    """Mean over entries of the log predictive density, in nats; higher is better.

    Parameters
    ----------
    log_density
        Log predictive density of each held-out entry, any shape, as ``Posterior.log_predictive_density`` returns it:
        the log of the mean over draws (`log_mean_density`), not the mean of the logs.
    """
    values = np.asarray(log_density, dtype=float)
    if values.size == 0:
        raise ValueError("log_density must hold at least one entry. Got none; hold some entries out.")
    return float(values.mean())


def log_mean_density(log_density: Any, axis: int = 0) -> Floats:
    """Log of the mean over draws of exp(log_density), along ``axis``, without overflow."""
    values = np.asarray(log_density, dtype=float)
    out: Floats = logsumexp(values, axis=axis) - np.log(values.shape[axis])
    return out


def rmse(truth: Any, prediction: Any) -> float:
    """Root mean squared error over all entries, in the units of the data.

    Parameters
    ----------
    truth, prediction
        Arrays of one shape, without missing entries: select the held-out entries first.
    """
    true, predicted = np.asarray(truth, float), np.asarray(prediction, float)
    if true.shape != predicted.shape or true.size == 0:
        raise ValueError(
            f"truth and prediction must have one shape and an entry at least. Got {true.shape} and {predicted.shape}."
        )
    return float(np.sqrt(np.mean((true - predicted) ** 2)))


def _pair(a: Any, b: Any) -> tuple[Floats, Floats]:
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.ndim != 2 or second.ndim != 2 or len(first) != len(second):
        raise ValueError(
            f"loadings must be 2-D with the same number of features (rows). Got shapes {first.shape} and "
            f"{second.shape}; components_ is factors × features, so pass its transpose."
        )
    return first, second
