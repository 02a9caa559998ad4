"""What chains of every model draw, a few numbers per sweep: whatever is built anew, they must not change.

``python tests/digests.py`` writes ``tests/data/digests.json`` from the code as it is: only where draws are meant to
change. ``tests/test_digests.py`` compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from nsfa.chain import Chain, chain_generator
from nsfa.data import Observed, observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.model import Priors, preset
from nsfa.moves.info import Info
from nsfa.samples import Samples

FILE = Path(__file__).parent / "data" / "digests.json"
SWEEPS = 10
NUMBERS = ("n_factors", "n_active", "log_joint", "log_evidence", "concentration", "covariance_1")
# samples and features
SMALL, LONG = (30, 24), (40, 3001)
MODELS = {
    "nsfa": {},
    "nsfa paper": {"priors": Priors.paper()},
    "nsfa learned": {"priors": Priors.learned(), "noise": "shared", "stickiness": "infer"},
    "nsfa plain": {"moves": "plain", "sweep": "parallel"},
    "nsfa element": {"precision": "element"},
    "nsfa isotropic": {"precision": "shared", "noise": "isotropic"},
    "sfa": {"n_components": 4},
    "fa": {"n_components": 3},
    "afa": {"n_components": 3, "noise": "shared"},
    "fok": {"n_components": 3},
    "bfrm": {"n_components": 3},
}


def table(shape: tuple[int, int], kind: str) -> Observed:
    """A simulated table: complete, with holes, or sparse."""
    data = make_sparse_factors(*shape, n_components=4, density=0.3, missing=0.2 * (kind == "holes"), random_state=1)
    if kind == "sparse":
        return observe(sp.csr_array(data.X * (np.random.default_rng(2).random(shape) < 0.3)))
    return observe(data.X)


def cases() -> Iterator[tuple[str, Observed, str, dict, int, int]]:
    """Name, table, model, settings, factors at the start and warm-up of every case."""
    for kind in ("complete", "holes", "sparse"):
        small, long = table(SMALL, kind), table(LONG, kind)
        for name, settings in MODELS.items():
            yield f"{name}, {kind}", small, name.split()[0], settings, 6 * (name[0] == "n"), 0
        yield f"nsfa annealed, {kind}", small, "nsfa", {}, 0, 100
        yield f"nsfa long, {kind}", long, "nsfa", {}, 5, 40
        yield f"sfa long, {kind}", long, "sfa", {"n_components": 4}, 0, 40


def digest(data: Observed, model: str, settings: dict, start: int, tune: int) -> list[list[float]]:
    """The numbers (sweeps, numbers) of a short chain."""
    chain = Chain(Samples(data, get_kernels()), preset(model, **settings), chain_generator(7, 0), start, tune)
    out = []
    for _ in range(SWEEPS):
        chain.sweep()
        drawn = chain.draw(Info(0, 0), 0.0).scalars
        out.append([float(drawn[name]) for name in NUMBERS])
    return out


if __name__ == "__main__":
    with threadpool_limits(1):
        found = {name: digest(*case) for name, *case in cases()}
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(found, indent=0) + "\n")
