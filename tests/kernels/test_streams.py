import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from nsfa.kernels import streams
from nsfa.kernels.birth_kernels import gamma_draw
from nsfa.kernels.compiled import fill_normals, fill_uniform_pairs, normal_quantile
from nsfa.kernels.reference import gamma_draw as reference_gamma


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # known answers of Random123's philox4x32-10
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, expected):
    assert tuple(int(word) for word in streams.philox(counter, key)) == expected


@pytest.mark.parametrize("key", [0, 1, 2**63 + 12345, 2**64 - 1])
def test_compiled_uniforms_equal_the_numpy_ones(key):
    first, second = np.empty(33), np.empty(33)
    fill_uniform_pairs(np.uint64(key), 7, first, second)
    u, v = streams.uniform_pairs(key, 7, np.arange(33))
    np.testing.assert_array_equal(first, u)
    np.testing.assert_array_equal(second, v)
    assert (u > 0).all() and (u < 1).all()


@pytest.mark.parametrize("n_columns", [1, 2, 7])
def test_compiled_normals_equal_the_numpy_ones(n_columns):
    out = np.empty((50, n_columns))
    fill_normals(np.uint64(99), 3, out)
    np.testing.assert_allclose(out, streams.normals(99, 50, n_columns, first_row=3), rtol=1e-13)


def test_a_row_does_not_depend_on_the_block_it_is_drawn_in():
    np.testing.assert_array_equal(streams.normals(5, 10, 4)[6:], streams.normals(5, 4, 4, first_row=6))


def test_normal_quantile_is_accurate_everywhere():
    p = np.concatenate([np.logspace(-300, -1, 500), np.linspace(0.001, 0.999, 999), 1 - np.logspace(-15, -1, 200)])
    got = np.array([normal_quantile(x) for x in p])
    np.testing.assert_allclose(got, ndtri(p), rtol=2e-14, atol=1e-15)


def test_uniforms_and_normals_have_their_distributions():
    u, v = streams.uniform_pairs(2024, np.arange(2000)[:, None], np.arange(20)[None, :])
    for sample in (u, v):
        assert stats.kstest(sample.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(u.ravel(), v.ravel())[0, 1]) < 4 / np.sqrt(u.size)
    assert stats.kstest(streams.normals(7, 2000, 11).ravel(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("shape", [0.3, 1.0, 4.5])
def test_gamma_draws_have_their_distribution_and_equal_the_reference(shape):
    draws = np.array([gamma_draw(shape, np.uint64(11), row, 1) for row in range(4000)])
    assert stats.kstest(draws, stats.gamma(shape).cdf).pvalue > 1e-3
    np.testing.assert_allclose(draws[:50], [reference_gamma(shape, 11, row, 1) for row in range(50)], rtol=1e-12)


def test_fresh_keys_differ(rng):
    assert len({streams.fresh_key(rng) for _ in range(1000)}) == 1000
