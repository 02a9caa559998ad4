"""Which entries of a table are outliers, and how sure that is (``noise="robust"``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nsfa.arrays import Floats, Ints
from nsfa.model.priors import outlier_scales
from nsfa.posterior.align import evenly

if TYPE_CHECKING:
    from nsfa.data import Observed
    from nsfa.draw import Draw
    from nsfa.model.spec import ModelSpec

# Averages over so many draws are enough, in large tables over fewer.
_DRAWS, _WORK = 200, 2_000_000_000
# A sample stands out whose share of outliers is, with such a probability, above so many usual ones and so much more.
SURE, TIMES, MORE = 0.95, 2.0, 0.05


def outlier_table(data: Observed, spec: ModelSpec, draws: list[Draw], least: float) -> Any:
    """See ``Posterior.outliers``. Cost O(D N K) for each of up to 200 draws."""
    import pandas as pd

    if not 0 < least <= 1:
        raise ValueError(f"least must be a probability above 0. Got {least!r}.")
    probability, expected = outlier_probability(data, spec, draws)
    samples = data.sample_names
    if data.missing is not None:
        probability[data.missing] = 0.0
    row, sample = np.nonzero(probability >= least)
    order = np.argsort(-probability[row, sample], kind="stable")
    row, sample = row[order], sample[order]
    column, noise = data.kept[row], np.mean([1.0 / draw.noise_precision for draw in draws], axis=0)
    scale, center = data.scale[column], data.center[column]
    return pd.DataFrame(
        {
            "sample": sample,
            "feature": column,
            **({} if samples is None else {"sample_name": [samples[n] for n in sample]}),
            "name": [data.names[d] for d in column],
            "value": data.values[row, sample] * scale + center,
            "expected": expected[row, sample] * scale + center,
            "noise_deviation": np.sqrt(noise[row]) * scale,
            "probability": probability[row, sample],
        }
    )


def sample_shares(spec: ModelSpec, draws: list[Draw]) -> Floats:
    """See ``Posterior.outlier_shares``, without names."""
    _check(spec)
    out: Floats = np.mean([1.0 - np.asarray(draw.outlier_share)[:, 0] for draw in draws], axis=0, dtype=np.float64)
    return out


def named_shares(data: Observed, spec: ModelSpec, draws: list[Draw]) -> Any:
    """See ``Posterior.outlier_shares``."""
    share = sample_shares(spec, draws)
    if data.sample_names is None:
        return share
    import pandas as pd

    return pd.Series(share, index=pd.Index(data.sample_names, name="sample"), name="outliers")


def poor_samples(spec: ModelSpec, draws: list[Draw]) -> Ints:
    """The numbers of samples with a clear excess of outliers, the worst first.

    In nearly all draws such a sample's share is more than twice that of the usual sample, and five in a hundred more.
    """
    _check(spec)
    share = np.array([1.0 - np.asarray(draw.outlier_share)[:, 0] for draw in draws], dtype=np.float64)
    bound = TIMES * np.median(share, axis=1, keepdims=True) + MORE
    poor = np.flatnonzero((share > bound).mean(axis=0) >= SURE)
    out: Ints = poor[np.argsort(-share[:, poor].mean(axis=0), kind="stable")]
    return out


def _check(spec: ModelSpec) -> None:
    if spec.noise != "robust":
        raise ValueError(f"Outliers are those of noise='robust'. Got noise={spec.noise!r}; fit again with it.")


def outlier_probability(data: Observed, spec: ModelSpec, draws: list[Draw]) -> tuple[Floats, Floats]:
    """Probability (D, N) that an entry is an outlier, and what the factors say of it, on the model's scale.

    Averages over draws of P(outlier | the draw, its scores), outliers' kinds and deviations summed out.
    """
    _check(spec)
    work = data.values.size * (1 + max(draw.n_factors for draw in draws))
    some = [draws[i] for i in evenly(len(draws), max(20, min(_DRAWS, _WORK // work)))]
    total, fit = np.zeros(data.shape), np.zeros(data.shape)
    for draw in some:
        expected = draw.loadings() @ np.asarray(draw.drawn_scores, dtype=np.float64).T
        expected += 0.0 if draw.intercept is None else draw.intercept[:, None]
        fit += expected / len(some)
        total += _given(draw, (data.values - expected) ** 2 * draw.noise_precision[:, None], spec) / len(some)
    return total, fit


def _given(draw: Draw, square: Floats, spec: ModelSpec) -> Floats:
    """P(outlier) given squared errors in units of the noise variance: 1/(1 + ordinary/outlying)."""
    share, scales = np.asarray(draw.outlier_share, dtype=np.float64).T, outlier_scales(spec.priors)
    odds = sum(
        w / np.sqrt(1.0 + v) * np.exp(np.minimum(0.5 * square * v / (1.0 + v), 700.0))
        for w, v in zip(share[1:], scales[1:], strict=True)
    )
    out: Floats = odds / (odds + share[0])
    return out
