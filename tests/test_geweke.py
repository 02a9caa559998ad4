"""Joint-distribution tests of all six samplers, every hyperparameter drawn and entries missing.

The bound: about twenty correlated statistics per run, of forty chains each, and of a hundred and sixty where the largest
|z| passes it. The mutants in test_mutants.py are caught by the same function at the same bound.
"""

from dataclasses import replace

import numpy as np
import pytest

import geweke
from geweke import BOUND
from nsfa import samples, schedule
from nsfa.kernels import modules
from nsfa.moves import module, tilt

SWEEPS = 4_000

ALONE = ("update_buffet_collapsed", "update_noise_diagonal", "update_births", "update_column")
PAIRED = ("update_tilt_buffet", "update_rotation_buffet", "update_doublet")
FIXED = ("update_finite_collapsed", "update_noise_diagonal", "update_column")
DOUBLET = ("update_marginal", "update_tilt_buffet", "update_rotation_buffet", "update_split", *ALONE)
TILT = ("update_marginal", "update_rotation_buffet", "update_doublet", *ALONE)
ROTATION = ("update_marginal", "update_tilt_buffet", "update_doublet", *ALONE)
COLUMN = ("update_marginal", "update_split", *PAIRED, *ALONE[:-1])
COLUMN_FIXED = ("update_marginal", "update_tilt_finite", "update_rotation_finite", *FIXED[:-1])
COLUMNS_ALONE = (COLUMN, COLUMN_FIXED)

# of counts and of zeros and ones the means are not a matter of where the scale begins
MEANS = ("update_mean_scores", "update_intercept", "update_carried_intercepts")
# of what changes loadings and scores, only what takes log rates along
CARRIED = (*MEANS, "update_marginal", "update_tilt_finite", "update_rotation_finite", *FIXED)
CARRIED = (*CARRIED, "update_scores", "update_scale", "update_shear", "update_latent")

# what changes scores but not their units
SCORES = ("update_scores", "update_mean_scores", "update_scale", "update_shear")

# the paper's moves, scale and shear, and rows with the scores integrated out
PLAIN = {"sweep": "collapsed", "noise": "shared", "without": (*PAIRED, "update_column")}

RUNS = {
    "nsfa collapsed": ("nsfa", PLAIN),
    "nsfa parallel": ("nsfa", {"sweep": "parallel", "stickiness": "infer"}),
    "nsfa two-parameter, eager births": (
        "nsfa",
        {"stickiness": "infer", "birth_scale": 4.0, "spike": 0.3, "priors": geweke.ABSOLUTE},
    ),
    "nsfa per-element slab": ("nsfa", {"precision": "element"}),
    "nsfa shared slab, prior proposal": ("nsfa", {"precision": "shared", "spike": 0.0, "noise": "isotropic"}),
    # the marginal sweep alone: the others would cover its tracks
    "nsfa marginal": ("nsfa", {"noise": "shared", "without": ALONE}),
    # splits of the noise alone make and remove factors
    "nsfa split": ("nsfa", {"without": ("update_births",)}),
    "nsfa split, shared slab": ("nsfa", {"precision": "shared", "noise": "shared", "without": ("update_births",)}),
    "nsfa split, absolute slab": (
        "nsfa",
        {"sweeps": 4 * SWEEPS, "without": ("update_births",), "priors": geweke.ABSOLUTE},
    ),
    # factors of two features alone come and go
    "nsfa doublet": ("nsfa", {"noise": "shared", "without": DOUBLET}),
    "nsfa doublet, shared slab": ("nsfa", {"precision": "shared", "stickiness": "infer", "without": DOUBLET}),
    "nsfa doublet, absolute slab": ("nsfa", {"without": DOUBLET, "priors": geweke.ABSOLUTE}),
    # tilts alone change the pattern of factors that several features use
    "nsfa tilt": ("nsfa", {"without": TILT}),
    # so do rotations
    "nsfa rotation": ("nsfa", {"without": ROTATION}),
    "sfa rotation": ("sfa", {"without": ("update_marginal", "update_tilt_finite", *FIXED), "priors": geweke.ABSOLUTE}),
    # rotations in units of the slabs must know of the scores' prior, which drawing them anew would cover up
    "sfa rotation, scores held": ("sfa", {"without": ("update_marginal", "update_tilt_finite", *FIXED, *SCORES)}),
    "sfa tilt": ("sfa", {"without": ("update_marginal", "update_rotation_finite", *FIXED)}),
    # whole columns alone change the pattern
    "nsfa column": ("nsfa", {"stickiness": "infer", "without": COLUMN}),
    "nsfa column, shared slab": ("nsfa", {"precision": "shared", "without": COLUMN, "priors": geweke.ABSOLUTE}),
    "sfa column": ("sfa", {"without": COLUMN_FIXED}),
    "sfa collapsed": ("sfa", {"sweep": "collapsed", "stickiness": "infer"}),
    "sfa parallel": ("sfa", {"sweep": "parallel", "noise": "shared"}),
    "fa": ("fa", {}),
    "afa": ("afa", {"noise": "shared"}),
    "afa, absolute slab": ("afa", {"priors": geweke.ABSOLUTE}),
    # means act on the sweep after the one that draws them
    "afa, means": ("afa", {"repeat": 2}),
    "fok": ("fok", {"noise": "isotropic"}),
    "bfrm": ("bfrm", {}),
    # values are drawn last, and act on the sweep after
    "robust": ("nsfa", {"noise": "robust", "repeat": 2, "without": (*PAIRED, "update_column")}),
    "robust marginal": ("nsfa", {"noise": "robust", "repeat": 2, "without": ALONE}),
    # between that sweep and the next outliers, where noise and deviations still are what it made of them
    "robust marginal, outliers held": ("nsfa", {"noise": "robust", "without": (*ALONE, "update_latent")}),
    "robust doublet": ("nsfa", {"noise": "robust", "repeat": 2, "without": DOUBLET, "priors": geweke.ABSOLUTE}),
    "counts": ("nsfa", {"likelihood": "counts", "repeat": 2, "without": MEANS}),
    "counts, noise with the values": (
        "nsfa",
        {"likelihood": "counts", "repeat": 2, "without": (*MEANS, *ALONE, "update_marginal")},
    ),
    "counts, log rates taken along": ("sfa", {"likelihood": "counts", "without": CARRIED}),
    "counts, log rates taken along, absolute slab": (
        "sfa",
        {"likelihood": "counts", "without": CARRIED, "priors": replace(geweke.PRIORS, relative=False)},
    ),
    "binary, dense": ("afa", {"likelihood": "binary", "repeat": 2, "without": MEANS}),
}


