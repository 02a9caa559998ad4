"""Tables with a known answer, small: nothing is found in noise, and what was planted is, from every start."""

import sys
from pathlib import Path

import numpy as np
import pytest

from nsfa.datasets import fetch_breast
from nsfa.schedule import PARALLEL_FROM

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import controls

FAST = {"tune": 200, "draws": 200, "thin": 1}
# more genes than samples, as many, fewer; and one so long that rows are swept in parallel
SHAPES = [(400, 20), (60, 60), (50, 200), (PARALLEL_FROM, 30)]


def fitted(control, **settings):
    row = controls.row("", control, 0, **{**FAST, **settings})
    return row, [float(value) for value in row["per start"].split()]


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_found_in_noise_from_any_start(shape):
    row, per_start = fitted(controls.noise(shape, 0))
    assert row["consensus"] == row["false"] == 0
    assert len(per_start) == 4 and max(per_start) <= 0.5


def test_the_former_priors_find_factors_in_noise():
    """So that the test above can fail."""
    row, per_start = fitted(controls.noise((400, 20), 0), prior="learned")
    assert min(per_start) > 5


@pytest.mark.parametrize("shape", [(200, 60), (50, 300), (PARALLEL_FROM, 60)])
def test_what_was_planted_is_found(shape):
    row, per_start = fitted(controls.planted(shape, 0))
    assert row["false"] == 0 and row["missed"] <= 1
    assert max(per_start) < 13


def test_units_of_the_genes_do_not_matter(rng):
    """Loadings count in units of the noise: quiet genes and loud ones are scaled or not, with the same factors."""
    control = controls.planted((100, 60), 0)
    scaled = control._replace(X=control.X * rng.lognormal(sigma=0.5, size=100))
    results = [fitted(scaled, scale=scale)[0] for scale in ("feature", "global")]
    assert [row["consensus"] for row in results] == [results[0]["consensus"]] * 2
    assert abs(results[0]["substantial"] - results[1]["substantial"]) < 0.7


def test_shuffled_genes_of_a_real_table_have_no_factors(data_dir):
    row, per_start = fitted(controls.shuffled(fetch_breast().X, 0))
    assert row["consensus"] == 0 and max(per_start) <= 0.5


def test_tables_are_what_they_say(rng):
    control = controls.planted((200, 30), 1)
    assert control.X.shape == (30, 200)
    np.testing.assert_array_equal((control.loadings != 0).sum(axis=0), 10)
    shuffled = controls.shuffled(control.X, 0)
    np.testing.assert_array_equal(np.sort(shuffled.X, axis=0), np.sort(control.X, axis=0))
    assert (shuffled.X != control.X).mean() > 0.9
    dense = controls.low_rank(rng.normal(size=(30, 50)), 0, rank=5)
    assert dense.X.shape == (30, 50) and dense.n_factors == 5
    names = [name for name, _ in controls.tables(0)]
    assert len(names) == len(set(names)) == 58
