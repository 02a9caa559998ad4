"""Consensus of made-up posteriors, a few numbers of each part: however it is computed, it must not change.

``python tests/posterior/consensus_digests.py`` writes ``tests/data/consensus.json`` from the code as it is: only where
results are meant to change. ``test_scale.py`` compares.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.stats import ortho_group
from threadpoolctl import threadpool_limits

from nsfa.data import observe
from nsfa.draw import COVARIANCES, SCALARS, Draw, factor_counts
from nsfa.length import Length
from nsfa.model import preset
from nsfa.posterior import Posterior

FILE = Path(__file__).parent.parent / "data" / "consensus.json"
ARRAYS = ("loadings", "lower", "upper", "inclusion", "relevance", "support", "chain_support", "variance_explained")
ARRAYS += ("scores", "scores_std", "pivot", "sign")
# features, samples, factors, chains, draws
USUAL = (60, 30, 12, 3, 25)
CASES = {
    "nsfa": {},
    "holes": {"missing": 0.1},
    "sparse table": {"table": "sparse"},
    "flat features": {"table": "flat"},
    "intercepts": {"intercept": True, "missing": 0.1},
    "sfa": {"model": "sfa"},
    "fa": {"model": "fa", "size": (40, 30, 4, 2, 20)},
    "afa": {"model": "afa", "size": (40, 30, 4, 2, 20), "missing": 0.1},
    "fok": {"model": "fok", "size": (40, 30, 4, 2, 20)},
    "bfrm": {"model": "bfrm", "missing": 0.1},
    "no factors": {"size": (20, 15, 0, 2, 6)},
    "one chain": {"size": (60, 30, 12, 1, 40)},
    "one draw": {"size": (60, 30, 12, 1, 1)},
    "two draws": {"size": (60, 30, 12, 2, 1)},
    "now and then none": {"empty": 0.2},
    "newcomers": {"size": (300, 20, 30, 2, 30), "spurious": 25},
    "16 bits": {"small": np.int16},
    "8 bits": {"small": np.int8},
    "medium": {"size": (3000, 40, 60, 3, 10), "spurious": 5, "small": np.int8},
}


def made_up(size=USUAL, model="nsfa", missing=0.0, table="", spurious=2, **settings) -> Posterior:
    """Draws scattered about a common truth: factors come and go, in any order and sign."""
    n_features, n_samples, n_factors, chains, draws = size
    rng = np.random.default_rng(5)
    truth = rng.normal(size=(n_features, n_factors)) * (rng.random((n_features, n_factors)) < 0.2)
    if model in ("fa", "afa", "fok"):
        truth = rng.normal(size=truth.shape) ** 3
    often = rng.choice([1.0, 0.9, 0.6, 0.3], n_factors)
    X = rng.normal(size=(n_samples, n_factors)) @ truth.T + rng.normal(size=(n_samples, n_features))
    X[rng.random(X.shape) < missing] = np.nan
    if table == "sparse":
        X = sp.csr_array(X * (rng.random(X.shape) < 0.3))
    elif table == "flat":
        X[:, 3], X[:, 7] = 1.0, -2.0
        truth = np.delete(truth, [3, 7], axis=0)
    spec = preset(model) if model == "nsfa" else preset(model, n_components=n_factors)
    every = [
        [_draw(truth, often, spec, n_samples, spurious, rng, **settings) for _ in range(draws)] for _ in range(chains)
    ]
    return Posterior(observe(X), spec, tuple(map(tuple, every)), Length(10, draws), 0, True)


def _draw(truth, often, spec, n_samples, spurious, rng, empty=0.0, small=None, intercept=False) -> Draw:
    n_features, n_factors = truth.shape
    there = rng.permutation(n_factors)
    if spec.name == "nsfa":
        there = there[rng.random(n_factors) < often[there] * (rng.random() >= empty)]
    g = truth[:, there] * rng.choice([-1.0, 1.0], len(there))
    g *= rng.normal(1.0, 0.15, g.shape)
    if spec.pattern == "dense":
        g = g @ ortho_group.rvs(n_factors, random_state=rng)
    else:
        g[rng.random(g.shape) < 0.03] = 0.0
    if spec.name == "nsfa" and g.shape[1]:
        other = np.zeros((n_features, spurious))
        other[rng.integers(n_features, size=3 * spurious), np.arange(3 * spurious) % spurious] = 1.0
        g = np.hstack([g, other * rng.normal(size=other.shape)])
    active = g != 0
    value, step = g[active].astype(np.float32), None
    if small is not None:
        step = np.maximum(np.abs(g).max(axis=0, initial=0), 1e-9) / np.iinfo(small).max
        code = np.rint(g / step)
        value = np.where(code == 0, np.sign(g), code)[active].astype(small)
    scalars = {name: float(rng.gamma(4.0)) for name in (*SCALARS, *COVARIANCES, "covariance_norm")}
    scalars |= {"log_joint": float(rng.normal()), "log_evidence": float(rng.normal())}
    scalars |= {"n_factors": g.shape[1], "n_active": len(value), "loading_power": float(np.vdot(g, g))}
    scalars |= factor_counts(active.sum(axis=0))
    scores = None
    if spec.name == "bfrm":
        scores = rng.normal(size=(6, g.shape[1]))[rng.integers(6, size=n_samples)].astype(np.float32)
    means = 0.1 * rng.normal(size=n_features) if intercept else None
    precision, ones = rng.gamma(20.0, 0.05, n_features), np.ones(g.shape[1])
    return Draw(g.shape, np.packbits(active), value, step, precision, ones, scalars, scores, means)


def digest(posterior: Posterior) -> dict:
    """Numbers that tell any two consensuses apart, also if only their order differs."""
    found, aligned = posterior.consensus(), posterior.alignment()
    checks = {name: getattr(found.checks, name) for name in ("agreement", "rhat", "ess")}
    lists = [genes for k in range(found.n_factors) for genes in found.lists(k)]
    parts = {name: getattr(found, name) for name in ARRAYS} | checks
    parts["matched"] = np.concatenate([*aligned.factor, np.zeros(0)])
    parts["signs"] = np.concatenate([*aligned.sign, np.zeros(0)])
    parts["genes"] = np.concatenate([*lists, np.zeros(0)])
    parts["sizes"] = np.array([len(genes) for genes in lists])
    parts["probability"] = found.probability(0.2)
    verdict = [posterior.diagnostics().verdict, *found.checks.verdict, *found.summary()["top_features"]]
    return {"words": verdict} | {name: _numbers(part) for name, part in parts.items()}


def _numbers(part) -> list[float]:
    """How many, their sum, that of their squares, and one with weights that differ."""
    flat = np.asarray(part, dtype=float).ravel()
    weight = np.random.default_rng(len(flat)).random(len(flat))
    return [len(flat), flat.sum(), flat @ flat, weight @ flat]


if __name__ == "__main__":
    with threadpool_limits(1):
        found = {name: digest(made_up(**case)) for name, case in CASES.items()}
    FILE.write_text(json.dumps(found, indent=0) + "\n")
