"""One chain as a generator: warm-up, thinning, and the sparse record of each kept draw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nsfa import schedule
from nsfa.data import Observed
from nsfa.draws.draw import Draw, record
from nsfa.kernels import Kernels
from nsfa.kernels.streams import fresh_key
from nsfa.model.joint import log_likelihood, log_prior
from nsfa.model.spec import ModelSpec
from nsfa.model.start import initial_state, towards_data
from nsfa.moves.births import BirthInfo
from nsfa.stats import Stats


class Sweep(NamedTuple):
    """What one sweep reports: its number (from 1), whether it is warm-up, and the draw if it is kept."""

    number: int
    warming_up: bool
    n_factors: int
    births: BirthInfo
    draw: Draw | None


@dataclass(frozen=True)
class Length:
    """How long a chain runs: ``tune`` warm-up sweeps, then ``draws`` kept draws, every ``thin``-th sweep."""

    tune: int = 500
    draws: int = 500
    thin: int = 1

    @property
    def sweeps(self) -> int:
        """Sweeps in all."""
        return self.tune + self.draws * self.thin


def chain_generator(seed: int | None, chain: int) -> np.random.Generator:
    """The random stream of one chain: a function of the seed and the chain's number only."""
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(seed, spawn_key=(chain,))))


class Chain:
    """A chain in progress: the data's statistics, the state, the moves and the random stream."""

    def __init__(
        self, data: Observed, spec: ModelSpec, kernels: Kernels, rng: np.random.Generator, start: int = 0
    ) -> None:
        self.data, self.spec, self.rng = data, spec, rng
        self.stats = Stats(data, kernels)
        self.moves = schedule.build(spec, data.shape[0])
        self.marginal_moves = schedule.build_marginal(spec, data)
        self.number = 0
        self.state = initial_state(data, spec, rng, start)
        if start:
            self.state.scores[:] = towards_data(self.state.scores, data, kernels, rng)
        self.stats.refresh(self.state)
        if self.state.n_factors:
            self.stats.kernels.draw_dense(self.state.loadings, self.stats.rows(self.state), fresh_key(rng))

    def sweep(self) -> BirthInfo:
        """Apply every move once; returns what the births did."""
        births = BirthInfo(0, 0)
        self.number += 1
        before = self.marginal_moves if schedule.marginal_is_due(self.number) else ()
        for move in (*before, *self.moves):
            info = move(self.state, self.stats, self.spec, self.rng)
            if isinstance(info, BirthInfo):
                births = info
        return births

    def draw(self, births: BirthInfo, seconds: float) -> Draw:
        """The sparse record of the current state."""
        state = self.state
        likelihood = log_likelihood(state.noise_precision, self.stats.count, self.stats.residuals(state))
        prior = sum(log_prior(state, self.spec).values())
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


def run_chain(chain: Chain, length: Length) -> Iterator[Sweep]:
    """Yield one ``Sweep`` after each sweep; kept draws come with it."""
    started = time.perf_counter()
    for number in range(1, length.sweeps + 1):
        births = chain.sweep()
        past = number - length.tune
        kept = past > 0 and past % length.thin == 0
        draw = chain.draw(births, time.perf_counter() - started) if kept else None
        yield Sweep(number, past <= 0, chain.state.n_factors, births, draw)
