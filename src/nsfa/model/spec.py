"""What a model is: a frozen value that says which prior each part has. Nothing here computes."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field, fields, replace
from typing import Any

PATTERNS = ("dense", "finite", "ibp", "two-level")
PRECISIONS = ("shared", "factor", "element")
NOISES = ("diagonal", "isotropic", "shared", "robust")
LIKELIHOODS = ("gaussian", "counts", "binary")
SCORES = ("gaussian", "dirichlet")
SWEEPS = ("auto", "collapsed", "parallel")
MOVES = ("all", "plain")
_LARGEST_BUFFET = 1e4
# Of N samples, correlations show from about so many over √N on.
_VISIBLE = 3.0


def _positive(name: str, value: Any) -> None:
    if not is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive finite number. Got {value!r}.")


def is_number(value: Any) -> bool:
    """Whether a value is a real number of any kind, bools excluded."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}. Got {value!r}.")


@dataclass(frozen=True)
class Gamma:
    """A Gamma(shape, rate) prior: mean shape/rate."""

    shape: float
    rate: float

    def __post_init__(self) -> None:
        _positive("Gamma shape", self.shape)
        _positive("Gamma rate", self.rate)


@dataclass(frozen=True)
class Priors:
    """Hyperparameters, on the scale of centred and scaled data; docs/model.md has the reasons.

    By default a feature's mean is unknown, and its loadings are counted in units of its noise. ``Priors.paper()`` has
    every shape and rate at one and neither of the two; ``Priors.learned()`` is the default of former versions, which
    finds factors in noise where features outnumber samples.

    noise: Gamma(a, b) of the noise precisions; with ``noise="shared"`` b is drawn from ``noise_rate``.
    loading_shape, loading_rate: Gamma(c, d) of the slab precisions; a number fixes d, a ``Gamma`` has it drawn, None is
    3/√N: a factor, if it is there, is one that N samples can show.
    relative: the slab of feature d is N(0, 1/(λ τ_d)), in units of its noise, instead of N(0, 1/λ).
    intercept: each feature's mean is unknown, with a flat prior, instead of that of its observed entries.
    concentration, stickiness: priors of α and β where they are inferred; None is Gamma(1, 10) for the number of factors
    that an Indian Buffet Process infers, Gamma(1, 1) where it is fixed.
    reliability: m, the mean of BFRM's Beta for a loading that may be used; it is the only moment that matters once
    the loading's own probability is integrated out. sparsity: BFRM's Beta(s r, s(1−r)) as (s, r); None is (D, 5/D).
    urn: prior of the Dirichlet process' concentration, or a number to fix it.
    outlier_scales: with ``noise="robust"``, variances that an outlier's own deviation may have, in units of the
    feature's noise variance. Each sample has its own shares of ordinary entries and of outliers of each scale, from a
    Dirichlet distribution whose parameters are drawn, too, from Gamma(p, r): outlier_shares has the p, ordinary entries
    first, and outlier_rate is r. A priori, what samples have in common is worth Σp/r entries of each.
    """

    noise: Gamma = Gamma(0.1, 0.1)
    noise_rate: Gamma = Gamma(1.0, 1.0)
    loading_shape: float = 1.0
    loading_rate: float | Gamma | None = None
    relative: bool = True
    intercept: bool = True
    concentration: Gamma | None = None
    stickiness: Gamma = Gamma(1.0, 1.0)
    reliability: float = 0.75
    sparsity: tuple[float, float] | None = None
    urn: float | Gamma = Gamma(1.0, 1.0)
    outlier_scales: tuple[float, ...] = (3.0, 15.0, 100.0, 1e3, 1e5)
    outlier_shares: tuple[float, ...] = (1.0, 0.2, 0.2, 0.2, 0.2, 0.2)
    outlier_rate: float = 0.02

    @classmethod
    def paper(cls) -> Priors:
        """Knowles & Ghahramani's hyperparameters: every shape and rate is one, and nothing shares power."""
        return cls(
            noise=Gamma(1.0, 1.0),
            loading_rate=1.0,
            relative=False,
            intercept=False,
            concentration=Gamma(1.0, 1.0),
        )

    @classmethod
    def learned(cls) -> Priors:
        """The default of former versions: the slabs' rate is learned, noise precisions have Gamma(0.5, 0.2)."""
        return replace(cls.paper(), noise=Gamma(0.5, 0.2), loading_rate=Gamma(1.0, 1.0))

    def slab_rate(self, n_samples: int) -> float | Gamma:
        """The slab precisions' rate d, or its prior, for a table of ``n_samples``."""
        return _VISIBLE / math.sqrt(n_samples) if self.loading_rate is None else self.loading_rate

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("noise", "noise_rate", "concentration", "stickiness"):
                if not isinstance(value, Gamma) and not (item.name == "concentration" and value is None):
                    raise ValueError(f"priors.{item.name} must be a Gamma(shape, rate). Got {value!r}.")
            elif item.name in ("loading_rate", "urn"):
                if not isinstance(value, Gamma) and not (item.name == "loading_rate" and value is None):
                    _positive(f"priors.{item.name}", value)
            elif item.name in ("relative", "intercept"):
                if not isinstance(value, bool):
                    raise ValueError(f"priors.{item.name} must be True or False. Got {value!r}.")
            elif item.name in ("loading_shape", "outlier_rate"):
                _positive(f"priors.{item.name}", value)
            elif item.name in ("outlier_scales", "outlier_shares"):
                if not isinstance(value, tuple) or not value:
                    raise ValueError(f"priors.{item.name} must be a tuple of positive numbers. Got {value!r}.")
                for number in value:
                    _positive(f"each of priors.{item.name}", number)
        if len(self.outlier_shares) != len(self.outlier_scales) + 1:
            raise ValueError(
                "priors.outlier_shares must have one number more than priors.outlier_scales, that of ordinary entries "
                f"first. Got {len(self.outlier_shares)} and {len(self.outlier_scales)}."
            )
        if not is_number(self.reliability) or not 0 < self.reliability < 1:
            raise ValueError(f"priors.reliability must lie between 0 and 1. Got {self.reliability!r}.")
        if self.sparsity is not None:
            if not isinstance(self.sparsity, tuple) or len(self.sparsity) != 2 or not is_number(self.sparsity[1]):
                raise ValueError(f"priors.sparsity must be None or a pair (s, r) of numbers. Got {self.sparsity!r}.")
            _positive("priors.sparsity[0]", self.sparsity[0])
            if not 0 < self.sparsity[1] < 1:
                raise ValueError(f"priors.sparsity[1] must lie between 0 and 1. Got {self.sparsity[1]!r}.")


