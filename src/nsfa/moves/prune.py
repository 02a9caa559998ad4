"""Factors that the data do not ask for, dropped during warm-up: no move of the posterior, a shorter way to it."""

from __future__ import annotations

import numpy as np
from scipy.stats import gamma

from nsfa.arrays import Floats, beside, to_host
from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State

# Rounds of fitting a factor's share of features in use.
_ROUNDS = 5


def prune(state: State, samples: Samples, spec: ModelSpec) -> None:
    """Drop factors one by one, the least needed first, while one is worth less than nothing.

    A weak factor that a dense start left on thousands of features loses them by a random walk of as many sweeps.
    Changes the state and the statistics. Cost O(D K²) for each that goes, and a refresh.
    """
    before = state.n_factors
    while state.n_factors:
        worth = log_worth(state, samples, spec)
        least = int(worth.argmin())
        if worth[least] >= 0:
            break
        samples.keep(state.drop(np.array([least])))
    if state.n_factors < before:
        samples.refresh(state)


def log_worth(state: State, samples: Samples, spec: ModelSpec) -> Floats:
    """Roughly, the log odds (K,) of each factor being there and not, given the others.

    Its loadings are summed out given the scores, Σ_d log(1 − π + π BF_d) at the best π; scores are worth
    −½‖x‖² + N/2 − ½ Σ_n log(1 + Σ_d τ_d g_d²), d over what is observed of sample n, the volume that the data leave
    them; and its slab precision has the log density of its prior.
    """
    n_features, n_samples = len(state.loadings), samples.n_samples
    tau, slab = state.noise_precision[:, None], state.slab_rows
    power, fitted = samples.observed_squares(state)
    precision = tau * power + slab
    mean = tau * (samples.cross - fitted + state.loadings * power) / precision
    log_bayes = 0.5 * (np.log(slab / precision) + precision * mean**2)
    edge = 1.0 / n_features
    share = np.clip(beside(state.usage / n_features, tau), edge, 1 - edge)
    for _ in range(_ROUNDS):
        odds = np.exp(np.minimum(log_bayes, 500.0)) * (share / (1 - share))
        share = np.clip((odds / (1 + odds)).mean(axis=0), edge, 1 - edge)
    gain = to_host(np.logaddexp(np.log1p(-share), np.log(share) + log_bayes).sum(axis=0))
    volume = to_host(samples.log_volume(tau * state.loadings**2))
    volume = 0.5 * (n_samples - samples.gram.diagonal() - volume)
    prior = np.log(state.concentration)
    if state.loading_precision.ndim == 1:
        prior = prior + gamma.logpdf(state.loading_precision, spec.priors.loading_shape, scale=1 / state.loading_rate)
    worth = np.asarray(gain + volume + prior)
    # factors of which something is known have their places
    worth[: state.prior_offset.shape[1]] = np.inf
    return worth
