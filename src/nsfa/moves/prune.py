"""Factors that the data do not ask for, dropped during warm-up: no move of the posterior, a shorter way to it."""

from __future__ import annotations

import numpy as np
from scipy.stats import gamma

from nsfa.arrays import Floats
from nsfa.model.spec import ModelSpec
from nsfa.state import State
from nsfa.stats import Stats

# Rounds of fitting a factor's share of features in use.
_ROUNDS = 5


def prune(state: State, stats: Stats, spec: ModelSpec) -> None:
    """Drop factors one by one, the least needed first, while one is worth less than nothing.

    A weak factor that a dense start left on thousands of features loses them by a random walk of as many sweeps.
    Changes the state and the statistics. Cost O(D K²) for each that goes, and a refresh.
    """
    before = state.n_factors
    while state.n_factors:
        worth = log_worth(state, stats, spec)
        least = int(worth.argmin())
        if worth[least] >= 0:
            break
        last = state.n_factors - 1
        state.drop(np.array([least]))
        # as the state does: the last factor takes the place of the one that goes
        order = np.array([last if k == least else k for k in range(last)], dtype=np.int64)
        stats.gram = np.ascontiguousarray(stats.gram[np.ix_(order, order)])
        stats.cross = np.ascontiguousarray(stats.cross[:, order])
    if state.n_factors < before:
        stats.refresh(state)


def log_worth(state: State, stats: Stats, spec: ModelSpec) -> Floats:
    """Roughly, the log odds (K,) of each factor being there and not, given the others.

    Its loadings are summed out given the scores, Σ_d log(1 − π + π BF_d) at the best π; scores are worth
    −½‖x‖² + N/2 − ½ Σ_n log(1 + Σ_d τ_d g_d²), d over what is observed of sample n, the volume that the data leave
    them; and its slab precision has the log density of its prior.
    """
    n_features, n_samples = len(state.loadings), len(state.scores)
    tau, slab, power = state.noise_precision[:, None], state.slab_rows, stats.gram.diagonal()[None, :]
    fitted = state.loadings @ stats.gram
    information = (tau * state.loadings**2).sum(axis=0)[None, :]
    holes, absent = stats.fit_of_holes(state), stats.data.absent
    if holes is not None:
        power = power - absent @ state.scores**2
        fitted = fitted - holes @ state.scores
        information = information - absent.T @ (tau * state.loadings**2)
    precision = tau * power + slab
    mean = tau * (stats.cross - fitted + state.loadings * power) / precision
    log_bayes = 0.5 * (np.log(slab / precision) + precision * mean**2)
    edge = 1.0 / n_features
    share = np.clip(state.usage / n_features, edge, 1 - edge)
    for _ in range(_ROUNDS):
        odds = np.exp(np.minimum(log_bayes, 500.0)) * (share / (1 - share))
        share = np.clip((odds / (1 + odds)).mean(axis=0), edge, 1 - edge)
    gain = np.logaddexp(np.log1p(-share), np.log(share) + log_bayes).sum(axis=0)
    # a sum over one row that stands for all samples, or over every sample
    per_row = n_samples / len(information)
    volume = 0.5 * (n_samples - stats.gram.diagonal() - per_row * np.log1p(np.maximum(information, 0.0)).sum(axis=0))
    prior = np.log(state.concentration)
    if state.loading_precision.ndim == 1:
        prior = prior + gamma.logpdf(state.loading_precision, spec.priors.loading_shape, scale=1 / state.loading_rate)
    return np.asarray(gain + volume + prior)
