"""A device made of NumPy and a C++ compiler: the CUDA kernels' own source, run on the CPU (cuda_host.h).

``HostDevice`` stands in for ``nsfa.kernels.device.CupyDevice`` and is stricter than it: arguments of kernels must have
the types of their signatures, new arrays hold garbage, and copies in a queue happen as late as they may.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nsfa.kernels import device as cuda

SOURCES = ("streams", "rows", "births", "pairs")
TOGETHER = ("tilt_pairs", "rotate_pairs")
_HEADER = Path(__file__).with_name("cuda_host.h")
_TYPES = {
    "index_t": np.int64, "int": np.int32, "unsigned int": np.uint32, "word_t": np.uint64, "double": np.float64,
    "float": np.float32, "unsigned char": np.uint8,
}  # fmt: skip
_OPTIONS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-w")
_ELSEWHERE = "Arrays must all be on the device. Got one that is not; put it there first."
# fibers and what they share are the library's own: one launch at a time
_LOCK = threading.Lock()


class Argument(NamedTuple):
    """A parameter of a kernel."""

    name: str
    dtype: np.dtype
    pointer: bool


def compiler() -> str | None:
    """The C++ compiler, or None where there is none or fibers cannot be made."""
    if not sys.platform.startswith("linux"):
        return None
    return next(filter(None, map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")))), None)


def signatures(source: str) -> dict[str, list[Argument]]:
    """Every kernel's parameters."""
    found = re.findall(r"^(?:KERNEL|COOPERATIVE)\s+(\w+)\s*\(([^)]*)\)\s*\{", source, re.MULTILINE)
    return {name: [_argument(" ".join(text.split())) for text in parameters.split(",")] for name, parameters in found}


def _argument(text: str) -> Argument:
    base, pointer, name = re.fullmatch(r"(?:const )?([\w ]+?)(\*?) (\w+)", text).groups()
    return Argument(name, np.dtype(_TYPES[base]), bool(pointer))


class Library:
    """Kernels of a CUDA source, compiled for the host into ``folder``."""

    def __init__(self, source: str, folder: Path) -> None:
        self.signatures = signatures(source)
        ends = [f"TRAMPOLINE({name}, {len(arguments)})" for name, arguments in self.signatures.items()]
        text = "\n".join(['#include "cuda_host.h"', source, *ends, ""])
        self.lines = text.splitlines()
        digest = hashlib.sha256((text + _HEADER.read_text(encoding="utf-8")).encode()).hexdigest()[:16]
        path = folder / f"kernels-{digest}.so"
        if not path.exists():
            _compile(text, path)
        self._library = ctypes.CDLL(str(path))

    def run(self, name: str, arguments: list[Any], blocks: int, threads: int, shared: int, seed: int) -> None:
        """Run a kernel on addresses and scalars; RuntimeError says where threads are stuck."""
        function = self._library[f"run_{name}"]
        function.restype = ctypes.c_char_p
        # an address, or a scalar's, at each place
        held = [np.array(a) for a in arguments]
        places = (ctypes.c_void_p * len(held))(*(a.ctypes.data for a in held))
        settings = blocks, threads, ctypes.c_longlong(shared), int(name in TOGETHER), ctypes.c_ulonglong(seed)
        with _LOCK:
            failed = function(places, *settings)
        if failed:
            message = re.sub(r"line (\d+)", lambda m: f"`{self.lines[int(m[1]) - 1].strip()}`", failed.decode())
            raise RuntimeError(f"{name}: {message}")


def _compile(text: str, path: Path) -> None:
    """By way of a name of this process, so that others never see half a library."""
    own = path.with_suffix(f".{os.getpid()}")
    code = own.with_suffix(f"{own.suffix}.cpp")
    code.write_text(text, encoding="utf-8")
    command = [str(compiler()), *_OPTIONS, f"-I{_HEADER.parent}", str(code), "-o", str(own)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The kernels do not compile:\n{done.stderr[:4000]}")
    own.rename(path)


@cache
def library(source: str, folder: Path) -> Library:
    """The compiled source, once in a process and once in a folder."""
    return Library(source, folder)


class DeviceArray(np.ndarray):
    """An array that is on the device: it does not mix with those that are not."""

    def get(self) -> np.ndarray:
        """A copy that is not on the device."""
        return np.array(self)

    def set(self, array: np.ndarray) -> None:
        """Fill with the values of an array that is not on the device."""
        if type(array) is not np.ndarray or array.dtype != self.dtype or array.shape != self.shape:
            raise TypeError(f"Values must be an array of {self.dtype} {self.shape}. Got {array.dtype} {array.shape}.")
        np.copyto(_plain(self), array)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        _all_there(a for a in (*inputs, *options.get("out", ())))
        if "out" in options:
            options["out"] = tuple(map(_plain, options["out"]))
        return _there(getattr(ufunc, method)(*map(_plain, inputs), **options))

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        if np.ndarray in types:
            raise TypeError(_ELSEWHERE)
        plain = {name: _plain(value) for name, value in options.items()}
        return _there(function(*map(_plain, arguments), **plain))


def _all_there(arrays: Iterable[Any]) -> None:
    if any(type(a) is np.ndarray and a.ndim for a in arrays):
        raise TypeError(_ELSEWHERE)


def _there(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_there, result))
    return result.view(DeviceArray) if isinstance(result, np.ndarray) else result


def _plain(array: Any) -> Any:
    if isinstance(array, list | tuple):
        return type(array)(map(_plain, array)) if type(array) in (list, tuple) else array
    return array.view(np.ndarray) if isinstance(array, DeviceArray) else array