@pytest.mark.parametrize("run", RUNS)
def test_two_simulators_agree(run, monkeypatch):
    name, changes = RUNS[run]
    if "tilt" in run:
        many_tilts(monkeypatch)
    if changes.get("without") in COLUMNS_ALONE:
        columns_everywhere(monkeypatch)
    result = geweke.run(name, **{"sweeps": SWEEPS, **changes})
    assert result.worst < BOUND, str(result)


# births and deaths of factors of several features alone; without rows there are no residuals for the noise
MODULE = ("update_tilt_buffet", "update_rotation_buffet", "update_doublet", "update_split", "update_buffet_parallel")
MODULES = {
    "nsfa": {"noise": "shared", "stickiness": "infer", "without": (*MODULE, *ALONE)},
    "robust": {"noise": "robust", "repeat": 2, "without": (*MODULE, *ALONE)},
}


@pytest.mark.parametrize("run", MODULES)
def test_two_simulators_agree_on_factors_of_many_features(run, monkeypatch):
    many_modules(monkeypatch)
    result = geweke.run("nsfa", SWEEPS, **MODULES[run])
    assert result.worst < BOUND, str(result)


KNOWN = np.array([[1.5], [-1.0], [0.7], [-0.5], [0.0]])
ONLY_ROWS = {"noise": "shared", "without": ("update_marginal", "update_column", *PAIRED)}
WITH_KNOWLEDGE = {
    "nsfa collapsed": ("nsfa", {"sweep": "collapsed", **ONLY_ROWS}),
    "nsfa parallel": ("nsfa", {"sweep": "parallel", **ONLY_ROWS}),
    "nsfa marginal": ("nsfa", {"noise": "shared", "without": (*ALONE, "update_tilt_buffet", "update_rotation_buffet")}),
    "nsfa tilt": ("nsfa", {"without": TILT}),
    "nsfa rotation": ("nsfa", {"without": ROTATION}),
    "nsfa column": ("nsfa", {"without": COLUMN}),
    "sfa": ("sfa", {"sweep": "parallel"}),
}


@pytest.mark.parametrize("run", WITH_KNOWLEDGE)
def test_two_simulators_agree_on_what_is_known_of_a_factor(run, monkeypatch):
    name, changes = WITH_KNOWLEDGE[run]
    if changes.get("without") in COLUMNS_ALONE:
        columns_everywhere(monkeypatch)
    result = geweke.run(name, SWEEPS, known=KNOWN, **changes)
    assert result.worst < BOUND, str(result)


def many_tilts(patch):
    """A tilt changes little: as many per sweep as it takes to catch wrong ones (test_mutants)."""
    patch.setattr(tilt, "PAIRS", 50)


def columns_everywhere(patch):
    """Whole columns in tables of any number of features."""
    patch.setattr(schedule, "COLUMNS_FROM", 0)


def many_modules(patch):
    """As in tables with many more features than samples, where two features and two samples are enough."""
    patch.setattr(schedule, "PARALLEL_FROM", 0)
    patch.setattr(samples, "MANY", 0)
    patch.setattr(samples, "LEAST_SAMPLES", 0)
    patch.setattr(module, "ATTEMPTS", 5)
    patch.setattr(modules, "LEAST_USERS", 2)
    patch.setattr(modules, "LEAST_SPREAD", 1.5)


@pytest.mark.parametrize("name", ["nsfa", "bfrm"])
@pytest.mark.usefixtures("either_size")
def test_two_simulators_of_complete_data_agree(name):
    """The compiled kernels; that the reference backend's chains are the same is seen in test_chain.py."""
    assert geweke.run(name, SWEEPS, missing=False).worst < BOUND


PASSING = {
    "nsfa": ("nsfa", {"repeat": 2}),
    "nsfa pairs": ("nsfa", {"without": ALONE}),
    "sfa parallel": ("sfa", {"sweep": "parallel", "noise": "shared"}),
    "afa": ("afa", {"repeat": 2}),
}


@pytest.mark.parametrize("run", PASSING)
def test_two_simulators_of_scores_that_pass_agree(run):
    name, changes = PASSING[run]
    result = geweke.run(name, SWEEPS, kind=geweke.Passing, **changes)
    assert result.worst < BOUND, str(result)


SPARSE = {
    "nsfa": ("nsfa", {"noise": "shared"}),
    # pairs of factors alone change the pattern
    "nsfa pairs": ("nsfa", {"without": ALONE}),
    "sfa pairs": ("sfa", {"without": FIXED}),
}


@pytest.mark.parametrize("run", SPARSE)
def test_two_simulators_of_a_sparse_table_agree(run, monkeypatch):
    name, changes = SPARSE[run]
    many_tilts(monkeypatch)
    result = geweke.run(name, SWEEPS, sparse=True, **changes)
    assert result.worst < BOUND, str(result)
