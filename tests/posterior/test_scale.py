"""However large: the consensus is what its digests say, of dense and of sparse draws, and samples come in blocks."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from consensus_digests import CASES, FILE, digest, made_up
from scipy.stats import norm

from nsfa.posterior import align, build, columns, project
from nsfa.posterior.predict import fitted_table, held_out, moments_of

BEFORE = json.loads(FILE.read_text())
# what a draw is kept as: the size decides, always as an array, sparse wherever it is not rotated
WAYS = {"either": {}, "dense": {"_SPARSE": -1.0}, "sparse": {"_BLOCK": 1, "_SPARSE": 1.0}}


pytestmark = pytest.mark.filterwarnings("ignore:2 feature.s. do not vary")


def compare(now, before):
    for name in sorted(set(now) - {"words"}):
        # the two values next to the median are equally far from it but for rounding, and R-hat ranks distances
        rtol = 1e-3 if name == "rhat" else 1e-6
        np.testing.assert_allclose(now[name], before[name], rtol, atol=1e-6, err_msg=name)
    assert now["words"] == before["words"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_the_consensus_is_as_it_was(case, way, monkeypatch):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(columns, name, value)
    before, now = BEFORE[case], digest(made_up(**CASES[case]))
    compare(now, before)


@pytest.mark.parametrize("setting", [(columns, "_BROAD", 0.5), (align, "KEPT_LOADINGS", 0), (build, "CACHE_BYTES", 0)])
def test_whatever_is_kept_or_multiplied_how(setting, monkeypatch):
    for name, value in WAYS["sparse"].items():
        monkeypatch.setattr(columns, name, value)
    monkeypatch.setattr(*setting)
    before, now = BEFORE["newcomers"], digest(made_up(**CASES["newcomers"]))
    compare(now, before)


def test_adding_to_a_copy_is_refused():
    with pytest.raises(ValueError, match="out must be contiguous"):
        columns.add_at(np.zeros((3, 2)).T, np.array([1]), 1.0)


@pytest.fixture
def in_blocks(monkeypatch):
    """Make tables be gone through seven samples at a time, as many as have so many entries."""
    return lambda n_features: monkeypatch.setattr(project, "BLOCK_ENTRIES", 7 * n_features)


@pytest.mark.parametrize("case", ["holes", "sparse table", "intercepts", "fa", "bfrm", "medium", "no factors"])
def test_samples_in_blocks_have_the_same_scores_and_densities(case, in_blocks, rng):
    posterior = made_up(**CASES[case])
    n_features = posterior.data.n_features
    table = rng.normal(size=(30, n_features))
    tables = [sp.csr_array(np.round(table))]
    table[rng.random(table.shape) < 0.1] = np.nan
    tables += [table, pd.DataFrame(table), pl.DataFrame(table), table.tolist(), table[:0]]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The fit has no factors")
        whole = [(*posterior.transform(X, return_std=True), posterior.score_samples(X)) for X in tables]
        in_blocks(n_features)
        parts = [(*posterior.transform(X, return_std=True), posterior.score_samples(X)) for X in tables]
    for one, other in zip(whole, parts, strict=True):
        for before, now in zip(one, other, strict=True):
            np.testing.assert_allclose(now, before, rtol=1e-9, atol=1e-12)


def test_what_is_wrong_in_a_block_is_said_of_the_whole_table(in_blocks):
    posterior = made_up()
    X = np.zeros((30, 60))
    X[17, 3], X[29, 0] = np.inf, -np.inf
    in_blocks(60)
    with pytest.raises(ValueError, match=r"Got inf at sample 17, .* \(2 in all\)"):
        posterior.transform(X)


def test_the_predictive_density_is_the_mean_over_draws():
    posterior = made_up(**CASES["holes"])
    where = np.isnan(fitted_table(posterior.data))
    truth = np.random.default_rng(0).normal(size=where.shape)
    _, entries = held_out(posterior.data, where)
    every = list(moments_of(posterior._tables(), posterior.draws, entries))
    scale, center = posterior.data.scale[entries.column], posterior.data.center[entries.column]
    density = [norm.pdf(truth[where], m.mean * scale + center, np.sqrt(m.variance) * scale) for m in every]
    np.testing.assert_allclose(posterior.log_predictive_density(truth, where), np.log(np.mean(density, axis=0)))
