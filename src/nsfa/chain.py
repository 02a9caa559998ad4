"""One chain as a generator: warm-up, thinning, and the sparse record of each kept draw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nsfa import schedule
from nsfa.arrays import Floats, beside
from nsfa.draw import Draw, record
from nsfa.kernels.streams import fresh_key
from nsfa.length import Length, arrived
from nsfa.model.joint import log_likelihood, log_prior
from nsfa.model.spec import ModelSpec
from nsfa.model.start import initial_state
from nsfa.moves.info import Info
from nsfa.moves.noise import LARGEST
from nsfa.moves.prune import prune
from nsfa.moves.seed import seed, shared
from nsfa.moves.simplify import add_directions, condense, simplify
from nsfa.samples import Samples
from nsfa.state import State

# What a chain carries from sweep to sweep beside state, statistics and random stream: plain values, lists, arrays.
_CARRIED = ("number", "seconds", "reports", "warmed", "history", "seeding")


class Sweep(NamedTuple):
    """What one sweep reports: its number (from 1), whether it is warm-up, and the draw if it is kept.

    ``total`` is the number of the last one, as far as is known: the warm-up may end early.
    """

    number: int
    warming_up: bool
    n_factors: int
    births: Info
    draw: Draw | None
    total: int


def chain_generator(seed: int | None, chain: int) -> np.random.Generator:
    """The random stream of one chain: a function of the seed and the chain's number only."""
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(seed, spawn_key=(chain,))))


