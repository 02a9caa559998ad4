"""Counts, and zeros and ones, beside other methods: ``NSFA_DATA_DIR=… python -m benchmarks.latent``.

    python -m benchmarks.latent [--tables counts binary tumour] [--splits 5] [--tune 300] [--draws 200]

A tenth of the entries is hidden, the same for every method. Of each hidden entry the log mass is taken, of counts or of
zeros and ones as they are: ours of the count or probit model; ours of log(1 + count/size factor), with the normal's
mass between the values that half a count more and less would have had; mofapy2's with its Poisson or Bernoulli
likelihood, the mean over draws from what it says of scores and weights; and a Poisson about what scikit-learn's NMF
says. ``found`` counts the planted factors with a counterpart at |cosine| > 0.9.

mofapy2 has no size factors and no means of such features, which take a factor each: it is fitted with as many factors
as were planted, two more and twice as many, and the fit that does best on the hidden entries counts (its seconds are
those of all three). At the end every method is compared with nsfa, paired over splits.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit, log_ndtr, logsumexp

from benchmarks.controls import FOUND, binary, counts
from nsfa import NSFA
from nsfa.comparison import hide
from nsfa.filling import fill
from nsfa.metrics import match_factors
from nsfa.posterior.predict import held_out, moments_of

LEAST = 1e-3
MOFA_DRAWS = 50
SHAPE = (500, 1000)


def ours(table, hidden, likelihood, seed, settings):
    """Log masses, loadings and the number of factors."""
    fit = NSFA(likelihood=likelihood, random_state=seed, **settings).fit(np.where(hidden, np.nan, table)).posterior_
    return fit.log_predictive_density(table, hidden), fit.consensus().loadings


def log_normalised(table, hidden, likelihood, seed, settings):
    """The Gaussian model of log(1 + count/size)."""
    seen = np.where(hidden, np.nan, table)
    size = np.nansum(seen, axis=1, keepdims=True) / (~hidden @ np.nanmean(seen, axis=0))[:, None]
    fit = NSFA(random_state=seed, **settings).fit(np.log1p(seen / size)).posterior_
    _, entries = held_out(fit.data, hidden)
    above, below = (
        (np.log1p(np.maximum(table + half, 0.0) / size)[hidden] - fit.data.center[entries.column])
        / fit.data.scale[entries.column]
        for half in (0.5, -0.5)
    )
    below = np.where(table[hidden] == 0, -np.inf, below)
    total = np.full(len(above), -np.inf)
    draws = fit.draws[::2]
    for moments in moments_of(fit._tables(), draws, entries):
        deviation = np.sqrt(moments.variance)
        a, b = (above - moments.mean) / deviation, (below - moments.mean) / deviation
        high, low = log_ndtr(np.where(b > 0, -b, a)), log_ndtr(np.where(b > 0, -a, b))
        total = np.logaddexp(total, high + np.log1p(-np.exp(np.minimum(low - high, -1e-12))))
    return total - np.log(len(draws)), fit.consensus().loadings


def mofa(table, hidden, likelihood, seed, n_factors):
    """mofapy2 with its Poisson or Bernoulli likelihood: the best of several numbers of factors."""
    return max(
        (_mofa(table, hidden, likelihood, seed, k) for k in (n_factors, n_factors + 2, 2 * n_factors)), key=_mean
    )


def _mean(found):
    return found[0].mean()


def _mofa(table, hidden, likelihood, seed, n_factors):
    from mofapy2.run.entry_point import entry_point

    with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        run = entry_point()
        run.set_data_options(scale_views=False)
        kind = "poisson" if likelihood == "counts" else "bernoulli"
        run.set_data_matrix([[np.where(hidden, np.nan, table)]], likelihoods=[kind])
        run.set_model_options(factors=n_factors, spikeslab_weights=True, ard_weights=True)
        run.set_train_options(iter=500, convergence_mode="fast", seed=seed, quiet=True)
        run.build()
        run.run()
    nodes, rng, logs = run.model.getNodes(), np.random.default_rng(seed), []
    scores, weights = nodes["Z"].getExpectations(), nodes["W"].getExpectations()[0]
    for _ in range(MOFA_DRAWS):
        fit = (_drawn(scores, rng) @ _drawn(weights, rng).T)[hidden]
        if likelihood == "binary":
            logs.append(stats.bernoulli(np.clip(expit(fit), LEAST, 1 - LEAST)).logpmf(table[hidden]))
        else:
            logs.append(stats.poisson(np.maximum(np.logaddexp(0.0, fit), LEAST)).logpmf(table[hidden]))
    return logsumexp(logs, axis=0) - np.log(MOFA_DRAWS), weights["E"]


def _drawn(expectations, rng):
    """Normals with given first and second moments."""
    mean = expectations["E"]
    return mean + np.sqrt(np.maximum(expectations["E2"] - mean**2, 0.0)) * rng.standard_normal(mean.shape)


def nmf(table, hidden, likelihood, seed, n_factors):
    """scikit-learn's NMF, holes filled by turns; a Poisson, or a coin, about what it says."""
    from sklearn.decomposition import NMF

    model = NMF(n_factors, random_state=seed, max_iter=300)
    mean = fill(model, np.where(hidden, np.nan, table), 10).mean[hidden]
    if likelihood == "binary":
        return stats.bernoulli(np.clip(mean, LEAST, 1 - LEAST)).logpmf(table[hidden]), model.components_.T
    return stats.poisson(np.maximum(mean, LEAST)).logpmf(table[hidden]), model.components_.T


