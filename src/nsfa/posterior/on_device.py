"""Scores of samples on a GPU, where the chains were on one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from nsfa.arrays import Floats
from nsfa.backends import WORTH_GPU
from nsfa.draw import Draw
from nsfa.gpu_samples import DeviceTable
from nsfa.kernels import device
from nsfa.kernels.gpu import GpuKernels
from nsfa.posterior.latent import Tables
from nsfa.posterior.project import SampleMoments

Moments = Callable[[Draw, Floats | None], SampleMoments]


@contextmanager
def moments_on_device(tables: Tables) -> Iterator[Moments | None]:
    """What gives the moments of all samples' scores under a draw, its loadings rotated; None where the CPU does.

    The table is sent once, for all draws. GpuError where the device has too little memory.
    """
    data = tables.data
    large = data.shape[0] * data.shape[1] >= WORTH_GPU and not data.elsewhere
    if tables.backend != "gpu" or not large or not data.complete or device.gpu_missing() is not None:
        yield None
        return
    there = device.CupyDevice()
    with device.enough_memory():
        table = DeviceTable.of(data, GpuKernels(there))
        try:
            yield lambda draw, rotation: _moments(table, draw, rotation)
        finally:
            table.release()
            there.trim()


def _moments(table: DeviceTable, draw: Draw, rotation: Floats | None) -> SampleMoments:
    n_samples = table.shape[1]
    if draw.n_factors == 0:
        # libraries of a device take no empty matrices
        return SampleMoments(np.zeros((n_samples, 0)), np.zeros((n_samples, 0)), np.zeros(n_samples))
    loadings = draw.loadings()
    given = loadings if rotation is None else loadings @ rotation, draw.noise_precision, draw.intercept
    mean, variance = table.score_moments(*(None if a is None else table.device.put(a) for a in given))
    # the densities are for who asks for them
    return SampleMoments(mean, np.broadcast_to(variance, mean.shape), np.zeros(n_samples))
