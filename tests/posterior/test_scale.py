"""The consensus is what it was when its digests were made: from dense draws side by side, and from sparse ones."""

import json

import numpy as np
import pytest
from consensus_digests import CASES, FILE, digest, made_up

from nsfa.posterior import align, build, columns

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
