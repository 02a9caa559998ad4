"""Tables with a known sparse factor structure."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Bunch

from nsfa.arrays import Bools
from nsfa.counts import check_count

PATTERNS = ("random", "overlapping", "regulon")


def make_sparse_factors(
    n_samples: int = 100,
    n_features: int = 100,
    n_components: int = 16,
    *,
    pattern: Any = "random",
    density: float = 0.1,
    snr: float = 10.0,
    missing: float = 0.0,
    random_state: int | None = None,
) -> Bunch:
    """Simulate Y = G X + noise with sparse G, as in Section 5.1 of Knowles & Ghahramani (2011).

    Parameters
    ----------
    n_samples, n_features, n_components
        Size of the table and number of factors; ``n_components`` and ``n_features`` are ignored if ``pattern`` is an
        array.
    pattern
        "random" (each entry active with probability ``density``), "overlapping" (consecutive blocks of features that
        overlap by half), "regulon" (scale-free: factor k has a number of features proportional to 1/k), or a
        (n_features, n_components) array whose non-zero entries are active. In the named patterns every factor has at
        least one feature.
    density
        Expected share of active entries of "random" and "regulon"; in the latter each feature joins a factor with
        probability 0.9 at most.
    snr
        Variance of the signal over variance of the noise, over the whole table; ``inf`` leaves the noise out. The noise
        has variance 1 if the signal has none.
    missing
        Probability that an entry is replaced by NaN, independently of the others.
    random_state
        Seed of the random numbers.

    Returns
    -------
    Bunch with X (n_samples, n_features), loadings (n_features, K), scores (n_samples, K), active (n_features, K),
    noise_variance (n_features,) and X_complete, X before entries were removed.
    """
    for name, value in (("n_samples", n_samples), ("n_features", n_features), ("n_components", n_components)):
        check_count(name, value)
    if not snr > 0 or not 0 <= missing < 1 or not 0 < density <= 1:
        raise ValueError(
            f"snr must be positive, missing in [0, 1) and density in (0, 1]. Got {snr!r}, {missing!r}, {density!r}."
        )
    rng = np.random.default_rng(random_state)
    active = _pattern(pattern, n_features, n_components, density, rng)
    loadings = np.where(active, rng.standard_normal(active.shape), 0.0)
    scores = rng.standard_normal((n_samples, active.shape[1]))
    signal = scores @ loadings.T
    spread = float(signal.var())
    variance = spread / snr if spread > 0 else 1.0
    complete = signal + np.sqrt(variance) * rng.standard_normal(signal.shape)
    holes = rng.random(complete.shape) < missing
    return Bunch(
        X=np.where(holes, np.nan, complete),
        X_complete=complete,
        loadings=loadings,
        scores=scores,
        active=active,
        noise_variance=np.full(len(active), variance),
    )


def _pattern(pattern: Any, n_features: int, n_components: int, density: float, rng: np.random.Generator) -> Bools:
    if not isinstance(pattern, str):
        given = np.asarray(pattern)
        if given.ndim != 2 or len(given) == 0:
            raise ValueError(f"pattern must be a name or a 2-D array, features × factors. Got shape {given.shape}.")
        return np.asarray(given != 0)
    if pattern == "random":
        active = rng.random((n_features, n_components)) < density
    elif pattern == "overlapping":
        active = np.zeros((n_features, n_components), dtype=np.bool_)
        edges = np.linspace(0, n_features, n_components + 2).astype(int)
        for k in range(n_components):
            active[edges[k] : edges[k + 2], k] = True
    elif pattern == "regulon":
        share = 1.0 / np.arange(1, n_components + 1)
        share *= density * n_components / share.sum()
        active = rng.random((n_features, n_components)) < np.minimum(share, 0.9)
    else:
        raise ValueError(f"pattern must be one of {', '.join(map(repr, PATTERNS))}, or an array. Got {pattern!r}.")
    # no factor without a feature: it could not be recovered by anything
    for unused in np.flatnonzero(~active.any(axis=0)):
        active[rng.integers(n_features), unused] = True
    return active
