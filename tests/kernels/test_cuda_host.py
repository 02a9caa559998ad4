"""The stand-in for a GPU does what one does, and says so where kernels are wrong."""

import ctypes
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import cuda_host
from nsfa.kernels import device as cuda
from nsfa.kernels import streams

PROBES = """
KERNEL show_words(word_t key, index_t row, word_t* first, double* unit) {
    Words pair = word_pair(key, row, threadIdx.x, 0, 0);
    first[threadIdx.x] = pair.first;
    unit[threadIdx.x] = to_unit(pair.second);
}
KERNEL vote_of_those_left(int left, unsigned int* vote, double* from) {
    if (threadIdx.x >= left) return;
    vote[threadIdx.x] = __ballot_sync(0xffffffffu, threadIdx.x % 2);
    from[threadIdx.x] = __shfl_sync(0xffffffffu, (double)threadIdx.x, (threadIdx.x + 1) % 32);
    __syncthreads();
}
KERNEL reversed(int wait, double* out) {
    SHARED(double, room);
    room[threadIdx.x] = threadIdx.x;
    if (wait) __syncthreads();
    out[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}
KERNEL reversed_in_warps(int wait, double* out) {
    SHARED(double, room);
    room[threadIdx.x] = threadIdx.x;
    if (wait) __syncwarp();
    out[threadIdx.x] = room[threadIdx.x ^ 31];
}
KERNEL tilt_pairs(int wait, double* room, unsigned int* counter, double* out) {
    unsigned int generation = 0;
    if (threadIdx.x == 5) room[blockIdx.x] = blockIdx.x;
    if (wait) grid_barrier(counter, generation);
    if (threadIdx.x == 0) out[blockIdx.x] = read_through(room + gridDim.x - 1 - blockIdx.x);
}
KERNEL half_waits(int which) {
    if (which == 0 && threadIdx.x < 16) __syncthreads();
    if (which == 0 && threadIdx.x >= 16) __syncwarp();
    if (which == 1 && threadIdx.x < 16) __syncwarp();
    if (which == 1 && threadIdx.x >= 16) __ballot_sync(0xffffffffu, 1);
    if (which == 2) __ballot_sync(0xffffu, 1);
    if (which == 3) ((char*)cuda_host::shared_memory())[threadIdx.x] = 0;
}
KERNEL rotate_pairs(unsigned int* counter) {
    unsigned int generation = 0;
    if (blockIdx.x == 1) return;
    grid_barrier(counter, generation);
}
"""
K = np.int32


@pytest.fixture(scope="module")
def probes(compiled_kernels):
    return cuda_host.HostDevice(compiled_kernels, source=f"{cuda.source('streams')}\n{PROBES}")


@pytest.mark.parametrize("key", [0, 1, 2**63 + 12345, 2**64 - 1])
def test_words_and_uniforms(key, probes):
    first, unit = probes.empty(33, np.uint64), probes.empty(33)
    probes.launch("show_words", 1, 33, np.uint64(key), np.int64(7), first, unit)
    words = streams.words(key, 7, np.arange(33))
    np.testing.assert_array_equal(probes.get(first), words[0])
    np.testing.assert_array_equal(probes.get(unit), streams.to_unit(words[1]))


def test_lanes_that_have_returned_are_not_waited_for(probes):
    vote, read = probes.empty(64, np.uint32), probes.empty(64)
    probes.launch("vote_of_those_left", 1, 64, K(50), vote, read)
    whole, part = sum(1 << i for i in range(1, 32, 2)), sum(1 << i for i in range(1, 18, 2))
    np.testing.assert_array_equal(probes.get(vote), [whole] * 32 + [part] * 18 + [2**32 - 1] * 14)
    read = probes.get(read)
    np.testing.assert_array_equal(read[:49], [*range(1, 32), 0, *range(33, 50)])
    assert np.isnan(read[49]), "what a lane that is gone would show is garbage"


