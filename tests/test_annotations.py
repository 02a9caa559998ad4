"""Which annotations are labels, which are compared with the factors, and how."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import f_oneway, linregress

from nsfa.annotations import associate, is_measurement, left_out_note, sort_columns


@pytest.mark.parametrize(
    ("values", "number"),
    [
        (np.arange(110) % 11, False),
        (np.arange(110) % 11 + 1, False),
        (np.where(np.arange(110) % 5, np.arange(110) % 11, np.nan), False),
        (np.arange(400) % 40, False),
        (np.arange(110) % 11 + 40, True),
        (np.arange(110) % 11 * 3, True),
        (np.arange(33) % 11, True),
        (np.arange(30) % 3 + 5, False),
        (np.array([61, 62, 63, 70, 71, 80]), True),
        (np.arange(110) % 11 + 0.5, True),
        (np.arange(40) % 2 == 0, False),
        (np.array(["1", "2"] * 10), False),
        (np.full(20, np.nan), True),
        (np.array([1.0, 2.0, np.inf] * 10), False),
    ],
    ids=["clusters", "from 1", "holes", "forty", "ages", "gaps", "few samples each", "grades", "six ages", "halves",
         "yes or no", "text", "none", "infinite"],
)  # fmt: skip
def test_whole_numbers_may_be_labels(values, number):
    assert is_measurement(pd.Series(values)) == number


def test_ids_are_left_out_with_the_reason(rng):
    frame = pd.DataFrame(
        {
            "id": [f"p{i % 60}" for i in range(85)],
            "pair": [f"p{i % 42}" for i in range(85)],
            "age": rng.integers(20, 90, 85),
            "site": "here",
            "nothing": np.nan,
            "lists": [[i % 2] for i in range(85)],
        }
    )
    kept, left_out = sort_columns(frame)
    assert [name for name, _ in kept] == ["pair", "age"]
    assert left_out == ["id (60 different labels in 85 samples)", "site (all samples alike)", "nothing (no values)",
                        "lists (neither numbers nor labels)"]  # fmt: skip
    assert left_out_note(frame) == f"4 annotation(s) are not compared with the factors: {', '.join(left_out)}."
    assert left_out_note(frame[["pair", "age"]]) is None
    many = pd.DataFrame({f"c{i}": [1] * 9 for i in range(7)})
    assert left_out_note(many).endswith("c4 (all samples alike) and 2 more.")


def test_labels_are_one_way_analysis_of_variance(rng):
    scores, labels = rng.normal(size=(90, 3)), pd.Series(rng.integers(0, 20, 90)).astype(str)
    scores[:, 1] += labels.astype(int)
    labels[:5] = None
    found = associate(labels, scores)
    for k in range(3):
        groups = [scores[labels == name, k] for name in labels.dropna().unique()]
        assert found.p[k] == pytest.approx(f_oneway(*groups).pvalue)
    assert found.share[1] > 0.9 and found.p[1] < 1e-20 and max(found.share[[0, 2]]) < 0.25


def test_many_labels_explain_nothing_by_chance(rng):
    """R² of 42 labels in 85 samples is one half by chance; adjusted it is nothing."""
    labels = pd.Series([f"p{i % 42}" for i in range(85)])
    found = associate(labels, rng.normal(size=(85, 200)))
    assert found.share.mean() < 0.12 and np.median(found.share) < 0.05
    assert 0.01 <= (found.p < 0.05).mean() <= 0.1


def test_numbers_are_a_regression(rng):
    number, scores = pd.Series(rng.normal(size=40)), rng.normal(size=(40, 2))
    scores[:, 0] += number
    number[3] = np.nan
    found, there = associate(number, scores), number.notna()
    for k in range(2):
        line = linregress(number[there], scores[there, k])
        assert found.p[k] == pytest.approx(line.pvalue)
        assert found.share[k] == pytest.approx(max(1 - (1 - line.rvalue**2) * 38 / 37, 0))


@pytest.mark.parametrize("unit", [1e-16, 1e16, 1e-300])
def test_the_unit_of_a_number_does_not_matter(unit, rng):
    number, scores = pd.Series(rng.normal(size=40)), rng.normal(size=(40, 2)) + 3.0
    scores[:, 0] += number
    found, expected = associate(number * unit, scores), associate(number, scores)
    np.testing.assert_allclose(found.p, expected.p, rtol=1e-6)
    np.testing.assert_allclose(found.share, expected.share, rtol=1e-6)


def test_nothing_to_go_by_is_nothing_found():
    scores = np.ones((6, 2))
    same = associate(pd.Series(["a", "b"] * 3), scores)
    assert (same.share == 0).all() and (same.p == 1).all()
    few = associate(pd.Series(["a", "b", None, None, None, None]), scores)
    assert (few.share == 0).all() and (few.p == 1).all()
    exact = associate(pd.Series(["a", "b"] * 3), np.array([[0.0], [1.0]] * 3))
    assert exact.share[0] == 1 and exact.p[0] == 0
