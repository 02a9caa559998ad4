"""The array functions a backend must supply, and how to get one.

``reference`` is plain NumPy and is the specification; ``numba`` is the compiled CPU backend. Both draw from the same
counter-based streams (``streams``), so that the tests can compare them number by number.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nsfa.arrays import Bools, Floats, Ints
from nsfa.kernels.streams import Numbers

BACKENDS = ("numba", "reference")


class Holes(NamedTuple):
    """For each row, the entries that separate its observed set from the complete one.

    ``entry[pointer[i]:pointer[i + 1]]`` are row i's missing entries where ``rebuild[i]`` is false, and its observed
    entries where it is true (when fewer are observed than missing).
    """

    pointer: Ints
    entry: NDArray[np.int32]
    rebuild: Bools


def few_missing(holes: Holes, n_factors: int) -> Bools:
    """The rows that lack at most half as many entries as there are factors: a small correction of complete rows."""
    few: Bools = ~holes.rebuild & (2 * np.diff(holes.pointer) <= n_factors)
    return few


class Centred(Protocol):
    """A table, features × samples: dense and centred, or sparse with its centres (D,) as ``offset``."""

    @property
    def values(self) -> Any:
        """The values (D, N), zero where missing."""

    @property
    def offset(self) -> Floats | None:
        """What a sparse table's values are yet to be reduced by."""


class Rows(NamedTuple):
    """What the conditional of a feature's loadings needs: its products with the scores, and its precisions.

    cross (D, K) is Y X; gram (K, K) is XᵀX over all samples; power (D,) is Σ y²; loading_precision is (1, K), or (D, K)
    per element, times the features' noise precisions where slabs are relative. ``known`` (D, K₀) is added to the prior
    log odds of the first K₀ factors; K₀ is 0 where nothing is known.
    """

    cross: Floats
    gram: Floats
    power: Floats
    scores: Floats
    holes: Holes
    noise_precision: Floats
    loading_precision: Floats
    relative: bool
    known: Floats


class Projection(NamedTuple):
    """What the conditional of a sample's scores needs.

    projection (N, K) is Yᵀ diag(τ) G; information (K, K) is Gᵀ diag(τ) G over all features; pattern (N,) says which row
    of ``holes`` is a sample's set of missing features.
    """

    projection: Floats
    information: Floats
    loadings: Floats
    noise_precision: Floats
    pattern: Ints
    holes: Holes


class Marginal(NamedTuple):
    """What a sweep over the features needs when the scores are integrated out.

    loadings (D, K) in C order, active, usage and noise_variance are changed in place;
    loading_precision (1, K) or (D, K); prior (on, off) as in ``sweep_collapsed``; noise_prior (2, D), the
    shapes and rates of the noise precisions, shapes of 0 hold them.
    Features with a noise variance below least (D,) are left alone, and none gets there.
    Where slabs are relative, loading_precision is (D, K) and its rows scale with the noise precisions. ``known`` is as
    in ``Rows``.
    """

    loadings: Floats
    active: Bools
    usage: Ints
    noise_variance: Floats
    least: Floats
    loading_precision: Floats
    prior: tuple[float, float]
    noise_prior: Floats
    relative: bool
    known: Floats


class Scales(NamedTuple):
    """What rescaling the factors needs.

    power (K,) is Σ x²; usage (K,); n counts the samples. The slab precisions are Gamma(shape, rate) and integrated out,
    square (K,) being Σ g²; or, where shape is 0, held, and square is Σ λ g².
    """

    power: Floats
    usage: Ints
    square: Floats
    n: float
    shape: float
    rate: float


class Pairs(NamedTuple):
    """What moves of pairs of factors need; the first six are changed in place.

    turn (K, K) becomes the map of the scores, X → X turn, from the identity; gram (K, K); excess (D, K) is (Y − G Xᵀ) X
    with nothing missing; loadings and active (D, K; None on a device); all in C order, but on a device rows of loadings
    may be apart. usage (K,); noise_precision (D,); loading_precision (1, K) or (D, K); logit (K,) are prior log odds,
    to which ``known`` (D, K₀) is added, and feature anchor[k] keeps factor k.
    """

    turn: Floats
    gram: Floats
    excess: Floats
    loadings: Floats
    active: Any
    usage: Ints
    noise_precision: Floats
    loading_precision: Floats
    logit: Floats
    anchor: Ints
    known: Floats