@pytest.mark.parametrize(
    ("name", "blocks", "threads"), [("reversed", 1, 96), ("reversed_in_warps", 1, 64), ("tilt_pairs", 3, 32)]
)
def test_a_missing_barrier_shows(name, blocks, threads, probes, monkeypatch):
    together = name == "tilt_pairs"
    expected = np.arange(blocks)[::-1] if together else np.arange(threads).reshape(-1, 96 if name == "reversed" else 32)
    expected = expected if together else expected[:, ::-1].ravel()
    for wait in (True, False):
        same = []
        for seed in (0, 1, 2):
            monkeypatch.setattr(probes, "seed", seed)
            out = probes.empty(len(expected))
            room = (probes.empty(blocks), probes.zeros(1, np.uint32)) if together else ()
            probes.launch(name, blocks, threads, K(wait), *room, out, shared=8 * threads)
            same.append(np.array_equal(probes.get(out), expected))
        assert all(same) if wait else not any(same)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (
            0,
            "half_waits: threads wait for each other forever: 16 wait at __syncthreads in `if .*, 16 wait at __syncwarp",
        ),
        (1, "threads wait in different places: 16 wait at __ballot_sync in `if .*, 16 wait at __syncwarp in"),
        (2, "__ballot_sync of a part of a warp in `if"),
        (3, "a write outside the shared memory"),
    ],
)
def test_wrong_kernels_are_named(which, message, probes):
    with pytest.raises(RuntimeError, match=message):
        probes.launch("half_waits", 1, 32, K(which), shared=16)
    # and the next launch is none the worse
    test_lanes_that_have_returned_are_not_waited_for(probes)


def test_a_block_that_returns_is_waited_for_by_the_others(probes):
    with pytest.raises(
        RuntimeError, match="rotate_pairs: threads wait for each other forever: 32 returned, 64 wait at grid_b"
    ):
        probes.launch("rotate_pairs", 3, 32, probes.zeros(1, np.uint32))


def test_arguments_have_the_types_of_the_signature(probes):
    out = probes.empty(32)
    for wrong in (
        [1, out], [np.int64(1), out], [K(1), np.zeros(32)], [K(1), probes.zeros(32, np.float32)], [K(1)],
        [K(1), probes.empty((32, 2))[:, 0]],
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"reversed.*Got"):
            probes.launch("reversed", 1, 32, *wrong, shared=256)
    for blocks, threads, shared in ((0, 32, 0), (1, 2048, 0), (1, 32, 1 << 20)):
        with pytest.raises(ValueError, match="reversed cannot have"):
            probes.launch("reversed", blocks, threads, K(1), out, shared=shared)
    with pytest.raises(ValueError, match="must have all blocks there at once. Got 4 on 3"):
        probes.launch("rotate_pairs", 4, 32, probes.zeros(1, np.uint32))


def test_arrays_do_not_mix_with_those_of_the_host(probes):
    there, here = probes.put(np.arange(3.0)), np.ones(3)
    for call in (lambda: there + here, lambda: np.where(there > 1, there, here), lambda: np.concatenate([there, here])):
        with pytest.raises(TypeError, match="must all be on the device"):
            call()
    assert type(np.maximum(2.0 * there, 1.0)[1:]) is cuda_host.DeviceArray
    assert type(there.get()) is type(probes.get(there)) is np.ndarray and not hasattr(here, "get")
    there.set(here)
    np.testing.assert_array_equal(there.get(), here)


def test_copies_in_a_queue_come_when_they_are_waited_for(probes):
    table, queue = probes.pinned(np.arange(12.0).reshape(3, 4)), probes.stream()
    part = probes.copy_columns(table, 1, 3, probes.zeros((3, 3)), queue)
    assert np.isnan(part.get()).all()
    probes.after(queue, None)
    np.testing.assert_array_equal(part.get(), table[:, 1:3])
    probes.unpinned(table)
    with pytest.raises(ValueError, match="pinned"):
        probes.copy_columns(table, 1, 3, part, queue)


def test_every_method_of_the_device_is_there(probes):
    public = {name for name in vars(cuda.CupyDevice) if not name.startswith("_")}
    assert {name for name in public if not hasattr(probes, name)} == set()