NAMED_PRIORS = {"default": Priors(), "paper": Priors.paper(), "learned": Priors.learned()}


@dataclass(frozen=True)
class ModelSpec:
    """One factor model: which prior the pattern, the slab, the noise and the scores have.

    pattern: "dense", "finite" (finite Indian buffet), "ibp" (Indian Buffet Process), "two-level" (BFRM).
    precision: the slab precision is "shared", one per "factor", or one per "element".
    noise: "diagonal", "isotropic", "shared" (diagonal, with a common learned rate: the paper's ``sc``), or "robust"
    (diagonal, with outliers that have deviations of their own).
    likelihood: "gaussian"; "counts", Poisson given log rates that are Gaussian; "binary", 0/1 by the sign of Gaussian
    values whose noise is one.
    scores: "gaussian", or "dirichlet" for Dirichlet-process scores.
    n_components: number of factors K; None with "ibp", where it is inferred.
    concentration, stickiness: α and β of the buffet, each a number or "infer". β = 1 is the one-parameter process.
    spike, birth_scale: the birth proposal's extra mass π at one new factor and its factor s on the Poisson rate.
    sweep: "collapsed" (row after row), "parallel" (rows independent, exact), or "auto" (by size).
    moves: "all", or "plain" for the paper's alone, with chains that start empty (docs/model.md).
    """

    name: str = "nsfa"
    pattern: str = "ibp"
    precision: str = "factor"
    noise: str = "diagonal"
    likelihood: str = "gaussian"
    scores: str = "gaussian"
    n_components: int | None = None
    concentration: float | str = "infer"
    stickiness: float | str = 1.0
    spike: float = 0.1
    birth_scale: float = 1.0
    sweep: str = "auto"
    moves: str = "all"
    priors: Priors = field(default_factory=Priors)

    def __post_init__(self) -> None:
        _one_of("pattern", self.pattern, PATTERNS)
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("noise", self.noise, NOISES)
        _one_of("likelihood", self.likelihood, LIKELIHOODS)
        _one_of("scores", self.scores, SCORES)
        _one_of("sweep", self.sweep, SWEEPS)
        _one_of("moves", self.moves, MOVES)
        for name in ("concentration", "stickiness"):
            value = getattr(self, name)
            infer = isinstance(value, str) and value == "infer"
            if not infer and (not is_number(value) or not 0 < value < _LARGEST_BUFFET):
                raise ValueError(
                    f"{name} must be a positive number below {_LARGEST_BUFFET:g}, or 'infer'. Got {value!r}."
                )
        if not is_number(self.spike) or not 0 <= self.spike < 1:
            raise ValueError(f"spike must lie in [0, 1). Got {self.spike!r}.")
        _positive("birth_scale", self.birth_scale)
        if not isinstance(self.priors, Priors):
            raise ValueError(f"priors must be a Priors object. Got {self.priors!r}.")
        self._check_likelihood()
        self._check_components()

    @property
    def latent(self) -> bool:
        """Whether the Gaussian values are drawn, since the table only hints at them."""
        return self.noise == "robust" or self.likelihood != "gaussian"

    @property
    def latent_setting(self) -> str:
        """Which setting makes it so, in words."""
        return "noise='robust'" if self.noise == "robust" else f"likelihood={self.likelihood!r}"

    @property
    def noise_of_features(self) -> bool:
        """Whether each feature has a noise variance of its own that is drawn."""
        return self.noise != "isotropic" and self.likelihood != "binary"

    def _check_likelihood(self) -> None:
        if self.likelihood == "gaussian":
            return
        if self.noise == "robust" or (self.likelihood == "binary" and self.noise != "diagonal"):
            raise ValueError(
                f"likelihood={self.likelihood!r} has noise of its own. Got noise={self.noise!r}; leave it out."
            )
        if not self.priors.intercept:
            raise ValueError(
                f"likelihood={self.likelihood!r} needs priors with intercept=True. Got False; use prior='default', or "
                "Priors(intercept=True, ...)."
            )

    def _check_components(self) -> None:
        if self.pattern == "ibp":
            if self.n_components is not None:
                raise ValueError(
                    f"n_components must be None when the number of factors is inferred. Got {self.n_components!r}; "
                    "use SFA for a fixed number."
                )
            if self.scores != "gaussian":
                raise ValueError("pattern 'ibp' needs scores='gaussian': births integrate the new scores out.")
            return
        if not is_integer(self.n_components) or self.n_components < 1:  # type: ignore[operator]
            raise ValueError(f"n_components must be an int >= 1. Got {self.n_components!r}; use NSFA to infer it.")

    @property
    def concentration_prior(self) -> Gamma:
        """The prior of α where it is inferred."""
        return self.priors.concentration or Gamma(1.0, 10.0 if self.pattern == "ibp" else 1.0)

    def check_shape(self, n_features: int, n_samples: int) -> None:
        """Raise ValueError if the model cannot be fitted to a table of this size."""
        if self.pattern == "dense" and self.n_components > min(n_features, n_samples):  # type: ignore[operator]
            raise ValueError(
                f"n_components must be at most min(n_samples, n_features) = {min(n_features, n_samples)} for "
                f"{self.name.upper()}. Got {self.n_components}; use fewer, or a sparse model (SFA, NSFA)."
            )


def is_integer(value: Any) -> bool:
    """Whether a value is an int (Python's or NumPy's), bools excluded."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
