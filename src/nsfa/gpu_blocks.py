"""The values of a table on a device: there as a whole, sparse or dense, or passing through in blocks of samples."""

from __future__ import annotations

from typing import Any

from nsfa.arrays import contiguous
from nsfa.kernels.device import GpuError

# Samples whose products are added up in the table's precision; sums of such blocks are double.
BLOCK = 1 << 17
# Of the device's memory, this share is left for what is not the table.
SPARE = 0.25


class DenseBlocks:
    """A dense table on the device, its columns in blocks."""

    def __init__(self, values: Any, device: Any) -> None:
        self.device, self.shape, self.dtype = device, values.shape, values.dtype
        self.values = device.padded(*values.shape, values.dtype)
        for first in range(0, len(values), max(1, len(values) // 8)):
            rows = slice(first, first + max(1, len(values) // 8))
            self.values[rows] = device.put(values[rows])

    def __iter__(self) -> Any:
        for first in range(0, self.values.shape[1], BLOCK):
            yield first, DenseBlock(self.values[:, first : first + BLOCK], self.device)

    def release(self) -> None:
        """Give the memory back."""
        self.values = None


class DenseBlock:
    """Some columns (D, n) of a dense table on the device."""

    def __init__(self, values: Any, device: Any) -> None:
        self.values, self.device = values, device

    def multiply(self, right: Any, transposed: bool = False) -> Any:
        """Y right, or Yᵀ right, in the table's precision."""
        return self.device.multiply(self.values, right, transposed)


class SparseBlock:
    """A sparse table on the device, whole, and its transpose."""

    def __init__(self, values: Any, device: Any) -> None:
        self.shape, self.dtype = values.shape, values.dtype
        self.matrix, self.transpose = device.sparse(values.tocsr()), device.sparse(values.T.tocsr())

    def __iter__(self) -> Any:
        yield 0, self

    def multiply(self, right: Any, transposed: bool = False) -> Any:
        """Y right, or Yᵀ right, in the table's precision; of the values as they are stored."""
        out = (self.transpose if transposed else self.matrix) @ contiguous(right)
        return contiguous(out)

    def release(self) -> None:
        """Give the memory back."""
        self.matrix = self.transpose = None


class StreamedBlocks:
    """A dense table in this process's memory whose columns pass through the device, copied beside the work there."""

    def __init__(self, values: Any, device: Any) -> None:
        self.device, self.shape, self.dtype = device, values.shape, values.dtype
        self.values: Any = None
        room = int(0.5 * (1 - SPARE) * device.free_bytes) // max(1, values.itemsize * len(values))
        if room < 1:
            needed = 2 * values.itemsize * len(values) / 1e9
            raise GpuError(
                f"The GPU must have room for {needed:.2f} GB, two samples of the table. It has "
                f"{device.free_bytes / 1e9:.2f} GB left; use backend='cpu'."
            )
        self.width = max(1, min(BLOCK, room // 32 * 32 or room, values.shape[1]))
        self.buffers = [device.padded(len(values), self.width, values.dtype) for _ in range(2)]
        self.copies = device.stream()
        # last: what fails before leaves nothing pinned
        self.values = device.pinned(contiguous(values))

    def __iter__(self) -> Any:
        starts = range(0, self.values.shape[1], self.width)
        # the last pass may not be done with the buffers
        self.device.after(None, self.copies)
        coming = self._copy(0, starts[0])
        for number, first in enumerate(starts):
            values = coming
            # the work waits for its block, and the next copy for the work before in its buffer
            self.device.after(self.copies, None)
            if number + 1 < len(starts):
                self.device.after(None, self.copies)
                coming = self._copy(number + 1, starts[number + 1])
            yield first, DenseBlock(values, self.device)

    def _copy(self, number: int, first: int) -> Any:
        stop = min(first + self.width, self.values.shape[1])
        return self.device.copy_columns(self.values, first, stop, self.buffers[number % 2], self.copies)

    def release(self) -> None:
        """Give the memory back."""
        if self.values is not None:
            self.device.after(self.copies, None)
            self.device.synchronize()
            self.device.unpinned(self.values)
            self.values, self.buffers = None, []
