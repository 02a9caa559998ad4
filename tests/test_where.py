"""Where chains run: one setting of every front end, checked in one place."""

import json
from inspect import signature

import numpy as np
import pytest

import nsfa
from nsfa import NSFA, SFA, FactorModel
from nsfa.backends import BACKENDS, check_backend, open_samples, resolve_backend
from nsfa.cli.options import BackendName
from nsfa.data import observe
from nsfa.draws.store import _checksum, open_store
from nsfa.estimators import ESTIMATORS
from nsfa.kernels.numba_cpu import NumbaKernels
from nsfa.kernels.reference import ReferenceKernels
from nsfa.length import Length
from nsfa.model import preset
from nsfa.runner import sample

SHORT = {"chains": 1, "tune": 4, "draws": 3, "random_state": 0}


@pytest.fixture
def table(rng):
    return rng.standard_normal((20, 6))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backend": "tpu"}, "backend must be 'auto', 'cpu' or 'gpu'. Got 'tpu'"),
        ({"backend": None}, "Got None"),
        ({"backend": "numba"}, "Got 'numba'"),
        ({"tf32": "yes"}, "tf32 must be True or False. Got 'yes'"),
        ({"backend": "cpu", "tf32": True}, "tf32=True is for GPUs"),
    ],
)
def test_settings_that_do_not_exist_are_named(settings, words, table, tmp_path):
    with pytest.raises(ValueError, match=words):
        SFA(2, **SHORT, **settings).fit(table, store=tmp_path / "draws")
    assert not (tmp_path / "draws").exists()


def test_every_front_end_has_the_settings():
    for kind in (*ESTIMATORS.values(), FactorModel):
        known = signature(kind).parameters
        assert known["backend"].default == "auto" and known["tf32"].default is False
    assert [name.value for name in BackendName] == list(BACKENDS)


def test_the_backend_does_not_change_draws_on_the_cpu(table):
    one, other = (NSFA(**SHORT, backend=backend).fit(table).components_ for backend in ("auto", "cpu"))
    np.testing.assert_array_equal(one, other)


def test_kernels_by_name_stay_at_hand(table):
    data, spec = observe(table), preset("nsfa")
    assert type(open_samples(data, spec).kernels) is type(open_samples(data, spec, "numba").kernels) is NumbaKernels
    assert type(open_samples(data, spec, "reference").kernels) is ReferenceKernels
    drawn = sample(data, spec, chains=1, length=Length(2, 2), seed=0, backend="reference")
    assert len(drawn[0].draws) == 2
    check_backend("auto", True)
    assert resolve_backend("auto", data, spec) in ("cpu", "gpu")


def test_a_store_keeps_the_backend_and_those_of_earlier_versions_go_on(table, tmp_path):
    path = tmp_path / "draws"
    SFA(2, **SHORT).fit(table, store=path)
    assert open_store(path).settings.backend == "cpu" and open_store(path).settings.tf32 is False
    header = path / "store.json"
    tree = json.loads(header.read_bytes())
    del tree["tf32"], tree["checksum"]
    tree["backend"] = "numba"
    header.write_text(json.dumps({**tree, "checksum": _checksum(tree)}))
    assert len(nsfa.resume(path, draws=2).chains[0]) == 5


@pytest.mark.parametrize(
    ("settings", "words"), [({"noise": "robust"}, "noise='robust'"), ({"likelihood": "binary"}, "likelihood='binary'")]
)
def test_the_gpu_refuses_values_that_are_drawn(settings, words, table, tmp_path):
    expected = f"backend='gpu' is for Gaussian noise and likelihood. Got {words}; use backend='cpu'."
    with pytest.raises(ValueError, match=expected):
        NSFA(**SHORT, **settings, backend="gpu").fit((table > 0).astype(float), store=tmp_path / "draws")
    assert not (tmp_path / "draws").exists()
