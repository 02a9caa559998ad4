import numpy as np
import pytest
from scipy import stats

from nsfa.kernels import streams
from nsfa.kernels.birth_kernels import gamma_draw
from nsfa.kernels.compiled import fill_normals, fill_words, normal_at
from nsfa.kernels.reference import gamma_draw as reference_gamma
from nsfa.kernels.streams import numbered


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
def test_compiled_words_equal_the_numpy_ones(key):
    first, second = np.empty(33, np.uint64), np.empty(33, np.uint64)
    fill_words(np.uint64(key), 7, first, second)
    a, b = streams.words(key, 7, np.arange(33))
    np.testing.assert_array_equal(first, a)
    np.testing.assert_array_equal(second, b)


def test_units_lie_strictly_inside_the_interval():
    ends = streams.to_unit(np.array([0, 2**64 - 1], dtype=np.uint64))
    assert 0 < ends[0] < ends[1] < 1


@pytest.mark.parametrize("n_columns", [1, 2, 7])
def test_compiled_normals_equal_the_numpy_ones(n_columns):
    out = np.empty((50, n_columns))
    fill_normals(np.uint64(99), numbered(3, len(out)), out)
    np.testing.assert_allclose(out, streams.normals(99, 50, n_columns, numbers=3), rtol=1e-13)


def test_a_row_does_not_depend_on_the_block_it_is_drawn_in():
    np.testing.assert_array_equal(streams.normals(5, 10, 4)[6:], streams.normals(5, 4, 4, numbers=6))


def test_every_path_of_the_ziggurat_is_compared():
    """Enough positions that wedges, retries and the tail all occur, in both versions alike."""
    columns = np.arange(60_000)
    got = np.array([normal_at(np.uint64(31), 2, k) for k in columns])
    np.testing.assert_allclose(got, streams.normals_at(31, 2, columns), rtol=1e-13)
    assert np.abs(got).max() > streams.ZIGGURAT_EDGE


def test_the_ziggurats_blocks_have_equal_area():
    x = streams.ZIGGURAT_X
    height = np.exp(-0.5 * x**2)
    area = x[1:-1] * (height[2:] - height[1:-1])
    np.testing.assert_allclose(area, area[0], rtol=1e-8)
    tail = np.sqrt(np.pi / 2) * stats.norm.sf(x[1]) * 2 + x[1] * height[1]
    assert tail == pytest.approx(area[0], rel=1e-9)


def test_uniforms_and_normals_have_their_distributions():
    u, v = streams.uniform_pairs(2024, np.arange(2000)[:, None], np.arange(20)[None, :])
    for sample in (u, v):
        assert stats.kstest(sample.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(u.ravel(), v.ravel())[0, 1]) < 4 / np.sqrt(u.size)
    many = np.empty((40_000, 25))
    fill_normals(np.uint64(7), numbered(0, len(many)), many)
    assert stats.kstest(many.ravel(), "norm").pvalue > 1e-3
    for sample in (many, many[many > 2.5], many[np.abs(many) > 3.4]):
        expected = stats.norm.sf(2.5 if sample.min() > 2 else 3.4) * (1 if sample.min() > 2 else 2)
        if sample is not many:
            assert abs(sample.size - expected * many.size) < 4.5 * np.sqrt(expected * many.size)
    assert many.var() == pytest.approx(1.0, abs=0.006)
    assert (many**4).mean() == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize("shape", [0.3, 1.0, 4.5])
def test_gamma_draws_have_their_distribution_and_equal_the_reference(shape):
    draws = np.array([gamma_draw(shape, np.uint64(11), row, 1) for row in range(4000)])
    assert stats.kstest(draws, stats.gamma(shape).cdf).pvalue > 1e-3
    np.testing.assert_allclose(draws[:50], [reference_gamma(shape, 11, row, 1) for row in range(50)], rtol=1e-12)


def test_fresh_keys_differ(rng):
    assert len({streams.fresh_key(rng) for _ in range(1000)}) == 1000
