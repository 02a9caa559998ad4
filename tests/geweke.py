"""Joint-distribution test of a sampler (Geweke 2004): draws of (state, data) must look the same from two simulators.

The marginal-conditional simulator draws the state from the prior, then data from it. The successive-conditional one
alternates one sweep of the sampler given the data with fresh data given the state. If every kernel leaves its
conditional invariant, both have the same distribution; z scores compare the means of functions of the state.

The successive-conditional chains are many and short, each started by an independent draw from the prior: a right kernel
keeps them there, a wrong one drives them all the same way. Their means are independent batch means, so the z scores
are honest however slowly a chain mixes.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import scipy.sparse as sp

from nsfa import schedule
from nsfa.arrays import to_host
from nsfa.data import Observed, observe
from nsfa.kernels import get_kernels
from nsfa.latent_samples import samples_of
from nsfa.model import Gamma, Priors, preset
from nsfa.model.joint import log_prior
from nsfa.model.simulate import Simulated, simulate_data, simulate_outliers, simulate_seen, simulate_state
from nsfa.passing import ObservedTable, PassingSamples

N_FEATURES, N_SAMPLES = 5, 4
SEED = int(os.environ.get("NSFA_TEST_SEED", "20110"))

# Light tails everywhere, so that means of log densities converge; no two hyperparameters equal, so that swapping a
# shape and a rate, or one prior for another, shows.
PRIORS = Priors(
    noise=Gamma(3.0, 1.5),
    noise_rate=Gamma(4.0, 2.5),
    loading_shape=3.5,
    loading_rate=Gamma(4.5, 0.9),
    concentration=Gamma(3.0, 2.0),
    stickiness=Gamma(4.0, 3.0),
    reliability=0.6,
    sparsity=(4.0, 0.4),
    urn=Gamma(3.0, 2.0),
    outlier_scales=(2.0, 9.0, 50.0),
    outlier_shares=(4.0, 1.5, 2.0, 1.0),
    outlier_rate=1.2,
)
# what counts' log rates, and the values behind zeros and ones, are raised by
LEVEL, EXPOSURE = np.array([0.3, -1.0, 0.5, -0.4, 0.0]), np.array([0.2, -0.5, 0.4, 0.0])
SPREAD = 0.6
# loadings in the features' own units, and means that are held
ABSOLUTE = replace(PRIORS, relative=False, intercept=False)


def statistics(state, samples, spec) -> dict[str, float]:
    """Functions of state and scores, none linear in a hyperparameter alone, all with light tails."""
    k, scores, cluster = state.n_factors, samples.scores, samples.cluster
    fit = state.loadings @ scores.T
    out = {
        "K": k,
        "K2": k**2,
        "active": state.active.sum(),
        "singletons": (state.usage == 1).sum(),
        "doublets": (state.usage == 2).sum(),
        "usage2": (state.usage**2).sum(),
        "log loadings": np.log1p((state.loadings**2).sum()),
        "log scores": np.log1p((scores**2).sum()),
        "score power": np.mean(scores**2) if k else 1.0,
        "log noise": np.log(state.noise_precision).mean(),
        "log noise 2": (np.log(state.noise_precision) ** 2).mean(),
        "log slab": np.log(state.precision_rows).sum(),
        "log alpha": np.log(state.concentration),
        "log beta": np.log(state.stickiness),
        "alpha K": state.concentration * k,
        "log noise rate": np.log(state.noise_rate),
        "log loading rate": np.log(state.loading_rate),
        "fit": np.tanh(fit[0, 0]),
        "fit size": np.log1p((fit**2).sum()),
        "log prior": sum(log_prior(state, samples, spec).values()),
    }
    if state.known is not None:
        users = state.active[:, : state.known.shape[1]]
        out["known"], out["known users"] = state.known[users].sum(), users.sum()
    if state.sparsity is not None:
        out["log rho"] = np.log(state.sparsity).mean()
        out["rho usage"] = (state.sparsity * state.usage).sum()
    if state.outlier_concentration is not None:
        share, number = samples.outlier_share, samples.outlier_number
        for j, concentration in enumerate(state.outlier_concentration):
            out[f"log share parameter {j}"], out[f"share {j}"] = np.log(concentration), share[1, j]
            out[f"outliers {j}"], out[f"share 2 {j}"] = number[:, j].sum(), (share[:, j] ** 2).sum()
        # a sample's shares and its own entries, and those of others
        out["outliers apart"], out["outliers and shares"] = (number**2).sum(), (number * share).sum()
        whole = state.outlier_concentration.sum()
        out["log share parameters"] = np.log(whole)
        out["shares about what they share"] = whole * ((share - state.outlier_concentration / whole) ** 2).sum()
        out["deviations"] = np.log1p(state.noise_precision @ state.outlier_weight[1])
        number, power = state.outlier_weight[0], state.noise_precision * state.outlier_weight[1]
        out["deviations of one"] = np.tanh(power[1])
        # nothing on average only if noise and deviations know of each other
        out["noise of deviations"] = np.log(state.noise_precision) @ (number - power)
    if cluster is not None:
        out["clusters"] = len(np.unique(cluster))
        out["log urn"] = np.log(state.urn_concentration)
        out["together"] = float(cluster[0] == cluster[1])
    return {name: float(value) for name, value in out.items()}


@dataclass
class Result:
    names: list[str]
    z: np.ndarray

    @property
    def worst(self) -> float:
        return float(np.nan_to_num(np.abs(self.z), nan=np.inf).max())

    def __str__(self) -> str:
        order = np.argsort(-np.abs(self.z))
        return ", ".join(f"{self.names[i]} {self.z[i]:+.1f}" for i in order[:6])


class Keeping:
    """A table that keeps the scores that it drew last, block by block."""

    scores = None

    def pass_scores(self, *given):
        self.scores = []
        return super().pass_scores(*given)

    def _drawn(self, *given):
        out = super()._drawn(*given)
        self.scores.append(out[0] if isinstance(out, tuple) else out)
        return out


class KeepingTable(Keeping, ObservedTable):
    pass


class Given:
    """For samples that keep no scores: those that the table drew last, shifted as they have been, or given ones."""

    def set_scores(self, scores) -> None:
        self.given = scores
        self._set(*self.table.sums_of(scores)[:3])

    @property
    def scores(self):
        if not len(self.sums):
            return np.zeros((self.n_samples, 0))
        drawn = self.given if self.table.scores is None else np.vstack([to_host(block) for block in self.table.scores])
        return drawn + (self.sums - drawn.sum(axis=0)) / len(drawn)


class Passing(Given, PassingSamples):
    """Such samples on the CPU."""

    def __init__(self, data):
        super().__init__(KeepingTable(data, get_kernels()), get_kernels())


def mask(missing: bool) -> np.ndarray:
    """A fixed pattern of holes (samples × features): one feature mostly missing, one sample half missing."""
    out = np.zeros((N_SAMPLES, N_FEATURES), dtype=bool)
    if missing:
        out[1:, 0] = True
        out[0, 2:] = True
        out[2, 3] = True
    return out


CHAIN_LENGTH = 100
RUNAWAY = 150  # factors: a chain that gets here is caught
# The largest |z| that passes. Of forty chains, statistics with heavy tails go beyond it by chance, once in some thousand
# draws of one: a run that does goes on, and so many times as many chains have to agree.
BOUND, LONGER = 4.0, 4.0


def run(name: str, sweeps: int, **settings) -> Result:
    """z scores of every statistic for one model, after more sweeps if need be; the settings are those of ``stages``."""
    results = stages(name, sweeps, (1.0, LONGER), **settings)
    first = next(results)
    return first if first.worst < BOUND else next(results)


def caught(name: str, sweeps: int, bounds: dict[float, float], **settings) -> Result | None:
    """A result that passes the bound for its part of the sweeps, part -> bound; None if there is none."""
    results = stages(name, sweeps, tuple(bounds), **settings)
    return next((one for one, bound in zip(results, bounds.values(), strict=True) if one.worst > bound), None)


def stages(
    name: str,
    sweeps: int,
    parts: tuple[float, ...],
    missing=True,
    seed: int = SEED,
    without=(),
    repeat=1,
    known=None,
    sparse=False,
    kind=None,
    **changes,
) -> Iterator[Result]:
    """Results after each of the ``parts`` of all sweeps.

    ``changes`` go to the specification, moves named ``without`` are left out.
    Data come anew after ``repeat`` sweeps: intercepts, which are drawn last, act on the next one. ``known`` (D, K₀) is
    added to the prior log odds of the first factors. ``sparse``: the table is, and nothing is missing.
    ``kind`` makes samples of a complete table that keep no scores (``Given``).
    """
    changes.setdefault("priors", PRIORS)
    if name != "nsfa":
        changes.setdefault("n_components", 3)
    spec = preset(name, **changes)
    rng = np.random.default_rng(seed)
    drawn = [simulate_state(spec, N_FEATURES, N_SAMPLES, rng) for _ in range(sweeps)]
    weight, holes = np.ones(len(drawn)), mask(missing and not sparse and kind is None)
    if spec.noise == "robust":
        drawn = [
            one._replace(outlier_number=simulate_outliers(one.state, one.outlier_share, spec, ~holes.T, rng)[1])
            for one in drawn
        ]
    if known is not None:
        drawn, weight = _tilted(drawn, known, spec, rng)
    prior = pd.DataFrame([statistics(one.state, one, spec) for one in drawn])
    rng, chains = np.random.default_rng([seed, 1]), []

    def start():
        if known is None:
            return simulate_state(spec, N_FEATURES, N_SAMPLES, rng)
        return copy.deepcopy(drawn[rng.choice(len(drawn), p=weight / weight.sum())])

    for part in parts:
        while len(chains) < round(part * sweeps / CHAIN_LENGTH):
            chain = _successive(spec, holes, start(), rng, without, repeat, sparse, kind)
            chains.append(pd.DataFrame(chain).mean(skipna=False))
        yield _compared(prior, weight, pd.DataFrame(chains))


def _compared(prior: pd.DataFrame, weight: np.ndarray, chains: pd.DataFrame) -> Result:
    """Weighted draws of the prior with means of chains."""
    prior = prior.loc[:, prior.std() > 1e-12]
    a, b = prior.to_numpy(), chains[prior.columns].to_numpy()
    mean = np.average(a, axis=0, weights=weight)
    variance = ((weight[:, None] * (a - mean)) ** 2).sum(axis=0) / weight.sum() ** 2 + b.var(axis=0, ddof=1) / len(b)
    return Result(list(prior.columns), (b.mean(axis=0) - mean) / np.sqrt(variance))


def _tilted(drawn, known, spec, rng):
    """Draws of the prior with some factors, taken at random, first, and their weights under a prior that knows of them.

    Under the buffet the factors of which something is known have their places, which K!/(K − K₀)! ways fill, and are there
    whatever α is: without their (αβ)^K₀.
    """
    kept, weight = [], []
    for state, scores, cluster, *_ in drawn:
        if state.n_factors < known.shape[1]:
            continue
        order = rng.permutation(state.n_factors)
        for buffer in state.buffers.values():
            buffer[:, : len(order)] = buffer[:, order]
        state.usage, state.known = state.usage[order], known
        if state.loading_precision.ndim:
            state.loading_precision = state.loading_precision[..., order]
        kept.append(Simulated(state, scores[:, order], cluster))
        ways = 1.0
        if spec.pattern == "ibp":
            rate = state.concentration * state.stickiness
            ways = np.prod((state.n_factors - np.arange(known.shape[1])) / rate)
        weight.append(ways * np.exp(known[state.active[:, : known.shape[1]]].sum()))
    return kept, np.array(weight)


def _sparse_table(values: np.ndarray) -> Observed:
    """Values (D, N) as a sparse table whose entries are all stored, half of its features off their centres."""
    offset = np.where(np.arange(len(values)) % 2, 1.5, 0.0)
    data = observe(sp.csr_array((values + offset[:, None]).T), scale=None, center=False)
    return replace(data, offset=offset, power=(values**2).sum(axis=1))


def _renew(data: Observed, values: np.ndarray) -> None:
    """Put other values (D, N) into a table."""
    if data.offset is None:
        data.replace_values(values)
        return
    data.values.data[:] = (values + data.offset[:, None]).ravel()
    data.power[:] = (values**2).sum(axis=1)
    data.__dict__.pop("total", None)


def _see(samples, state, spec, values, seen, rng) -> None:
    """What is seen of the values, anew: outliers with their deviations, counts, zeros and ones."""
    if spec.noise == "robust":
        deviation, samples.outlier_number = simulate_outliers(state, samples.outlier_share, spec, seen, rng)
        values = values + deviation
    level = LEVEL[:, None]
    if spec.likelihood == "counts":
        samples.exposure = EXPOSURE + SPREAD * rng.standard_normal(len(EXPOSURE))
        level = level + samples.exposure
    samples.seen[:] = np.where(seen, simulate_seen(values, spec, level, rng), 0.0)


def _successive(spec, holes, start, rng, without, repeat, sparse, kind) -> list[dict[str, float]]:
    """Statistics of one chain after its first quarter, started from the prior."""
    state, scores, cluster, *_ = start
    values = simulate_data(state, scores, rng)
    table = np.where(holes, np.nan, values.T)
    if spec.likelihood == "gaussian":
        data = _sparse_table(values) if sparse else observe(table, scale=None, center=False)
    else:
        data = replace(
            observe(np.abs(table), scale=None, center=False),
            center=LEVEL,
            likelihood=spec.likelihood,
            exposure=EXPOSURE,
            exposure_spread=SPREAD,
        )
    samples = samples_of(data, spec, get_kernels()) if kind is None else kind(data)
    samples.set_scores(scores)
    samples.cluster, state = cluster, samples.place(state)
    if start.outlier_share is not None:
        samples.outlier_share = start.outlier_share
    moves = schedule.build(spec, N_FEATURES, samples.can).moves
    out = []
    for sweep in range(CHAIN_LENGTH):
        if state.intercept is not None:
            # the prior is flat: wherever an intercept is, all else has the same distribution
            state.intercept[:] = 0.0
        scores = samples.scores
        values = simulate_data(state.on_host(), scores, rng)
        _renew(samples.data if kind is None else data, values)
        if kind is not None:
            samples = kind(data)
            samples.set_scores(scores)
        if spec.latent:
            _see(samples, state, spec, values, ~holes.T, rng)
        samples.refresh(state)
        for move in repeat * tuple(move for move in moves if move.update.__name__ not in without):
            move.update(state, samples, spec, rng)
        if sweep >= CHAIN_LENGTH // 4 and sweep % 2:
            out.append(statistics(state.on_host(), samples, spec))
        if state.n_factors > RUNAWAY:
            break
    return out or [statistics(state.on_host(), samples, spec)]