def tumour() -> np.ndarray:
    """The single-cell table, cells × genes."""
    path = Path(os.environ["NSFA_DATA_DIR"]) / "counts_tumour_3000x302.csv.gz"
    return pd.read_csv(path, index_col=0).to_numpy(dtype=float).T


def control_of(name):
    """The planted factors of a table, None of a real one, and the table."""
    if name == "tumour":
        return None, tumour()
    control = (counts if name == "counts" else binary)(SHAPE, 0, True)
    return control, control.X


def split_of(name, control, table, split, arguments, settings):
    """Every method on one split: the mean log mass of the hidden entries, by method."""
    likelihood, out = "binary" if name == "binary" else "counts", {}
    hidden = hide(table, 0.1, np.random.default_rng([0, split]))
    hidden &= np.nanstd(np.where(hidden, np.nan, table), axis=0) > 0
    for method in arguments.methods:
        if method == "log" and likelihood == "binary":
            continue
        run = {"nsfa": ours, "log": log_normalised, "mofapy2": mofa, "NMF": nmf}[method]
        given = settings if method in ("nsfa", "log") else arguments.factors
        started = time.perf_counter()
        log, loadings = run(table, hidden, likelihood, split, given)
        seconds = time.perf_counter() - started
        out[method], found = float(log.mean()), ""
        if control is not None and loadings.shape[1]:
            cosines = np.abs(match_factors(control.loadings, loadings)[2])
            found = f", found {int((cosines > FOUND).sum())} of {control.n_factors}"
        factors = f"{loadings.shape[1]} factors{found}"
        print(f"{name}, split {split}, {method}: {log.mean():.4f}, {factors}, {seconds:.0f} s", flush=True)
    return out


def paired(name, rows):
    """A line per method: how far nsfa is ahead of it, with the standard error over splits."""
    for method in rows[0]:
        if "nsfa" in rows[0] and method != "nsfa" and len(rows) > 1:
            ahead = np.array([row["nsfa"] - row[method] for row in rows])
            error = ahead.std(ddof=1) / np.sqrt(len(ahead))
            print(f"{name}, {len(rows)} splits, nsfa less {method}: {ahead.mean():+.4f} ± {error:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=["counts", "binary", "tumour"])
    parser.add_argument("--methods", nargs="*", default=["nsfa", "log", "mofapy2", "NMF"])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first split")
    parser.add_argument("--tune", type=int, default=300)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--factors", type=int, default=10, help="for methods that must be told")
    arguments = parser.parse_args()
    settings = {"chains": 2, "tune": arguments.tune, "draws": arguments.draws, "thin": 1}
    warnings.simplefilter("ignore")
    for name in arguments.tables:
        control, table = control_of(name)
        splits = range(arguments.first, arguments.first + arguments.splits)
        paired(name, [split_of(name, control, table, split, arguments, settings) for split in splits])


if __name__ == "__main__":
    main()
