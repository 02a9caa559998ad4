"""Sparse PCA of Zou, Hastie & Tibshirani (2006): the paper's comparator. An optimisation, not a posterior."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy.linalg import svd
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lars_path_gram
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from nsfa.arrays import Bools, Floats, Ints
from nsfa.counts import check_count
from nsfa.data import observe
from nsfa.matching import find_or_check, put_features, take_features
from nsfa.table import as_float_table

_FILL_STEPS, _FILL_TOLERANCE = 500, 1e-4


class SPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Sparse principal components, each as sparse as it can be while explaining about what its ordinary one does.

    Alternates elastic-net regressions for the sparse loadings B with a singular value decomposition for the orthogonal
    A, minimising Σ‖y_n − A Bᵀ y_n‖² + λ₂‖B‖² + Σ_k λ_k‖b_k‖₁. The penalties λ_k are not set by hand: along the
    elastic-net path of each component, the sparsest point is taken whose variance is at least ``variance_share`` of
    the ordinary component's (Knowles & Ghahramani 2011, Section 3).

    Parameters
    ----------
    n_components
        Number of components.
    variance_share
        Fraction of the ordinary principal component's variance each sparse one must keep.
    ridge
        λ₂ relative to the largest eigenvalue; None takes the limit λ₂ → ∞ (soft thresholding), and "auto" does so when
        there are more features than samples.
    max_iter, tol
        Alternations at most, and the change of the components at which to stop.
    scale
        As in the other models.

    Attributes
    ----------
    components_ : (n_components, n_features) sparse loadings of unit length.
    explained_variance_ : (n_components,) variance of the scores on the scaled data.
    n_iter_ : alternations used.
    """

    def __init__(
        self, n_components: int | None = None, *, variance_share: float = 0.95, ridge: float | str | None = "auto",
        max_iter: int = 1000, tol: float = 1e-3, scale: str | None = "feature",
    ) -> None:  # fmt: skip
        self.n_components, self.variance_share, self.ridge = n_components, variance_share, ridge
        self.max_iter, self.tol, self.scale = max_iter, tol, scale

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the sparse components of X (n_samples, n_features).

        Missing entries (NaN) are filled by the table's best approximation of rank ``n_components``, found by filling
        and decomposing in turn.
        """
        self._check()
        data = observe(X, self.scale)
        validate_data(self, X, reset=True, skip_check_array=True)
        if data.offset is not None:
            raise ValueError("SPCA needs a dense X. Got a sparse matrix; make it dense with X.toarray().")
        n_components = int(self.n_components)  # type: ignore[arg-type]
        Y = data.values.T if data.missing is None else _fill(data.values.T, data.missing.T, n_components)
        _, sizes, rotation = svd(Y, full_matrices=False)
        rank = int((sizes > 1e-10 * sizes[0]).sum())
        if n_components > rank:
            raise ValueError(f"n_components must be at most the rank of the centred table, {rank}. Got {n_components}.")
        target = self.variance_share * sizes[:n_components] ** 2
        ridge = (None if Y.shape[1] > Y.shape[0] else 1e-6) if self.ridge == "auto" else self.ridge
        step = _SoftThreshold(Y) if ridge is None else _ElasticNet(Y, float(ridge) * sizes[0] ** 2)
        sparse = self._alternate(Y, rotation[:n_components].T, target, step)
        self.components_, self._basis = np.zeros((2, n_components, data.n_features))
        self.components_[:, data.kept] = sparse.T
        # the orthogonal A that goes with the sparse B
        left, _, right = svd(Y.T @ (Y @ sparse), full_matrices=False)
        self._basis[:, data.kept] = (left @ right).T
        self.explained_variance_ = ((Y @ sparse) ** 2).sum(axis=0) / len(Y)
        self.n_features_in_ = data.n_features
        self._data = data
        self._n_features_out = n_components
        return self

    def _check(self) -> None:
        check_count("n_components", self.n_components)
        if not isinstance(self.variance_share, (int, float)) or not 0 < self.variance_share <= 1:
            raise ValueError(f"variance_share must lie in (0, 1]. Got {self.variance_share!r}.")
        check_count("max_iter", self.max_iter)
        number = isinstance(self.ridge, (int, float)) and 0 < self.ridge < np.inf
        if not number and self.ridge is not None and self.ridge != "auto":
            raise ValueError(f"ridge must be positive, None or 'auto'. Got {self.ridge!r}.")

    def _alternate(self, Y: Floats, rotation: Floats, target: Floats, step: Any) -> Floats:
        """Alternate the two half-problems until the sparse components stand still."""
        sparse = rotation
        self.n_iter_ = 0
        while self.n_iter_ < self.max_iter:
            self.n_iter_ += 1
            new = np.column_stack([step(rotation[:, k], target[k]) for k in range(rotation.shape[1])])
            left, _, right = svd(Y.T @ (Y @ new), full_matrices=False)
            rotation = left @ right
            change = np.abs(new - sparse).max()
            sparse = new
            if change < self.tol:
                return sparse
        warnings.warn(
            f"SPCA stopped after {self.max_iter} alternations while its components still moved; raise max_iter or tol.",
            ConvergenceWarning,
            stacklevel=3,
        )
        return sparse

    def transform(self, X: Any) -> Floats:
        """Scores (n_samples, n_components): the scaled table times the sparse loadings.

        Missing entries are filled by least squares on A from the sample's observed ones.
        """
        return self._scores(self._matched(X)[0])

    def _matched(self, X: Any) -> tuple[Floats, Ints | None]:
        """The table with the features of the fit, and where they are in X."""
        check_is_fitted(self)
        where = find_or_check(self, X, self._data.feature_names)
        return as_float_table(X if where is None else take_features(X, where)), where

    def _scores(self, table: Floats) -> Floats:
        data = self._data.like(table)
        Y, basis = data.values.T, self._basis[:, data.kept].T
        if data.missing is not None:
            Y = Y.copy()
            for row, gone in zip(Y, data.missing.T, strict=True):
                row[gone] = basis[gone] @ np.linalg.lstsq(basis[~gone], row[~gone], rcond=None)[0]
        out: Floats = Y @ self.components_[:, data.kept].T
        return out

    def impute(self, X: Any) -> Any:
        """The table with its holes filled by what its scores say about them; a DataFrame gives a DataFrame."""
        table, where = self._matched(X)
        holes = np.isnan(table)
        table[holes] = self.inverse_transform(self._scores(table))[holes]
        return put_features(X, where, table) if hasattr(X, "columns") else table

    def inverse_transform(self, X: Any) -> Floats:
        """Scores (n_samples, n_components) back to a table: X · Aᵀ, in the user's units."""
        check_is_fitted(self)
        scores = check_array(X, input_name="X")
        if scores.shape[1] != len(self.components_):
            raise ValueError(f"X must have {len(self.components_)} columns. Got {scores.shape[1]}.")
        out: Floats = scores @ self._basis * self._data.scale + self._data.center
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


