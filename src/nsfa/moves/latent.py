"""Values that the table only hints at, drawn as anything else is."""

from __future__ import annotations

import numpy as np

from nsfa.model.spec import ModelSpec
from nsfa.samples import Samples
from nsfa.state import State


def update_latent(state: State, samples: Samples, spec: ModelSpec, rng: np.random.Generator) -> None:
    """y_dn ~ p(y | what was observed of it) N(y; μ_d + g_d·x_n, ψ_d), whatever the observations are.

    Changes the samples' values, after which the statistics must be refreshed.
    """
    samples.draw_latent(state, rng)
