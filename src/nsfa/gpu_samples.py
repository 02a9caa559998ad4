"""Chains on a device: the table there, sent once or passing through in blocks, and the state beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from scipy.linalg.lapack import dtrtri

from nsfa.arrays import Bools, Floats, Ints, beside, contiguous, to_host
from nsfa.data import Observed
from nsfa.gpu_blocks import SPARE, DenseBlocks, SparseBlock, StreamedBlocks
from nsfa.kernels.device import CupyDevice, enough_memory
from nsfa.kernels.gpu import GpuKernels
from nsfa.kernels.streams import fresh_key
from nsfa.passing import Passed, PassingSamples
from nsfa.state import State

Generator = np.random.Generator

# Columns of ones that scores lie behind, two so that these are aligned; and of room for more factors.
_ONES, _SPARE = 2, 8


@dataclass
class DeviceState(State):
    """A state whose arrays per feature are on a device. A loading is in use where it is not zero."""

    kernels: Any = None
    lists_users: ClassVar[bool] = True
    # what ``products`` found, turned with the loadings until somebody else gets hold of these
    _inner: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, state: State, kernels: GpuKernels) -> DeviceState:
        """A state's copy on the device."""
        put = kernels.device.put
        values = {item.name: getattr(state, item.name) for item in fields(State)}
        for name in ("noise_precision", "intercept"):
            values[name] = None if values[name] is None else put(values[name])
        return cls(**{**values, "buffers": {"loadings": put(state.buffers["loadings"])}}, kernels=kernels)

    @property
    def loadings(self) -> Any:
        """See ``State``; whoever gets them may change them."""
        self._inner = None
        return super().loadings

    @property
    def active(self) -> Bools:
        """Which loadings are in use (D, K), made anew."""
        return self.loadings != 0  # type: ignore[no-any-return]

    @property
    def pattern(self) -> Any:
        """See ``State``."""
        return None

    @property
    def loading_squares(self) -> Floats:
        """See ``State``."""
        if self._inner is not None:
            return np.maximum(self._inner.diagonal(), 0.0)  # type: ignore[no-any-return]
        return self.kernels.column_squares(self.loadings, self.noise_precision if self.relative else None)  # type: ignore[no-any-return]

    @property
    def slab_weight(self) -> Any:
        """See ``State``: both as the rows of one array (2, D)."""
        return self.kernels.slab_weight(self.loadings, self.precision_rows[0])

    @property
    def products(self) -> tuple[Floats, Floats]:
        """See ``State``."""
        inner, together = self.kernels.products(self.loadings, self.noise_precision if self.relative else None)
        self._inner = inner.copy()
        return inner, together

    @property
    def given_weight(self) -> None:
        """See ``State``."""

    def noise_units(self, values: Any, power: int = 1) -> Any:
        """See ``State``."""
        if self.relative and power == 2 and values.ndim == 1:
            return values * self.noise_precision
        return super().noise_units(values, power)

    def turn_loadings(self, by: Floats) -> None:
        """See ``State``."""
        inner = self._inner
        self.kernels.turn_columns(self.loadings, by)
        if inner is not None:
            self._inner = inner * np.outer(by, by) if by.ndim == 1 else by.T @ inner @ by

    def nth_users(self, factors: Ints, ranks: Ints) -> Any:
        """See ``State``; on the device, where they are wanted."""
        return self.kernels.nth_users(self.loadings, factors, ranks)

    def lower_intercept(self, by: Floats) -> None:
        """See ``State``."""
        self.kernels.lower_means(self.intercept, self.loadings, by)

    def _write(self, features: Any, factors: Any, values: Any) -> None:
        if np.ndim(features) == 1:
            self.kernels.set_entries(self.loadings, features, factors, values)
        else:
            self.loadings[features, factors] = beside(values, self.loadings)

    def _move(self, to: Ints, source: Ints) -> None:
        self._inner = None
        self.kernels.move_columns(self.buffers["loadings"], to, source)

    def on_host(self) -> State:
        """A copy in this process's memory."""
        values = {item.name: to_host(getattr(self, item.name)) for item in fields(State) if item.name != "buffers"}
        loadings = to_host(self.buffers["loadings"])
        return State(**values, buffers={"loadings": loadings, "active": loadings != 0})

    def snapshot(self) -> dict[str, Any]:
        """See ``State``."""
        return self.on_host().snapshot()


