import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from nsfa.data import observe


def table(rng, n=6, d=5):
    return rng.normal(size=(n, d)) * 3 + 2


def test_centres_and_scales_on_observed_entries(rng):
    X = table(rng)
    X[0, 1] = X[3, 1] = X[2, 4] = np.nan
    data = observe(X)
    assert data.shape == (5, 6)
    np.testing.assert_allclose(data.center, np.nanmean(X, axis=0))
    np.testing.assert_allclose(data.scale, np.nanstd(X, axis=0))
    back = data.values.T * data.scale + data.center
    seen = ~np.isnan(X)
    np.testing.assert_allclose(back[seen], X[seen])
    assert (data.values.T[~seen] == 0).all()
    np.testing.assert_allclose(data.count, seen.sum(axis=0))
    np.testing.assert_allclose(data.power, data.count)


def test_global_and_no_scaling(rng):
    X = table(rng)
    assert len(set(observe(X, scale="global").scale)) == 1
    assert (observe(X, scale=None).scale == 1).all()


def test_the_users_table_is_not_touched(rng):
    X = table(rng)
    X[0, 0] = np.nan
    before = X.copy()
    observe(X)
    np.testing.assert_array_equal(X, before)


def test_holes_list_the_smaller_side(rng):
    X = table(rng, 10, 3)
    X[:2, 0] = np.nan
    X[:8, 1] = np.nan
    holes = observe(X).feature_holes
    np.testing.assert_array_equal(holes.rebuild, [False, True, False])
    np.testing.assert_array_equal(holes.entry, [0, 1, 8, 9])
    np.testing.assert_array_equal(holes.pointer, [0, 2, 4, 4])


def test_samples_with_the_same_holes_share_a_pattern(rng):
    X = table(rng, 6, 4)
    X[[1, 4], 2] = np.nan
    data = observe(X)
    assert len(data.pattern_holes.rebuild) == 2
    assert data.pattern[1] == data.pattern[4] != data.pattern[0]


@pytest.mark.parametrize("factor", [1e-200, 0.01, 100.0, 1e130])
def test_scaling_the_table_changes_nothing_but_the_units(factor, rng):
    X = table(rng)
    plain, scaled = observe(X), observe(X * factor)
    np.testing.assert_allclose(plain.values, scaled.values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scaled.scale, factor * plain.scale)


def test_names_come_from_the_frame(rng):
    frame = pd.DataFrame(table(rng), columns=list("abcde"))
    assert observe(frame).feature_names == tuple("abcde")


def test_constant_features_are_left_out_with_a_warning_that_names_them(rng):
    frame = pd.DataFrame(table(rng), columns=list("abcde"))
    frame["c"] = 7.0
    with pytest.warns(UserWarning, match=r"1 feature\(s\) do not vary and get zero loadings: feature 'c'"):
        data = observe(frame)
    assert data.shape == (4, 6)
    np.testing.assert_array_equal(data.kept, [0, 1, 3, 4])
    sparse = sp.csr_array(np.where(np.arange(5) == 2, 0.0, table(rng)))
    with pytest.warns(UserWarning, match="feature 2"):
        assert observe(sparse).shape == (4, 6)


def text_frame():
    return pd.DataFrame({"a": [1.0, 2.0], "b": ["low", "high"]})