def test_what_the_device_defines_the_host_does():
    """Everything that differs between the two is in device.cu and cuda_host.h, under the same names."""
    text = (Path(cuda.__file__).parent / "cuda" / "device.cu").read_text(encoding="utf-8")
    header = Path(cuda_host.__file__).with_name("cuda_host.h").read_text(encoding="utf-8")
    defined = set(re.findall(r"#define (\w+)", text)) - {"NULL", "INFINITY", "NAN"}
    functions = set(re.findall(r"^__device__[^(\n]*?(\w+)\(", text, re.MULTILINE))
    assert {"KERNEL", "SHARED"} <= defined and {"grid_barrier", "read_through"} <= functions
    for name in defined:
        assert f"#define {name}" in header
    for name in functions:
        assert re.search(rf"^static inline \w+ {name}\(", header, re.MULTILINE)


# CUDA's numbers for the types of A, B and C, and cuBLAS's for how sums are made
PRECISIONS = {"float32": (0, 0, 0, 68), "tf32": (0, 0, 0, 77), "float64": (1, 1, 1, 70)}


class Array(np.ndarray):
    """An array whose memory is found as that of CuPy's is."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class Cublas:
    """CuPy's products and its memory: C = A B with columns first, as far apart as the leading dimensions say."""

    def __init__(self, precision):
        self.precision, self.number = precision, ctypes.c_double if precision == "float64" else ctypes.c_float
        self.memory = []

    def empty(self, shape, dtype):
        self.memory.append(np.full(shape, np.nan, dtype).view(Array))
        return self.memory[-1]

    def there(self, address, rows, columns, apart):
        size = apart * (columns - 1) + rows
        assert min(rows, columns) > 0 and apart >= rows
        ends = [(one.ctypes.data, one.ctypes.data + one.nbytes) for one in self.memory]
        assert any(first <= address <= last - size * ctypes.sizeof(self.number) for first, last in ends)
        flat = np.ctypeslib.as_array((self.number * size).from_address(address))
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (flat.itemsize, apart * flat.itemsize))

    def gemmEx(
        self, handle, turn_a, turn_b, m, n, k, one, a, type_a, ld_a, b, type_b, ld_b, zero, c, type_c, ld_c, sums, how
    ):  # fmt: skip
        assert (type_a, type_b, type_c, sums) == PRECISIONS[self.precision] and handle == "handle" and how == -1
        assert self.number.from_address(one).value == 1 and self.number.from_address(zero).value == 0
        left = self.there(a, *((k, m) if turn_a else (m, k)), ld_a)
        right = self.there(b, *((n, k) if turn_b else (k, n)), ld_b)
        self.there(c, m, n, ld_c)[:] = (left.T if turn_a else left) @ (right.T if turn_b else right)


@pytest.mark.parametrize("size", [(1, 1, 1), (5, 3, 2), (4, 8, 7), (2, 3, 4), (2, 9, 1), (1, 4, 6), (7, 1, 3)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_products_are_asked_of_cublas_as_it_takes_them(precision, turned, transposed, size, rng):
    """Operands padded and not, and parts of wider ones, into new arrays and into parts of old ones."""
    device, dtype = object.__new__(cuda.CupyDevice), "float64" if precision == "float64" else "float32"
    cublas, handle = Cublas(precision), SimpleNamespace(get_cublas_handle=lambda: "handle")
    device.tf32, empty = precision == "tf32", cublas.empty
    device._cupy = SimpleNamespace(empty=empty, cuda=SimpleNamespace(cublas=cublas, device=handle))
    m, n, inner = size

    def stored(rows, columns, kind):
        if kind == "padded":
            out = device.padded(rows, columns, dtype)
        else:
            out = empty((rows + 1, columns + 5), dtype)[:-1, 3:-2] if kind == "part" else empty((rows, columns), dtype)
        out[:] = rng.standard_normal(out.shape)
        return out

    for kinds in product(["tight", "padded", "part"], repeat=2):
        left = stored(*((inner, m) if transposed else (m, inner)), kinds[0])
        right = stored(*((n, inner) if turned else (inner, n)), kinds[1])
        expected = np.array((left.T if transposed else left) @ (right.T if turned else right))
        wide = empty((m + 2, n + 3), dtype)
        wide[:] = 7
        part = wide[1:-1, 2:-1]
        for found in (
            device.multiply(left, right, transposed, turned),
            device.multiply(left, right, transposed, turned, out=part),
        ):
            np.testing.assert_allclose(np.array(found), expected, rtol=1e-5, atol=1e-5)
        part[:] = 7
        assert (wide == 7).all(), "what is beside it stays"
