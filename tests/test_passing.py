"""Samples that keep no scores: S, T and Σ x are enough, whatever turns, shifts or drops them."""

import copy

import numpy as np
import pytest

from nsfa.chain import Chain, chain_generator
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.model import preset
from nsfa.passing import ObservedTable, PassingSamples
from nsfa.samples import Samples


class Ordinary(Samples):
    """The ordinary samples, asked for moves alone that draw the same random numbers as passing ones."""

    can = frozenset({"complete"})


class Passing(PassingSamples):
    can = Ordinary.can


def table(shape=(60, 20), components=3, **settings):
    return observe(make_sparse_factors(*shape, n_components=components, density=0.3, random_state=0, **settings).X)


def passing(data):
    return PassingSamples(ObservedTable(data, get_kernels()), get_kernels())


@pytest.mark.parametrize("shape", [(60, 20), (40, 3100)])
def test_passing_scores_draw_what_kept_ones_do(shape):
    """Warm-up with simple structure and prunes, tilts and rotations included."""
    data = table(shape)
    kinds = Ordinary(data, get_kernels()), Passing(ObservedTable(data, get_kernels()), get_kernels())
    kept, passed = (Chain(samples, preset("nsfa"), chain_generator(3, 0), tune=20) for samples in kinds)
    for _ in range(15):
        kept.sweep()
        passed.sweep()
    assert kept.state.n_factors == passed.state.n_factors > 0
    np.testing.assert_array_equal(kept.state.active, passed.state.active)
    np.testing.assert_allclose(kept.state.loadings, passed.state.loadings, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(sum(kept.log_density()), sum(passed.log_density()), rtol=1e-9)
    assert kept.samples.log_evidence == pytest.approx(passed.samples.log_evidence, rel=1e-9)


def test_verbs_do_to_the_sums_what_they_do_to_scores(rng):
    data = table()
    state = Chain(Samples(data, get_kernels()), preset("nsfa"), chain_generator(0, 0), start=4).state
    state.intercept = 0.1 * rng.standard_normal(data.shape[0])
    kept, passed = Samples(data, get_kernels()), passing(data)
    for samples in (kept, passed):
        samples.draw_scores(state, 7)
        samples.shift(np.array([0.3, -0.2, 0.1, 0.5]))
        samples.refresh(state)
        samples.turn(np.linspace(0.5, 2.0, 4))
        samples.turn(np.array([[1.0, 0.4], [-0.2, 0.9]]), np.array([3, 1]))
        samples.keep(np.array([2, 0, 3]))
    three = copy.deepcopy(state)
    three.drop(np.array([1]))
    for samples in (kept, passed):
        samples.refresh(three)
    for name in ("gram", "cross", "power"):
        np.testing.assert_allclose(getattr(kept, name), getattr(passed, name), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(kept.score_sums(), passed.score_sums(), rtol=1e-9)
    np.testing.assert_allclose(kept.mean_scores(), passed.mean_scores(), rtol=1e-9)
    assert kept.score_power == pytest.approx(passed.score_power)


def test_scores_towards_the_data_span_what_the_largest_directions_do():
    data = table((80, 300), components=3)
    chain = Chain(passing(data), preset("nsfa", moves="plain"), chain_generator(0, 0), start=3)
    samples = chain.samples
    np.testing.assert_allclose(samples.gram, 80 * np.eye(3), atol=1e-8)
    left = np.linalg.svd(data.values)[0][:, :3]
    span = np.linalg.qr(samples.cross + chain.state.intercept[:, None] * samples.score_sums())[0]
    assert np.linalg.svd(left.T @ span)[1].min() > 0.95


def test_directions_beyond_noise_are_those_that_kept_scores_find(rng):
    data = table((80, 300), components=4)
    spec = preset("nsfa")
    chains = [Chain(kind, spec, chain_generator(0, 0)) for kind in (Samples(data, get_kernels()), passing(data))]
    found = [chain.samples.add_directions(chain.state, 10, 1.05, np.random.default_rng(1)) for chain in chains]
    assert found[0].shape == found[1].shape
    np.testing.assert_allclose(found[0] @ found[0].T, found[1] @ found[1].T, atol=1e-4)
    kept, passed = (chain.samples for chain in chains)
    assert len(passed.gram) == found[1].shape[1]
    np.testing.assert_allclose(passed.cross / passed.n_samples, found[1], rtol=1e-9)


def test_noise_has_no_directions(rng):
    samples = passing(observe(rng.standard_normal((60, 200))))
    chain = Chain(samples, preset("nsfa"), chain_generator(0, 0))
    assert samples.add_directions(chain.state, 10, 1.05, rng) is None


@pytest.mark.parametrize("model", ["nsfa", "sfa"])
def test_a_restored_chain_draws_the_same_bits(model):
    data, spec = table((60, 25)), preset(model, **({"n_components": 3} if model == "sfa" else {}))
    start = 3 if model == "nsfa" else 0
    one = Chain(passing(data), spec, chain_generator(0, 0), start=start, tune=20)
    for _ in range(13):
        one.sweep()
    other = Chain(passing(data), spec, chain_generator(5, 0), start=start, tune=20)
    other.restore(copy.deepcopy(one.snapshot()))
    for _ in range(7):
        one.sweep()
        other.sweep()
    np.testing.assert_array_equal(one.state.loadings, other.state.loadings)
    assert one.log_density() == other.log_density()


def test_a_checkpoint_of_kept_scores_is_refused():
    data = table()
    kept = Chain(Samples(data, get_kernels()), preset("nsfa"), chain_generator(0, 0), start=2)
    other = Chain(passing(data), preset("nsfa"), chain_generator(0, 0), start=2)
    with pytest.raises(ValueError, match="another backend"):
        other.restore(kept.snapshot())
