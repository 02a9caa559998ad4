"""Another kind of samples behind the same door: plain NumPy, in two blocks, draws what the ordinary one draws."""

import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from nsfa.chain import Chain, chain_generator
from nsfa.data import no_holes, observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import Rows, get_kernels
from nsfa.kernels.streams import normals
from nsfa.model import preset
from nsfa.samples import Samples


class Blocks:
    """A complete table in blocks of samples: every verb is done in each, or is a sum over them."""

    can = frozenset()
    cluster = None
    log_evidence = np.nan
    noise_evidence, draw_noise = Samples.noise_evidence, Samples.draw_noise
    note_evidence, draw_intercept, intercept_spread = (
        Samples.note_evidence,
        Samples.draw_intercept,
        Samples.intercept_spread,
    )

    def __init__(self, data, kernels, edges):
        self.kernels, self.count, self.total, self.table_power = kernels, data.count, data.total, data.power
        self.n_features, self.n_samples = data.shape
        self.n_observed, self.residual = data.count.sum(), data.power
        self.first = edges[:-1]
        self.values = [data.values[:, a:b] for a, b in pairwise(edges)]
        self.scores_of = [np.zeros((y.shape[1], 0)) for y in self.values]

    def each(self, change):
        self.scores_of = [change(x) for x in self.scores_of]

    @property
    def scores(self):
        return np.vstack(self.scores_of)

    @property
    def score_power(self):
        return (self.scores**2).sum()

    def place(self, state):
        return state

    def begin(self, state, rng, towards_data=False, clustered=False):
        start = rng.standard_normal((self.n_samples, state.n_factors))
        self.scores_of = np.split(start, self.first[1:])
        self.refresh(state)

    def refresh(self, state):
        mu = state.intercept
        self.gram = sum(x.T @ x for x in self.scores_of)
        self.cross = sum((y - mu[:, None]) @ x for y, x in zip(self.values, self.scores_of, strict=True))
        self.power = sum(((y - mu[:, None]) ** 2).sum(axis=1) for y in self.values)

    def turn(self, by, which=None, gram=None):
        every = np.diag(by) if by.ndim == 1 else by
        if which is not None:
            every = np.eye(len(self.gram))
            every[np.ix_(which, which)] = by
        self.each(lambda x: x @ every)
        self.cross, self.gram = self.cross @ every, every.T @ self.gram @ every if gram is None else gram

    def keep(self, order):
        self.each(lambda x: x[:, order])
        self.cross, self.gram = self.cross[:, order].copy(), self.gram[np.ix_(order, order)]

    def mean_scores(self):
        return sum(x.sum(axis=0) for x in self.scores_of) / self.n_samples

    def shift(self, by):
        self.each(lambda x: x + by)

    def score_sums(self):
        return sum(x.sum(axis=0) for x in self.scores_of)[None, :]

    def rows(self, state):
        nothing = np.zeros((0, state.n_factors)), no_holes(self.n_features)
        slabs = state.noise_precision, state.precision_rows, state.relative, state.prior_offset
        return Rows(self.cross, self.gram, self.power, *nothing, *slabs)

    def residuals(self, state):
        g = state.loadings
        return self.power - 2 * (g * self.cross).sum(axis=1) + ((g @ self.gram) * g).sum(axis=1)

    def draw_scores(self, state, key):
        weighted = state.noise_precision[:, None] * state.loadings
        root = np.linalg.inv(np.linalg.cholesky(np.eye(state.n_factors) + state.loadings.T @ weighted))
        half = [(y - state.intercept[:, None]).T @ weighted @ root.T for y in self.values]
        noise = [normals(key, len(a), state.n_factors, at) for a, at in zip(half, self.first, strict=True)]
        self.scores_of = [(a + e) @ root for a, e in zip(half, noise, strict=True)]
        return 0.5 * sum((a**2).sum() for a in half) + self.n_samples * np.log(root.diagonal()).sum()

    def observed_squares(self, state):
        return self.gram.diagonal()[None, :], state.loadings @ self.gram

    def log_volume(self, weight):
        return self.n_samples * np.log1p(weight.sum(axis=0))


class Ordinary(Samples):
    """The ordinary samples, asked for no more than the blocks can do."""

    can = frozenset()


@pytest.mark.parametrize("shape", [(60, 20), (40, 3100)])
@pytest.mark.parametrize("model", ["nsfa", "sfa"])
def test_blocks_of_samples_draw_what_the_whole_table_does(shape, model):
    data = observe(make_sparse_factors(*shape, n_components=3, density=0.3, random_state=0).X)
    spec, kernels = preset(model, **({"n_components": 3} if model == "sfa" else {})), get_kernels()
    kinds = (Ordinary(data, kernels), Blocks(data, kernels, (0, 23, shape[0])))
    chains = [Chain(samples, spec, chain_generator(3, 0), tune=20) for samples in kinds]
    for _ in range(15):
        for chain in chains:
            chain.sweep()
    a, b = chains
    assert a.state.n_factors == b.state.n_factors > 0
    np.testing.assert_array_equal(a.state.active, b.state.active)
    np.testing.assert_allclose(a.state.loadings, b.state.loadings, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(a.samples.scores, b.samples.scores, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(sum(a.log_density()), sum(b.log_density()), rtol=1e-9)
    assert a.samples.log_evidence == pytest.approx(b.samples.log_evidence, rel=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_samples_of_a_part_of_the_table_draw_their_part(missing):
    X = make_sparse_factors(40, 12, n_components=3, missing=missing, random_state=0).X
    data = observe(X)
    chain = Chain(Samples(data, get_kernels()), preset("nsfa"), chain_generator(0, 0), start=4)
    whole, (first, last) = chain.samples, (15, 40)
    part = Samples(data.like(X[first:last]), get_kernels(), first)
    for samples in (whole, part):
        samples.draw_scores(chain.state, 99)
    np.testing.assert_allclose(part.scores, whole.scores[first:last], rtol=1e-9)


def test_statistics_that_are_not_those_of_the_scores_are_refused():
    data = observe(make_sparse_factors(20, 8, 2, random_state=0).X)
    chain = Chain(Samples(data, get_kernels()), preset("nsfa"), chain_generator(0, 0), start=3)
    chain.samples.draw_scores(chain.state, 1)
    with pytest.raises(RuntimeError, match="refresh"):
        chain.samples.rows(chain.state)
    chain.samples.refresh(chain.state)
    chain.state.drop(np.array([0]))
    with pytest.raises(RuntimeError, match="refresh"):
        chain.samples.rows(chain.state)


class Latent(Samples):
    """Values drawn near what was seen, by a step from where they are."""

    can = frozenset({"whole", "latent"})

    def __init__(self, data, kernels):
        super().__init__(replace(data, values=data.values.copy(), power=data.power.copy()), kernels)

    def draw_latent(self, state, rng):
        self.data.replace_values(self.data.values + 0.01 * rng.standard_normal(self.data.shape))
        self.refresh(state)


def test_drawn_values_are_part_of_a_checkpoint_and_no_other_chain_s():
    data = observe(make_sparse_factors(20, 8, 2, random_state=0).X)
    values = data.values.copy()
    one, other = (Chain(Latent(data, get_kernels()), preset("nsfa"), chain_generator(0, i), start=2) for i in range(2))
    for _ in range(3):
        one.sweep()
    other.restore(copy.deepcopy(one.snapshot()))
    assert other.log_density() == one.log_density()
    for chain in (one, other):
        chain.sweep()
    np.testing.assert_array_equal(one.samples.data.values, other.samples.data.values)
    np.testing.assert_array_equal(data.values, values)
