"""scikit-learn estimators over the engine: X is (n_samples, n_features), NaN is missing."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from nsfa.chain import Length
from nsfa.data import as_float_table, observe
from nsfa.kernels import Floats
from nsfa.model.presets import preset
from nsfa.model.spec import ModelSpec, Priors, is_integer
from nsfa.posterior import Posterior
from nsfa.runner import Monitor, check_count, fresh_seed, sample

_INTERRUPTED = "Interrupted: the result rests on the draws made so far."


class _FactorModel(BaseEstimator):  # type: ignore[misc]
    """What all the Bayesian models share: run chains, keep their posterior."""

    _model = ""

    def _spec(self) -> ModelSpec:
        """The model these parameters describe."""
        settings = {
            name: getattr(self, name)
            for name in ("n_components", "concentration", "stickiness", "noise", "spike", "birth_scale", "sweep")
            if hasattr(self, name)
        }
        return preset(self._model, priors=resolve_priors(self.prior), **settings)

    def fit(self, X: Any, y: Any = None, *, monitor: Monitor | None = None) -> Self:
        """Draw from the posterior of the model given X.

        Parameters
        ----------
        X : array-like, DataFrame or scipy sparse matrix of shape (n_samples, n_features)
            NaN marks missing entries; they are integrated out.
        y : ignored
        monitor : callable, optional
            Called a few times a second with a ``nsfa.runner.Progress``.
        """
        spec, data = self._spec(), observe(X, self.scale)
        length = Length(self.tune, self.draws, self.thin)
        for name, least in (("tune", 0), ("draws", 1), ("thin", 1)):
            check_count(name, getattr(self, name), least)
        seed = resolve_seed(self.random_state)
        results = sample(data, spec, chains=self.chains, length=length, seed=seed, n_jobs=self.n_jobs, monitor=monitor)
        self.posterior_ = Posterior.from_results(data, spec, results, length, seed)
        if not self.posterior_.finished:
            warnings.warn(_INTERRUPTED, ConvergenceWarning, stacklevel=2)
        self.n_features_in_ = data.n_features
        self.n_components_draws_ = self.posterior_.n_components
        self.noise_variance_ = self.posterior_.noise_variance()
        return self

    def impute(self, X: Any) -> Floats:
        """The table of the fit with its holes filled by posterior means.

        X must be the table that was fitted.
        """
        check_is_fitted(self)
        table = as_float_table(X)
        if not self.posterior_.data.is_from(table):
            raise ValueError(
                "X must be the table that was fitted, with the same missing entries. "
                f"Got another one, of shape {table.shape}; fit it first."
            )
        return self.posterior_.impute(table)


def resolve_priors(prior: Any) -> Priors:
    """The priors named by ``prior``: "default", "paper", or a ``Priors`` object itself."""
    if isinstance(prior, Priors):
        return prior
    if isinstance(prior, str) and prior == "default":
        return Priors()
    if isinstance(prior, str) and prior == "paper":
        return Priors.paper()
    raise ValueError(f"prior must be 'default', 'paper' or a Priors object. Got {prior!r}.")


def resolve_seed(random_state: Any) -> int:
    """A seed from an int, a NumPy generator (which it advances), or None for a fresh one."""
    if random_state is None:
        return fresh_seed()
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if is_integer(random_state) and random_state >= 0:
        return int(random_state)
    raise ValueError(f"random_state must be None, an int >= 0 or a NumPy generator. Got {random_state!r}.")


class NSFA(_FactorModel):
    """Nonparametric sparse factor analysis: an Indian Buffet Process decides how many factors there are.

    Parameters
    ----------
    chains, tune, draws, thin
        Chains, warm-up sweeps, kept draws per chain, and sweeps per kept draw.
    random_state, n_jobs
        Seed, and how many chains run at once (None: one per core). The seed alone decides the draws.
    concentration, stickiness
        α and β of the process: a number, or "infer".
    noise
        "diagonal", "isotropic", or "shared" (diagonal with a learned common rate).
    scale
        Divide each feature by its standard deviation ("feature"), all by a common one ("global"), or not (None).
    prior
        "default", "paper", or a ``Priors`` object.
    spike, birth_scale, sweep
        The birth proposal's π and s, and how rows are swept; see ``ModelSpec``.
    """

    _model = "nsfa"

    def __init__(
        self, *, chains: int = 4, tune: int = 500, draws: int = 500, thin: int = 1, random_state: Any = None,
        n_jobs: int | None = None, concentration: float | str = "infer", stickiness: float | str = 1.0,
        noise: str = "diagonal", scale: str | None = "feature", prior: Any = "default", spike: float = 0.1,
        birth_scale: float = 1.0, sweep: str = "auto",
    ) -> None:  # fmt: skip
        self.chains, self.tune, self.draws, self.thin = chains, tune, draws, thin
        self.random_state, self.n_jobs = random_state, n_jobs
        self.concentration, self.stickiness = concentration, stickiness
        self.noise, self.scale, self.prior = noise, scale, prior
        self.spike, self.birth_scale, self.sweep = spike, birth_scale, sweep


class SFA(_FactorModel):
    """Sparse factor analysis with ``n_components`` factors: the finite version of NSFA. Parameters as there."""

    _model = "sfa"

    def __init__(
        self, n_components: int | None = None, *, chains: int = 4, tune: int = 500, draws: int = 500, thin: int = 1,
        random_state: Any = None, n_jobs: int | None = None, concentration: float | str = "infer",
        stickiness: float | str = 1.0, noise: str = "diagonal", scale: str | None = "feature", prior: Any = "default",
        sweep: str = "auto",
    ) -> None:  # fmt: skip
        self.n_components = n_components
        self.chains, self.tune, self.draws, self.thin = chains, tune, draws, thin
        self.random_state, self.n_jobs = random_state, n_jobs
        self.concentration, self.stickiness = concentration, stickiness
        self.noise, self.scale, self.prior, self.sweep = noise, scale, prior, sweep


class _PlainModel(_FactorModel):
    """Fixed-K models without a buffet."""

    def __init__(
        self, n_components: int | None = None, *, chains: int = 4, tune: int = 500, draws: int = 500, thin: int = 1,
        random_state: Any = None, n_jobs: int | None = None, noise: str = "diagonal", scale: str | None = "feature",
        prior: Any = "default",
    ) -> None:  # fmt: skip
        self.n_components = n_components
        self.chains, self.tune, self.draws, self.thin = chains, tune, draws, thin
        self.random_state, self.n_jobs = random_state, n_jobs
        self.noise, self.scale, self.prior = noise, scale, prior


class FA(_PlainModel):
    """Bayesian factor analysis: dense loadings with one shared precision. Parameters as in ``SFA``."""

    _model = "fa"


class AFA(_PlainModel):
    """Factor analysis with automatic relevance determination: a precision per factor. Parameters as in ``SFA``."""

    _model = "afa"


class FOK(_PlainModel):
    """Factor analysis with a precision per loading, so that each is Student-t (Fokoué 2004). As ``SFA``."""

    _model = "fok"


class BFRM(_PlainModel):
    """Bayesian factor regression model: two-level sparsity and Dirichlet-process scores. Parameters as in ``SFA``."""

    _model = "bfrm"
