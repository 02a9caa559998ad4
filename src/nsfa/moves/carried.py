"""Means, loadings and scores that take the values behind counts along (docs/model.md).

Few counts say little of a value, which then stays near its fit, and a fit near its values: neither moves far while the
other is held. Here y_dn − μ_d − g_d·x_n is held instead, which leaves the residuals' part of the density as it is.
"""

from __future__ import annotations

import numpy as np

from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State

Generator = np.random.Generator


def update_carried_intercepts(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """μ_d → μ_d + t, e^t ~ Gamma(Σ counts, Σ rates): p(t | ·) ∝ Π_n Poisson(count; e^t rate), flat in t.

    Changes ``intercept`` (D,) and values, after which the statistics must be refreshed. Cost O(D N).
    """
    samples.carry_intercepts(state, rng)


def update_carried_loadings(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """g_d → g_d + t v over the loadings in use, p(t | ·) ∝ N(g_d + t v; 0, 1/λ) Π_n Poisson(count; rate e^(t v·x_n)).

    v ~ N(0, H⁻¹), H what prior and rates at the features' levels say of them, whatever they are; t by slice sampling.
    Changes ``loadings`` and values, after which the statistics must be refreshed. Cost O(D N).
    """
    samples.carry_loadings(state, rng)


def update_carried_scores(state: State, samples: Samples, spec: ModelSpec, rng: Generator) -> None:
    """x_n → x_n cos t + ν sin t, ν ~ N(0, I), p(t | ·) ∝ Π_d Poisson(count; rate e^(g_d·(new x_n − x_n))).

    Elliptical slice sampling. Changes scores and values, after which the statistics must be refreshed. Cost O(D N).
    """
    samples.carry_scores(state, rng)
