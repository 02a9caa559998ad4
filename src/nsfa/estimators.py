"""scikit-learn estimators over the engine: X is (n_samples, n_features), NaN is missing."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_is_fitted, validate_data

from nsfa.arrays import Ints
from nsfa.backends import check_backend, resolve_backend
from nsfa.blocks import opened
from nsfa.counts import check_count, on_cluster, worker_count
from nsfa.data import Observed
from nsfa.draws.store import Settings
from nsfa.length import Length
from nsfa.matching import find_or_check, warn_caller
from nsfa.model.presets import preset
from nsfa.model.spec import NAMED_PRIORS, ModelSpec, Priors, is_integer
from nsfa.monitor import Monitor
from nsfa.posterior import Posterior
from nsfa.posterior.answers import Answers
from nsfa.runner import fresh_seed, sample, shown
from nsfa.saved import sample_stored

_INTERRUPTED = "Interrupted: the result rests on the draws made so far."


class _BayesianModel(Answers, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What all the Bayesian models share: run chains, keep their posterior, and answer from it."""

    _model = ""

    def _spec(self) -> ModelSpec:
        """The model these parameters describe."""
        settings = {
            name: getattr(self, name)
            for name in (
                "n_components",
                "concentration",
                "stickiness",
                "noise",
                "likelihood",
                "spike",
                "birth_scale",
                "sweep",
            )
            if hasattr(self, name)
        }
        return preset(self._model, priors=resolve_priors(self.prior), **settings)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        progress: bool = False,
        monitor: Monitor | None = None,
        store: str | PathLike[str] | None = None,
    ) -> Self:
        """Draw from the posterior of the model given X.

        Parameters
        ----------
        X : array-like, DataFrame, scipy sparse matrix or dask array of shape (n_samples, n_features)
            NaN marks missing entries; they are integrated out. A dask array must be complete: it stays in blocks of
            samples on the workers of the client in use, or of two made for it.
        y : ignored
        progress : bool
            Show on standard error where the chains stand: a line each on a terminal, a line now and then elsewhere.
        monitor : callable, optional
            Called a few times a second with a ``nsfa.monitor.Progress``.
        store : path, optional
            A new folder to write draws and checkpoints to as the chains go; ``nsfa.load`` reads it, and
            ``nsfa.resume`` goes on after an interrupt, a kill or a full disk.
        """
        check_backend(self.backend, self.tf32)
        spec = self._spec()
        with opened(X, spec, self.scale, self.dtype, self.size_factors) as data:
            validate_data(self, X, reset=True, skip_check_array=True)
            settings = self._settings(spec, data)
            if not on_cluster(self.n_jobs):
                worker_count(self.n_jobs)
            with shown(self.chains, progress, monitor) as watcher:
                self.posterior_ = _sampled(data, settings, self.n_jobs, watcher, store)
        self.n_features_in_ = data.n_features
        self._warn()
        return self

    def _settings(self, spec: ModelSpec, data: Observed) -> Settings:
        """What the run is, for this table; ValueError where it cannot be."""
        backend = resolve_backend(self.backend, data, spec)
        seed, tf32 = resolve_seed(self.random_state), self.tf32 and backend == "gpu"
        if self.tf32 and not tf32:
            warn_caller("tf32 is for GPUs and has no effect: these chains run on the CPU.")
        settings = Settings(spec, self._length(data), seed, self.chains, backend, tf32)
        check_count("chains", self.chains)
        spec.check_shape(*data.shape)
        return settings

    def _length(self, data: Observed) -> Length:
        """How long the chains are for this table."""
        if self.preview and isinstance(self.tune, str) and self.tune == "auto":
            raise ValueError(
                "A preview is as short as it is however far the chains get. Got preview=True with tune='auto'; leave "
                "one of them out."
            )
        length = Length.of(data, self.tune, self.draws, self.thin)
        for name, least in (("tune", 0), ("draws", 1), ("thin", 1)):
            check_count(name, getattr(length, name), least)
        return length.shortened() if self.preview else length

    def _warn(self) -> None:
        """One sentence when the result should not be relied on."""
        if not self.posterior_.finished:
            warnings.warn(_INTERRUPTED, ConvergenceWarning, stacklevel=3)
        elif not self.preview and not self.posterior_.diagnostics(factors=False).converged:
            # of one chain no factor is judged, and matching factors, dense ones above all, can take longer than the fit
            found = self.posterior_.diagnostics(factors=self.chains > 1)
            advice = "" if found.advice is None else f" {found.advice.for_python()}"
            warnings.warn(f"{found.verdict}{advice}", ConvergenceWarning, stacklevel=3)

    def transform(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean scores of samples, and their standard deviations if asked for: see ``Posterior.transform``.

        Frames if ``set_output`` says so.
        """
        if not return_std:
            return super().transform(X)
        mean, deviation = super().transform(X, return_std=True)
        # scikit-learn wraps the first of several results only
        return mean, _wrap_data_with_container("transform", deviation, X, self)

    def _result(self) -> Posterior:
        check_is_fitted(self)
        return self.posterior_

    def _find(self, X: Any) -> Ints | None:
        return find_or_check(self, X, self._result().data.feature_names)

    @property
    def backend_(self) -> str:
        """Where the chains ran: "cpu" or "gpu"."""
        return self._result().backend_

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


def _sampled(
    data: Observed,
    settings: Settings,
    n_jobs: int | str | None,
    monitor: Monitor | None,
    store: str | PathLike[str] | None,
) -> Posterior:
    """The chains' draws, on disk as they are made where there is a store."""
    if store is not None:
        return sample_stored(store, data, settings, n_jobs, monitor)
    spec, length, seed = settings.spec, settings.length, settings.seed
    run = sample(
        data, spec, chains=settings.chains, length=length, seed=seed, n_jobs=n_jobs, monitor=monitor,
        backend=settings.backend, tf32=settings.tf32,
    )  # fmt: skip
    return Posterior.from_results(data, spec, run, length, seed, settings.backend)


def resolve_priors(prior: Any) -> Priors:
    """The priors named by ``prior``, a key of ``NAMED_PRIORS``, or a ``Priors`` object itself."""
    if isinstance(prior, Priors):
        return prior
    if isinstance(prior, str) and prior in NAMED_PRIORS:
        return NAMED_PRIORS[prior]
    names = ", ".join(map(repr, NAMED_PRIORS))
    raise ValueError(f"prior must be one of {names}, or a Priors object. Got {prior!r}.")


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


class NSFA(_BayesianModel):
    """Nonparametric sparse factor analysis: an Indian Buffet Process decides how many factors there are.

    Parameters
    ----------
    chains, tune, draws, thin
        Chains; warm-up sweeps (None: 100 to 500, by the table's size, and twice as many for counts; "auto": until the
        chain's own trace goes nowhere any more, at most eight times as many); kept draws per chain; and sweeps per kept
        draw (None: 1 to 12, by the table's size).
    preview
        A first look in a tenth of the time: a tenth of the sweeps. Broad structure and predictions are near those of
        a full fit; the verdict says that it is a preview, not whether the chains agree.
    random_state, n_jobs
        Seed, and how many chains run at once (None: one per core; "dask": each is a task of the Dask client in use).
        The seed alone decides the draws.
    concentration, stickiness
        α and β of the process: a number, or "infer".
    noise
        "diagonal", "isotropic", "shared" (diagonal with a learned common rate), or "robust" (diagonal with outliers,
        which ``posterior_.outliers()`` lists).
    likelihood
        "gaussian"; "counts" for whole numbers, Poisson given log rates that the factors explain; "binary" for zeros and
        ones, probit. Loadings and noise of the last two are those of the log rates and of the probit's normal values.
    size_factors
        Of counts, how much of each sample was counted: "total" takes its counts in all, None takes all samples alike,
        an array (n_samples,) gives them. Other likelihoods have none.
    scale
        Divide each feature by its standard deviation ("feature"), all by a common one ("global"), or not (None).
        Counts, and zeros and ones, are not divided.
    prior
        "default", "paper" (the paper's), "learned" (the default of former versions), or a ``Priors`` object.
    spike, birth_scale, sweep
        The birth proposal's π and s, and how rows are swept; see ``ModelSpec``.
    dtype
        The precision in which the table is kept: "float64", or "float32" for half the memory. Sums, and everything
        that is drawn, are in double precision either way.
    backend, tf32
        Where the chains run: "cpu", "gpu" (needs the extra ``gpu``), or "auto". ``tf32`` lets a GPU round the factors
        of its products to ten bits, for speed.
    """

    _model = "nsfa"

    def __init__(
        self, *, chains: int = 4, tune: int | str | None = None, draws: int = 500, thin: int | None = None,
        preview: bool = False, random_state: Any = None, n_jobs: int | str | None = None,
        concentration: float | str = "infer", stickiness: float | str = 1.0, noise: str = "diagonal",
        likelihood: str = "gaussian", size_factors: Any = "total", scale: str | None = "feature",
        prior: Any = "default", spike: float = 0.1, birth_scale: float = 1.0, sweep: str = "auto",
        dtype: str = "float64", backend: str = "auto", tf32: bool = False,
    ) -> None:  # fmt: skip
        self.chains, self.tune, self.draws, self.thin = chains, tune, draws, thin
        self.preview, self.random_state, self.n_jobs = preview, random_state, n_jobs
        self.concentration, self.stickiness = concentration, stickiness
        self.noise, self.likelihood, self.size_factors = noise, likelihood, size_factors
        self.scale, self.prior = scale, prior
        self.spike, self.birth_scale, self.sweep, self.dtype = spike, birth_scale, sweep, dtype
        self.backend, self.tf32 = backend, tf32


class SFA(_BayesianModel):
    """Sparse factor analysis with ``n_components`` factors: the finite version of NSFA. Parameters as there."""

    _model = "sfa"

    def __init__(
        self, n_components: int | None = None, *, chains: int = 4, tune: int | str | None = None, draws: int = 500,
        thin: int | None = None, preview: bool = False, random_state: Any = None, n_jobs: int | str | None = None,
        concentration: float | str = "infer", stickiness: float | str = 1.0, noise: str = "diagonal",
        likelihood: str = "gaussian", size_factors: Any = "total", scale: str | None = "feature",
        prior: Any = "default", sweep: str = "auto", dtype: str = "float64",
        backend: str = "auto", tf32: bool = False,
    ) -> None:  # fmt: skip
        self.n_components = n_components
        self.chains, self.tune, self.draws, self.thin = chains, tune, draws, thin
        self.preview, self.random_state, self.n_jobs = preview, random_state, n_jobs
        self.concentration, self.stickiness = concentration, stickiness
        self.noise, self.likelihood, self.size_factors = noise, likelihood, size_factors
        self.scale, self.prior = scale, prior
        self.sweep, self.dtype, self.backend, self.tf32 = sweep, dtype, backend, tf32


class FactorModel(_BayesianModel):
    """Any model: the one that a ``ModelSpec`` describes, None being that of NSFA. Other parameters as there."""

    def __init__(
        self, spec: ModelSpec | None = None, *, chains: int = 4, tune: int | str | None = None, draws: int = 500,
        thin: int | None = None, preview: bool = False, random_state: Any = None, n_jobs: int | str | None = None,
        size_factors: Any = "total", scale: str | None = "feature", dtype: str = "float64",
        backend: str = "auto", tf32: bool = False,
    ) -> None:  # fmt: skip
        self.spec, self.size_factors, self.scale, self.dtype = spec, size_factors, scale, dtype
        self.backend, self.tf32 = backend, tf32
        self.chains, self.tune, self.draws, self.thin = chains, tune, draws, thin
        self.preview, self.random_state, self.n_jobs = preview, random_state, n_jobs

    def _spec(self) -> ModelSpec:
        spec = ModelSpec() if self.spec is None else self.spec
        if not isinstance(spec, ModelSpec):
            raise ValueError(f"spec must be a ModelSpec. Got {spec!r}; models with a name have classes of their own.")
        return spec


class _PlainModel(_BayesianModel):
    """Fixed-K models without a buffet."""

    def __init__(
        self, n_components: int | None = None, *, chains: int = 4, tune: int | str | None = None, draws: int = 500,
        thin: int | None = None, preview: bool = False, random_state: Any = None, n_jobs: int | str | None = None,
        noise: str = "diagonal", likelihood: str = "gaussian", size_factors: Any = "total",
        scale: str | None = "feature", prior: Any = "default", dtype: str = "float64",
        backend: str = "auto", tf32: bool = False,
    ) -> None:  # fmt: skip
        self.n_components = n_components
        self.chains, self.tune, self.draws, self.thin = chains, tune, draws, thin
        self.preview, self.random_state, self.n_jobs = preview, random_state, n_jobs
        self.noise, self.likelihood, self.size_factors = noise, likelihood, size_factors
        self.scale, self.prior, self.dtype = scale, prior, dtype
        self.backend, self.tf32 = backend, tf32


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


ESTIMATORS: dict[str, type[_BayesianModel]] = {kind._model: kind for kind in (FA, AFA, FOK, SFA, NSFA, BFRM)}
"""The estimators of the models with a name, by it."""
