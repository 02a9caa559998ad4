"""The result of a fit: draws of several chains, with what is needed to read them in the user's units."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nsfa.arrays import Bools, Floats, Ints
from nsfa.blocks import in_blocks
from nsfa.counts import core_count
from nsfa.data import Observed
from nsfa.draw import COVARIANCES, Draw, feature_pairs
from nsfa.draws.log import save_chains
from nsfa.draws.store import Settings
from nsfa.kernels import get_kernels
from nsfa.length import Length
from nsfa.metrics import log_mean_density
from nsfa.model.spec import ModelSpec
from nsfa.posterior.align import Alignment, align, evenly
from nsfa.posterior.answers import OwnAnswers
from nsfa.posterior.build import aligned_draws, build_consensus
from nsfa.posterior.consensus import Consensus
from nsfa.posterior.diagnostics import QUANTITIES, Diagnostics, advise, diagnose
from nsfa.posterior.latent import Tables, ceiling_of, seen_log_density
from nsfa.posterior.moves import moves_of
from nsfa.posterior.predict import Entries, fill_holes, held_out, moments_of, summarise
from nsfa.posterior.project import is_large, sample_blocks, sample_moments
from nsfa.posterior.scores import SCORE_DRAWS, scores_in_blocks, scores_of
from nsfa.runner import ChainResult
from nsfa.table import as_float_table

# Entries times squared factors, over all draws, beyond which a prediction takes fewer draws.
_PREDICTION_WORK = 400_000_000_000

_TRACED = {name: quantity.label for name, quantity in QUANTITIES.items()} | {
    name: name.replace("_", " ") for name in COVARIANCES
}


@dataclass(frozen=True, repr=False)
class Posterior(OwnAnswers):
    """Posterior draws of every chain, all of one length: after an interrupt, those that keep most draws in all.

    It has the verbs and attributes of the fitted estimator (``transform``, ``impute``, ``components_``, ...), too.
    ``backend_`` is where the chains ran, "cpu" or "gpu".
    """

    data: Observed
    spec: ModelSpec
    chains: tuple[tuple[Draw, ...], ...]
    length: Length
    seed: int
    finished: bool
    backend_: str = "cpu"

    @classmethod
    def from_results(
        cls,
        data: Observed,
        spec: ModelSpec,
        results: list[ChainResult],
        length: Length,
        seed: int,
        backend: str = "cpu",
    ) -> Posterior:
        """Collect the results of ``runner.sample``; chains that drew nothing are left out."""
        some = [r.draws for r in results if r.draws]
        if not some:
            raise RuntimeError("Interrupted during warm-up: there are no draws yet. Run again, or with less tune.")
        # an interrupt leaves chains of different lengths: cut where most draws in all are kept
        lengths = sorted((len(draws) for draws in some), reverse=True)
        kept = max(range(1, len(lengths) + 1), key=lambda n: n * lengths[n - 1])
        shortest = lengths[kept - 1]
        chains = tuple(tuple(draws[:shortest]) for draws in some if len(draws) >= shortest)
        return cls(data, spec, chains, length, seed, all(r.finished for r in results), backend)

    def __repr__(self) -> str:
        n_features, n_samples, (chains, draws) = self.data.n_features, self.data.shape[1], self.n_factors.shape
        state = "" if self.finished else f", {self.length.draws} wanted: unfinished"
        return (
            f"Posterior of {self.spec.name}: {n_samples} samples × {n_features} features\n"
            f"  {chains} chains × {draws} draws{state} (tune {self.length.warm_up}, thin {self.length.thin}, "
            f"seed {self.seed})\n"
            f"  K {_range(self.n_factors)}, substantial factors {_range(self.n_substantial)}\n"
            "  diagnostics() has the verdict, summary() the factors, consensus() their loadings and scores"
        )

    @property
    def draws(self) -> list[Draw]:
        """All draws, chain after chain."""
        return [draw for chain in self.chains for draw in chain]

    @property
    def resolved(self) -> dict[str, Any]:
        """The settings of the length, also where the table's size decided; a preview's are not its own."""
        if self.length.preview:
            return {}
        given = asdict(self.length)
        # a warm-up that ended by itself has the usual one, and its maximum, from the table's size
        return {**given, "tune": "auto"} if given.pop("most") else given

    @property
    def n_factors(self) -> Ints:
        """Number of factors of every draw, (chains, draws)."""
        return self.trace("n_factors").astype(np.int64)

    @property
    def n_shared(self) -> Ints:
        """Number of shared factors of every draw, those of two features or more, (chains, draws)."""
        return self.trace("n_shared").astype(np.int64)

    @property
    def n_substantial(self) -> Ints:
        """Number of substantial factors of every draw, those of five features or more, (chains, draws)."""
        return self.trace("n_substantial").astype(np.int64)

    def trace(self, name: str) -> Floats:
        """A scalar of every draw, (chains, draws): any key of ``Draw.scalars``."""
        return np.array([[draw.scalars[name] for draw in chain] for chain in self.chains])

    def has_trace(self, name: str) -> bool:
        """Whether there is such a scalar: draws of earlier versions lack some."""
        return all(name in chain[0].scalars for chain in self.chains)

    def scaled_loadings(self, draw: Draw) -> Floats:
        """Loadings (n_features, K) of one draw in the user's units; zero for features that do not vary."""
        return self.data.to_user(draw.loadings())

    def diagnostics(self, factors: bool = True) -> Diagnostics:
        """R-hat and effective sample sizes of quantities that do not depend on the factors' labels, and a verdict.

        The verdict also says how many consensus factors are settled, each judged by itself; without ``factors`` it does
        not, and comes at once: no factors have to be matched for it. Both are computed once.
        """
        return self._full_diagnostics if factors else self._diagnostics

    @cached_property
    def _diagnostics(self) -> Diagnostics:
        traces = {label: self.trace(name) for name, label in _TRACED.items() if self.has_trace(name)}
        # what a model does not have is NaN in every draw
        there = {label: trace for label, trace in traces.items() if not np.isnan(trace).all()}
        still = [label for label, trace in there.items() if np.isfinite(trace).all() and np.ptp(trace) == 0]
        moving = {k: v for k, v in there.items() if k not in still} or {"log joint": traces["log joint"]}
        found = diagnose(moving, self._pairs_in_words())
        found = found.of_preview() if self.length.preview else found
        # a run that was stopped has its own: to go on
        most, (n_chains, made) = self.length.most, self.n_factors.shape
        cut = most > 0 and any(chain[-1].scalars.get("warm_up") == most for chain in self.chains)
        advice = advise(found, self.length, n_chains, made, cut) if self.finished else None
        return replace(found, advice=advice, moves=moves_of(self.spec, self.data, self.chains, self.backend_))

    @cached_property
    def _full_diagnostics(self) -> Diagnostics:
        checks = self._consensus.checks
        return self._diagnostics if checks is None else self._diagnostics.with_factors(checks.verdict)

    def _pairs_in_words(self) -> dict[str, str]:
        """Which features the covariances are of."""
        names = self.data.names
        pairs = self.data.kept[feature_pairs(len(self.data.kept))]
        return {f"covariance {i}": f"the covariance of {names[a]} and {names[b]}" for i, (a, b) in enumerate(pairs, 1)}

    def feature_mean(self) -> Floats:
        """Posterior mean of every feature's mean (n_features,), in the user's units.

        That of its observed entries where the priors hold it there, and where the feature does not vary.
        """
        drawn = [draw.intercept for draw in self.draws if draw.intercept is not None]
        return self.data.center + (self.data.to_user(np.mean(drawn, axis=0)) if drawn else 0.0)

    def noise_variance(self) -> Floats:
        """Posterior mean noise variance of every feature (n_features,), in the user's units; 0 where it is constant."""
        total = np.zeros(len(self.data.kept))
        for draw in self.draws:
            total += 1.0 / draw.noise_precision
        return self.data.to_user(total / len(self.draws), power=2)

    def log_predictive_density(self, X_true: Any, where: Any) -> Floats:
        """Log p(x | observed data) of entries that were missing in the fit, in the user's units.

        Of counts, and of zeros and ones, the log probability.

        Parameters
        ----------
        X_true
            The true table (n_samples, n_features).
        where
            Boolean mask of the same shape: the entries to score. All must have been NaN in the fit.

        Returns
        -------
        One value per True entry of ``where``, in row order: log of the mean over draws of the predictive density.
        Its mean is the lppd.
        """
        mask, entries = held_out(self.data, where)
        truth = as_float_table(X_true)
        if truth.shape != mask.shape or np.isnan(truth[mask]).any():
            raise ValueError(
                f"X_true must have shape {mask.shape} and hold the true value of every entry that where marks. "
                f"Got shape {truth.shape}{', with NaN among them' if truth.shape == mask.shape else ''}."
            )
        scale, y = self.data.scale[entries.column], truth[mask]
        if self.data.likelihood == "gaussian":
            y = (y - self.data.center[entries.column]) / scale
        draws = self._enough_draws(entries)
        moments = moments_of(self._tables(), draws, entries)
        # one draw at a time: all of them may be many times the table
        logs = (
            seen_log_density(self.spec, share, y, mean, variance, 1.0 / draw.noise_precision[entries.row], level)
            for draw, (mean, variance, level, share) in zip(draws, moments, strict=True)
        )
        out: Floats = reduce(np.logaddexp, logs) - np.log(len(draws) * scale)
        return out

    def predict_missing(self, where: Any) -> Floats:
        """Posterior mean of entries that were missing in the fit, in the user's units and in row order."""
        _, entries = held_out(self.data, where)
        draws = self._enough_draws(entries)
        (mean,) = summarise(self._tables(), draws, entries, level=None)
        return entries.to_user(self.data, mean)

    @cached_property
    def _alignment(self) -> Alignment:
        with threadpool_limits(1):
            return align(self.draws, dense=self.spec.pattern == "dense")

    @cached_property
    def _consensus(self) -> Consensus:
        return self._built(0.5, 0.9)

    def _built(self, min_support: float, level: float) -> Consensus:
        with threadpool_limits(1):
            kernels = get_kernels("numba", core_count() if is_large(self.data) else 1)
            tables = Tables(self.data, self.spec, kernels, fitted=True, backend=self.backend_)
            rest = min_support, level, self.length.preview, tables
            return build_consensus(self.data, self.chains, self._alignment, kernels, *rest)

    def _tables(self, data: Observed | None = None) -> Tables:
        """The fitted table, or another one, as the draws see it."""
        seen = self.data if data is None else data
        return Tables(seen, self.spec, get_kernels("numba"), data is None, self.backend_, ceiling_of(self.data))

    def alignment(self) -> Alignment:
        """Which factors of the draws are the same; computed once."""
        return self._alignment

    def consensus(self, min_support: float = 0.5, level: float = 0.9) -> Consensus:
        """Factors found in more than ``min_support`` of the draws, with intervals of probability ``level``."""
        if (min_support, level) == (0.5, 0.9):
            return self._consensus
        for name, value in (("min_support", min_support), ("level", level)):
            if not 0 < value < 1:
                raise ValueError(f"{name} must lie between 0 and 1. Got {value!r}.")
        return self._built(min_support, level)

    def summary(self) -> Any:
        """A pandas DataFrame with a row per consensus factor; see ``Consensus.summary``."""
        return self.consensus().summary()

    def aligned(self, dtype: Any = np.float64) -> tuple[NDArray[Any], Bools]:
        """Loadings (chains, draws, n_features, K) on the consensus factors, in the user's units, and which are active.

        Zeros where a draw lacks the factor. As large as it says: for small tables and for ArviZ. Draws keep single
        precision, so that ``dtype=np.float32`` is as precise as they are.
        """
        loadings = aligned_draws(self.data, self.draws, self._alignment, self.consensus(), dtype)
        shape = (len(self.chains), len(self.chains[0]), *loadings.shape[1:])
        return loadings.reshape(shape), (loadings != 0).reshape(shape)

    def _scores(self, X: Any) -> Any:
        """Posterior mean and standard deviation (n_samples, K) of the scores of samples with the fit's features.

        Of a dask array they are dask arrays.
        """
        consensus = self.consensus()
        if (named := in_blocks(X)) is not None:
            return scores_in_blocks(named.array, self.data, self.spec, self.draws, self._alignment, consensus)
        return scores_of(X, self._tables(), self.draws, self._alignment, consensus)

    def log_density(self, X: Any) -> Floats:
        """Log density of samples, old or new, scores integrated out and averaged over draws, in the user's units.

        Missing entries are integrated out; features that did not vary in the fit are left out.
        """
        if self.spec.latent:
            raise ValueError(
                "Densities of whole samples need Gaussian noise and a Gaussian likelihood. Got "
                f"noise={self.spec.noise!r}, likelihood={self.spec.likelihood!r}; hide entries and use "
                "log_predictive_density, or nsfa.compare."
            )
        some, kernels, out = self._some_draws(), get_kernels("numba"), []
        with threadpool_limits(1):
            for block in sample_blocks(self.data, self._matched(X)):
                logs = [sample_moments(block, draw, kernels).log_density for draw in some]
                out.append(log_mean_density(logs) - block.log_units())
        return np.concatenate(out)

    def covariance(self) -> Floats:
        """Posterior mean of GGᵀ + Ψ (n_features, n_features), in the user's units."""
        total = np.zeros((len(self.data.kept),) * 2)
        some = self._some_draws()
        for draw in some:
            g = draw.loadings()
            total += g @ g.T
            total[np.diag_indices_from(total)] += 1.0 / draw.noise_precision
        return self.data.to_user(self.data.to_user(total / len(some)).T)

    def _filled(self, X: Any, level: float | None) -> tuple[Floats, ...]:
        """A table with the fit's features, its holes filled; with ``level`` also the bounds of the intervals."""
        table = as_float_table(X)
        data, fitted = self.data.like(table), self.data.is_from(table)
        tables = self._tables(None if fitted else data)
        draws = self._some_draws()
        return fill_holes(tables, table, [draws[i] for i in evenly(len(draws), tables.enough(len(draws)))], level)

    def outliers(self, least: float = 0.5) -> Any:
        """Entries that are outliers with a probability of ``least`` or more, a pandas DataFrame, the surest first.

        Columns: sample, feature (their positions in the table), sample_name where the fitted frame had any, name of the
        feature, value, expected (posterior mean of what the factors say of it), noise_deviation (of ordinary entries),
        all in the user's units, and probability. The command's outliers.csv has names in place of positions. Needs
        ``noise="robust"``, else ValueError.
        """
        from nsfa.posterior.outliers import outlier_table

        return outlier_table(self.data, self.spec, self._some_draws(), least)

    def outlier_shares(self) -> Any:
        """Each sample's share of outliers (n_samples,), a measure of its quality; ``noise="robust"`` or ValueError.

        A pandas Series with the samples' names where the fitted frame had any.
        """
        from nsfa.posterior.outliers import named_shares

        return named_shares(self.data, self.spec, self.draws)

    def poor_samples(self) -> Ints:
        """The numbers of the samples that clearly have more outliers than the others, the worst first.

        In 95 % of the draws a share above twice the usual one and five in a hundred more; ``noise="robust"`` or
        ValueError.
        """
        from nsfa.posterior.outliers import poor_samples

        return poor_samples(self.spec, self.draws)

    def size_factors(self) -> Any:
        """How much of each sample was counted (n_samples,), posterior means; ``likelihood="counts"`` or ValueError.

        1 is a sample whose counts add up to what is usual of its observed features; the factors explain what is left.
        Where size factors were given they come back with a geometric mean of 1, and where there were to be none all
        are 1. A pandas Series with the samples' names where the fitted frame had any.
        """
        from nsfa.posterior.sizes import named_sizes

        return named_sizes(self.data, self.spec, self.draws)

    def to_arviz(
        self, *, log_likelihood: bool = False, posterior_predictive: bool = False, loadings: bool = True
    ) -> Any:
        """The draws for ArviZ, with the log likelihood that ``az.loo`` needs on request.

        See ``nsfa.posterior.arviz.to_arviz``.
        """
        from nsfa.posterior.arviz import to_arviz

        return to_arviz(
            self, log_likelihood=log_likelihood, posterior_predictive=posterior_predictive, loadings=loadings
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write draws, table and settings to a new folder; ``nsfa.load`` reads it.

        Only a fit with ``store=path`` keeps what ``nsfa.resume`` needs to go on.
        """
        settings = Settings(
            self.spec,
            self.length,
            self.seed,
            len(self.chains),
            self.backend_,
            resumable=False,
            cut_short=not self.finished,
        )
        save_chains(path, self.data, settings, self.chains)

    def _some_draws(self) -> list[Draw]:
        """Evenly spaced draws, enough for averages over them."""
        draws = self.draws
        return [draws[i] for i in evenly(len(draws), SCORE_DRAWS)]

    def _enough_draws(self, entries: Entries) -> list[Draw]:
        """All draws, but evenly spread ones where there are so many entries and factors that all would take minutes."""
        draws = self.draws
        work = len(entries.row) * int(max(draw.n_factors for draw in draws)) ** 2
        return [draws[i] for i in evenly(len(draws), max(SCORE_DRAWS, _PREDICTION_WORK // max(work, 1)))]


def _range(counts: Ints) -> str:
    """The smallest and the largest of some numbers, in words."""
    low, high = counts.min(), counts.max()
    return str(low) if low == high else f"{low} to {high}"
