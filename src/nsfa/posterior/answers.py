"""What a fit answers, in scikit-learn's names: the same for an estimator and for a posterior read from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array

from nsfa.arrays import Floats, Ints
from nsfa.blocks import in_blocks
from nsfa.matching import find_features, put_features, take_features, warn_caller
from nsfa.table import as_float_table

if TYPE_CHECKING:
    from nsfa.data import Observed
    from nsfa.model.spec import ModelSpec
    from nsfa.posterior.core import Posterior


class Answers:
    """Verbs and attributes of a fit. A frame's columns are matched to the fit's features by name.

    Features that the frame lacks count as missing and those that the fit does not know are ignored, both with a
    warning. Tables without names must have the features of the fit, in its order.
    """

    def _result(self) -> Posterior:
        """The posterior that answers; an error if there is none yet."""
        raise NotImplementedError

    def _find(self, X: Any) -> Ints | None:
        """Where the features of the fit are in X; None where there are no names to go by."""
        raise NotImplementedError

    def _matched(self, X: Any) -> Any:
        where = None if in_blocks(X) is not None else self._find(X)
        return X if where is None else take_features(X, where)

    def transform(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean scores of samples, old or new, with any pattern of missing entries.

        Averaged over draws, on the consensus factors. A frame's columns are matched by name; those that it lacks count
        as missing, and others are ignored, both with a warning.

        Parameters
        ----------
        X : array-like, DataFrame, scipy sparse matrix or dask array of shape (n_samples, n_features)
            Of a dask array the scores are one, too, to be computed block by block.
        return_std : bool
            Also return the posterior standard deviations.

        Returns
        -------
        Scores (n_samples, n_components_), or a pair of such arrays.
        """
        mean, deviation = self._result()._scores(self._matched(X))
        if not mean.shape[1]:
            warn_caller(
                "The fit has no factors, so that there are no scores: none is in more than half of its draws. A "
                "following step that needs at least one column will fail."
            )
        return (mean, deviation) if return_std else mean

    def inverse_transform(self, X: Any) -> Floats:
        """Scores (n_samples, n_components_) back to a table (n_samples, n_features): X · components_ + mean."""
        components = self.components_
        scores = check_array(X, ensure_min_features=0, input_name="X")
        if scores.shape[1] != len(components):
            raise ValueError(f"X must have n_components_ = {len(components)} columns. Got {scores.shape[1]}.")
        out: Floats = scores @ components + self.mean_
        return out

    def impute(self, X: Any, level: float | None = None) -> Any:
        """The table with its holes filled by posterior means.

        A DataFrame gives a DataFrame with the same rows and columns: features that the fit does not know stay as they
        are, and those that X lacks are not added (give them as columns of NaN to have them filled).

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            The table that was fitted, or new samples.
        level : float, optional
            Also return the bounds of central predictive intervals of this probability: (filled, lower, upper), all
            equal to X where it was observed. Features that did not vary in the fit are filled with their value. Bounds
            of counts are whole numbers, those of zeros and ones 0 or 1.
        """
        if sp.issparse(X):
            as_float_table(X)
        posterior, where = self._result(), self._find(X)
        found = posterior._filled(X if where is None else take_features(X, where), level)
        if hasattr(X, "columns"):
            found = tuple(put_features(X, where, values) for values in found)
        return found[0] if level is None else found

    def score_samples(self, X: Any) -> Floats:
        """Log density (n_samples,) of each sample's observed entries, averaged over draws inside the logarithm."""
        return self._result().log_density(self._matched(X))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of ``score_samples``."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> Floats:
        """Posterior mean covariance (n_features, n_features) of a sample."""
        return self._result().covariance()

    def get_precision(self) -> Floats:
        """Inverse of ``get_covariance``; a pseudo-inverse if some features do not vary."""
        covariance, kept = self.get_covariance(), self._result().data.kept
        varies = np.ix_(kept, kept)
        out = np.zeros_like(covariance)
        out[varies] = np.linalg.inv(covariance[varies])
        return out

    @property
    def n_components_(self) -> int:
        """Number of consensus factors: those in more than half of the draws."""
        return self._result().consensus().n_factors

    @property
    def components_(self) -> Floats:
        """Posterior mean loadings (n_components_, n_features), in the user's units."""
        return self._result().consensus().loadings.T

    @property
    def inclusion_probability_(self) -> Floats:
        """P(z = 1) of every loading (n_components_, n_features), given the factor."""
        return self._result().consensus().inclusion.T

    @property
    def component_support_(self) -> Floats:
        """Share of the draws of all chains that contain each factor (n_components_,)."""
        return self._result().consensus().support

    @property
    def explained_variance_ratio_(self) -> Floats:
        """Share of the table's variance due to each factor (n_components_,); with noise they make up at most 1."""
        return self._result().consensus().variance_explained

    @property
    def n_components_draws_(self) -> Ints:
        """Number of factors of every draw (chains, draws)."""
        return self._result().n_factors

    @property
    def n_shared_draws_(self) -> Ints:
        """Number of shared factors of every draw (chains, draws): those of two features or more."""
        return self._result().n_shared

    @property
    def n_substantial_draws_(self) -> Ints:
        """Number of substantial factors of every draw (chains, draws): those of five features or more."""
        return self._result().n_substantial

    @property
    def noise_variance_(self) -> Floats:
        """Posterior mean noise variance (n_features,), in the user's units."""
        return self._result().noise_variance()

    @property
    def mean_(self) -> Floats:
        """Posterior mean of each feature's mean (n_features,), or that of its observed entries if so the prior."""
        return self._result().feature_mean()


class OwnAnswers(Answers):
    """The same of a posterior itself, which needs no estimator around it."""

    data: Observed
    spec: ModelSpec

    @property
    def posterior_(self) -> Self:
        """Itself: what takes a fitted estimator takes a posterior, too."""
        return self

    @property
    def n_features_in_(self) -> int:
        """Number of features of the fitted table."""
        return self.data.n_features

    @property
    def feature_names_in_(self) -> Any:
        """Names of the features (n_features_in_,), if the fitted table had any."""
        if self.data.feature_names is None:
            raise AttributeError("The fitted table had no names.")
        return np.array(self.data.feature_names, dtype=object)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the scores (n_components_,): nsfa0, nsfa1, ..."""
        return np.array([f"{self.spec.name}{k}" for k in range(self.n_components_)], dtype=object)

    def _result(self) -> Any:
        return self

    def _find(self, X: Any) -> Ints | None:
        return find_features(X, self.data.feature_names)
