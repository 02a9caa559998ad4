"""Units of a table in blocks on the devices of their workers: sent once where there is room, else in every pass."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import cache
from typing import Any
from weakref import WeakSet

import numpy as np

from nsfa.arrays import Floats, to_host
from nsfa.data import Observed
from nsfa.gpu_blocks import SPARE
from nsfa.gpu_samples import DeviceTable
from nsfa.kernels import device
from nsfa.kernels.gpu import GpuKernels
from nsfa.passing import Passed

# A device's work space is one for all threads of its worker.
_lock = threading.Lock()
# What this worker has made: devices, by whether they round, and units that may be there.
_devices: dict[bool, Any] = {}
_units: WeakSet[UnitOnDevice] = WeakSet()


def missing() -> str | None:
    """Why the worker that this is called on has no device, as a sentence, or None."""
    return device.gpu_missing()


@cache
def kernels_here(tf32: bool) -> GpuKernels:
    """The kernels of this worker's device."""
    return GpuKernels(device.CupyDevice(tf32))


def give_back() -> None:
    """Give back what this worker has of its devices' memory; a unit that is still asked for is sent again."""
    with _lock:
        for unit in _units:
            unit.leave()
        for there in _devices.values():
            there.trim()


class UnitOnDevice:
    """The verbs of a ``Table`` for a unit, which begins at sample ``start``; arrays come and go by this process.

    A unit that would fill the device passes through in parts, whose sums are added in another order.
    """

    def __init__(self, data: Observed, start: int, tf32: bool) -> None:
        self._data, self._start, self._kernels = data, start, kernels_here(tf32)
        self._sent: DeviceTable | None = None
        with _lock:
            _devices[tf32] = self._kernels.device
            _units.add(self)

    def leave(self) -> None:
        """Leave the device, if it is there."""
        if self._sent is not None:
            self._sent.release()
            self._sent = None

    def pass_scores(self, loadings: Floats, noise_precision: Floats, intercept: Floats | None, key: int) -> Passed:
        """Draw all scores: see ``Table``."""
        passed: Passed = self._asked("pass_scores", loadings, noise_precision, intercept, key)
        return passed._replace(cross=to_host(passed.cross))

    def second(self, right: Floats) -> Floats:
        """Y (Yᵀ right): see ``Table``."""
        out: Floats = to_host(self._asked("second", right))
        return out

    def _asked(self, verb: str, *arguments: Any) -> Any:
        there = self._kernels.device
        # what is left is looked at before a table that passes through is released
        with _lock, ExitStack() as passing, device.enough_memory():
            table = self._sent or DeviceTable.of(self._data, self._kernels, self._start)
            # the device must keep room for what is not the table
            if there.free_bytes > SPARE * there.total_bytes:
                self._sent = table
            if table is not self._sent:
                passing.callback(table.release)
            return getattr(table, verb)(*(there.put(a) if np.ndim(a) else a for a in arguments))
