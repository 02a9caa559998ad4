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
from nsfa.model.spec import Gamma, ModelSpec
from nsfa.moves.births import BirthInfo
from nsfa.state import State
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


def initial_state(data: Observed, spec: ModelSpec, rng: np.random.Generator, start: int = 0) -> State:
    """Where a chain starts: ``start`` factors where their number is inferred, else K; dense, with random scores.

    Dense starts are shed by the sparse models as they go; an empty pattern would have to be filled entry by entry. The
    loadings are still to be drawn. Hyperparameters start at their priors' means.
    """
    n_features, n_samples = data.shape
    n_factors = int(spec.n_components or start)
    hyper = spec.priors
    shape = {"shared": (), "factor": (n_factors,), "element": (n_features, n_factors)}[spec.precision]
    return State.from_arrays(
        np.zeros((n_features, n_factors)),
        np.ones((n_features, n_factors), dtype=np.bool_),
        rng.standard_normal((n_samples, n_factors)),
        noise_precision=np.ones(n_features),
        loading_precision=np.ones(shape),
        concentration=1.0 if spec.concentration == "infer" else float(spec.concentration),
        stickiness=1.0 if spec.stickiness == "infer" else float(spec.stickiness),
        noise_rate=hyper.noise.rate,
        loading_rate=_value(hyper.loading_rate),
        sparsity=np.full(n_factors, 0.5) if spec.pattern == "two-level" else None,
        cluster=np.arange(n_samples) if spec.scores == "dirichlet" else None,
        urn_concentration=_value(hyper.urn),
    )


def _value(prior: float | Gamma) -> float:
    return prior.shape / prior.rate if isinstance(prior, Gamma) else float(prior)


class Chain:
    """A chain in progress: the data's statistics, the state, the moves and the random stream."""

    def __init__(
        self, data: Observed, spec: ModelSpec, kernels: Kernels, rng: np.random.Generator, start: int = 0
    ) -> None:
        self.data, self.spec, self.rng = data, spec, rng
        self.stats = Stats(data, kernels)
        self.moves = schedule.build(spec, data.shape[0])
        self.state = initial_state(data, spec, rng, start)
        self.stats.refresh(self.state)
        if self.state.n_factors:
            self.stats.kernels.draw_dense(self.state.loadings, self.stats.rows(self.state), fresh_key(rng))

    def sweep(self) -> BirthInfo:
        """Apply every move once; returns what the births did."""
        births = BirthInfo(0, 0)
        for move in self.moves:
            info = move(self.state, self.stats, self.spec, self.rng)
            if isinstance(info, BirthInfo):
                births = info
        return births

    def draw(self, births: BirthInfo, seconds: float) -> Draw:
        """The sparse record of the current state."""
        state = self.state
        likelihood = log_likelihood(state.noise_precision, self.stats.count, self.stats.residuals(state))
        prior = sum(log_prior(state, self.spec).values())
        return record(
            state,
            {
                "log_joint": likelihood + prior,
                "log_likelihood": likelihood,
                "log_evidence": self.stats.log_evidence,
                "births_accepted": births.accepted,
                "seconds": seconds,
            },
            keep_scores=self.spec.scores == "dirichlet",
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
