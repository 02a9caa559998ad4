import numpy as np
import pytest

from nsfa import FA, NSFA, SPCA, compare
from nsfa.comparison import hide
from nsfa.datasets import make_sparse_factors
from nsfa.pl import compare as plot

SHORT = {"chains": 1, "tune": 60, "draws": 40}


@pytest.fixture(scope="module")
def table():
    return make_sparse_factors(40, 20, 3, density=0.3, missing=0.05, random_state=0).X


@pytest.fixture(scope="module")
def frame(table):
    models = {"NSFA": NSFA(**SHORT), "FA 1": FA(1, **SHORT), "SPCA": SPCA(3)}
    return compare(table, models, splits=2, n_jobs=1, progress=False)


def test_a_row_per_model_and_split_in_order(frame):
    assert list(frame.columns) == ["model", "split", "lppd", "rmse", "K", "seconds", "converged"]
    assert frame.model.tolist() == ["NSFA"] * 2 + ["FA 1"] * 2 + ["SPCA"] * 2
    assert frame.split.tolist() == [0, 1] * 3
    assert (frame.rmse > 0).all() and (frame.seconds > 0).all()
    assert frame.lppd[:4].notna().all() and frame.lppd[4:].isna().all()


def test_the_better_model_scores_better(frame):
    by_model = frame.groupby("model").rmse.mean()
    assert by_model["NSFA"] < by_model["FA 1"]
    assert frame.set_index("model").lppd["NSFA"].mean() > frame.set_index("model").lppd["FA 1"].mean()


def test_scores_do_not_depend_on_jobs(table, frame):
    again = compare(table, {"NSFA": NSFA(**SHORT)}, splits=2, n_jobs=2, progress=False)
    np.testing.assert_array_equal(again.lppd, frame.lppd[:2])
    assert again.lppd[0] != again.lppd[1]


def test_hidden_entries_were_seen_and_leave_two_in_every_row_and_column(table):
    mask = hide(table, 0.95, np.random.default_rng(0))
    left = ~np.isnan(table) & ~mask
    assert not (mask & np.isnan(table)).any()
    assert left.sum(axis=0).min() >= 2 and left.sum(axis=1).min() >= 2
    assert hide(table, 0.1, np.random.default_rng(0)).mean() == pytest.approx(0.095, abs=0.02)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"holdout": 1.5}, "holdout must lie between 0 and 1. Got 1.5"),
        ({"splits": 0}, "splits must be an int >= 1. Got 0"),
        ({"models": {"a": 3}}, "models must be estimators with fit and impute. Got 3 as 'a'"),
    ],
)
def test_bad_settings_get_one_sentence(table, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        compare(table, **settings)


def test_a_table_too_small_to_hide_anything(table):
    with pytest.raises(ValueError, match="holdout must leave entries to score .* table of shape .2, 20."):
        compare(np.nan_to_num(table[:2]), splits=1, n_jobs=1)


def test_box_plot_has_a_box_per_model(frame):
    ax = plot(frame, metric="rmse")
    assert [t.get_text() for t in ax.get_yticklabels()] == ["SPCA", "FA 1", "NSFA"]
    ax.figure.clf()
