import numpy as np
import pytest
from sklearn.decomposition import PCA

from nsfa import SPCA
from nsfa.datasets import make_sparse_factors
from nsfa.metrics import match_factors


def zou_example(rng, n=2000):
    """The synthetic example of Zou, Hastie & Tibshirani (2006), Section 5.2: two factors and a mixture of them."""
    v1, v2 = rng.normal(0, np.sqrt(290), n), rng.normal(0, np.sqrt(300), n)
    v3 = -0.3 * v1 + 0.925 * v2 + rng.normal(size=n)
    hidden = np.column_stack([v1] * 4 + [v2] * 4 + [v3] * 2)
    return hidden + rng.normal(size=hidden.shape)


@pytest.mark.parametrize("ridge", [1e-6, None])
def test_finds_the_two_factors_of_the_papers_example(ridge, rng):
    spca = SPCA(2, ridge=ridge, variance_share=0.75, scale=None).fit(zou_example(rng))
    support = [set(np.flatnonzero(c)) for c in spca.components_]
    assert {4, 5, 6, 7} <= support[0] <= {4, 5, 6, 7, 8, 9}
    assert support[1] == {0, 1, 2, 3}


@pytest.mark.parametrize("shape", [(200, 30), (40, 300)])
def test_each_component_keeps_the_wanted_share_of_its_ordinary_ones_variance(shape):
    data = make_sparse_factors(*shape, 4, density=0.25, random_state=1)
    spca = SPCA(4, variance_share=0.9).fit(data.X)
    X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    ordinary = PCA(4).fit(X).explained_variance_ * (len(X) - 1) / len(X)
    assert (spca.explained_variance_ >= 0.9 * ordinary - 1e-9).all()
    assert (spca.explained_variance_ <= 1.05 * ordinary[0]).all()
    assert (spca.components_ != 0).mean() < 0.9
    np.testing.assert_allclose(np.linalg.norm(spca.components_, axis=1), 1.0)


def test_a_smaller_share_gives_sparser_components():
    X = make_sparse_factors(100, 40, 3, density=0.3, random_state=2).X
    counts = [(SPCA(3, variance_share=s).fit(X).components_ != 0).sum() for s in (0.99, 0.9, 0.7)]
    assert counts[0] > counts[1] > counts[2]


def test_recovers_planted_blocks():
    data = make_sparse_factors(300, 30, 3, pattern=np.kron(np.eye(3), np.ones((10, 1))), snr=5, random_state=3)
    spca = SPCA(3, variance_share=0.8).fit(data.X)
    _, _, cosine = match_factors(data.loadings, spca.components_.T)
    assert np.abs(cosine).min() > 0.7


def test_transform_gives_the_scores(rng):
    X = rng.normal(size=(50, 8)) * 3 + 1
    spca = SPCA(2).fit(X)
    scores = spca.transform(X)
    np.testing.assert_allclose((scores**2).mean(axis=0), spca.explained_variance_)
    with pytest.raises(ValueError, match="X has 5 features, but SPCA is expecting 8"):
        spca.transform(X[:, :5])


@pytest.mark.parametrize(
    ("build", "X", "sentence"),
    [
        (lambda: SPCA(0), np.eye(4), "n_components must be an int >= 1. Got 0"),
        (lambda: SPCA(5), np.eye(4), "at most the rank of the centred table, 3. Got 5"),
        (lambda: SPCA(2, variance_share=1.5), np.eye(4), "variance_share must lie in"),
        (lambda: SPCA(2, ridge=-1.0), np.eye(4), "ridge must be positive"),
    ],
)
def test_bad_input_gets_one_sentence(build, X, sentence):
    with pytest.raises(ValueError, match=sentence):
        build().fit(X)
