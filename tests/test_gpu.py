"""Chains on a device: what they draw is what the CPU draws from the same random numbers."""

import numpy as np
import pytest
import scipy.sparse as sp

from nsfa.chain import Chain, chain_generator
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.gpu_samples import gpu_samples
from nsfa.kernels import get_kernels
from nsfa.kernels.streams import fresh_key, normals_at
from nsfa.model import Priors, preset
from nsfa.passing import ObservedTable, PassingSamples


def table(shape=(30, 40), components=3, dtype="float64", sparse=False):
    X = make_sparse_factors(*shape, n_components=components, density=0.3, random_state=0).X
    return observe(sp.csr_array(np.where(np.abs(X) > 0.3, X, 0.0)) if sparse else X, dtype=dtype)


class Keyed(PassingSamples):
    """The CPU's samples, features' means with the random numbers that a device takes."""

    def draw_intercept(self, state, rng):
        error = normals_at(fresh_key(rng), np.arange(self.n_features), 0)
        zeros = type("Zeros", (), {"standard_normal": lambda _, n: error})()
        return super().draw_intercept(state, zeros)


def on_cpu(data):
    return Keyed(ObservedTable(data, get_kernels()), get_kernels(), at_once=True)


SETTINGS = {
    "nsfa": {},
    "sfa": {"n_components": 3},
    "sfa, shared": {"n_components": 3, "precision": "shared"},
    "nsfa, absolute": {"priors": Priors.learned()},
    "nsfa, isotropic": {"noise": "isotropic"},
    "nsfa, shared": {"noise": "shared"},
    "afa": {"n_components": 3},
    "fa": {"n_components": 3},
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_chain_on_a_device_draws_what_the_cpu_does(name, sparse, host_device):
    data, spec = table(sparse=sparse), preset(name.split(",")[0], **SETTINGS[name])
    start = 4 if spec.n_components is None else 0
    kinds = on_cpu(data), gpu_samples(data, device=host_device)
    cpu, gpu = (Chain(samples, spec, chain_generator(3, 0), start, tune=20) for samples in kinds)
    for _ in range(12):
        cpu.sweep()
        gpu.sweep()
    state = gpu.state.on_host()
    state.check_invariants()
    assert cpu.state.n_factors == state.n_factors > 0
    np.testing.assert_array_equal(cpu.state.active, state.active)
    np.testing.assert_allclose(cpu.state.loadings, state.loadings, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(cpu.state.noise_precision, state.noise_precision, rtol=1e-6)
    np.testing.assert_allclose(sum(cpu.log_density()), sum(gpu.log_density()), rtol=1e-9)
    assert cpu.samples.log_evidence == pytest.approx(gpu.samples.log_evidence, rel=1e-9)
