"""The CUDA kernels must equal the other backends on the same random numbers; here they run on the CPU (cuda_host.py)."""

import numpy as np
import pytest

from nsfa.kernels import Births, Holes, Own, Pairs, Rows, Splits, get_kernels, streams
from nsfa.kernels.gpu import GpuKernels, OwnThere
from nsfa.kernels.reference_moves import gamma_draw

TOLERANCE = {"rtol": 1e-9, "atol": 1e-12}
# Orders in which threads get on; the first is as they are numbered.
SEEDS = (0, 5, 6)
# Loadings lie in rows of so many more than there are factors; what is there stays.
MARGIN, BEYOND = 3, 99.0
N, K = np.int64, np.int32


@pytest.fixture(params=SEEDS)
def device(request, host_device):
    host_device.seed = request.param
    return host_device


def in_buffer(loadings):
    return np.pad(loadings, ((0, 0), (0, MARGIN)), constant_values=BEYOND)


def blocks_for(n, threads):
    return -(-n // threads)


def same_buffer(buffer, expected):
    np.testing.assert_array_equal(buffer[:, expected.shape[1] :], BEYOND)
    np.testing.assert_array_equal(buffer[:, : expected.shape[1]] != 0, expected != 0)
    np.testing.assert_allclose(buffer[:, : expected.shape[1]], expected, **TOLERANCE)


def sparse_loadings(rng, n_features, n_factors, density=0.4):
    return np.where(rng.random((n_features, n_factors)) < density, rng.normal(size=(n_features, n_factors)), 0.0)


def rows_problem(rng, n_features, n_factors, n_known=0, relative=False, n_samples=60):
    G, X = sparse_loadings(rng, n_features, n_factors), rng.normal(size=(n_samples, n_factors))
    Y = G @ X.T + rng.normal(size=(n_features, n_samples))
    holes = Holes(np.zeros(n_features + 1, np.int64), np.zeros(0, np.int32), np.zeros(n_features, bool))
    parts = Y @ X, X.T @ X, (Y**2).sum(axis=1), X, holes, rng.gamma(4, 0.3, n_features)
    return G, Rows(*parts, rng.gamma(2, 1, (1, n_factors)), relative, rng.normal(size=(n_features, n_known)))


def test_normals(device):
    """So many that wedges, retries and the tail occur; added to what is there."""
    out = device.put(np.full((400, 151), 2.5))
    device.launch("add_normals", blocks_for(400 * 76, 96), 96, N(400), N(151), np.uint64(2**63 + 31), N(3), out)
    expected = streams.normals(2**63 + 31, 400, 151, 3)
    np.testing.assert_allclose(device.get(out) - 2.5, expected, atol=1e-13)
    assert np.abs(expected).max() > streams.ZIGGURAT_EDGE
    one_each = device.empty((50, 7))
    device.launch("fill_normals", 6, 64, N(50), N(7), np.uint64(9), one_each)
    np.testing.assert_allclose(
        device.get(one_each), streams.normals_at(9, np.arange(50)[:, None], np.arange(7)), atol=1e-13
    )


def test_gammas(device, rng):
    shape, rate = np.concatenate([rng.random(150), rng.gamma(2, 2, 150)]), rng.gamma(2, 1, 300)
    out = device.empty(300)
    device.launch(
        "fill_gammas", 5, 64, N(300), device.put(shape), device.put(rate), np.float64(3.0), np.uint64(78), out
    )
    expected = np.array([gamma_draw(a, 78, i, 0) for i, a in enumerate(shape)]) / rate
    np.testing.assert_allclose(device.get(out), np.minimum(expected, 3.0), rtol=1e-10)
    assert (expected > 3.0).any() and (shape < 1).any() and (shape > 1).any()


def sweep(device, G, rows, logit, anchor, shared_gram, key):
    """Loadings in their buffer, usage and residuals after ``sweep_rows`` by two blocks of two warps."""
    n_features, n_factors = G.shape
    buffer, usage, residual = device.put(in_buffer(G)), device.zeros(2 * n_factors, np.uint64), device.empty(n_features)
    known = device.put(rows.known) if rows.known.size else None
    tables = map(device.put, (rows.cross, rows.gram, rows.power, rows.noise_precision, rows.loading_precision[0]))
    device.launch(
        "sweep_rows", 2, 64, N(n_features), K(n_factors), K(n_factors + MARGIN), buffer, *tables, K(rows.relative),
        device.put(logit), known, K(rows.known.shape[1]), device.put(anchor), np.uint64(key), K(shared_gram), usage,
        residual, shared=8 * (2 * 5 * n_factors + shared_gram * n_factors**2) + 16 * n_factors,
    )  # fmt: skip
    drawn, counts = device.get(buffer), device.get(usage).astype(np.int64)
    # the numbers of the features that use a factor, added up
    np.testing.assert_array_equal(counts[n_factors:], np.arange(n_features) @ (drawn[:, :n_factors] != 0))
    return [drawn, counts[:n_factors], device.get(residual)]


@pytest.mark.parametrize("n_factors", [1, 5, 33, 70])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("n_known", [0, 3])
def test_sweep(n_factors, relative, n_known, host_device, rng):
    n_features, n_known = 37, min(n_known, n_factors)
    G, rows = rows_problem(rng, n_features, n_factors, n_known, relative)
    logit, anchor = rng.normal(-1, 1, n_factors), rng.integers(-1, n_features, n_factors)
    anchor[0] = 7
    prior = logit + np.pad(rows.known, ((0, 0), (0, n_factors - n_known)))
    loadings, active = G.copy(), G != 0
    usage, residual = get_kernels("reference").sweep_independent(loadings, active, rows, prior, anchor, 2**63 + 5)
    first = None
    for seed in SEEDS:
        for shared_gram in (False, True):
            host_device.seed = seed
            found = sweep(host_device, G, rows, logit, anchor, shared_gram, 2**63 + 5)
            same_buffer(found[0], loadings)
            np.testing.assert_array_equal(found[1], usage)
            np.testing.assert_allclose(found[2], residual, rtol=1e-8)
            first = first or found
            # the order of the threads changes no bit
            for a, b in zip(found, first, strict=True):
                np.testing.assert_array_equal(a, b)
    held = np.flatnonzero(anchor >= 0)
    assert (loadings[anchor[held], held] != 0).all() and ((loadings != 0) != (G != 0)).any()


def owned(rng, n_features=40, n_factors=36):
    """Loadings of four shared factors and, in half of the features, of some that one feature alone uses."""
    active = np.zeros((n_features, n_factors), bool)
    active[rng.integers(0, n_features // 2, n_factors), np.arange(n_factors)] = True
    active[:, :4] |= rng.random((n_features, 4)) < 0.3
    return np.where(active, rng.normal(size=active.shape), 0.0), active


def test_own_factors(device, rng):
    G, active = owned(rng)
    rows = rows_problem(rng, *G.shape)[1]
    usage, residual = active.sum(axis=0), np.full(len(G), 5.0)
    own = get_kernels("reference").own_factors(G, active, rows, usage, residual)
    out = device.empty((3, len(own.factor)))
    device.launch(
        "own_rows", blocks_for(32 * len(own.factor), 96), 96, K(len(own.factor)), K(36), K(36 + MARGIN),
        device.put(own.owner), device.put(usage), device.put(in_buffer(G)), device.put(rows.cross),
        device.put(rows.gram), device.put(rows.power), out,
    )  # fmt: skip
    expected = [part[own.owner] for part in (own.number, own.square, own.residual)]
    np.testing.assert_allclose(device.get(out), expected, **TOLERANCE)
    assert own.number.max() > 1 and (own.number == 0).any() and (own.residual > 0).all()


@pytest.mark.parametrize("slab_shape", [0.0, 0.6, 3.0])
@pytest.mark.parametrize("relative", [False, True])
def test_births(slab_shape, relative, device, rng):
    """More features accept than are fetched at once; those with several own factors are listed as often."""
    n = 400
    number = rng.integers(0, 3, n)
    owner = np.repeat(np.arange(n), number)
    square, left = np.where(number > 0, rng.gamma(1, 1, n), 0.0), rng.gamma(5, 2, n)
    problem = Births(
        own=Own(np.arange(len(owner)), owner, number, square, left), noise_precision=rng.gamma(3, 1, n),
        relative=relative, n_observed=rng.integers(5, 9, n).astype(float),
        cumulative=np.array([0.3, 0.6, 0.9, 1.0]), weight=np.array([0.0, -0.5, -1.0, -2.0]),
        slab_shape=slab_shape, slab_rate=1.7,
    )  # fmt: skip
    # without own factors what is left is all there is
    residual = device.put(np.where(number > 0, 1e6, left))
    found = device.put(np.array([part[owner] for part in (number, square, left)], dtype=float))
    there = {name: device.put(getattr(problem, name)) for name in ("noise_precision", "n_observed")}
    listed = problem._replace(own=OwnThere(np.arange(len(owner)), owner, residual, device.put(owner), found), **there)
    born, kernels = get_kernels("reference").draw_births(problem, 77), GpuKernels(device)
    got = kernels.draw_births(listed, 77)
    np.testing.assert_array_equal(got.accepted, born.accepted)
    np.testing.assert_array_equal(got.row, born.row)
    np.testing.assert_allclose(got.loading, born.loading, rtol=1e-10)
    np.testing.assert_allclose(got.precision, born.precision, rtol=1e-10)
    count = np.bincount(born.row, minlength=n)[born.accepted]
    assert 64 < born.accepted.sum() < n and count.max() > 1 and (count == 0).any()


@pytest.mark.parametrize("slab", [(0.0, 1.3), (1.7, 0.6)])
@pytest.mark.parametrize("relative", [False, True])
def test_splits(slab, relative, device, rng):
    G, active = owned(rng, 120, 100)
    precision = rng.gamma(2, 1, (1, 100))
    weight = np.array([active.sum(axis=1), (precision * G**2).sum(axis=1)]) if relative else np.zeros((2, 120))
    noise = (1.2, 0.7), np.minimum(rng.gamma(2, 3, 120), 9.9)
    problem = Splits(G, active, active.sum(axis=0), *noise, weight, precision, slab, 0.8, 10.0, relative)
    there = {"noise_precision": device.put(problem.noise_precision), "weight": None}
    listed = problem._replace(loadings=device.put(in_buffer(G)), active=None, **there)
    for key in range(3):
        expected, got = (
            k.draw_splits(p, key) for k, p in ((get_kernels("reference"), problem), (GpuKernels(device), listed))
        )
        np.testing.assert_allclose(device.get(got.noise_precision), expected.noise_precision, rtol=1e-10)
        np.testing.assert_array_equal(got.row, expected.row)
        np.testing.assert_allclose(got.loading, expected.loading, rtol=1e-10)
        np.testing.assert_allclose(got.own_precision, expected.own_precision, rtol=1e-10)
        for a, b in zip(got.dead, expected.dead, strict=True):
            np.testing.assert_array_equal(a, b)
        assert len(expected.row) and len(expected.dead[0])
    np.testing.assert_array_equal(device.get(listed.noise_precision), problem.noise_precision)


@pytest.mark.parametrize(("n_features", "threads"), [(5, 32), (64, 32), (77, 64), (300, 96)])
def test_users_of_factors(n_features, threads, device, rng):
    G = sparse_loadings(rng, n_features, 4, 0.3)
    G[n_features - 1, 0] = 1.0
    factor, rank = np.array([(k, i) for k in range(4) for i in range((G[:, k] != 0).sum())]).T
    out = device.empty(len(factor), np.int64)
    lists = device.put(factor), device.put(rank)
    size = N(n_features), K(4 + MARGIN)
    device.launch("nth_users", len(factor), threads, *size, *lists, device.put(in_buffer(G)), out, shared=threads // 8)
    expected = [np.flatnonzero(G[:, k])[i] for k, i in zip(factor, rank, strict=True)]
    np.testing.assert_array_equal(device.get(out), expected)


def test_changes_of_the_buffer(device, rng):
    """Columns move in the order of their list, entries are set, columns are scaled, all are replaced."""
    G = sparse_loadings(rng, 77, 6)
    G[0, 3] = 0.7
    buffer, width = device.put(in_buffer(G)), K(6 + MARGIN)
    target, source = np.array([1, 2, 4]), np.array([5, 1, -1])
    device.launch("move_columns", 2, 64, N(77), K(3), width, device.put(target), device.put(source), buffer)
    G[:, 1], G[:, 2], G[:, 4] = G[:, 5], G[:, 5].copy(), 0.0
    same_buffer(device.get(buffer), G)
    # of two values for a place the later one counts
    row, column, value = np.array([0, 5, 76, 5]), np.array([3, 0, 5, 0]), np.array([1.5, 0.0, -2.0, 0.25])
    device.launch("set_entries", 1, 32, K(4), width, *map(device.put, (row, column, value)), buffer)
    G[row, column] = value
    same_buffer(device.get(buffer), G)
    by = rng.gamma(2, 1, 6)
    device.launch("scale_columns", blocks_for(77 * 6, 64), 64, N(77), K(6), width, device.put(by), buffer)
    same_buffer(device.get(buffer), G * by)
    new = sparse_loadings(rng, 77, 6)
    device.launch("put_loadings", blocks_for(77 * 6, 64), 64, N(77), K(6), width, device.put(new), buffer)
    same_buffer(device.get(buffer), new)


@pytest.mark.parametrize(("kind", "tolerance"), [("float", 1e-6), ("double", 1e-14)])
def test_precisions_of_tables(kind, tolerance, device, rng):
    """From doubles to the table's precision and back, rows apart by more than their numbers."""
    G, less = sparse_loadings(rng, 37, 6), rng.normal(size=6)
    shape, dtype = (N(37), K(6), K(6 + MARGIN)), "f4" if kind == "float" else "f8"
    buffer, out = device.put(in_buffer(G)), device.put(np.full((37, 8), BEYOND, dtype))
    device.launch(f"convert_{kind}", 4, 64, *shape, K(8), buffer, out)
    np.testing.assert_allclose(device.get(out)[:, :6], G, rtol=tolerance)
    np.testing.assert_array_equal(device.get(out)[:, 6:], BEYOND)
    back, total = device.empty((37, 6)), device.put(np.full((37, 6), 2.5))
    device.launch(f"centre_{kind}", 4, 64, N(37), K(6), K(8), out, device.put(less), back)
    np.testing.assert_allclose(device.get(back), device.get(out)[:, :6].astype(float) - less, rtol=1e-14)
    device.launch(f"accumulate_{kind}", 4, 64, N(37), K(6), K(8), out, K(0), total)
    np.testing.assert_allclose(device.get(total), device.get(out)[:, :6].astype(float) + 2.5, rtol=1e-14)
    total.fill(np.nan)
    device.launch(f"accumulate_{kind}", 4, 64, N(37), K(6), K(8), out, K(1), total)
    np.testing.assert_array_equal(device.get(total), device.get(out)[:, :6])


@pytest.mark.parametrize("n_factors", [1, 33, 70])
def test_sums_of_squares(n_factors, device, rng):
    G, slab, weight = sparse_loadings(rng, 37, n_factors), rng.gamma(2, 1, n_factors), rng.gamma(2, 1, 37)
    shape, out = (N(37), K(n_factors), K(n_factors + MARGIN), device.put(in_buffer(G))), device.empty((2, 37))
    device.launch("slab_weight", blocks_for(37, 2), 64, *shape, device.put(slab), out)
    np.testing.assert_allclose(device.get(out), [(G != 0).sum(axis=1), (slab * G**2).sum(axis=1)], **TOLERANCE)
    for w in (None, weight):
        parts = device.empty((5, n_factors))
        device.launch("column_squares", 5, 32, *shape, None if w is None else device.put(w), parts)
        expected = ((1.0 if w is None else w[:, None]) * G**2).sum(axis=0)
        np.testing.assert_allclose(device.get(parts).sum(axis=0), expected, **TOLERANCE)


@pytest.mark.parametrize("relative", [False, True])
def test_noise(relative, device, rng):
    """Relative loadings count as observations of it."""
    G, slab, (count, residual) = sparse_loadings(rng, 37, 40), rng.gamma(2, 1, 40), rng.gamma(9, 1, (2, 37))
    there = *map(device.put, (count, residual)), device.put(in_buffer(G))[:, :40], slab if relative else None
    drawn = GpuKernels(device).draw_noise(*there, (1.5, 0.3, 0.6), 78)
    number, square = ((G != 0).sum(axis=1), (slab * G**2).sum(axis=1)) if relative else (0.0, 0.0)
    shape, rate = 1.5 + 0.5 * (count + number), 0.3 + 0.5 * (residual + square)
    expected = np.minimum([gamma_draw(a, 78, i, 0) / b for i, (a, b) in enumerate(zip(shape, rate, strict=True))], 0.6)
    np.testing.assert_allclose(device.get(drawn), expected, rtol=1e-10)
    assert (expected < 0.6).any() and (expected == 0.6).any()


@pytest.mark.parametrize("n_factors", [0, 1, 40])
@pytest.mark.parametrize("before", [False, True])
def test_means_bring_products_along(n_factors, before, device, rng):
    """As if they had been drawn alone and T been brought to them afterwards."""
    G, cross = sparse_loadings(rng, 37, n_factors), rng.normal(size=(37, n_factors))
    total, count, square, noise, old = rng.normal(size=37), rng.gamma(9, 1, 37), *rng.gamma(4, 20, (3, 37))
    shift, sums = rng.normal(size=(2, n_factors))
    there, kernels = device.put(cross).reshape(cross.shape), GpuKernels(device)
    parts = tuple(map(device.put, (total, count, square)))
    given = device.put(noise), (shift, sums), device.put(old) if before else None
    drawn, power = map(device.get, kernels.draw_means(device.put(in_buffer(G))[:, :n_factors], there, parts, *given, 9))
    mean = (total - G @ sums) / count + streams.normals_at(9, np.arange(37), 0) / np.sqrt(noise * count)
    np.testing.assert_allclose(drawn, mean, **TOLERANCE)
    np.testing.assert_allclose(power, np.maximum(square - mean * (2 * total - mean * count), 0.0), rtol=1e-9)
    old = old if before else np.zeros(37)
    expected = cross + np.outer(total - count * old, shift) - np.outer(mean - old, sums)
    np.testing.assert_allclose(device.get(there), expected, **TOLERANCE)


def test_means_lowered_by_a_fit(device, rng):
    G, by, mean = sparse_loadings(rng, 37, 40), rng.normal(size=40), rng.normal(size=37)
    there = device.put(mean)
    GpuKernels(device).lower_means(there, device.put(in_buffer(G))[:, :40], by)
    np.testing.assert_allclose(device.get(there), mean - G @ by, **TOLERANCE)


def pairs_problem(rng, n_features, slab_rows, n_known, anchored):
    """Six factors, the last two without users where nothing is anchored."""
    active = rng.random((n_features, 6)) < 0.5
    active[0], active[:, 4:] = True, anchored
    G, X = np.where(active, rng.normal(size=active.shape), 0.0), rng.normal(size=(9, 6))
    Y = G @ X.T + 0.5 * rng.normal(size=(n_features, 9))
    anchor = np.array([0, 3, 0, 5, 0, 0]) if anchored else np.full(6, -1)
    active[3, 1] = active[5, 3] = True
    G[3, 1], G[5, 3] = 0.5, -0.5
    parts = np.eye(6), X.T @ X, (Y - G @ X.T) @ X, G, active, active.sum(axis=0)
    rest = rng.gamma(4, 1, n_features), rng.gamma(2, 1, (slab_rows, 6)), rng.normal(size=6), anchor
    return Pairs(*parts, *rest, rng.normal(size=(n_features, n_known))), X, Y


def move_pairs(device, move, problem, pairs, key, blocks=2, threads=64, shared=True):
    """(turn, gram, excess, loadings, usage, accepted) after the pairs; features are listed in shared memory or not."""
    (n_features, n_factors), n_known = problem.loadings.shape, problem.known.shape[1]
    buffer, usage = device.put(in_buffer(problem.loadings)), device.zeros(n_factors, np.int32)
    turn, gram, excess = map(device.put, (problem.turn, problem.gram, problem.excess))
    accepted, known = device.zeros(1, np.int32), device.put(problem.known) if n_known else None
    lists = 11 * blocks_for(n_features, blocks)
    device.launch(
        f"{move}_pairs", blocks, threads, N(n_features), K(n_factors), K(n_factors + MARGIN),
        K(len(problem.loading_precision) > 1), K(n_known), K(len(pairs)), buffer, excess, gram, turn, usage, device.put(problem.noise_precision),
        device.put(problem.loading_precision), device.put(problem.logit), known, device.put(problem.anchor),
        device.put(pairs), None if shared else device.empty(blocks * lists), device.empty((2, 33, blocks)),
        device.zeros(1, np.uint32), accepted, np.uint64(key), shared=8 * (256 + 4 * n_factors + shared * lists),
    )  # fmt: skip
    return [device.get(a) for a in (turn, gram, excess, buffer, usage + device.put(problem.usage), accepted)]


@pytest.mark.parametrize("move", ["tilt", "rotate"])
@pytest.mark.parametrize("slab_rows", [1, 150])
@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("n_known", [0, 2])
def test_pairs_of_factors(move, slab_rows, anchored, n_known, host_device, rng):
    """More features than threads, in the last round fewer than a warp; in blocks that wait for each other."""
    problem, X, Y = pairs_problem(rng, 150, slab_rows, n_known, anchored)
    before = problem._replace(**{name: getattr(problem, name).copy() for name in Pairs._fields[:6]})
    # few: what rounding does grows from pair to pair
    pairs = rng.permutation([(k, j) for k in range(6) for j in range(6) if k != j])[:12]
    accepted = getattr(get_kernels(), move)(problem, pairs, 7)
    first = None
    for seed in SEEDS:
        host_device.seed = seed
        found = move_pairs(host_device, move, before, pairs, 7, shared=seed > 0)
        first = first or found
        for a, b in zip(found, first, strict=True):
            np.testing.assert_array_equal(a, b)
    turn, gram, excess, buffer, usage, number = first
    same_buffer(buffer, problem.loadings)
    np.testing.assert_array_equal(usage, problem.usage)
    for a, b in zip((turn, gram, excess), problem[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())
    scores = X @ turn
    np.testing.assert_allclose((Y - buffer[:, :6] @ scores.T) @ scores, excess, atol=1e-8)
    assert int(number[0]) == accepted > 2 and (problem.loadings != 0).any() and (usage != before.usage).any()


@pytest.mark.parametrize("move", ["tilt", "rotate"])
def test_pairs_do_not_depend_on_the_number_of_blocks(move, host_device, rng):
    problem, *_ = pairs_problem(rng, 150, 1, 0, True)
    pairs = np.array([(0, 1), (1, 2), (3, 0)])
    results = [move_pairs(host_device, move, problem, pairs, 3, *size) for size in ((1, 32), (3, 96), (3, 640))]
    for first, *others in zip(*results, strict=True):
        for one in others:
            np.testing.assert_allclose(one, first, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("move", ["tilt", "rotate"])
def test_lists_of_pairs_that_shared_memory_has_no_room_for(move, host_device, rng, monkeypatch):
    problem, *_ = pairs_problem(rng, 300, 1, 0, True)
    pairs, results = np.array([(0, 1), (1, 2), (3, 0), (0, 3)]), []
    for most in (host_device.most_shared, 8 * (256 + 4 * 6)):
        monkeypatch.setattr(host_device, "most_shared", most)
        there = {name: host_device.put(getattr(problem, name)) for name in ("excess", "loadings", "noise_precision")}
        here = {name: getattr(problem, name).copy() for name in ("turn", "gram", "usage")}
        slab = host_device.put(problem.loading_precision)
        one = problem._replace(**there, **here, loading_precision=slab)
        accepted = getattr(GpuKernels(host_device), move)(one, pairs, 3)
        results.append([accepted, *map(host_device.get, there.values()), *here.values()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (results[0][-1] != problem.usage).any() and (results[0][2] != problem.loadings).any()
