"""The statistical aims in one run: ``NSFA_DATA_DIR=… python -m benchmarks.recovery``.

Recovery on the paper's synthetic setting for both sweeps, the number of factors of the E. coli time course in three
units, and held-out entries of the breast data.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from nsfa import NSFA
from nsfa.chain import Chain, chain_generator
from nsfa.data import observe
from nsfa.datasets import fetch_breast, fetch_ecoli, make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.metrics import match_factors, pattern_precision_recall, reconstruction_error, rmse
from nsfa.model import preset
from nsfa.samples import Samples


def synthetic(sweep: str, sweeps: int = 4000) -> None:
    """Ten data sets, α = 1, empty start: K after 1000 and 4000 sweeps, and E_r of the last ten draws."""
    pattern = fetch_ecoli().connectivity
    early, late, errors = [], [], []
    for seed in range(10):
        data = make_sparse_factors(100, pattern=pattern, random_state=seed)
        observed = observe(data.X)
        spec = preset("nsfa", concentration=1.0, sweep=sweep, moves="plain")
        chain = Chain(Samples(observed, get_kernels()), spec, chain_generator(seed, 0))
        factors, last = [], []
        for number in range(sweeps):
            chain.sweep()
            factors.append(chain.state.n_factors)
            if number >= sweeps - 10:
                last.append(reconstruction_error(data.loadings, observed.scale[:, None] * chain.state.loadings))
        early.append(np.mean(factors[900:1000]))
        late.append(np.mean(factors[-500:]))
        errors.append(np.mean(last))
    print(
        f"synthetic, {sweep}: mean K {np.mean(early):.2f} after 1000 sweeps, {np.mean(late):.2f} over the last 500 of "
        f"{sweeps} (sets: {', '.join(f'{k:.1f}' for k in late)}); E_r median {np.median(errors):.5f}, "
        f"mean {np.mean(errors):.5f}",
        flush=True,
    )


def consensus() -> None:
    """Default chains on the same ten sets: consensus factors, pattern, and scores beside those of the true model."""
    for seed in range(10):
        data = make_sparse_factors(100, pattern=fetch_ecoli().connectivity, random_state=seed)
        started = time.perf_counter()
        model = NSFA(concentration=1.0, random_state=0).fit(data.X)
        seconds = time.perf_counter() - started
        found = model.posterior_.consensus()
        pattern = pattern_precision_recall(data.active, found.inclusion > 0.5, data.loadings, found.loadings)
        error = reconstruction_error(data.loadings, found.loadings)
        true, hat, _ = match_factors(data.loadings, found.loadings)
        used = data.active.sum(axis=0)[true] >= 4
        # what the true loadings and noise would say about the scores: nobody can do better
        noise = data.noise_variance[0]
        information = np.eye(data.loadings.shape[1]) + data.loadings.T @ data.loadings / noise
        best = np.linalg.solve(information, data.loadings.T @ data.X.T / noise).T
        ours, limit = (
            np.array([abs(np.corrcoef(data.scores[:, k], x[:, j])[0, 1]) for k, j in pairs])[used]
            for x, pairs in ((found.scores, list(zip(true, hat, strict=True))), (best, [(k, k) for k in true]))
        )
        print(
            f"consensus, set {seed}: {found.n_factors} factors, precision {pattern[0]:.3f}, recall {pattern[1]:.3f}, "
            f"E_r {error:.4f}; scores: median {np.median(ours):.3f}, least {ours.min():.3f} (true model "
            f"{np.median(limit):.3f}, {limit.min():.3f}); {seconds:.1f} s, {model.posterior_.diagnostics().verdict}",
            flush=True,
        )


def ecoli() -> None:
    """Posterior of K with the paper's and the default priors, in three units."""
    X = fetch_ecoli().X
    for prior in ("paper", "default"):
        for factor in (1.0, 0.01, 100.0):
            model = NSFA(chains=4, tune=2000, draws=1000, thin=3, prior=prior, random_state=1).fit(factor * X)
            k = model.n_components_draws_
            print(f"E. coli × {factor:g}, {prior} priors: K median {np.median(k):.0f}, mean {k.mean():.3f}", flush=True)


def breast() -> None:
    """One chain of 2000 sweeps with a tenth of the entries held out."""
    X = fetch_breast().X
    mask = (np.random.default_rng(7).random((226, 251)) < 0.1).T
    for seed in range(3):
        started = time.perf_counter()
        model = NSFA(chains=1, tune=1500, draws=500, random_state=seed).fit(np.where(mask, np.nan, X))
        seconds = time.perf_counter() - started
        density = model.posterior_.log_predictive_density(X, mask).mean()
        error = rmse(X[mask], model.posterior_.predict_missing(mask))
        print(f"breast held out, seed {seed}: lppd {density:.4f}, rmse {error:.4f}, fit {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        synthetic("collapsed")
        synthetic("parallel")
    consensus()
    ecoli()
    breast()
