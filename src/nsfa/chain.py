"""One chain as a generator: warm-up, thinning, and the sparse record of each kept draw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nsfa import schedule
from nsfa.data import Observed
from nsfa.draw import Draw, record
from nsfa.kernels import Kernels
from nsfa.kernels.streams import fresh_key
from nsfa.length import Length
from nsfa.model.joint import log_likelihood, log_prior
from nsfa.model.spec import ModelSpec
from nsfa.model.start import initial_state, towards_data
from nsfa.moves.births import BirthInfo
from nsfa.moves.noise import LARGEST
from nsfa.moves.prune import prune
from nsfa.moves.simplify import add_directions, simplify
from nsfa.state import State
from nsfa.stats import Stats

# What a chain carries from sweep to sweep beside state, statistics and random stream: plain values, lists, arrays.
_CARRIED = ("number", "seconds")


class Sweep(NamedTuple):
    """What one sweep reports: its number (from 1), whether it is warm-up, and the draw if it is kept."""

    number: int
    warming_up: bool
    n_factors: int
    births: BirthInfo
    draw: Draw | None


def chain_generator(seed: int | None, chain: int) -> np.random.Generator:
    """The random stream of one chain: a function of the seed and the chain's number only."""
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(seed, spawn_key=(chain,))))


class Chain:
    """A chain in progress: the data's statistics, the state, the moves and the random stream.

    ``tune`` sweeps are warm-up, of which the first may run at raised noise (``schedule.annealed_sweeps``).
    """

    def __init__(
        self,
        data: Observed,
        spec: ModelSpec,
        kernels: Kernels,
        rng: np.random.Generator,
        start: int = 0,
        tune: int = 0,
    ) -> None:
        self.data, self.spec, self.rng = data, spec, rng
        self.stats = Stats(data, kernels)
        self.moves = schedule.build(spec, data.shape[0])
        self.marginal_moves = schedule.build_marginal(spec, data)
        self.collapses = schedule.collapses(spec, data)
        # without those moves, factors that the noise hides would take long to come back
        self.annealed = schedule.annealed_sweeps(tune) if self.collapses else 0
        self.early = schedule.early_sweeps(tune) if self.collapses else 0
        self.tune = tune
        self.number = 0
        self.seconds = 0.0
        self.state = initial_state(data, spec, rng, start)
        if start:
            self.state.scores[:] = towards_data(self.state.scores, data, kernels, rng)
        self.stats.refresh(self.state)
        if start:
            self._regress()
        elif self.state.n_factors:
            self.stats.kernels.draw_dense(self.state.loadings, self.stats.rows(self.state), fresh_key(rng))

    def _regress(self) -> None:
        """Loadings that fit the starting scores; without rows that would shed them, simple and only the clear ones."""
        state, n_samples = self.state, self.data.shape[1]
        # the scores are orthogonal: a regression on them is a product, and its errors are independent
        error = self.rng.standard_normal(state.loadings.shape) / np.sqrt(n_samples + 1.0)
        fit = self.stats.cross / (n_samples + 1.0)
        state.loadings[:] = fit + error
        if self.spec.moves == "all" and not self.collapses:
            state.loadings[:] = fit
            variance = np.maximum(self.stats.power / self.stats.count, 1.0 / LARGEST)
            free = n_samples / max(n_samples - 1 - state.n_factors, 1)
            residual = np.clip((variance - (fit * fit).sum(axis=1)) * free, 0.1 * variance, variance)
            state.noise_precision[:] = np.minimum(1.0 / residual, LARGEST)
            simplify(state, self.stats, self.spec)

    def sweep(self) -> BirthInfo:
        """Apply every move once; returns what the births did."""
        births = BirthInfo(0, 0)
        self.number += 1
        raised = self.number <= self.annealed
        if raised:
            self._raise_noise()
        if schedule.prunes(self.number, self.tune, self.annealed, self.spec):
            prune(self.state, self.stats, self.spec)
        if not self.collapses and schedule.simplifies(self.number, self.tune, self.spec):
            if self.spec.n_components is None and 2 * self.number <= self.tune:
                add_directions(self.state, self.stats, self.rng)
            simplify(self.state, self.stats, self.spec)
        for move in schedule.of_sweep(self.number, self.early, self.marginal_moves, self.moves):
            info = move(self.state, self.stats, self.spec, self.rng)
            if raised:
                self._raise_noise()
            if isinstance(info, BirthInfo):
                births = info
        return births

    def _raise_noise(self) -> None:
        """Early in the warm-up, cut noise precisions to what is allowed in this sweep, relative to the variances."""
        power, count = self.data.power, self.stats.count
        variance = power.sum() / count.sum() if self.spec.noise == "isotropic" else power / count
        cap = schedule.precision_cap(self.number, self.annealed) / np.maximum(variance, np.finfo(float).tiny)
        np.minimum(self.state.noise_precision, cap, out=self.state.noise_precision)

    def log_density(self) -> tuple[float, float]:
        """Log likelihood and log prior density of the current state."""
        state = self.state
        likelihood = log_likelihood(state.noise_precision, self.stats.count, self.stats.residuals(state))
        return likelihood, sum(log_prior(state, self.spec).values())

    def draw(self, births: BirthInfo, seconds: float) -> Draw:
        """The sparse record of the current state."""
        state = self.state
        likelihood, prior = self.log_density()
        if not np.isfinite(likelihood + prior):
            raise np.linalg.LinAlgError("The log joint density is not finite.")
        return record(
            state,
            {
                "log_joint": likelihood + prior,
                "log_likelihood": likelihood,
                "log_evidence": self.stats.log_evidence,
                "births_accepted": births.accepted,
                "seconds": seconds,
            },
            keep_scores=state.cluster is not None,
        )

    def snapshot(self) -> dict[str, Any]:
        """All that the next sweeps depend on, as plain values and arrays. Between sweeps only; nothing is copied."""
        return {
            **{name: getattr(self, name) for name in _CARRIED},
            "rng": self.rng.bit_generator.state,
            "state": self.state.snapshot(),
            # S and T are those of the scores at the end of a sweep
            "stats": {name: getattr(self.stats, name) for name in ("residual", "log_evidence")},
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot, to the same bit as the chain it was taken of."""
        for name in _CARRIED:
            setattr(self, name, snapshot[name])
        self.rng.bit_generator.state = snapshot["rng"]
        self.state = State.from_snapshot(snapshot["state"])
        self.stats.refresh(self.state)
        for name, value in snapshot["stats"].items():
            setattr(self.stats, name, value)


def run_chain(chain: Chain, length: Length) -> Iterator[Sweep]:
    """Yield one ``Sweep`` after each sweep; kept draws come with it. A restored chain goes on where it was."""
    started = time.perf_counter() - chain.seconds
    for number in range(chain.number + 1, length.sweeps + 1):
        births = chain.sweep()
        chain.seconds = time.perf_counter() - started
        past = number - length.tune
        kept = past > 0 and past % length.thin == 0
        draw = chain.draw(births, chain.seconds) if kept else None
        yield Sweep(number, past <= 0, chain.state.n_factors, births, draw)
