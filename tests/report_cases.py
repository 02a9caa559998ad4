"""Posteriors for the report, made up rather than sampled: any size, with draws of a few scalars only."""

from __future__ import annotations

import numpy as np

from nsfa.data import observe
from nsfa.draw import Draw
from nsfa.length import Length
from nsfa.model import preset
from nsfa.posterior import Posterior
from nsfa.posterior.consensus import Consensus
from nsfa.posterior.factors import NOT_JUDGED, SETTLED, FactorChecks


def made_up(
    n_factors=3, n_genes=40, n_samples=30, *, chains=4, draws=200, names=None, model="nsfa", density=0.1, seed=0
):
    """A posterior whose chains agree, with a consensus of random sparse loadings."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n_samples, n_genes))
    data = observe(table)
    spec = preset(model) if model == "nsfa" else preset(model, n_components=max(n_factors, 1))
    posterior = Posterior(data, spec, _chains(rng, n_factors, n_genes, chains, draws), Length(100, draws), 0, True)
    names = names or tuple(f"GENE{d}" for d in range(n_genes))
    # what Posterior.consensus() would compute from the draws, which these do not have
    posterior.__dict__["_consensus"] = consensus_of(rng, n_factors, n_samples, names, chains, density, model)
    return posterior


def consensus_of(rng, n_factors, n_samples, names, chains=4, density=0.1, model="nsfa"):
    shape = len(names), n_factors
    loadings = rng.normal(size=shape)
    dense = model in ("fa", "afa", "fok")
    inclusion = (
        np.ones(shape)
        if dense
        else np.where(rng.random(shape) < density, rng.beta(8, 0.5, shape), rng.beta(0.5, 15, shape))
    )
    loadings *= 1.0 if dense else inclusion
    # about half of what is certainly there is strong
    relevance = inclusion * rng.beta(0.3, 0.3, shape)
    variance = np.sort(rng.gamma(1.0, size=n_factors))[::-1]
    return Consensus(
        loadings=loadings,
        lower=loadings - 0.3,
        upper=loadings + 0.3,
        level=0.9,
        inclusion=inclusion,
        relevance=relevance,
        support=rng.uniform(0.8, 1.0, n_factors),
        chain_support=rng.uniform(0.7, 1.0, (chains, n_factors)),
        variance_explained=0.8 * variance / max(variance.sum(), 1e-9),
        scores=rng.normal(size=(n_samples, n_factors)),
        scores_std=np.full((n_samples, n_factors), 0.2),
        feature_names=tuple(names),
        checks=checks_of(n_factors, chains),
    )


def crowded():
    """A posterior of 60 factors and about 90 numbers of them, and annotations with up to 20 groups."""
    rng = np.random.default_rng(0)
    posterior = made_up(60, 300, 240, draws=100, density=0.08)
    for chain in posterior.chains:
        for draw in chain:
            draw.scalars["n_substantial"] = int(rng.integers(30, 120))
            draw.scalars["n_factors"] = int(rng.integers(50, 140))
    codes = rng.integers(0, 20, 240)
    notes = {
        "tissue": [f"tissue of type {chr(65 + code)}, by name" for code in codes],
        "cluster": codes % 11,
        "patient": [f"p{i % 170}" for i in range(240)],
    }
    return posterior, notes


def checks_of(n_factors, chains=4, *words):
    """Checks with these words, or with all factors settled."""
    words = words or (SETTLED if chains > 1 else NOT_JUDGED,) * n_factors
    return FactorChecks(words, *(np.full(n_factors, value) for value in (0.99, 1.01, 400.0)))


def _chains(rng, n_factors, n_genes, chains, draws):
    precision = np.full(n_genes, 2.0)

    def draw():
        scalars = dict.fromkeys(("log_joint", "log_evidence", "concentration", "loading_power"), 0.0)
        scalars = {name: float(rng.normal()) for name in scalars} | {"stickiness": 1.0, "seconds": 12.3}
        scalars |= {"n_factors": n_factors + int(rng.integers(0, 3)), "n_active": float(rng.poisson(100))}
        scalars |= {"n_shared": n_factors + int(rng.integers(0, 2)), "n_substantial": n_factors}
        empty = np.zeros(0, np.uint8)
        return Draw((n_genes, 0), empty, empty.astype(np.float32), None, precision, np.zeros(0), scalars)

    return tuple(tuple(draw() for _ in range(draws)) for _ in range(chains))
