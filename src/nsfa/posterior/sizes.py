"""How much was counted of each sample (``likelihood="counts"``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nsfa.arrays import Floats

if TYPE_CHECKING:
    from nsfa.data import Observed
    from nsfa.draw import Draw
    from nsfa.model.spec import ModelSpec


def sample_sizes(spec: ModelSpec, draws: list[Draw]) -> Floats:
    """See ``Posterior.size_factors``, without names: means over draws of exp(exposure)."""
    if spec.likelihood != "counts":
        raise ValueError(
            f"Size factors are those of likelihood='counts'. Got likelihood={spec.likelihood!r}; fit counts with it."
        )
    logs = (np.asarray(draw.exposure, dtype=np.float64) for draw in draws)
    out: Floats = np.mean([np.exp(each) for each in logs], axis=0)
    return out


def named_sizes(data: Observed, spec: ModelSpec, draws: list[Draw]) -> Any:
    """See ``Posterior.size_factors``."""
    sizes = sample_sizes(spec, draws)
    if data.sample_names is None:
        return sizes
    import pandas as pd

    return pd.Series(sizes, index=pd.Index(data.sample_names, name="sample"), name="size_factor")
