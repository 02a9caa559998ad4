"""The result of a fit: draws of several chains, with what is needed to read them in the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from nsfa.chain import Length
from nsfa.data import Observed, as_float_table
from nsfa.draws import Draw
from nsfa.kernels import Bools, Floats, Ints, get_kernels
from nsfa.metrics import log_mean_density
from nsfa.model.priors import LOG_2PI
from nsfa.model.spec import ModelSpec
from nsfa.posterior.diagnostics import Diagnostics, diagnose
from nsfa.posterior.predict import Entries, predictive_moments
from nsfa.runner import ChainResult

LABEL_FREE = {
    "log joint": "log_joint",
    "log p(Y|G,ψ)": "log_evidence",
    "K": "n_factors",
    "active loadings": "n_active",
    "concentration": "concentration",
    "stickiness": "stickiness",
    "ΣG²": "loading_power",
}


@dataclass(frozen=True)
class Posterior:
    """Posterior draws of every chain, all of one length: after an interrupt, those that keep most draws in all."""

    data: Observed
    spec: ModelSpec
    chains: tuple[tuple[Draw, ...], ...]
    length: Length
    seed: int
    finished: bool

    @classmethod
    def from_results(
        cls, data: Observed, spec: ModelSpec, results: list[ChainResult], length: Length, seed: int
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
        return cls(data, spec, chains, length, seed, all(r.finished for r in results))

    @property
    def draws(self) -> list[Draw]:
        """All draws, chain after chain."""
        return [draw for chain in self.chains for draw in chain]

    @property
    def n_components(self) -> Ints:
        """Number of factors of every draw, (chains, draws)."""
        return self.trace("n_factors").astype(np.int64)

    def trace(self, name: str) -> Floats:
        """A scalar of every draw, (chains, draws): any key of ``Draw.scalars``."""
        return np.array([[draw.scalars[name] for draw in chain] for chain in self.chains])

    def scaled_loadings(self, draw: Draw) -> Floats:
        """Loadings (n_features, K) of one draw in the user's units; zero for features that do not vary."""
        out = np.zeros((self.data.n_features, draw.n_factors))
        out[self.data.kept] = draw.loadings() * self.data.scale[self.data.kept, None]
        return out

    def diagnostics(self) -> Diagnostics:
        """R-hat and effective sample sizes of quantities that do not depend on the factors' labels, and a verdict."""
        traces = {label: self.trace(name) for label, name in LABEL_FREE.items()}
        return diagnose({k: v for k, v in traces.items() if np.ptp(v) != 0} or {"log joint": traces["log joint"]})

    def noise_variance(self) -> Floats:
        """Posterior mean noise variance of every feature (n_features,), in the user's units; 0 where it is constant."""
        out = np.zeros(self.data.n_features)
        mean = np.mean([1.0 / draw.noise_precision for draw in self.draws], axis=0)
        out[self.data.kept] = mean * self.data.scale[self.data.kept] ** 2
        return out

    def log_predictive_density(self, X_true: Any, where: Any) -> Floats:
        """Log p(x | observed data) of entries that were missing in the fit, in the user's units.

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
        mask, entries = self._entries(where)
        truth = as_float_table(X_true)
        if truth.shape != mask.shape or np.isnan(truth[mask]).any():
            raise ValueError(
                f"X_true must have shape {mask.shape} and hold the true value of every entry that where marks. "
                f"Got shape {truth.shape}{', with NaN among them' if truth.shape == mask.shape else ''}."
            )
        scale = self.data.scale[np.nonzero(mask)[1]]
        y = (truth[mask] - self.data.center[np.nonzero(mask)[1]]) / scale
        logs = [-0.5 * (LOG_2PI + np.log(m.variance) + (y - m.mean) ** 2 / m.variance) for m in self._moments(entries)]
        out: Floats = log_mean_density(logs) - np.log(scale)
        return out

    def predict_missing(self, where: Any) -> Floats:
        """Posterior mean of entries that were missing in the fit, in the user's units and in row order."""
        mask, entries = self._entries(where)
        column = np.nonzero(mask)[1]
        mean = np.mean([m.mean for m in self._moments(entries)], axis=0)
        out: Floats = mean * self.data.scale[column] + self.data.center[column]
        return out

    def impute(self, table: Floats) -> Floats:
        """The fitted table with its holes filled by posterior means; features that do not vary get their value."""
        filled, holes = table.copy(), np.isnan(table)
        flat = np.setdiff1d(np.arange(self.data.n_features), self.data.kept)
        filled[:, flat] = np.where(holes[:, flat], self.data.center[flat], table[:, flat])
        holes[:, flat] = False
        if holes.any():
            filled[holes] = self.predict_missing(holes)
        return filled

    def _moments(self, entries: Entries) -> Any:
        kernels = get_kernels("numba")
        with threadpool_limits(1):
            yield from predictive_moments(self.data, self.draws, entries, kernels)

    def _entries(self, where: Any) -> tuple[Bools, Entries]:
        """Check a mask of the user's table and find its entries in the modelled one."""
        mask = np.asarray(where)
        expected = (self.data.shape[1], self.data.n_features)
        if mask.dtype != np.bool_ or mask.shape != expected:
            raise ValueError(f"where must be a boolean mask of shape {expected}. Got {mask.dtype} {mask.shape}.")
        position = np.full(self.data.n_features, -1)
        position[self.data.kept] = np.arange(len(self.data.kept))
        sample, column = np.nonzero(mask)
        row = position[column]
        if (row < 0).any():
            raise ValueError("where must not mark features that do not vary: they have no predictive density.")
        if self.data.missing is None or not self.data.missing[row, sample].all():
            raise ValueError("where must mark only entries that were missing (NaN) in the fit; others were seen by it.")
        return mask, Entries(sample, row)
