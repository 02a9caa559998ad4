"""Planted structure is found again, and the paper's settings give the paper's answers."""

import json
import subprocess
import sys

import numpy as np
import pytest

from nsfa import AFA, BFRM, FA, FOK, NSFA, SFA
from nsfa.chain import Chain, chain_generator
from nsfa.data import observe
from nsfa.datasets import fetch_breast, fetch_ecoli, make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.metrics import pattern_precision_recall, reconstruction_error, rmse
from nsfa.model import Priors, preset
from nsfa.samples import Samples


@pytest.fixture(scope="module")
def planted():
    return make_sparse_factors(
        150, 48, 4, pattern=np.kron(np.eye(4), np.ones((12, 1))), snr=10, missing=0.05, random_state=11
    )


@pytest.mark.parametrize("estimator", [NSFA(), SFA(4), BFRM(4)], ids=["nsfa", "sfa", "bfrm"])
def test_sparse_models_recover_planted_loadings(estimator, planted):
    """The last draws of the chain with the highest log joint: single chains may be caught in a rotation."""
    estimator.set_params(chains=4, tune=800, draws=100, thin=1, random_state=3).fit(planted.X)
    posterior = estimator.posterior_
    best = int(np.argmax(posterior.trace("log_joint").mean(axis=1)))
    late = [posterior.scaled_loadings(draw) for draw in posterior.chains[best][-10:]]
    if isinstance(estimator, NSFA):
        assert np.median(estimator.n_components_draws_) in (4, 5)
    nothing = reconstruction_error(planted.loadings, np.zeros((48, 0)))
    assert np.median([reconstruction_error(planted.loadings, G) for G in late]) < 0.05 * nothing
    found = [pattern_precision_recall(planted.active, G != 0, planted.loadings, G) for G in late]
    precision, recall = np.median(found, axis=0)
    assert recall > 0.8 and (precision > 0.8 or not isinstance(estimator, NSFA))


@pytest.mark.parametrize("estimator", [FA(4), AFA(6), FOK(4)], ids=["fa", "afa", "fok"])
def test_dense_models_recover_the_planted_covariance(estimator, planted):
    estimator.set_params(chains=1, tune=300, draws=100, random_state=3).fit(planted.X)
    posterior = estimator.posterior_
    mean = np.mean([g @ g.T for g in map(posterior.scaled_loadings, posterior.draws)], axis=0)
    truth = planted.loadings @ planted.loadings.T
    assert np.linalg.norm(mean - truth) < 0.3 * np.linalg.norm(truth)


def test_pure_noise_has_next_to_no_factors(rng):
    X = rng.normal(size=(80, 20))
    estimator = NSFA(chains=1, tune=300, draws=300, concentration=0.5, random_state=0).fit(X)
    shared = [(d.active().sum(axis=0) > 2).sum() for d in estimator.posterior_.draws]
    assert np.median(shared) <= 1


def test_papers_synthetic_setting(data_dir):
    """Section 5.1 on the real connectivity, ten data sets: 16 factors on average, and their loadings."""
    factors, errors = zip(*(recover(seed) for seed in range(10)), strict=True)
    assert 15.5 <= np.mean(factors) <= 16.5
    assert np.median(errors) <= 0.003


def recover(seed: int, sweeps: int = 4000) -> tuple[float, float]:
    """Mean K of the last 500 sweeps and sign-free E_r of the last ten draws, empty start, α = 1."""
    data = make_sparse_factors(100, pattern=fetch_ecoli().connectivity, random_state=seed)
    observed = observe(data.X)
    spec = preset("nsfa", concentration=1.0, moves="plain", priors=Priors.paper())
    chain = Chain(Samples(observed, get_kernels()), spec, chain_generator(seed, 0))
    factors, errors = [], []
    for number in range(sweeps):
        chain.sweep()
        factors.append(chain.state.n_factors)
        if number >= sweeps - 10:
            errors.append(reconstruction_error(data.loadings, observed.scale[:, None] * chain.state.loadings))
    return float(np.mean(factors[-500:])), float(np.mean(errors))


def test_number_of_factors_does_not_depend_on_units(data_dir):
    """The paper's answer on the E. coli time course, in any units."""
    X = fetch_ecoli().X
    medians = []
    for factor in (1.0, 0.01, 100.0):
        estimator = NSFA(chains=2, tune=500, draws=500, thin=1, prior="paper", random_state=1).fit(factor * X)
        medians.append(np.median(estimator.n_components_draws_))
    assert all(3 <= m <= 5 for m in medians)
    assert np.ptp(medians) <= 1


def test_held_out_entries_of_the_breast_data(data_dir):
    X = fetch_breast().X
    mask = (np.random.default_rng(7).random((226, 251)) < 0.1).T
    estimator = NSFA(chains=1, tune=300, draws=100, thin=1, random_state=0).fit(np.where(mask, np.nan, X))
    assert estimator.posterior_.log_predictive_density(X, mask).mean() >= -0.34
    assert rmse(X[mask], estimator.posterior_.predict_missing(mask)) <= 0.430


MEMORY = """
import json, re, sys
from pathlib import Path
from nsfa import NSFA
from nsfa.datasets import fetch_prostate
tune, draws = map(int, sys.argv[1:])
estimator = NSFA(chains=1, tune=tune, draws=draws, thin=1, random_state=0).fit(fetch_prostate().X)
# not ru_maxrss, which begins with the peak of the process that started this one
peak = re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps([int(peak[1]) / 1024, len(estimator.posterior_.draws)]))
"""


@pytest.mark.parametrize(
    ("tune", "draws", "most"), [(20, 150, 700), pytest.param(500, 500, 1000, marks=pytest.mark.slow)]
)
def test_draws_of_the_prostate_data_fit_in_a_gigabyte(data_dir, tune, draws, most):
    words = [sys.executable, "-c", MEMORY, str(tune), str(draws)]
    megabytes, made = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert made == draws
    assert megabytes < most