class Chain:
    """A chain in progress: the samples, the state, the moves and the random stream.

    ``tune`` sweeps are warm-up, of which the first may run at raised noise (``Schedule.annealed``). ``reports`` counts
    accepted and tried proposals of every move that may be refused. ``known`` is what ``State.know`` takes. Where the
    warm-up ends by itself, ``history`` has log p(Y | G, τ), K and the number of active loadings after each of its
    sweeps, and ``warmed`` says which was the last, 0 before it is known. ``seeding`` says whether samples shared
    what the factors left of them when the warm-up looked.
    """

    def __init__(
        self,
        samples: Samples,
        spec: ModelSpec,
        rng: np.random.Generator,
        start: int = 0,
        tune: int = 0,
        known: Floats | None = None,
    ) -> None:
        self.samples, self.spec, self.rng = samples, spec, rng
        self.schedule = schedule.build(spec, samples.n_features, samples.can, tune)
        self.number = 0
        self.seconds = 0.0
        self.warmed = 0
        self.seeding = False
        self.history: list[list[float]] = []
        self.reports = {move.name: [0, 0] for move in self.schedule.moves if move.reports}
        self.state = samples.place(initial_state((samples.n_features, samples.n_samples), spec, start))
        if known is not None:
            self.state.know(known)
        samples.begin(self.state, rng, towards_data=start > 0, clustered=spec.scores == "dirichlet")
        if start:
            self._regress()
        elif self.state.n_factors:
            samples.kernels.draw_dense(self.state.loadings, samples.rows(self.state), fresh_key(rng))

    def _regress(self) -> None:
        """Loadings that fit the starting scores; without rows that would shed them, simple and only the clear ones."""
        state, n_samples = self.state, self.samples.n_samples
        # the scores are orthogonal: a regression on them is a product, and its errors are independent
        error = self.rng.standard_normal(state.loadings.shape) / np.sqrt(n_samples + 1.0)
        fit = self.samples.cross / (n_samples + 1.0)
        state.loadings[:] = fit + beside(error, fit)
        if self.spec.moves == "all" and not self.schedule.collapses:
            state.loadings[:] = fit
            variance = np.maximum(self.samples.power / self.samples.count, 1.0 / LARGEST)
            free = n_samples / max(n_samples - 1 - state.n_factors, 1)
            residual = np.clip((variance - (fit * fit).sum(axis=1)) * free, 0.1 * variance, variance)
            state.noise_precision[:] = np.minimum(1.0 / residual, LARGEST)
            simplify(state, self.samples, self.spec)

    def sweep(self) -> Info:
        """Apply every move once; returns what the births did."""
        births, plan = Info(0, 0), self.schedule
        self.number += 1
        raised = self.number <= plan.annealed
        if raised:
            self._raise_noise()
        if schedule.condenses(self.number, plan.annealed, self.spec):
            condense(self.state, self.samples, self.spec)
        if schedule.prunes(self.number, plan.tune, plan.annealed, self.spec):
            prune(self.state, self.samples, self.spec)
        if plan.simplifies and schedule.simplifies(self.number, plan.tune, self.spec):
            if self.spec.n_components is None and 2 * self.number <= plan.tune and "whole" in self.samples.can:
                add_directions(self.state, self.samples, self.rng)
            simplify(self.state, self.samples, self.spec)
        if self.number in plan.seeds:
            if self.number == plan.seeds[0]:
                self.seeding = shared(self.state, self.samples, self.rng)
            if self.seeding:
                seed(self.state, self.samples, self.rng)
        for move in plan.of_sweep(self.number):
            info = move.update(self.state, self.samples, self.spec, self.rng)
            if raised:
                self._raise_noise()
            if info is not None:
                total = self.reports[move.name]
                total[0], total[1] = total[0] + info.accepted, total[1] + info.tried
                births = info if move.name == "births" else births
        return births

    def _raise_noise(self) -> None:
        """Early in the warm-up, cut noise precisions to what is allowed in this sweep, relative to the variances."""
        power, count = self.samples.table_power, self.samples.count
        variance = power.sum() / count.sum() if self.spec.noise == "isotropic" else power / count
        cap = schedule.precision_cap(self.number, self.schedule.annealed) / np.maximum(variance, np.finfo(float).tiny)
        np.minimum(self.state.noise_precision, cap, out=self.state.noise_precision)

    def log_density(self) -> tuple[float, float]:
        """Log likelihood and log prior density of the current state."""
        state, samples = self.state, self.samples
        likelihood = log_likelihood(state.noise_precision, samples.count, samples.residuals(state))
        if "latent" in samples.can:
            likelihood += samples.log_seen()
        return likelihood, sum(log_prior(state, samples, self.spec).values())

    def draw(self, births: Info, seconds: float) -> Draw:
        """The sparse record of the current state."""
        likelihood, prior = self.log_density()
        if not np.isfinite(likelihood + prior):
            raise np.linalg.LinAlgError("The log joint density is not finite.")
        scalars = {
            "log_joint": likelihood + prior,
            "log_likelihood": likelihood,
            "log_evidence": self.samples.log_evidence,
            "births_accepted": births.accepted,
            "seconds": seconds,
        }
        scalars.update({accepted_share(name): a / max(n, 1) for name, (a, n) in self.reports.items()})
        if self.warmed:
            scalars["warm_up"] = self.warmed
        own, columns = self.samples.recorded()
        return record(self.state.on_host(), scalars | own, columns)

    def warm_up(self, length: Length) -> int:
        """The last sweep of the warm-up, after the present one; the last that it can be while it has not ended."""
        if not length.most:
            return length.tune
        if not self.warmed:
            state = self.state
            self.history.append([float(self.samples.log_evidence), float(state.n_factors), float(state.usage.sum())])
            if self.number >= length.most or (length.looks(self.number) and arrived(np.array(self.history))):
                self.warmed, self.history = self.number, []
        return self.warmed or length.most

    def snapshot(self) -> dict[str, Any]:
        """All that the next sweeps depend on, as plain values and arrays. Between sweeps only; nothing is copied."""
        return {
            **{name: getattr(self, name) for name in _CARRIED},
            "rng": self.rng.bit_generator.state,
            "state": self.state.snapshot(),
            "samples": self.samples.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot, to the same bit as the chain it was taken of."""
        # before, robust noise had one share of outliers for all samples
        if "samples" not in snapshot or snapshot["state"].get("outlier_share") is not None:
            raise ValueError("The checkpoint is of an earlier version of nsfa, whose runs this one cannot go on with.")
        reports = self.reports
        for name in _CARRIED:
            setattr(self, name, snapshot.get(name, getattr(self, name)))
        # moves that a former version did not have are counted from here on
        self.reports = reports | self.reports
        self.rng.bit_generator.state = snapshot["rng"]
        self.state = self.samples.place(State.from_snapshot(snapshot["state"]))
        self.samples.restore(snapshot["samples"], self.state)


def accepted_share(move: str) -> str:
    """What a draw calls the share of a move's proposals that the chain has accepted so far."""
    return f"accepted_{move}"


def run_chain(chain: Chain, length: Length) -> Iterator[Sweep]:
    """Yield one ``Sweep`` after each sweep; kept draws come with it. A restored chain goes on where it was."""
    started, kept_sweeps = time.perf_counter() - chain.seconds, length.draws * length.thin
    total = (chain.warmed or max(length.tune, length.most)) + kept_sweeps
    while chain.number < total:
        births = chain.sweep()
        chain.seconds = time.perf_counter() - started
        last = chain.warm_up(length)
        past, total = chain.number - last, last + kept_sweeps
        kept = past > 0 and past % length.thin == 0
        draw = chain.draw(births, chain.seconds) if kept else None
        yield Sweep(chain.number, past <= 0, chain.state.n_factors, births, draw, total)