class Columns(NamedTuple):
    """What draws of whole columns need; the first four are changed in place.

    loadings and active (D, K) in C order; usage and loading_precision (K,), in units of the noise where ``relative``;
    cross (D, K) with nothing missing; gram (K, K); noise_precision (D,); ``known`` (D, K₀) is added to the log odds.
    Probabilities are Beta(pseudo, stickiness); where pseudo is 0, as under the buffet, every factor has a user.
    Slab precisions are Gamma(shape, rate); where shape is 0 they are held.
    """

    loadings: Floats
    active: Bools
    usage: Ints
    loading_precision: Floats
    cross: Floats
    gram: Floats
    noise_precision: Floats
    relative: bool
    known: Floats
    pseudo: float
    stickiness: float
    shape: float
    rate: float


class Own(NamedTuple):
    """The factors used by one feature alone.

    factor and owner list them; number and square (D,) are each feature's number of them and their Σg²; residual (D,)
    is its residual sum of squares without them. A device has these in a form of its own.
    """

    factor: Ints
    owner: Ints
    number: Ints
    square: Floats
    residual: Floats


class Births(NamedTuple):
    """What births and deaths of the features' own factors need.

    ``own`` is what ``own_factors`` found; n_observed (D,) counts the features' entries.
    cumulative is the proposal's distribution function over 0, 1, …; weight is log prior − log proposal of those
    counts. New slab precisions are Gamma(slab_shape, slab_rate), or all slab_rate where slab_shape is 0; in units of
    the features' noise precisions (D,) where slabs are relative.
    """

    own: Any
    noise_precision: Floats
    relative: bool
    n_observed: Floats
    cumulative: Floats
    weight: Floats
    slab_shape: float
    slab_rate: float


class Born(NamedTuple):
    """Which features accepted their proposal (D,), and feature, loading and slab precision of each new factor."""

    accepted: Bools
    row: Ints
    loading: Floats
    precision: Floats


class Splits(NamedTuple):
    """What splitting features' noise into factors of their own needs; nothing of it is changed.

    loadings and active (D, K or more; None on a device), usage (K,), noise_precision (D,); noise_prior (a, b) of the
    noise precisions;
    slab (c, d) of the new factors' precisions, c = 0 has them all d; rate is the prior mean of a feature's own factors,
    and noise precisions stay below largest. Where slabs are relative, weight (2, D; None on a device, which works it
    out) is each feature's number of loadings and their Σ λ g², and loading_precision (1, K) or (D, K) the λ.
    """

    loadings: Floats
    active: Any
    usage: Ints
    noise_prior: tuple[float, float]
    noise_precision: Floats
    weight: Any
    loading_precision: Floats
    slab: tuple[float, float]
    rate: float
    largest: float
    relative: bool


class Split(NamedTuple):
    """New noise precisions (D,); of each new factor feature, the precision that it has, and loading; what died.

    ``dead`` are features and factors.
    """

    noise_precision: Floats
    row: Ints
    own_precision: Floats
    loading: Floats
    dead: tuple[Ints, Ints]


class Doublets(NamedTuple):
    """What births and deaths of factors that two features share need; variances and priors change in place.

    noise_variance (D,), which stay above least. feature and loading (n, 2) list the factors with two users, precision
    (n,) their slab precisions.
    log_rate is the log of the prior rate of such factors per pair of features; noise_prior (2, D) the shapes and rates
    of the noise precisions, which relative slabs are part of; slab (c, d) as in ``Splits``.
    """

    noise_variance: Floats
    least: float
    feature: Ints
    loading: Floats
    log_rate: float
    noise_prior: Floats
    slab: tuple[float, float]
    relative: bool
    precision: Floats


class Doubled(NamedTuple):
    """Which factors are kept (n,); features and loadings (new, 2) and slabs of the new; attempts that succeeded."""

    kept: Bools
    feature: Ints
    loading: Floats
    precision: Floats
    accepted: int


class Hidden(NamedTuple):
    """Gaussian values behind a table's entries, which are to be drawn: values (D, N) are changed in place.

    seen (D, N) is what was observed of them, missing (D, N) marks what was not, of no rows where all was. Before that
    a value is N(μ_d + g_d·x_n, 1/τ_d): loadings (D, K) and scores (K, N) in C order, intercept, noise_precision (D,).
    """

    values: Any
    seen: Any
    missing: Bools
    loadings: Floats
    scores: Floats
    intercept: Floats
    noise_precision: Floats


