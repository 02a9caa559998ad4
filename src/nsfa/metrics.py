"""How good a fit is: reconstruction error, precision and recall of the pattern, predictive scores.

Loadings are (D, K) arrays here, features in rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from nsfa.kernels import Floats, Ints


def reconstruction_error(G_true: Any, G_hat: Any) -> float:
    """Mean squared error per entry of the true loadings, each true factor matched to its nearest estimate.

    E_r = 1/(DK) Σ_k min over k̂ and sign s of Σ_d (G_dk − s Ĝ_dk̂)² (Knowles & Ghahramani 2011, Section 5.1, made free
    of sign). Estimates may be matched more than once and spurious ones cost nothing; no estimate at all is an estimate
    of zero.
    """
    true, hat = _pair(G_true, G_hat)
    if hat.shape[1] == 0:
        hat = np.zeros((len(true), 1))
    distance = (true**2).sum(axis=0)[:, None] + (hat**2).sum(axis=0)[None, :] - 2 * np.abs(true.T @ hat)
    return float(np.maximum(distance.min(axis=1), 0.0).sum() / true.size)


def match_factors(G_true: Any, G_hat: Any) -> tuple[Ints, Ints, Floats]:
    """One-to-one matching of factors by |cosine|: indices into both, and the signed cosines of the pairs."""
    true, hat = _pair(G_true, G_hat)
    norms = np.linalg.norm(true, axis=0)[:, None] * np.linalg.norm(hat, axis=0)[None, :]
    cosine = np.divide(true.T @ hat, norms, out=np.zeros_like(norms), where=norms > 0)
    rows, columns = linear_sum_assignment(-np.abs(cosine))
    return rows, columns, cosine[rows, columns]


def pattern_precision_recall(active_true: Any, active_hat: Any, G_true: Any, G_hat: Any) -> tuple[float, float]:
    """Precision and recall of the active entries, after matching factors by their loadings.

    Unmatched true factors count against recall, unmatched estimated ones against precision.
    """
    rows, columns, _ = match_factors(G_true, G_hat)
    true, hat = np.asarray(active_true, bool), np.asarray(active_hat, bool)
    hits = int((true[:, rows] & hat[:, columns]).sum())
    return hits / max(int(hat.sum()), 1), hits / max(int(true.sum()), 1)


def lppd(log_density: Any) -> float:
    """Mean over entries of the log predictive density: log of the mean density over draws, not the mean of logs."""
    return float(np.mean(log_density))


def log_mean_density(log_density: Any, axis: int = 0) -> Floats:
    """Log of the mean over draws of exp(log_density), along ``axis``."""
    values = np.asarray(log_density, dtype=float)
    out: Floats = logsumexp(values, axis=axis) - np.log(values.shape[axis])
    return out


def rmse(truth: Any, prediction: Any) -> float:
    """Root mean squared error."""
    difference = np.asarray(truth, float) - np.asarray(prediction, float)
    return float(np.sqrt(np.mean(difference**2)))


def _pair(a: Any, b: Any) -> tuple[Floats, Floats]:
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.ndim != 2 or second.ndim != 2 or len(first) != len(second):
        raise ValueError(
            f"loadings must be 2-D with the same number of features (rows). Got shapes {first.shape} and "
            f"{second.shape}; components_ is factors × features, so pass its transpose."
        )
    return first, second
