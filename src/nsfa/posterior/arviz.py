"""The draws in ArviZ's form: named arrays with dimensions chain, draw, observation, feature, factor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from nsfa.arrays import Floats
from nsfa.draw import Draw
from nsfa.kernels import Kernels, get_kernels
from nsfa.kernels.streams import fresh_key
from nsfa.posterior.latent import seen_draw
from nsfa.posterior.predict import fitted_table, to_table
from nsfa.posterior.project import project, sample_moments

if TYPE_CHECKING:
    from nsfa.posterior.core import Posterior

# Beyond this many (1 GB) the loadings of all draws are left out; and beyond ``SMALL`` (100 MB) where, zeros and all,
# they would take more than three times the memory of the draws, which hold the others alone.
LARGEST, SMALL = 250_000_000, 20_000_000
_BYTES, _TIMES = 5, 3

# The samples' dimension: ArviZ itself calls "sample" what it makes of chain and draw, so that extract() would fail.
SAMPLES = "observation"
DIMS = {
    "noise_variance": ["feature"],
    "feature_mean": ["feature"],
    "loadings": ["feature", "factor"],
    "active": ["feature", "factor"],
    "X": [SAMPLES, "feature"],
}


def to_arviz(
    posterior: Posterior,
    *,
    log_likelihood: bool = False,
    posterior_predictive: bool = False,
    loadings: bool = True,
) -> Any:
    """The draws as ``arviz.InferenceData`` (ArviZ 0.x) or ``xarray.DataTree`` (ArviZ 1.x), in the user's units.

    Summaries and trace plots mean something for the quantities that do not depend on the factors' labels: n_components,
    n_shared and n_substantial (factors of two and of five features or more), n_active, concentration, stickiness,
    loading_power, noise_variance. Loadings are aligned to the consensus factors.

    Parameters
    ----------
    posterior
        What to convert.
    log_likelihood
        Add the log density of every sample's observed entries, scores integrated out: (chain, draw, observation). It
        is what ``arviz.loo`` and ``arviz.compare`` need.
    posterior_predictive
        Add a replicate of the table for every draw, (chain, draw, observation, feature): scores drawn given the
        sample's observed entries, then noise. It depends on the seed of the fit alone.
    loadings
        With the loadings of every draw: most of what the result takes, five bytes for each, zeros included.

    Groups
    ------
    posterior : the scalars (loading_power is Σg² on the model's scale); noise_variance (feature); loadings and active
        (feature, factor), zero and False where a draw lacks the factor; left out with a warning above a gigabyte, and
        above 100 MB where that is more than three times what the draws take.
    sample_stats : lp (log joint density), n_factors, births_accepted (share of features), seconds since the start.
    observed_data : the table X, NaN where missing; features that do not vary have their value.
    log_likelihood, posterior_predictive : X, on request.
    """
    if log_likelihood and posterior.spec.latent:
        raise ValueError(
            "log_likelihood=True needs Gaussian noise and a Gaussian likelihood. Got "
            f"noise={posterior.spec.noise!r}, likelihood={posterior.spec.likelihood!r}; leave it out."
        )
    arviz = _arviz()
    parameters, n_factors = _parameters(posterior, loadings)
    groups = {
        "posterior": parameters,
        "sample_stats": _sample_stats(posterior),
        "observed_data": {"X": fitted_table(posterior.data)},
    }
    if log_likelihood:
        groups["log_likelihood"] = {"X": _each_draw(posterior, _log_density(posterior))}
    if posterior_predictive:
        groups["posterior_predictive"] = {"X": _each_draw(posterior, _replicate(posterior))}
    data = posterior.data
    coords = {
        "feature": list(data.names),
        "factor": np.arange(n_factors),
        SAMPLES: np.arange(data.shape[1]),
    }
    if arviz.__version__.startswith("0."):
        return arviz.from_dict(**groups, coords=coords, dims=DIMS)
    return arviz.from_dict(groups, coords=coords, dims=DIMS)


def _arviz() -> Any:
    with warnings.catch_warnings():
        # ArviZ 0.x announces 1.0 when it is imported
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz
        except ImportError:
            raise ImportError("to_arviz needs ArviZ: pip install 'nsfa[arviz]'.") from None
    return arviz


def _parameters(posterior: Posterior, loadings: bool) -> tuple[dict[str, Any], int]:
    """The variables of the group "posterior", and the number of aligned factors."""
    spec, data = posterior.spec, posterior.data
    out: dict[str, Any] = {
        "n_components": posterior.n_factors,
        "n_shared": posterior.n_shared,
        "n_substantial": posterior.n_substantial,
        "n_active": posterior.trace("n_active").astype(np.int64),
    }
    if spec.pattern in ("ibp", "finite"):
        out["concentration"] = posterior.trace("concentration")
        if spec.stickiness == "infer":
            out["stickiness"] = posterior.trace("stickiness")
    out["loading_power"] = posterior.trace("loading_power")
    out["noise_variance"] = _each_draw(
        posterior, lambda draw, _: posterior.data.to_user(1.0 / draw.noise_precision, power=2)
    )
    if spec.priors.intercept:
        out["feature_mean"] = _each_draw(posterior, lambda draw, _: data.center + data.to_user(_intercept(draw)))
    if not loadings:
        return out, 0
    n_factors = posterior.consensus().n_factors
    entries = posterior.n_factors.size * posterior.data.n_features * n_factors
    if entries <= min(LARGEST, max(SMALL, _TIMES * _held(posterior) // _BYTES)):
        out["loadings"], out["active"] = posterior.aligned(np.float32)
    else:
        warnings.warn(
            f"The loadings of all draws are left out: they would take {1e-9 * _BYTES * entries:.2g} GB. "
            "Posterior.consensus() has their means, intervals and inclusion probabilities.",
            UserWarning,
            stacklevel=4,
        )
    return out, n_factors


def _held(posterior: Posterior) -> int:
    """Bytes of the draws' arrays."""
    return sum(value.nbytes for draw in posterior.draws for value in vars(draw).values() if hasattr(value, "nbytes"))


def _intercept(draw: Draw) -> Floats:
    """The features' means (D,) on the model's scale; zero where they are held."""
    return np.zeros(draw.shape[0]) if draw.intercept is None else draw.intercept


def _sample_stats(posterior: Posterior) -> dict[str, Any]:
    return {
        "lp": posterior.trace("log_joint"),
        "n_factors": posterior.n_factors,
        "births_accepted": posterior.trace("births_accepted") / posterior.data.shape[0],
        "seconds": posterior.trace("seconds"),
    }


def _each_draw(posterior: Posterior, of: Callable[[Draw, Kernels], Floats]) -> Floats:
    """A function of every draw, stacked as (chains, draws, ...)."""
    kernels = get_kernels("numba")
    chains = posterior.chains
    with threadpool_limits(1):
        first = of(chains[0][0], kernels)
        out = np.empty((len(chains), len(chains[0]), *first.shape))
        for place in np.ndindex(out.shape[:2]):
            i, j = place
            out[place] = of(chains[i][j], kernels) if any(place) else first
    return out


def _log_density(posterior: Posterior) -> Callable[[Draw, Kernels], Floats]:
    """Log densities (n_samples,) of the samples under one draw, per unit of the user's table."""
    data = posterior.data
    units = data.log_units()
    return lambda draw, kernels: sample_moments(data, draw, kernels).log_density - units


def _replicate(posterior: Posterior) -> Callable[[Draw, Kernels], Floats]:
    """A new table (n_samples, n_features) under one draw: the same samples, measured again."""
    data = posterior.data
    # two words: the chains' own streams are keyed by one
    rng = np.random.default_rng(np.random.SeedSequence(posterior.seed, spawn_key=(0, 0)))

    spec = posterior.spec

    def one(draw: Draw, kernels: Kernels) -> Floats:
        if spec.latent:
            return _seen_replicate(posterior, draw, rng)
        scores = np.zeros((data.shape[1], draw.n_factors))
        if draw.scores is not None:
            scores[:] = draw.scores
        elif draw.n_factors:
            kernels.draw_scores(project(data, draw, kernels), scores, fresh_key(rng))
        noise = rng.standard_normal(data.shape) / np.sqrt(draw.noise_precision)[:, None]
        return to_table(data, _intercept(draw)[:, None] + draw.loadings() @ scores.T + noise)

    return one


def _seen_replicate(posterior: Posterior, draw: Draw, rng: np.random.Generator) -> Floats:
    """The same of a table that only hints at its Gaussian values, with the draw's scores."""
    data = posterior.data
    mean = _intercept(draw)[:, None] + draw.loadings() @ np.asarray(draw.drawn_scores, dtype=np.float64).T
    noise = np.broadcast_to(1.0 / draw.noise_precision[:, None], mean.shape).ravel()
    level = np.zeros(mean.shape)
    if data.likelihood != "gaussian":
        level += data.center[data.kept][:, None] + (0.0 if draw.exposure is None else draw.exposure)
    share = None if draw.outlier_share is None else np.tile(draw.outlier_share, (len(mean), 1))
    value = seen_draw(posterior.spec, share, mean.ravel(), noise, noise, level.ravel(), rng).reshape(mean.shape)
    if data.likelihood == "gaussian":
        return to_table(data, value)
    out = np.tile(data.center, (data.shape[1], 1))
    out[:, data.kept] = value.T
    return out
