"""Downloading, against a server on this machine that serves small containers laid out like the public ones."""

import hashlib
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from nsfa.datasets import fetch_breast, fetch_ecoli, fetch_prostate, real, sources

pooch = pytest.importorskip("pooch")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        self.server.requested.append(self.path)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A web server on an empty folder, an empty cache, and no data directory; ``requested`` lists what was asked."""
    (tmp_path / "web").mkdir()
    monkeypatch.setenv("NSFA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("NSFA_DATA_DIR", raising=False)
    web = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "web")))
    web.requested, web.folder, web.cache = [], tmp_path / "web", tmp_path / "cache"
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(
        sources, "URLS", {name: (f"http://127.0.0.1:{web.server_port}/{name}",) for name in sources.URLS}
    )
    yield web
    web.shutdown()
    thread.join()
    web.server_close()


def expect(monkeypatch, **tables):
    digest = {name: hashlib.sha256(sources.canonical(values)).hexdigest() for name, values in tables.items()}
    monkeypatch.setattr(sources, "DIGESTS", digest)


def serve_breast(server, values):
    from scipy.io import savemat

    savemat(server.folder / "nsfa_example.mat", {"Y": values})


class NamedMatrix:
    def __init__(self, values, rows, columns):
        self.values, self.names = np.asarray(values, float), [np.array(rows), np.array(columns)]


def write_rda(path, content):
    """An .rda file; NamedMatrix becomes an R matrix with dimnames."""
    rdata = pytest.importorskip("rdata")
    to_r = pytest.importorskip("rdata.conversion.to_r")

    def matrix(value, converter):
        shape = np.array(value.values.shape, dtype=np.int32)
        attributes = converter.convert_to_r_attributes({"dim": shape, "dimnames": value.names})
        flat = value.values.ravel(order="F")
        return to_r.build_r_object(rdata.parser.RObjectType.REAL, value=flat, attributes=attributes)

    constructors = {**to_r.DEFAULT_CLASS_MAP, NamedMatrix: matrix}
    rdata.write_rda(path, content, constructor_dict=constructors)


def test_breast_is_downloaded_once_and_rounded(server, monkeypatch, rng):
    Y = rng.normal(8, 2, size=(4, 3))
    expect(monkeypatch, **{"breast_226x251.csv.gz": Y})
    serve_breast(server, Y)
    first, again = fetch_breast(), fetch_breast()
    assert server.requested == ["/nsfa_example.mat"]
    np.testing.assert_array_equal(first.X, [[float(f"{y:.6g}") for y in row] for row in Y.T])
    np.testing.assert_array_equal(first.X, again.X)
    assert first.feature_names == ["g1", "g2", "g3", "g4"] and first.sample_names == ["s1", "s2", "s3"]


def test_a_second_address_is_tried(server, monkeypatch, rng):
    Y = rng.normal(size=(2, 3))
    expect(monkeypatch, **{"breast_226x251.csv.gz": Y})
    serve_breast(server, Y)
    there = sources.URLS["nsfa_example.mat"][0]
    monkeypatch.setitem(sources.URLS, "nsfa_example.mat", (there + ".moved", there))
    assert fetch_breast().X.shape == (3, 2)


def test_other_values_are_refused_and_removed(server, monkeypatch, rng):
    Y = rng.normal(8, 2, size=(4, 3))
    expect(monkeypatch, **{"breast_226x251.csv.gz": Y})
    changed = Y.copy()
    changed[2, 1] += 1e-4
    serve_breast(server, changed)
    with pytest.raises(ValueError, match="nsfa_example.mat must hold the published table. Got other content") as caught:
        fetch_breast()
    assert caught.value.__suppress_context__ and not list(server.cache.iterdir())
    serve_breast(server, Y)
    assert fetch_breast().X.shape == (3, 4)


@pytest.mark.parametrize("content", [b"<html>please log in</html>", b"", b"MATLAB 5.0 MAT-file" + bytes(200)])
def test_a_file_that_cannot_be_read_is_refused_and_removed(server, content):
    (server.folder / "nsfa_example.mat").write_bytes(content)
    with pytest.raises(ValueError, match="must hold the published table"):
        fetch_breast()
    assert not list(server.cache.iterdir())


def test_digests_are_of_values_not_of_their_last_bits():
    values = np.array([[1.2345678, -0.0], [1e-9, 123456.0]])
    assert sources.canonical(values) == b"1.23457,0\n1e-09,123456\n"
    assert sources.canonical(values * (1 + 1e-12)) == sources.canonical(values)


def test_offline_is_one_sentence(server, monkeypatch):
    monkeypatch.setitem(sources.URLS, "nsfa_example.mat", ("http://127.0.0.1:9/example.mat",))
    with pytest.raises(
        ConnectionError, match="connect to the network or set NSFA_DATA_DIR to a directory that"
    ) as caught:
        fetch_breast()
    sentence = str(caught.value)
    assert sentence.endswith("holds breast_226x251.csv.gz.") and "\n" not in sentence
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_a_missing_page_is_the_same_sentence(server):
    with pytest.raises(ConnectionError, match=r"nsfa_example.mat could not be downloaded \(HTTPError\); connect"):
        fetch_breast()


def test_a_cache_that_cannot_be_written_is_one_sentence(server, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError("no")

    monkeypatch.setattr(pooch.Pooch, "fetch", refuse)
    with pytest.raises(
        PermissionError, match="must be writable. Got '.*cache'; set NSFA_CACHE_DIR to another."
    ) as caught:
        fetch_breast()
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("module", "fetch"), [("pooch", fetch_breast), ("rdata", fetch_ecoli), ("rdata", fetch_prostate)]
)
def test_a_missing_library_names_the_extra(server, monkeypatch, module, fetch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs {module} .*: pip install 'nsfa\[datasets\]'"):
        fetch()


def test_ecoli_from_its_r_object(server, monkeypatch, rng):
    expression, network = rng.normal(size=(3, 2)), np.array([[1, 0], [0, -1], [1, 1]])
    expect(monkeypatch, **{"ecoli_expression.csv": expression, "ecoli_connectivity.csv": network})
    genes = ["aceB", "NA", "acs"]
    content = {
        "CONNECdata": NamedMatrix(network, genes, ["ArcA", "CRP"]),
        "GEdata": NamedMatrix(expression, genes, ["t.5", "t.5.1"]),
        "timepoint": np.array([0.1, 0.1]),
    }
    write_rda(server.folder / "plsgenomics_Ecoli.rda", {"Ecoli": content})
    data = fetch_ecoli()
    np.testing.assert_allclose(data.X, expression.T, rtol=1e-5)
    np.testing.assert_array_equal(data.connectivity, network)
    assert data.feature_names == genes and data.sample_names == ["t.5", "t.5.1"]
    assert data.regulator_names == ["ArcA", "CRP"]


def serve_prostate(server, rng, normal_of_second=None):
    """Two files that share 2 normal samples; row 1 of the first, a control, is absent from the second."""
    import pandas as pd

    normal, primary, spread = (rng.uniform(0.3, 900, size=(4, n)) for n in (2, 1, 2))
    symbols, kept = ["MYH11", "AFFX", "AMACR", "MYH11"], [0, 2, 3]
    second = normal[kept] if normal_of_second is None else normal_of_second
    files = {
        # samples are not sorted by class
        "p": (np.column_stack([normal[:, 0], primary, normal[:, 1]]), symbols, ["0", "1", "0"]),
        "m": (np.hstack([second, spread[kept]]), [symbols[i] for i in kept], ["0", "0", "1", "1"]),
    }
    for kind, (values, rows, classes) in files.items():
        columns = [f"x{i}" for i in range(values.shape[1])]
        content = {"exprsdata": NamedMatrix(values, rows, columns), "phenotypes": pd.Categorical(classes)}
        write_rda(server.folder / f"GSBenchMark_prostate_GDS2545_{kind}_nf.RData", content)
    return np.log2(np.maximum(np.hstack([normal, primary, spread])[kept], 1))


def test_prostate_joins_its_two_r_objects(server, monkeypatch, rng):
    joined = serve_prostate(server, rng)
    expect(monkeypatch, **{"prostate_yu_12558x108.csv.gz": joined})
    data = fetch_prostate()
    np.testing.assert_allclose(data.X, joined.T, rtol=1e-5)
    assert data.feature_names == ["MYH11", "AMACR", "MYH11.2"]
    assert data.sample_names == ["N01", "N02", "P01", "M01", "M02"]
    assert data.target.tolist() == ["normal"] * 2 + ["primary"] + ["metastasis"] * 2


def test_prostate_files_that_do_not_belong_together_are_removed(server, monkeypatch, rng):
    expect(monkeypatch, **{"prostate_yu_12558x108.csv.gz": serve_prostate(server, rng, rng.uniform(size=(3, 2)))})
    with pytest.raises(ValueError, match="p_nf.RData and GSBenchMark_prostate_GDS2545_m_nf.RData must hold"):
        fetch_prostate()
    assert not list(server.cache.iterdir())


@pytest.mark.parametrize("name", sorted(sources.DIGESTS))
def test_the_digests_are_those_of_the_reference_files(data_dir, name):
    table = real._read(data_dir, name)
    np.testing.assert_array_equal(sources.verified(name, table.values), table.values)
    table.values[1, 1] *= 1.001
    table.values[1, 1] += 0.001
    with pytest.raises(ValueError, match="digest"):
        sources.verified(name, table.values)


def test_repeated_symbols_are_numbered_as_in_the_reference_file(data_dir):
    names = real._read(data_dir, "prostate_yu_12558x108.csv.gz").rows
    everything = set(names)
    symbols = [stem if (stem := name.rpartition(".")[0]) in everything and name != stem else name for name in names]
    assert len(set(symbols)) == 9696
    assert sources._numbered(symbols) == names


def test_every_address_is_secure_and_ends_in_the_file_it_is_kept_as():
    for name, addresses in sources.URLS.items():
        for url in addresses:
            assert url.startswith("https://raw.githubusercontent.com/")
            assert name.endswith("_" + url.rsplit("/", 1)[-1])