def _fill(Y: Floats, missing: Bools, rank: int) -> Floats:
    """Y with its missing entries replaced by those of its best approximation of the given rank."""
    filled = Y.copy()
    for _ in range(_FILL_STEPS):
        left, sizes, right = svd(filled, full_matrices=False)
        guess = ((left[:, :rank] * sizes[:rank]) @ right[:rank])[missing]
        change = np.abs(guess - filled[missing]).max()
        filled[missing] = guess
        if change < _FILL_TOLERANCE:
            break
    return filled


class _ElasticNet:
    """The sparsest point on a component's elastic-net path that keeps the wanted variance."""

    def __init__(self, Y: Floats, ridge: float) -> None:
        self.gram = Y.T @ Y
        self.penalised = self.gram + ridge * np.eye(len(self.gram))
        self.n_samples = len(Y)

    def __call__(self, direction: Floats, target: float) -> Floats:
        """The unit-length sparse loadings for one column of the rotation."""
        with warnings.catch_warnings():
            # near-degenerate ends of the path are dropped by the solver with a warning; we only need its sparse part
            warnings.simplefilter("ignore")
            _, _, path = lars_path_gram(
                self.gram @ direction, self.penalised, n_samples=self.n_samples, method="lasso", copy_X=True
            )
        path = path[:, path.any(axis=0)]
        variance = np.einsum("dp,dp->p", path, self.gram @ path) / np.einsum("dp,dp->p", path, path)
        enough = np.flatnonzero(variance >= target)
        if not len(enough):
            return _unit(path[:, int(np.argmax(variance))])
        last = path[:, enough[0]]
        before = path[:, enough[0] - 1] if enough[0] else last
        # the path is straight between its corners: stop where the variance is just enough
        return _first_enough(lambda t: _unit((1 - t) * before + t * last), self._variance, target)

    def _variance(self, loadings: Floats) -> float:
        return float(loadings @ self.gram @ loadings)


def _unit(x: Floats) -> Floats:
    out: Floats = x / np.linalg.norm(x)
    return out


def _first_enough(at: Callable[[float], Floats], variance: Callable[[Floats], float], target: float) -> Floats:
    """Loadings at the smallest t in [0, 1] whose variance reaches the target, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if variance(at(middle)) >= target:
            high = middle
        else:
            low = middle
    return at(high)


class _SoftThreshold:
    """The same in the limit of a large ridge: YᵀY a, shrunk towards zero by a common amount."""

    def __init__(self, Y: Floats) -> None:
        self.Y = Y

    def __call__(self, direction: Floats, target: float) -> Floats:
        """The unit-length sparse loadings for one column of the rotation."""
        full = self.Y.T @ (self.Y @ direction)
        order = np.sort(np.abs(full))[::-1]

        def at(t: float) -> Floats:
            # t runs from the second largest entry, which leaves one loading, to zero, which leaves all
            shrunk = np.sign(full) * np.maximum(np.abs(full) - (1 - t) * order[1], 0.0)
            return _unit(shrunk if shrunk.any() else full)

        return _first_enough(at, self._variance, target)

    def _variance(self, loadings: Floats) -> float:
        score = self.Y @ loadings
        return float(score @ score)
