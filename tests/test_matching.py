"""Frames whose columns are not those of the fit: matched by name; and frames that come back as frames."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from nsfa import SFA, SPCA
from nsfa.datasets import make_sparse_factors
from nsfa.matching import find_features

GENES = [f"gene{d}" for d in range(12)]


@pytest.fixture(scope="module")
def frame():
    table = make_sparse_factors(40, 12, 2, density=0.4, snr=20, missing=0.05, random_state=0).X
    return pd.DataFrame(table, columns=GENES, index=[f"s{n}" for n in range(40)])


@pytest.fixture(scope="module", params=["SFA", "posterior", "SPCA"])
def model(request, frame):
    if request.param == "SPCA":
        return SPCA(2).fit(frame)
    fitted = SFA(2, chains=2, tune=60, draws=30, random_state=3).fit(frame)
    return fitted if request.param == "SFA" else fitted.posterior_


def test_the_order_of_columns_does_not_matter(model, frame):
    turned = frame[GENES[::-1]]
    np.testing.assert_array_equal(model.transform(turned), model.transform(frame))
    pd.testing.assert_frame_equal(model.impute(turned), model.impute(frame)[GENES[::-1]])
    if hasattr(model, "score_samples"):
        np.testing.assert_array_equal(model.score_samples(turned), model.score_samples(frame))


def test_absent_columns_are_missing_and_unknown_ones_ignored(model, frame):
    known = [*GENES[:3], *GENES[5:]]
    other = frame.assign(batch="a", depth=1.0)[["batch", *known, "depth"]]
    with pytest.warns(UserWarning) as caught:
        scores = model.transform(other)
    assert {w.filename for w in caught} == {__file__}
    assert [str(w.message) for w in caught] == [
        "2 of the 12 features of the fit are not in X and count as missing: 'gene3', 'gene4'.",
        "2 of the 12 features of X are unknown to the fit and ignored: 'batch', 'depth'.",
    ]
    np.testing.assert_array_equal(scores, model.transform(frame.assign(gene3=np.nan, gene4=np.nan)))
    with pytest.warns(UserWarning, match="unknown|missing"):
        filled = model.impute(other)
    assert list(filled) == list(other) and filled.index.equals(other.index)
    pd.testing.assert_frame_equal(filled[["batch", "depth"]], other[["batch", "depth"]])
    expected = model.impute(frame.assign(gene3=np.nan, gene4=np.nan))[known]
    pd.testing.assert_frame_equal(filled[known], expected)
    assert not expected.isna().to_numpy().any() and other[known].isna().to_numpy().any()


def test_nothing_in_common_is_an_error(model, frame):
    with pytest.raises(ValueError, match="X must have features in common with the fit. Got none: 'x0', ... in X"):
        model.transform(frame.set_axis([f"x{d}" for d in range(12)], axis=1))


def test_numbers_by_default_are_no_names(frame):
    assert find_features(pd.DataFrame(frame.to_numpy()), tuple(GENES)) is None
    assert find_features(frame, tuple(map(str, range(12)))) is None
    assert find_features(pd.DataFrame({7: [0.0], 5: [1.0]}), ("5", "7")).tolist() == [1, 0]
    # a part that keeps its numbers is known by them
    part = pd.DataFrame(frame.to_numpy()).iloc[:, 2:]
    with pytest.warns(UserWarning, match="2 of the 12 features of the fit are not in X"):
        assert find_features(part, tuple(map(str, range(12)))).tolist() == [-1, -1, *range(10)]
    model = SPCA(2).fit(frame.to_numpy())
    with pytest.warns(UserWarning, match="fitted without feature names"):
        assert model.transform(frame).shape == (40, 2)


def test_fewer_columns_with_numbers_by_default_are_refused(frame):
    """They would count as the first features, whichever they are."""
    table = pd.DataFrame(frame.to_numpy())
    short = SFA(2, chains=1, tune=20, draws=10, random_state=3).fit(table)
    for model in (SPCA(2).fit(table), short, short.posterior_):
        with pytest.raises(ValueError, match="10 features"):
            model.transform(pd.DataFrame(frame.to_numpy()[:, 2:]))


def test_imputed_intervals_are_frames(frame):
    model = SFA(2, chains=2, tune=60, draws=30, random_state=3).fit(frame)
    filled, lower, upper = model.impute(frame, level=0.9)
    arrays = model.posterior_.impute(frame.to_numpy(), level=0.9)
    for part, array in zip((filled, lower, upper), arrays, strict=True):
        pd.testing.assert_frame_equal(part, pd.DataFrame(array, index=frame.index, columns=GENES))
    assert frame.isna().to_numpy().any()


def test_polars_frames_come_back_as_such(frame):
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({name: frame[name].to_numpy() for name in GENES})
    model = SPCA(2).fit(frame)
    other = table.select([*GENES[:0:-1], polars.lit("a").alias("batch")])
    with pytest.warns(UserWarning, match="unknown|missing"):
        filled = model.impute(other)
    assert type(filled) is polars.DataFrame and filled.columns == other.columns
    expected = model.impute(frame.assign(gene0=np.nan))[GENES[:0:-1]]
    np.testing.assert_array_equal(filled.drop("batch").to_numpy(), expected.to_numpy())


def test_sparse_tables_with_names(frame):
    """As read from a file: an array whose attribute ``columns`` has the names."""
    dense = frame.fillna(0.0)
    model = SFA(2, chains=2, tune=60, draws=30, random_state=3).fit(dense)
    for kept in (GENES[::-1], GENES[:0:-1]):
        table = sp.csr_array(dense[kept].to_numpy())
        table.columns = pd.Index(kept)
        expected = dense if len(kept) == 12 else dense.assign(gene0=np.nan)
        with pytest.warns(UserWarning, match="missing") if len(kept) < 12 else nullcontext():
            scores = model.transform(table)
        np.testing.assert_allclose(scores, model.transform(expected), atol=1e-9)
    with pytest.raises(ValueError, match="X must be dense here"):
        model.impute(table)
