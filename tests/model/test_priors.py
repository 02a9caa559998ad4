import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from nsfa.model import priors


@pytest.mark.parametrize(("alpha", "beta"), [(1.5, 1.0), (2.0, 0.4), (1.0, 3.0)])
def test_number_of_factors_is_poisson(alpha, beta, rng):
    n_features = 12
    counts = np.array([priors.draw_buffet(rng, n_features, alpha, beta).shape[1] for _ in range(3000)])
    mean = alpha * priors.buffet_total(n_features, beta)
    assert mean == pytest.approx(alpha * sum(beta / (beta + j) for j in range(n_features)))
    assert abs(counts.mean() - mean) < 4.5 * np.sqrt(mean / len(counts))
    assert counts.var() == pytest.approx(mean, rel=0.12)


def test_every_feature_has_poisson_alpha_factors_and_every_column_is_used(rng):
    draws = [priors.draw_buffet(rng, 8, 2.0, 1.7) for _ in range(3000)]
    assert all(d.any(axis=0).all() for d in draws)
    per_feature = np.array([d.sum(axis=1) for d in draws]).mean(axis=0)
    assert np.abs(per_feature - 2.0).max() < 5 * np.sqrt(2.0 / 3000)


def test_buffet_probability_sums_to_one():
    """Over all patterns of 2 features: a, b, c columns of the kinds (1,0), (0,1), (1,1), in any order."""
    alpha, beta, total = 0.7, 1.6, []
    for a, b, c in itertools.product(range(12), repeat=3):
        usage = np.array([1] * (a + b) + [2] * c)
        orders = np.exp(priors.gammaln(a + b + c + 1) - sum(priors.gammaln(n + 1) for n in (a, b, c)))
        total.append(priors.buffet_log_probability(usage, 2, alpha, beta) + np.log(orders))
    assert logsumexp(total) == pytest.approx(0.0, abs=1e-6)


def test_finite_probability_sums_to_one_and_tends_to_the_buffet():
    alpha, beta, n_features, k = 1.3, 0.8, 3, 2
    columns = list(itertools.product([0, 1], repeat=n_features))
    total = [
        priors.finite_log_probability(np.array([sum(x), sum(y)]), n_features, alpha, beta)
        for x, y in itertools.product(columns, repeat=k)
    ]
    assert logsumexp(total) == pytest.approx(0.0, abs=1e-10)
    usage, many = np.array([2, 1]), 200_000
    padded = np.concatenate([usage, np.zeros(many - 2, int)])
    # the finite model's columns have places: many (many − 1) of them for the two in use
    finite = priors.finite_log_probability(padded, n_features, alpha, beta) + np.log(many * (many - 1.0)) - np.log(2)
    assert finite == pytest.approx(priors.buffet_log_probability(usage, n_features, alpha, beta), abs=1e-4)


def test_partition_probability_sums_to_one():
    partitions = [[4], [3, 1], [2, 2], [2, 1, 1], [1, 1, 1, 1]]
    ways = [1, 4, 3, 6, 1]
    total = [priors.urn_log_probability(np.array(p), 0.9) + np.log(w) for p, w in zip(partitions, ways, strict=True)]
    assert logsumexp(total) == pytest.approx(0.0, abs=1e-10)


def test_probability_of_kinds_is_that_of_drawn_shares(rng):
    concentration, number = np.array([2.0, 0.4, 1.1]), np.array([[3.0, 1.0, 2.0], [0.0, 0.0, 0.0], [1.0, 0.0, 4.0]])
    share = priors.draw_shares(rng, np.tile(concentration, (400_000, 1)))
    mean = [np.prod(share**row, axis=1).mean() for row in number]
    assert priors.kinds_log_probability(number, concentration) == pytest.approx(np.log(mean).sum(), abs=0.02)


def test_gamma_is_read_as_shape_and_rate(rng):
    assert priors.gamma_log_density(0.7, 3.0, 2.0) == pytest.approx(stats.gamma(3.0, scale=0.5).logpdf(0.7))
    draws = priors.draw_gamma(rng, 3.0, 2.0, 20_000)
    assert stats.kstest(draws, stats.gamma(3.0, scale=0.5).cdf).pvalue > 1e-3
    assert (priors.draw_gamma(rng, 1e-8, 1.0, 1000) > 0).all()


def test_known_factors_have_their_places_and_are_there_whatever_alpha_is():
    usage, n, alpha, beta = np.array([3, 1, 2, 5]), 6, 1.7, 0.8
    plain, known = (priors.buffet_log_probability(usage, n, alpha, beta, k) for k in (0, 1))
    # 4! orders of four columns become 3! of three, and (αβ)⁴ becomes (αβ)³
    assert known - plain == pytest.approx(np.log(4) - np.log(alpha * beta))
