"""The verdict on each factor: what it rests on, and that it is right where the answer is known."""

from dataclasses import replace

import numpy as np
import pytest
from test_align import draw_of

from nsfa import FA, NSFA
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.length import Length
from nsfa.posterior import columns
from nsfa.posterior.align import align
from nsfa.posterior.build import build_consensus
from nsfa.posterior.diagnostics import ess_bulk, split_rhat
from nsfa.posterior.factors import (
    FACTOR_ESS,
    FACTOR_RHAT,
    LEAST_AGREEMENT,
    LEAST_SUPPORT,
    FactorChecks,
    Traces,
    check_factors,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def traces(n_chains=4, n_draws=200, seed=0):
    """Four factors of six features that every chain has, and agrees on."""
    rng = np.random.default_rng(seed)
    shape = n_chains, n_draws, 4
    sums = np.repeat(rng.normal(size=(1, 6, 4)), n_chains, axis=0)
    share, size = rng.random(shape), rng.integers(3, 6, shape)
    return Traces(sums, *np.ones((2, 6, 4), dtype=np.int64), np.ones(shape, dtype=bool), share, size)


def test_factors_that_all_chains_agree_on_are_settled():
    found = check_factors(traces())
    assert found.verdict == ("settled",) * 4 and found.settled == 4
    np.testing.assert_allclose(found.agreement, 1.0)


@pytest.mark.parametrize("what", ["share", "size", "loadings", "support", "draws"])
def test_each_disagreement_unsettles_its_factor_alone(what):
    some = traces(n_draws=6 if what == "draws" else 200)
    if what == "share":
        some.share[2, :, 1] += 2
    elif what == "size":
        some.size[2, :, 1] += 2
    elif what == "loadings":
        some.sums[2, :, 1] = np.roll(some.sums[2, :, 1], 1)
    elif what == "support":
        some.there[2, ::4, 1] = False  # in three quarters of its draws
    found = check_factors(some)
    expected = ("unsettled",) * 4 if what == "draws" else ("settled", "unsettled", "settled", "settled")
    assert found.verdict == expected


def test_a_factor_of_some_chains_is_called_so():
    some = traces()
    some.there[1, :, 3] = False
    some.sums[1, :, 3] = 0.0
    found = check_factors(some)
    assert found.verdict == ("settled", "settled", "settled", "some chains")
    assert found.agreement[3] == pytest.approx(1.0), "of the chains that have it"


@pytest.mark.parametrize("settings", [{"n_chains": 1}, {"n_draws": 3}, {"preview": True}])
def test_what_cannot_be_judged(settings):
    preview = settings.pop("preview", False)
    assert check_factors(traces(**settings), preview).verdict == ("not judged",) * 4


def test_no_factors_have_no_verdict():
    none = Traces(
        np.zeros((2, 5, 0)), *np.zeros((2, 5, 0), int), *(np.zeros((2, 9, 0), kind) for kind in (bool, float, int))
    )
    assert check_factors(none).verdict == ()


@pytest.fixture(scope="module")
def fitted():
    data = make_sparse_factors(60, 30, 3, density=0.25, missing=0.1, random_state=2)
    return NSFA(chains=3, tune=100, draws=60, random_state=0).fit(data.X).posterior_


@pytest.mark.parametrize("block", [10**6, 3000, 1])
def test_the_numbers_are_those_of_the_aligned_draws(fitted, block, monkeypatch):
    """Against all aligned draws at once, for blocks that end within chains and that span them."""
    monkeypatch.setattr(columns, "_BLOCK", block)
    consensus = build_consensus(fitted.data, fitted.chains, fitted.alignment(), get_kernels("numba"))
    loadings, active = fitted.aligned()
    g = loadings / fitted.data.scale[:, None]
    noise = [[d.scalars["loading_power"] + (1 / d.noise_precision).sum() for d in chain] for chain in fitted.chains]
    share, size = (g**2).sum(axis=2) / np.array(noise)[:, :, None], active.sum(axis=2).astype(float)
    np.testing.assert_allclose(consensus.variance_explained, share.mean(axis=(0, 1)))
    unit = g.mean(axis=1) / np.linalg.norm(g.mean(axis=1), axis=1, keepdims=True)
    for k in range(consensus.n_factors):
        pair = share[:, :, k], size[:, :, k]
        assert consensus.checks.rhat[k] == pytest.approx(max(map(split_rhat, pair)))
        assert consensus.checks.ess[k] == pytest.approx(min(map(ess_bulk, pair)))
        assert consensus.checks.agreement[k] == pytest.approx((unit[:, :, k] @ unit[:, :, k].T).min())


def test_checks_are_in_the_order_of_the_factors(rng):
    """The pivot's first column is the weaker factor; it is the one that the chains do not agree on."""
    a, b = np.array([0.05, 0.05, 0.02, 0.0, 0.0]), np.array([0.0, 0.0, 0.0, 3.0, 3.0])
    sizes = rng.uniform(0.9, 1.1, size=(2, 30, 2))
    chains = [[draw_of(np.column_stack([(1 + c) * i * a, j * b])) for i, j in sizes[c]] for c in range(2)]
    draws = [draw for chain in chains for draw in chain]
    found = build_consensus(
        observe(rng.normal(size=(9, 5))), chains, align(draws, dense=False), get_kernels("reference")
    )
    assert found.pivot.tolist() == [1, 0]
    assert found.checks.rhat[0] < 1.3 and found.checks.rhat[1] > 1.7


def test_previews_and_single_chains_are_not_judged(fitted):
    preview = replace(fitted, length=Length(10, 60, preview=True))
    assert set(preview.consensus().checks.verdict) == {"not judged"}
    assert preview.diagnostics().verdict.startswith("Preview") and preview.diagnostics().settled == 0
    alone = replace(fitted, chains=fitted.chains[:1])
    assert set(alone.summary().verdict) == {"not judged"} and alone.diagnostics().settled == 0
    assert "no factor can be called settled" in alone.diagnostics().verdict


def test_dense_factors_are_judged_too():
    X = make_sparse_factors(60, 20, 2, density=0.6, snr=20, random_state=0).X
    found = FA(2, chains=2, tune=100, draws=300, random_state=0).fit(X).posterior_
    assert len(found.consensus().checks.verdict) == 2 and (found.n_substantial == 2).all()
    assert not found.consensus().minor.any()


def settled(consensus):
    return np.array(consensus.checks.verdict) == "settled"


def any_support(consensus):
    """A criterion that is too weak: all that make a consensus factor."""
    return consensus.support > 0.5


def found_again(consensus, other):
    """Which factors another fit has, with |cosine| above 0.9."""
    norms = [np.linalg.norm(found.loadings, axis=0) for found in (consensus, other)]
    return (np.abs(consensus.loadings.T @ other.loadings) / np.outer(*norms) > 0.9).any(axis=1)


@pytest.fixture(scope="module")
def twins():
    """Pairs of fits to tables whose factors hardly stand out from noise, with different seeds."""
    tables = [
        make_sparse_factors(40, 50, 8, density=0.2, snr=0.6, random_state=5).X,
        make_sparse_factors(40, 50, 8, density=0.2, snr=0.55, random_state=12).X,
    ]
    fits = [[NSFA(chains=4, tune=150, draws=400, thin=1, random_state=s).fit(X) for s in (0, 1)] for X in tables]
    return [[model.posterior_.consensus() for model in pair] for pair in fits]


def test_settled_factors_are_found_again_by_another_fit(twins):
    pairs = [(a, b) for pair in twins for a, b in (pair, pair[::-1])]
    again = {
        criterion: np.concatenate([found_again(a, b)[criterion(a)] for a, b in pairs])
        for criterion in (settled, any_support)
    }
    assert len(again[settled]) >= 5 and again[settled].mean() >= 0.95
    assert again[any_support].mean() < 0.95, "these tables tell a weaker criterion apart"


@pytest.fixture(scope="module")
def stopped():
    """Fits that ended far too early."""
    X = make_sparse_factors(60, 40, 6, density=0.25, missing=0.1, random_state=0).X
    lengths = [(5, 10), (10, 20), (20, 20)]
    fits = [NSFA(chains=4, tune=t, draws=d, thin=1, random_state=s).fit(X) for t, d in lengths for s in (0, 1)]
    return [model.posterior_.consensus() for model in fits]


def test_fits_that_were_stopped_early_settle_nearly_nothing(stopped):
    shares = {
        criterion: np.concatenate([criterion(consensus) for consensus in stopped]).mean()
        for criterion in (settled, any_support)
    }
    assert shares[settled] <= 0.05 < shares[any_support]


def test_the_limits_in_words_are_the_limits():
    text = " ".join(FactorChecks.__doc__.split())
    assert f"at least {LEAST_SUPPORT:.0%} of its draws".replace("%", " %") in text
    assert f"cosine of at least {LEAST_AGREEMENT}" in text
    assert f"R-hat of at most {FACTOR_RHAT} and {FACTOR_ESS:.0f} effective draws or more" in text