class Kernels(Protocol):
    """A backend: everything in a sweep whose cost grows with features or samples times factors."""

    def cross(self, data: Centred, scores: Floats, out: Floats) -> None:
        """Write Y X (D, K)."""

    def project(self, data: Centred, loadings: Floats, noise_precision: Floats) -> tuple[Floats, Floats]:
        """Return Yᵀ diag(τ) G (N, K) and Gᵀ diag(τ) G (K, K)."""

    def residuals(self, loadings: Floats, active: Bools, rows: Rows, which: Ints, skip: Bools) -> Floats:
        """Residual sums of squares of the features ``which``, with the factors marked in ``skip`` (K,) left out."""

    def sweep_collapsed(
        self, loadings: Floats, active: Bools, rows: Rows, usage: Ints, prior: tuple[float, float], key: int
    ) -> Floats:
        """One Gibbs pass over (z, g), row after row, the factors' probabilities integrated out.

        Updates ``usage``; returns the residual sums of squares (D,) it ends with, as all sweeps over loadings do.
        """

    def sweep_independent(
        self, loadings: Floats, active: Bools, rows: Rows, logit: Floats, anchor: Ints, key: int
    ) -> tuple[Ints, Floats]:
        """One Gibbs pass over (z, g) with given prior logits, rows independent. Returns usage (K,) and residuals."""

    def draw_gammas(self, shape: Floats, rate: Floats, key: int, numbers: Numbers = 0) -> Floats:
        """Gamma(shape, rate) draws, one per entry of the (n,) arrays, keyed by its number."""

    def own_factors(self, loadings: Floats, active: Bools, rows: Rows, usage: Ints, residual: Floats) -> Any:
        """The factors used by one feature alone, as an ``Own``; ``residual`` (D,) counts all factors."""

    def sweep_marginal(self, problem: Marginal, values: Floats, key: int) -> None:
        """One pass over (z, g, ψ) of every feature, the scores integrated out. Changes the problem's arrays.

        ``values`` (D, N) have nothing missing.
        """

    def draw_births(self, problem: Births, key: int) -> Born:
        """Propose a new set of own factors for every feature, and accept or reject it."""

    def draw_splits(self, problem: Splits, key: int) -> Split:
        """Try to split a part off every feature's noise, or to put one of its own factors back; see ``moves.split``."""

    def draw_doublets(
        self, problem: Doublets, residual: Floats, scores: Floats, attempts: int, key: int
    ) -> tuple[Doubled, Floats]:
        """Births and deaths of factors that two features share, one attempt after another; see ``moves.doublet``.

        residual (D, N) is what all factors leave, nothing missing, and is changed in place; scores (n, N) are those of
        the factors with two users. Returns those of the new ones (new, N) too.
        """

    def climb(
        self, residual: Floats, start: Floats, slab: tuple[float, float], stickiness: float, steps: int
    ) -> tuple[Floats, float, float]:
        """EM steps from a direction ``start`` (N,) to a mode of the scores of one more factor; see ``moves.module``.

        residual (D, N) is in units of the noise. Scores have length √N, loadings and users are summed out. Returns the
        direction, and slab precision and share of users there.
        """

    def tilt(self, problem: Pairs, pairs: Ints, key: int) -> int:
        """Tilt ``pairs`` (P, 2) of factors in turn, in place; returns how many were accepted. See ``moves.tilt``."""

    def rotate(self, problem: Pairs, pairs: Ints, key: int) -> int:
        """Rotate ``pairs`` (P, 2) of factors, in place; returns how many were accepted. See ``moves.rotation``."""

    def draw_columns(self, problem: Columns, factors: Ints, log_odds: Floats, key: int) -> None:
        """Draw the columns of ``factors`` in turn, in place, from log odds that are theirs; see ``moves.column``."""

    def rescale(self, problem: Scales, key: int) -> Floats:
        """What every factor's scores and loadings are multiplied by, (2, K), by slice sampling; see ``moves.scale``."""

    def draw_shears(
        self, gram: Floats, inner: Floats, precision: Floats, inside: Bools, key: int
    ) -> tuple[Floats, Floats]:
        """(M, W), K × K, of the shears between nested factors; updates ``gram`` and ``inner``. See ``moves.shear``."""

    def draw_dense(self, loadings: Floats, rows: Rows, key: int) -> Floats:
        """Draw every feature's loadings from its K-variate normal conditional. Returns residuals (D,)."""

    def draw_scores(self, problem: Projection, scores: Floats, key: int, numbers: Numbers = 0) -> float:
        """Draw all scores (N, K); returns Σ_n [½ aᵀΛ⁻¹a − ½ log|Λ|], the part of log p(Y | G, ψ) that needs them.

        Random numbers are keyed by the samples' ``numbers``, as wherever they are a parameter.
        """

    def score_moments(self, problem: Projection) -> tuple[Floats, Floats, Floats]:
        """Mean and variance of every score (N, K) given its sample's entries, and ½ aᵀΛ⁻¹a − ½ log|Λ| (N,)."""

    def predict(self, problem: Projection, sample: Ints, row: Ints) -> tuple[Floats, Floats]:
        """Mean and variance of g_d·x_n given sample n's observed entries, for pairs (n, d) sorted by n."""

    def draw_outliers(
        self,
        problem: Hidden,
        shares: Floats,
        scales: Floats,
        prior: Floats,
        largest: float,
        key: int,
        numbers: Numbers = 0,
    ) -> tuple[Floats, Floats, Floats]:
        """Draw which entries are outliers, the noise precisions given that, and deviations o ~ N(0, v_j ψ_d).

        Values are what is seen less o. ``shares`` (N, J + 1) are each sample's prior probabilities and ``scales``
        (J + 1,) the v_j, those of ordinary entries, v = 0, first. ``prior`` (2, D) are shapes and rates of the noise
        precisions, which stay below ``largest``; a shape of 0 holds them. Returns how many entries of each sample have
        each scale (N, J + 1), every feature's number of outliers and Σ o²/v_j (2, D), and the noise precisions (D,).
        """

    def draw_concentrations(
        self, number: Floats, concentration: Floats, shape: Floats, rate: float, key: int
    ) -> Floats:
        """Draw the parameters a (J + 1,) of samples' Dirichlet distributions given how many entries are of each kind.

        ``number`` is (N, J + 1), the shares are integrated out, a_j ~ Gamma(``shape`` (J + 1,), ``rate``): Metropolis
        steps on the logarithms, one by one and of all together, of every size in ``CONCENTRATION_STEPS``.
        """

    def draw_rates(
        self, problem: Hidden, level: Floats, exposure: Floats, prior: Floats, key: int, numbers: Numbers = 0
    ) -> Floats:
        """Draw values given counts ~ Poisson(exp(value + level_d + exposure_n)); ``level`` (D,), ``exposure`` (N,).

        Then the features' noise precisions, which it returns (D,), the values' distances from their means moving with
        √ψ_d: one Metropolis step each. ``prior`` (2, D) are their shapes and rates; a shape of 0 holds them.
        """

    def carry_intercepts(self, problem: Hidden, level: Floats, exposure: Floats, key: int) -> Floats:
        """Draw means (D,) with values going along, y − fit held, given counts as in ``draw_rates``. Returns the means.

        Their prior is flat; features of which nothing but zeros is seen keep theirs.
        """

    def carry_loadings(self, problem: Hidden, precision: Floats, level: Floats, exposure: Floats, key: int) -> Floats:
        """Draw the loadings in use with values going along, as above: each feature's on a random line. Returns them.

        ``precision`` (D, K) are those of their priors N(0, 1/precision).
        """

    def carry_scores(self, problem: Hidden, level: Floats, exposure: Floats, key: int, numbers: Numbers = 0) -> Floats:
        """Draw the scores with values going along, as above: each sample's on a random ellipse. Returns them (N, K)."""

    def draw_signs(self, problem: Hidden, level: Floats, key: int, numbers: Numbers = 0) -> None:
        """Draw values given whether value + level_d is above zero (1) or below (0)."""

    def draw_urn(self, problem: Projection, scores: Floats, cluster: Ints, concentration: float, key: int) -> None:
        """One Pólya-urn pass over the samples' clusters, then fresh cluster values (Dirichlet-process scores)."""


def get_kernels(name: str = "numba", threads: int = 1) -> Kernels:
    """Return the backend called ``name``; ``threads`` changes the speed, never a digit of the result."""
    kernels: Any
    if name == "numba":
        from nsfa.kernels.numba_cpu import NumbaKernels

        kernels = NumbaKernels(threads)
    elif name == "reference":
        from nsfa.kernels.reference import ReferenceKernels

        kernels = ReferenceKernels()
    else:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}. Got {name!r}.")
    return kernels  # type: ignore[no-any-return]
