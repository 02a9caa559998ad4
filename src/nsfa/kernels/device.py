"""A device: arrays on it, launches of kernels there, and products with a table that lies there or passes through.

The only file that knows CuPy. The tests put a device made of NumPy and a host compiler in its place.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nsfa.kernels import streams

_SOURCES = Path(__file__).parent / "cuda"
_NAMES = (
    "STRETCH", "FEATURES", "TILT_ROUNDS", "TILT_BISECTIONS", "ROTATION_GRID", "ROTATION_MODES", "ROTATION_DEPTH",
    "ROTATION_ROUNDS", "ROTATION_STEP", "ROTATION_BEND", "ROTATION_FLOOR", "ROTATION_UNIFORM", "ROTATION_SLABS",
    "ROTATION_WIDEST", "EXP_FAR",
    "ZIGGURAT_EDGE",
)  # fmt: skip
# cuBLAS: types of numbers, of sums, and the default algorithm
_REAL = {"float32": 0, "float64": 1}
_COMPUTE = {"float32": 68, "tf32": 77, "float64": 70}
_NUMBERS = {name: np.array([1.0, 0.0], name) for name in _REAL}
_ONE_AND_ZERO = {name: (pair.ctypes.data, pair.ctypes.data + pair.itemsize) for name, pair in _NUMBERS.items()}
NEEDS_GPU = (
    "backend='gpu' needs an NVIDIA GPU and CuPy. Got {why}; install nsfa[gpu] on a machine with one, or use "
    "backend='cpu'."
)


def source(*names: str) -> str:
    """CUDA source of the named files, after the constants they share with the other backends."""
    lines = [f"#define {name} {getattr(streams, name)!r}" for name in _NAMES]
    lines += [f"#define TILT_WEIGHT_{i} {weight!r}" for i, weight in enumerate(streams.TILT_WEIGHTS)]
    for name in ("ZIGGURAT_X", "ZIGGURAT_RATIO"):
        values = ", ".join(map(repr, getattr(streams, name).tolist()))
        lines.append(f"__device__ const double {name}[] = {{{values}}};")
    return "\n".join(lines + [(_SOURCES / f"{name}.cu").read_text(encoding="utf-8") for name in names])


class GpuError(RuntimeError):
    """There is no device to run on, or it has too little memory; the message says what to do."""


@contextmanager
def enough_memory() -> Iterator[None]:
    """GpuError, which says how much was needed, in place of what CuPy raises for any array that it makes."""
    try:
        yield
    except MemoryError as error:
        cupy: Any = sys.modules.get("cupy")
        if cupy is None or not isinstance(error, cupy.cuda.memory.OutOfMemoryError):
            raise
        # its own sentence has the number
        found = re.search(r"allocating ([\d,]+) bytes", str(error))
        needed = int(found[1].replace(",", "")) if found else 0
        raise GpuError(
            f"The GPU must have room for {needed / 1e9:.2f} GB more. It has {_free_bytes(cupy) / 1e9:.2f} GB left; "
            "use dtype='float32', fewer samples, or backend='cpu'."
        ) from None


def _free_bytes(cupy: Any) -> int:
    return int(cupy.cuda.runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())


class CupyDevice:
    """One NVIDIA GPU by CuPy; ``tf32`` lets products with single-precision tables round their factors to ten bits."""

    def __init__(self, tf32: bool = False) -> None:
        self._cupy = _cupy()
        self.tf32 = tf32
        self._rooms: dict[str, Any] = {}
        attributes = self._cupy.cuda.Device().attributes
        self.multiprocessors = int(attributes["MultiProcessorCount"])
        self.most_shared = int(attributes["MaxSharedMemoryPerBlockOptin"])

    @property
    def free_bytes(self) -> int:
        """Memory that is left, what CuPy keeps for later included."""
        return _free_bytes(self._cupy)

    @property
    def total_bytes(self) -> int:
        """Memory that the device has."""
        return int(self._cupy.cuda.runtime.memGetInfo()[1])

    def empty(self, shape: Any, dtype: Any = np.float64) -> Any:
        """A new array."""
        return self._cupy.empty(shape, dtype)

    def room(self, name: str, shape: Any, dtype: Any = np.float64) -> Any:
        """Work space of a name, as it was left: for what is not needed after the next who asks for it."""
        array = self._rooms.get(name)
        wanted = shape if isinstance(shape, tuple) else (shape,)
        if array is None or array.shape != wanted or array.dtype != dtype:
            array = self._rooms[name] = self.empty(shape, dtype)
        return array

    def padded(self, n_rows: int, n_columns: int, dtype: Any) -> Any:
        """A new array (n_rows, n_columns) whose rows begin at multiples of 32 bytes, as matrix units want them."""
        each = 32 // np.dtype(dtype).itemsize
        return self.empty((n_rows, -(-n_columns // each) * each), dtype)[:, :n_columns]

    def zeros(self, shape: Any, dtype: Any = np.float64) -> Any:
        """An array of zeros."""
        out = self.empty(shape, dtype)
        out.fill(0)
        return out

    def put(self, array: Any) -> Any:
        """A copy on the device."""
        array = np.ascontiguousarray(array)
        out = self.empty(array.shape, array.dtype)
        out.set(array)
        return out

    def put_all(self, *arrays: Any) -> list[Any]:
        """Copies of several arrays of doubles, in one transfer."""
        both = self.put(np.concatenate([np.ravel(array) for array in arrays], dtype=np.float64))
        out, start = [], 0
        for array in arrays:
            part, start = both[start : start + array.size], start + array.size
            out.append(part if array.ndim == 1 else part.reshape(array.shape))
        return out

    def get(self, array: Any) -> Any:
        """A copy in this process's memory; what is not on the device stays as it is."""
        return array.get() if isinstance(array, self._cupy.ndarray) else array

    def launch(self, name: str, blocks: int, threads: int, *arguments: Any, shared: int = 0) -> None:
        """Run a kernel; arguments are arrays on the device, NumPy scalars, or None for no array."""
        kernel = _kernel(name)
        if shared > 48 * 1024:
            kernel.max_dynamic_shared_size_bytes = shared
        plain = tuple(np.intp(0) if a is None else a for a in arguments)
        kernel((blocks,), (threads,), plain, shared_mem=shared)

    def multiply(self, left: Any, right: Any, transposed: bool = False, turned: bool = False, out: Any = None) -> Any:
        """Left · right, of leftᵀ where ``transposed`` and of rightᵀ where ``turned``; both of one precision.

        Either may be some columns of a wider array, and so may ``out``; without it the rows of what is returned are
        ``padded``.
        """
        m, (n, inner) = left.shape[1 if transposed else 0], right.shape if turned else right.shape[::-1]
        product = self.padded(m, n, right.dtype) if out is None else out
        if m and n and inner:
            self._multiply((m, n, inner), (right, left, product), (turned, transposed), out is None and not turned)
        else:
            product.fill(0)
        return product

    def _multiply(
        self, size: tuple[int, int, int], arrays: tuple[Any, Any, Any], turned: tuple[bool, bool], whole: bool
    ) -> None:
        """The product, whose rows may be filled as a ``whole``. cuBLAS has columns first: outᵀ = rightᵀ · leftᵀ."""
        m, n, inner = size
        right, left, out = arrays
        apart = [array.strides[0] // array.itemsize for array in arrays]
        if whole and apart[0] == apart[2]:
            # what nobody reads included: matrix units are twice as fast on whole rows
            n = apart[0]
        name = right.dtype.name
        kind, (one, zero) = _REAL[name], _ONE_AND_ZERO[name]
        compute = "tf32" if self.tf32 and name == "float32" else name
        self._cupy.cuda.cublas.gemmEx(
            self._cupy.cuda.device.get_cublas_handle(), *map(int, turned), n, m, inner, one, right.data.ptr, kind,
            apart[0], left.data.ptr, kind, apart[1], zero, out.data.ptr, kind, apart[2], _COMPUTE[compute], -1,
        )  # fmt: skip

    def sparse(self, matrix: Any) -> Any:
        """A scipy csr matrix on the device."""
        from cupyx.scipy import sparse

        return sparse.csr_matrix(matrix)

    def pinned(self, array: Any) -> Any:
        """Make an array's memory one that the device can copy from beside other work."""
        runtime = self._cupy.cuda.runtime
        try:
            runtime.hostRegister(array.ctypes.data, array.nbytes, 0)
        except runtime.CUDARuntimeError as error:
            raise GpuError(
                f"The system must pin {array.nbytes / 1e9:.2f} GB of memory for a table larger than the GPU's. It does "
                f"not ({error}); use dtype='float32', or backend='cpu'."
            ) from None
        return array

    def unpinned(self, array: Any) -> None:
        """Undo ``pinned``."""
        self._cupy.cuda.runtime.hostUnregister(array.ctypes.data)

    def stream(self) -> Any:
        """A queue of copies that runs beside the kernels."""
        return self._cupy.cuda.Stream(non_blocking=True)

    def copy_columns(self, array: Any, start: int, stop: int, out: Any, stream: Any) -> Any:
        """Columns of a pinned array (D, N) into ``out`` (D, at least as many), in a queue; returns the filled part."""
        width, item = stop - start, array.itemsize
        self._cupy.cuda.runtime.memcpy2DAsync(
            out.data.ptr, out.strides[0], array.ctypes.data + start * item, array.strides[0], width * item, len(array),
            1, stream.ptr,
        )  # fmt: skip
        return out[:, :width]

    def after(self, first: Any, then: Any) -> None:
        """What is queued in ``then`` from now on waits for what is in ``first``; None is the queue of the kernels."""
        current = self._cupy.cuda.get_current_stream()
        (then or current).wait_event((first or current).record())

    def trim(self) -> None:
        """Give memory that CuPy keeps for later back to the device."""
        self._rooms.clear()
        self._cupy.get_default_memory_pool().free_all_blocks()

    def synchronize(self) -> None:
        """Wait until everything is done."""
        self._cupy.cuda.get_current_stream().synchronize()


@cache
def _cupy() -> Any:
    try:
        import cupy
    except ImportError:
        raise GpuError(NEEDS_GPU.format(why="no CuPy")) from None
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            raise GpuError(NEEDS_GPU.format(why="no GPU"))
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise GpuError(NEEDS_GPU.format(why=f"no GPU ({error})")) from None
    return cupy


def gpu_missing() -> str | None:
    """Why there is no GPU to run on here, as a sentence, or None."""
    try:
        _cupy()
    except GpuError as error:
        return str(error)
    return None


@cache
def _module(together: bool) -> Any:
    names = ("device", "streams", "pairs") if together else ("device", "streams", "rows", "births")
    options = ("--std=c++17", "-default-device")
    return _cupy().RawModule(code=source(*names), options=options, enable_cooperative_groups=together)


@cache
def _kernel(name: str) -> Any:
    return _module(name in ("tilt_pairs", "rotate_pairs")).get_function(name)