class DeviceTable:
    """A complete table (D, N) on a device, in blocks of samples: see ``Table``.

    ``moments`` (3, D) are the features' counts, sums and sums of squares; ``offset`` (D,) is what sparse values are yet
    to be reduced by, and ``start`` the first sample's number in a larger table.
    """

    def __init__(
        self, blocks: Any, moments: Floats, kernels: GpuKernels, offset: Floats | None = None, start: int = 0
    ) -> None:
        self.kernels, self.device, self.shape, self._blocks = kernels, kernels.device, blocks.shape, blocks
        self.start = start
        self.count, self.total, self.power = self.device.put_all(*moments)
        self.offset = None if offset is None else self.device.put(offset)
        self._kind = "float" if blocks.dtype == np.float32 else "double"
        self._ones = self.device.empty((0, 0))

    @classmethod
    def of(cls, data: Observed, kernels: GpuKernels, start: int = 0) -> DeviceTable:
        """A table sent to the device; if dense and too large for it, it stays here and passes through."""
        device = kernels.device
        kind: Any = DenseBlocks
        if data.offset is not None:
            kind = SparseBlock
        elif data.values.nbytes > (1 - SPARE) * device.free_bytes:
            kind = StreamedBlocks
        moments = np.stack([data.count, data.total, data.power])
        blocks = kind(data.values, device)
        try:
            # what is left is looked at before they are released
            with enough_memory():
                return cls(blocks, moments, kernels, data.offset, start)
        except BaseException:
            blocks.release()
            raise

    def pass_scores(self, loadings: Any, noise_precision: Any, intercept: Any, key: int) -> Passed:
        """Draw all scores, block by block: see ``Table``."""
        device, (n_features, n_factors) = self.device, loadings.shape
        self.kernels.forget_owners()
        right, inverse, centre = self._problem(loadings, noise_precision, intercept)
        away, back = device.put_all(inverse, centre)
        cross = device.empty((n_features, n_factors))
        parts: list[Any] = []
        for first, block in self._blocks:
            half, sums = self._half(block, right, away, back), device.empty((2 * n_factors + _ONES, n_factors + _ONES))
            device.multiply(half, half, transposed=True, out=sums[n_factors + _ONES :, _ONES:])
            scores = self._drawn(half, away, key, first)
            self._add(block.multiply(self._in_table_precision(scores[:, _ONES:])), cross, not parts)
            device.multiply(scores, scores, transposed=True, out=sums[: n_factors + _ONES])
            parts.append(sums)
        summed: Floats = sum(map(device.get, parts))
        total, gram, square = np.split(summed[:, _ONES:], [_ONES, n_factors + _ONES])
        gram, total, square = np.ascontiguousarray(gram), total[0].copy(), square.trace()
        if self.offset is not None:
            cross -= self.offset[:, None] * device.put(total)
        gained = 0.5 * float(square) + self.shape[1] * float(np.log(inverse.diagonal()).sum())
        return Passed(gram, cross, total, gained)

    def _beside_ones(self, n: int, width: int) -> Any:
        """Room for (n, width) behind columns of ones."""
        if self._ones.shape[0] < n or self._ones.shape[1] < width + _ONES:
            self._ones = self.device.empty((n, _ONES + _SPARE * (width // _SPARE + 1)))
            self._ones.fill(1.0)
        return self._ones[:n, : width + _ONES]

    def score_moments(self, loadings: Any, noise_precision: Any, intercept: Any) -> tuple[Floats, Floats]:
        """Mean of every sample's scores given all else (N, K), here, and their variance (K,). Cost O(D N K)."""
        right, inverse, centre = self._problem(loadings, noise_precision, intercept)
        away, back = self.device.put_all(inverse, centre)
        mean = np.empty((self.shape[1], loadings.shape[1]))
        for first, block in self._blocks:
            half = self._half(block, right, away, back)
            part = self.device.multiply(half, away, out=self.device.room("scores", half.shape))
            mean[first : first + len(part)] = to_host(part)
        return mean, (inverse**2).sum(axis=0)

    def _problem(self, loadings: Any, noise_precision: Any, intercept: Any) -> tuple[Any, Floats, Floats]:
        """diag(τ) G in the table's precision, L⁻¹ of Λ = I + Gᵀ diag(τ) G = L Lᵀ (K, K), Gᵀ diag(τ) centre (K,)."""
        right, small = self._weighted(loadings, noise_precision, intercept)
        root = np.linalg.cholesky(small[:, :-1] + np.eye(len(small)))
        return right, dtrtri(root, lower=1)[0], small[:, -1]

    def _drawn(self, half: Any, away: Any, key: int, first: int) -> Any:
        """The scores of a block's samples, (half + ε) L⁻¹, behind columns of ones."""
        n, n_factors = half.shape
        size = np.int64(n), np.int64(n_factors), np.uint64(key), np.int64(self.start + first)
        self.kernels.rows("add_normals", n * ((n_factors + 1) // 2), *size, half)
        out = self._beside_ones(n, n_factors)
        self.device.multiply(half, away, out=out[:, _ONES:])
        return out

    def _weighted(self, loadings: Any, noise_precision: Any, intercept: Any) -> tuple[Any, Floats]:
        """diag(τ) G in the table's precision; Gᵀ diag(τ) G beside Gᵀ diag(τ) centre (K, K + 1)."""
        device, (n, width) = self.device, loadings.shape
        wide, weighted = device.room("wide", (n, width + 1)), device.room("weighted", (n, width))
        right = device.padded(n, width, self._blocks.dtype)
        size = np.int64(n), np.int32(width), _width(loadings), _width(right)
        arguments = loadings, noise_precision, intercept, self.offset, wide, weighted, right
        self.kernels.rows(f"spread_weighted_{self._kind}", n * width, *size, *arguments)
        return right, to_host(device.multiply(weighted, wide, transposed=True, out=device.empty((width, width + 1))))

    def _half(self, block: Any, right: Any, away: Any, back: Any) -> Any:
        """L⁻¹ (Yᵀ diag(τ) G − centre) of a block's samples (n, K)."""
        device, projected = self.device, block.multiply(right, transposed=True)
        n, n_factors = projected.shape
        centred = device.room("centred", (n, n_factors))
        size = np.int64(n), np.int32(n_factors), _width(projected)
        self.kernels.rows(f"centre_{self._kind}", n * n_factors, *size, projected, back, centred)
        return device.multiply(centred, away, turned=True, out=device.room("half", (n, n_factors)))

    def _in_table_precision(self, array: Any) -> Any:
        """A copy (n, k) of doubles in the table's precision, in rows that matrix units like."""
        n, width = array.shape
        out = self.device.padded(n, width, self._blocks.dtype)
        size = np.int64(n), np.int32(width), _width(array), _width(out)
        self.kernels.rows(f"convert_{self._kind}", n * width, *size, array, out)
        return out

    def _add(self, product: Any, out: Any, first: bool) -> None:
        n, width = out.shape
        size = np.int64(n), np.int32(width), _width(product)
        self.kernels.rows(f"accumulate_{self._kind}", n * width, *size, product, np.int32(first), out)

    def second(self, right: Any) -> Any:
        """Y (Yᵀ right): see ``Table``."""
        width = right.shape[1]
        right = contiguous(right)
        small, out, sums = self._in_table_precision(right), self.device.empty(right.shape), self.device.zeros(width)
        less = np.zeros_like(right[0]) if self.offset is None else self.offset @ right
        for first, block in self._blocks:
            projected = block.multiply(small, transposed=True)
            centred = self.device.empty(projected.shape)
            size = np.int64(len(centred)), np.int32(width), _width(projected)
            self.kernels.rows(f"centre_{self._kind}", centred.size, *size, projected, less, centred)
            self._add(block.multiply(self._in_table_precision(centred)), out, first == 0)
            sums += centred.sum(axis=0)
        return out if self.offset is None else out - self.offset[:, None] * sums

    def release(self) -> None:
        """Give the table's memory back."""
        self._blocks.release()


class DeviceSamples(PassingSamples):
    """The samples of a chain on a device."""

    table: Any
    kernels: Any

    def __init__(self, table: DeviceTable, kernels: GpuKernels) -> None:
        self._shift: Floats | None = None
        self._evidence: Any = None
        super().__init__(table, kernels, at_once=True)  # type: ignore[arg-type]

    def place(self, state: State) -> State:
        """The state's copy on the device."""
        return DeviceState.of(state, self.kernels)

    @property
    def log_evidence(self) -> float:
        """See ``Samples``; worked out when somebody asks."""
        if isinstance(self._evidence, tuple):
            noise, power, gain = self._evidence
            base = float(self.count @ np.log(noise) - noise @ power)
            self._evidence = 0.5 * (base - self.n_observed * math.log(2 * math.pi)) + gain
        return float(self._evidence)

    @log_evidence.setter
    def log_evidence(self, value: float) -> None:
        self._evidence = value

    def close(self) -> None:
        """Give the table's memory back."""
        self.table.release()
        self.kernels.device.trim()

    def restore(self, snapshot: dict[str, Any], state: State) -> None:
        """See ``Samples``; q as the kernel has it, to the last bit."""
        super().restore(snapshot, state)
        self.refresh(state)

    def note_evidence(self, noise_precision: Floats, gain: float) -> None:
        """See ``Samples``."""
        self._evidence = noise_precision, self.power, gain

    def turn(self, by: Floats, which: Ints | None = None, gram: Floats | None = None) -> None:
        """See ``Samples``."""
        if by.ndim == 1:
            self.kernels.turn_columns(self.cross, by)
            self.gram, self.sums = self.gram * np.outer(by, by), self.sums * by
        else:
            super().turn(by, which, gram)

    def _turned(self, by: Floats) -> Any:
        """See ``PassingSamples``."""
        device = self.kernels.device
        return device.multiply(self.cross, device.put(by), out=device.empty(self.cross.shape))

    def shift(self, by: Floats) -> None:
        """See ``Samples``; T follows with ``refresh``."""
        self._shift_sums(by)
        self._shift = by if self._shift is None else self._shift + by

    def refresh(self, state: State) -> None:
        """See ``Samples``."""
        self.kernels.forget_owners()
        # new intercepts bring T and q along
        done = self._shift is None and self._reduced_by is state.intercept
        if state.intercept is not None and not done:
            moments, shifted = self._moments()
            self.power = self.kernels.centre_cross(self.cross, moments, shifted, self._reduced_by, state.intercept)
            # drawn anew, not changed in place, until the next time
            self._reduced_by = state.intercept
        self.valid = True

    def _moments(self) -> tuple[tuple[Any, Any, Any], tuple[Floats, Floats]]:
        """The features' sums, counts and sums of squares; what T is yet to be shifted by, and the scores' sums."""
        shift, self._shift = np.zeros_like(self.sums) if self._shift is None else self._shift, None
        return (self.total, self.count, self.table.power), (shift, self.sums)

    def draw_noise(self, state: State, shape: float, largest: float, key: int) -> Floats:
        """See ``Samples``."""
        slab, bounds = state.precision_rows[0] if state.relative else None, (shape, state.noise_rate, largest)
        return self.kernels.draw_noise(self.count, self.residual, state.loadings, slab, bounds, key)  # type: ignore[no-any-return]

    def draw_intercept(self, state: State, rng: Generator) -> Floats:
        """See ``Samples``; random numbers are keyed by the feature. T and q follow at once, before ``refresh``."""
        (moments, shifted), key = self._moments(), fresh_key(rng)
        of = moments, state.noise_precision, shifted, self._reduced_by, key
        drawn, self.power = self.kernels.draw_means(state.loadings, self.cross, *of)
        self._reduced_by = drawn
        return drawn  # type: ignore[no-any-return]


def gpu_samples(data: Observed, tf32: bool = False, threads: int = 1, device: Any = None) -> DeviceSamples:
    """A chain's samples on the GPU; ``device`` is the first one there is unless given. GpuError where there is none."""
    kernels = GpuKernels(device or CupyDevice(tf32), threads)
    return DeviceSamples(DeviceTable.of(data, kernels), kernels)


def _width(array: Any) -> np.int32:
    """How far apart rows are."""
    return np.int32(array.strides[0] // array.itemsize)