class _Sparse:
    """A csr matrix whose products with arrays on the device are there."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix
        self.shape, self.dtype, self.nnz = matrix.shape, matrix.dtype, matrix.nnz

    @property
    def T(self) -> _Sparse:
        return _Sparse(self._matrix.T)

    def __matmul__(self, other: Any) -> Any:
        _all_there([other])
        return np.ascontiguousarray(self._matrix @ _plain(other)).view(DeviceArray)


class HostDevice:
    """What ``CupyDevice`` does, on the CPU; ``seed`` shuffles the order in which threads get on (0: as numbered)."""

    def __init__(self, folder: Path, *, source: str | None = None, seed: int = 0, tf32: bool = False) -> None:
        self.tf32, self.seed = tf32, seed
        self.multiprocessors, self.most_shared, self.free_bytes = 3, 232_448, 1 << 36
        self.total_bytes = 1 << 36
        self._library = library(cuda.source(*SOURCES) if source is None else source, folder)
        self._pinned: set[int] = set()
        self._rooms: dict[str, Any] = {}

    def empty(self, shape: Any, dtype: Any = np.float64) -> Any:
        """Full of bytes that are no number and no index."""
        out = np.empty(shape, dtype)
        out.reshape(-1).view(np.uint8).fill(0xFF)
        return out.view(DeviceArray)

    def zeros(self, shape: Any, dtype: Any = np.float64) -> Any:
        return np.zeros(shape, dtype).view(DeviceArray)

    padded = cuda.CupyDevice.padded
    room = cuda.CupyDevice.room
    put_all = cuda.CupyDevice.put_all

    def put(self, array: Any) -> Any:
        return np.array(array, order="C", ndmin=1).view(DeviceArray)

    def get(self, array: Any) -> Any:
        return array.get() if isinstance(array, DeviceArray) else array

    def launch(self, name: str, blocks: int, threads: int, *arguments: Any, shared: int = 0) -> None:
        signature = self._library.signatures[name]
        if len(arguments) != len(signature):
            raise TypeError(f"{name} takes {len(signature)} arguments. Got {len(arguments)}.")
        if not (blocks > 0 and 0 < threads <= 1024 and shared <= self.most_shared):
            raise ValueError(f"{name} cannot have {blocks} blocks of {threads} threads and {shared} bytes.")
        if name in TOGETHER and blocks > self.multiprocessors:
            raise ValueError(f"{name} must have all blocks there at once. Got {blocks} on {self.multiprocessors}.")
        plain = [_passed(name, *pair) for pair in zip(signature, arguments, strict=True)]
        self._library.run(name, plain, blocks, threads, shared, self.seed)

    multiply = cuda.CupyDevice.multiply

    def _multiply(self, size: Any, arrays: Any, turned: Any, whole: bool) -> None:
        """As strict as cuBLAS, which takes no empty matrices."""
        if len({a.dtype for a in arrays}) > 1 or not all(isinstance(a, DeviceArray) for a in arrays):
            raise TypeError(f"All must be on the device and of one type. Got {[a.dtype for a in arrays]}.")
        if not all(a.strides[1] == a.itemsize and a.strides[0] >= a.shape[1] * a.itemsize for a in arrays):
            raise TypeError(f"All must have contiguous rows. Got strides {[a.strides for a in arrays]}.")
        right, left, out = map(_plain, arrays)
        a, b = left.T if turned[1] else left, right.T if turned[0] else right
        if min(size) < 1 or (*out.shape, len(b)) != size:
            raise ValueError(f"Sizes must be those of the matrices, and above 0. Got {size}.")
        out[:] = a @ b

    def sparse(self, matrix: Any) -> Any:
        return _Sparse(matrix.copy())

    def pinned(self, array: Any) -> Any:
        if array.ctypes.data in self._pinned:
            raise RuntimeError("An array must be pinned once. Got one that is.")
        self._pinned.add(array.ctypes.data)
        return array

    def unpinned(self, array: Any) -> None:
        self._pinned.remove(array.ctypes.data)

    def stream(self) -> list[Callable[[], None]]:
        """A queue of copies that wait until something else waits for them."""
        return []

    def copy_columns(self, array: Any, start: int, stop: int, out: Any, stream: Any) -> Any:
        if array.ctypes.data not in self._pinned:
            raise ValueError("Columns must be copied from a pinned array. Got one that is not.")
        part = out[:, : stop - start]
        part.fill(np.nan)
        stream.append(lambda: np.copyto(_plain(part), array[:, start:stop]))
        return part

    def after(self, first: Any, then: Any) -> None:
        while first:
            first.pop(0)()

    def trim(self) -> None:
        """Nothing is kept for later."""

    def synchronize(self) -> None:
        """Kernels are done when they are launched."""


def _passed(kernel: str, parameter: Argument, value: Any) -> Any:
    """An argument as the kernel takes it: an address or a scalar of the signature's type."""
    if parameter.pointer and value is None:
        return np.uint64(0)
    wanted = DeviceArray if parameter.pointer else np.generic
    if not isinstance(value, wanted) or value.dtype != parameter.dtype:
        kind = getattr(value, "dtype", "")
        raise TypeError(
            f"{kernel}: {parameter.name} must be {wanted.__name__} of {parameter.dtype}. Got {type(value).__name__} {kind}."
        )
    if not parameter.pointer:
        return value
    # rows may be parts of wider ones
    if not value.flags.c_contiguous and not (value.ndim == 2 and value.strides[1] == value.itemsize):
        raise TypeError(f"{kernel}: {parameter.name} must have contiguous rows. Got strides {value.strides}.")
    return np.uint64(value.ctypes.data)