BAD = [
    (lambda X: X[0], r"X must be a 2-D table, samples × features. Got an array of shape \(5,\)"),
    (lambda X: X[None], "X must be a 2-D table"),
    (lambda X: None, "Got a NoneType"),
    (lambda X: "table.csv", "Got a str"),
    (lambda X: [[1, 2], [3]], "rows have equal lengths"),
    (lambda X: X.astype("M8[s]"), "nor are dates"),
    (lambda X: 1e150 * X, "X must be smaller than 1e140"),
    (lambda X: sp.coo_array(np.arange(4.0)), "2-D table"),
    (lambda X: text_frame(), r"X must hold numbers.* Got 'low' at row 0, column 1"),
    (lambda X: X.astype(complex), "X must hold real numbers. Complex data not supported"),
    (lambda X: np.where(X[1, 2] == X, np.inf, X), r"X must be finite or NaN.*Got inf at sample 1, feature 2 \(1 in all\)"),
    (lambda X: np.where(X[1, 2] == X, -np.inf, X), "Got -inf at sample 1, feature 2"),
    (lambda X: X[:1], r"at least 2 samples and 2 features. Got 1 sample\(s\) and 5 feature\(s\)"),
    (lambda X: X[:, :1], r"at least 2 samples and 2 features"),
    (lambda X: np.where(np.arange(5) == 3, np.nan, X), r"Every feature must have an observed value. Got only NaN in feature 3"),
    (lambda X: np.where(np.arange(6)[:, None] == 3, np.nan, X), "Every sample must have an observed value. Got only NaN in sample 3"),
    (lambda X: sp.csr_array(np.where(X[0, 0] == X, np.nan, X)), "A sparse X must be finite"),
    (lambda X: sp.csr_array(X.astype(complex)), "X must hold real numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "sentence"), BAD)
def test_bad_tables_get_one_sentence(spoil, sentence, rng):
    with pytest.raises(ValueError, match=sentence) as caught:
        observe(spoil(table(rng)))
    assert "\n" not in str(caught.value)


def test_at_least_two_features_must_vary():
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="At least 2 features must vary. Got 1"):
        observe(np.column_stack([np.arange(4.0), np.ones(4)]))


def test_unknown_scale_is_named(rng):
    with pytest.raises(ValueError, match="scale must be 'feature', 'global' or None. Got 'unit'"):
        observe(table(rng), scale="unit")


def test_nullable_columns_are_holes(rng):
    frame = pd.DataFrame(table(rng)).astype("Float64")
    frame.iloc[1, 2] = pd.NA
    assert observe(frame).missing[2, 1]


def test_features_left_out_do_not_count_in_the_global_scale(rng):
    X = table(rng)
    with pytest.warns(UserWarning, match="do not vary"):
        padded = observe(np.column_stack([X, np.ones((len(X), 3))]), scale="global")
    assert padded.scale[0] == pytest.approx(observe(X, scale="global").scale[0])


@pytest.mark.parametrize("factor", [1e60, 1e-60])
def test_extreme_units_need_scaling(factor, rng):
    with pytest.raises(ValueError, match="use scale='feature' or 'global'"):
        observe(factor * table(rng), scale=None)


@pytest.mark.parametrize("factor", [1e-200, 1e130])
def test_sparse_tables_may_have_any_units(factor, rng):
    X = np.where(rng.random((20, 5)) < 0.5, 0.0, rng.normal(size=(20, 5)))
    plain, scaled = observe(sp.csr_array(X)), observe(sp.csr_array(factor * X))
    np.testing.assert_allclose(plain.values.toarray(), scaled.values.toarray(), rtol=1e-10)


def test_masked_entries_are_holes(rng):
    X = table(rng)
    masked = np.ma.masked_array(np.where(X > 4, -999.0, X), mask=X > 4)
    data = observe(masked)
    np.testing.assert_array_equal(data.missing, (X > 4).T)


def test_sparse_tables_far_from_zero_keep_their_variance(rng):
    X = rng.normal(size=(50, 4)) + 1e7
    np.testing.assert_allclose(observe(sp.csr_array(X)).scale, observe(X).scale, rtol=1e-8)


def test_features_of_the_same_name_are_named():
    import pandas as pd

    from nsfa import FA

    twins = pd.DataFrame(np.arange(12.0).reshape(4, 3) ** 2, columns=["a", "b", "a"])
    with pytest.raises(ValueError, match="Features must have different names. Got 'a' 2 times; rename them."):
        observe(twins)
    model = FA(1, chains=1, tune=2, draws=4, random_state=0).fit(twins.to_numpy())
    with pytest.raises(ValueError, match="Features must have different names"):
        model.transform(twins)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array])
def test_single_precision_is_of_the_values_alone(kind, rng):
    X = rng.normal(size=(60, 7)) * (rng.random((60, 7)) < 0.7) * np.logspace(-30, 45, 7)
    double, single = observe(kind(X)), observe(kind(X), dtype="float32")
    assert double.values.dtype == np.float64 and single.values.dtype == np.float32
    for name in ("center", "scale", "count", "kept"):
        assert np.array_equal(getattr(double, name), getattr(single, name))
    assert single.power.dtype == single.total.dtype == np.float64
    np.testing.assert_allclose(double.power, single.power, rtol=1e-6)
    a, b = (d.values if d.offset is None else d.values.toarray() for d in (double, single))
    np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.coo_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_any_sparse_table_is_as_the_dense_one_and_left_alone(kind, dtype, rng):
    X = np.where(rng.random((40, 9)) < 0.3, rng.integers(1, 9, (40, 9)), 0).astype(dtype)
    X[:, 4] = 0
    table = kind(X)
    with pytest.warns(UserWarning, match="1 feature"):
        dense, sparse = observe(X), observe(table)
    np.testing.assert_allclose(sparse.values.toarray() - sparse.offset[:, None], dense.values, atol=1e-12)
    np.testing.assert_allclose(sparse.power, dense.power, rtol=1e-12)
    np.testing.assert_allclose(sparse.scale, dense.scale, rtol=1e-12)
    assert np.array_equal(table.toarray(), X) and table.dtype == dtype


def test_sparse_features_that_do_not_vary_but_are_not_zero_go(rng):
    X = np.where(rng.random((40, 5)) < 0.3, 1.0, 0.0)
    X[:, 2] = 7.0
    with pytest.warns(UserWarning, match="1 feature"):
        data = observe(sp.csr_array(X))
    assert data.shape == (4, 40) and list(data.kept) == [0, 1, 3, 4]


def test_entries_given_twice_are_added():
    row, column, value = [0, 0, 1, 2, 3], [0, 0, 0, 1, 1], [1.0, 2.0, 5.0, 1.0, 4.0]
    table = sp.coo_array((value, (row, column)), shape=(4, 2))
    data = observe(table)
    np.testing.assert_allclose(data.center, table.toarray().mean(axis=0))
    assert data.values.has_sorted_indices and data.values.nnz == 4


@pytest.mark.parametrize("dtype", ["float16", np.float32, None])
def test_unknown_precision_is_named(dtype, rng):
    with pytest.raises(ValueError, match="dtype must be 'float64' or 'float32'"):
        observe(table(rng), dtype=dtype)
