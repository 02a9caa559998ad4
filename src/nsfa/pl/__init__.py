"""Plots of a fit, with matplotlib: how many factors, which features, how sure, and whether the chains agree.

Every function takes a fitted estimator, its ``Posterior`` or, where that suffices, a ``Consensus``; draws into ``ax``
or a new figure; and returns the Axes. Factors are numbered from 0, by falling variance explained.
"""

from nsfa.pl.chains import chain_agreement, n_components, traces
from nsfa.pl.features import inclusion_curve, top_features
from nsfa.pl.matrices import hinton, loadings
from nsfa.pl.models import compare
from nsfa.pl.samples import scores, variance_explained

__all__ = [
    "chain_agreement", "compare", "hinton", "inclusion_curve", "loadings", "n_components", "scores", "top_features",
    "traces", "variance_explained",
]  # fmt: skip
