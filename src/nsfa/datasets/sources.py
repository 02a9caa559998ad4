"""The public files behind the paper's real data: downloaded once, checked by content, read into tables.

The files are containers (MATLAB, R) whose bytes may be re-packed, so the numbers inside are checked: the table as CSV
with 6 significant digits must have the SHA-256 digest noted here.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nsfa.arrays import Bools, Floats

RAW = "https://raw.githubusercontent.com"
URLS = {
    # the script that loads it lives in code/; no commit to pin is published, so the digest alone guards it
    "nsfa_example.mat": (
        f"{RAW}/davidaknowles/nsfa/HEAD/code/example.mat",
        f"{RAW}/davidaknowles/nsfa/HEAD/example.mat",
    ),
    "plsgenomics_Ecoli.rda": (f"{RAW}/cran/plsgenomics/bef2acf6509eb6dcdfb72dc5b5c41d14e6c41f19/data/Ecoli.rda",),
    "GSBenchMark_prostate_GDS2545_p_nf.RData": (
        f"{RAW}/bioc/GSBenchMark/27b6c036c27122990d62fcdd48f3dd2b92997a12/data/prostate_GDS2545_p_nf.RData",
    ),
    "GSBenchMark_prostate_GDS2545_m_nf.RData": (
        f"{RAW}/bioc/GSBenchMark/4fef4eebadceeb9990a56e2b74bef357a02dadc4/data/prostate_GDS2545_m_nf.RData",
    ),
}
DIGESTS = {
    "breast_226x251.csv.gz": "4af942e87aab5d69174245533291540e766b69a5b50d42ae71031e6b2058ca7c",
    "ecoli_expression.csv": "08176edbc04a8509ef9c56831da7493751916a6eb053d49bfb37c273e17b1e5e",
    "ecoli_connectivity.csv": "58410222934cde44736c1a4c73c810ba101dbe255f51b3e877df7ea59aefd447",
    "prostate_yu_12558x108.csv.gz": "cd8244cd0ff650eb75b687bebad89b21e71b8e40a3d849666a70ba3e5a9fc03d",
}


class NamedValues(NamedTuple):
    """Values with names, genes in rows."""

    rows: list[str]
    columns: list[str]
    values: Floats


def breast() -> NamedValues:
    """Variable Y of the example of the original MATLAB code: 226 genes × 251 samples, without names."""
    from scipy.io import loadmat

    path = download("nsfa_example.mat", "breast_226x251.csv.gz")
    with _damage_removes(path):
        values = loadmat(path)["Y"]
        genes, samples = ([f"{letter}{i + 1}" for i in range(n)] for letter, n in zip("gs", values.shape, strict=True))
        return NamedValues(genes, samples, verified("breast_226x251.csv.gz", values))


def ecoli() -> tuple[NamedValues, NamedValues]:
    """Expression (100 × 23) and signed connectivity (100 × 16) of object Ecoli of the R package plsgenomics."""
    read_rda = _r_reader("fetch_ecoli")
    path = download("plsgenomics_Ecoli.rda", "ecoli_expression.csv and ecoli_connectivity.csv")
    with _damage_removes(path):
        content = read_rda(path)["Ecoli"]
        expression, connectivity = _named(content["GEdata"]), _named(content["CONNECdata"])
        return (
            expression._replace(values=verified("ecoli_expression.csv", expression.values)),
            connectivity._replace(values=verified("ecoli_connectivity.csv", connectivity.values)),
        )


def prostate() -> NamedValues:
    """log2 signals of the normal, primary and metastatic samples of GDS2545 in the R package GSBenchMark.

    The package holds normal + primary and normal + metastatic samples; the rows of the second are rows of the first, in
    the same order, recognised by symbol and the signals of the normal samples.
    """
    name = "prostate_yu_12558x108.csv.gz"
    read_rda = _r_reader("fetch_prostate")
    paths = [download(f"GSBenchMark_prostate_GDS2545_{kind}_nf.RData", name) for kind in "pm"]
    with _damage_removes(*paths):
        (longer, primary), (shorter, metastatic) = (_signals(read_rda(path)) for path in paths)
        normal, spread = longer.values[:, ~primary], shorter.values[:, metastatic]
        kept = _positions(_keys(shorter.rows, shorter.values[:, ~metastatic]), _keys(longer.rows, normal))
        signal = np.hstack([normal[kept], longer.values[kept][:, primary], spread])
        counts = (("N", normal.shape[1]), ("P", int(primary.sum())), ("M", spread.shape[1]))
        samples = [f"{letter}{i + 1:02d}" for letter, n in counts for i in range(n)]
        return NamedValues(_numbered(shorter.rows), samples, verified(name, np.log2(np.maximum(signal, 1.0))))


def download(name: str, files: str) -> Path:
    """Path in the cache of a file of URLS; ``files`` are what NSFA_DATA_DIR would have to hold instead."""
    return cached(name, URLS[name], f"set NSFA_DATA_DIR to a directory that holds {files}")


def cached(name: str, urls: Sequence[str], instead: str) -> Path:
    """Path of ``name`` in the cache, downloaded from the first of ``urls`` that has it unless already there.

    The cache is the user's cache directory, or the directory named by the environment variable NSFA_CACHE_DIR. Where
    nothing can be downloaded, the error says what to do ``instead``.
    """
    try:
        import pooch
    except ImportError:
        raise ImportError(f"{name} needs pooch to be downloaded: pip install 'nsfa[datasets]', or {instead}.") from None
    failure = ""
    for url in urls:
        store = pooch.create(
            pooch.os_cache("nsfa"), base_url="", env="NSFA_CACHE_DIR", registry={name: None}, urls={name: url}
        )
        try:
            return Path(store.fetch(name))
        except PermissionError:
            raise PermissionError(
                f"the cache directory must be writable. Got {str(store.abspath)!r}; set NSFA_CACHE_DIR to another."
            ) from None
        except OSError as error:
            failure = failure or type(error).__name__
    raise ConnectionError(f"{urls[0]} could not be downloaded ({failure}); connect to the network or {instead}.")


def verified(name: str, values: Any) -> Floats:
    """Values rounded to 6 significant digits, or ValueError if they are not those of the table ``name``."""
    text = canonical(values)
    if hashlib.sha256(text).hexdigest() != DIGESTS[name]:
        raise ValueError(f"the values of {name} must have SHA-256 digest {DIGESTS[name]}.")
    return np.loadtxt(io.BytesIO(text), delimiter=",", ndmin=2)


def canonical(values: Any) -> bytes:
    """The numbers alone as CSV, 6 significant digits each: what the digests are taken of."""
    buffer = io.BytesIO()
    np.savetxt(buffer, np.asarray(values, dtype=float) + 0.0, fmt="%.6g", delimiter=",")  # + 0.0: no "-0"
    return buffer.getvalue()


@contextmanager
def _damage_removes(*paths: Path) -> Iterator[None]:
    """Turn any failure to read or verify the files into one sentence, and take them out of the cache."""
    try:
        yield
    except Exception:  # noqa: BLE001 - a damaged container can raise anything
        for path in paths:
            path.unlink(missing_ok=True)
        names = " and ".join(path.name for path in paths)
        raise ValueError(
            f"{names} must hold the published table. Got other content, now removed from the cache; try again or set "
            "NSFA_DATA_DIR to a directory that holds the table."
        ) from None


def _r_reader(caller: str) -> Any:
    try:
        from rdata import read_rda
    except ImportError:
        raise ImportError(f"{caller} needs rdata to read R files: pip install 'nsfa[datasets]'.") from None
    # files written by an old R do not say how their strings are encoded
    return partial(read_rda, default_encoding="latin-1")


def _named(matrix: Any) -> NamedValues:
    """A matrix with dimnames, which the R reader returns as an xarray DataArray, or a data frame."""
    labels = (matrix.index, matrix.columns) if hasattr(matrix, "columns") else (matrix.coords[d] for d in matrix.dims)
    rows, columns = ([str(label) for label in np.asarray(axis)] for axis in labels)
    return NamedValues(rows, columns, np.asarray(matrix, dtype=float))


def _signals(content: dict[str, Any]) -> tuple[NamedValues, Bools]:
    """The signals of one GSBenchMark file, and which of its samples are tumours (phenotype "1")."""
    table = _named(content["exprsdata"])
    return table, np.asarray(np.asarray(content["phenotypes"]).astype(float) > 0)


def _keys(rows: list[str], values: Floats) -> list[tuple[str, bytes]]:
    return [(name, np.ascontiguousarray(row).tobytes()) for name, row in zip(rows, values, strict=True)]


def _positions(wanted: list[Any], available: list[Any]) -> list[int]:
    """Where ``wanted``, a subsequence of ``available``, lies in it."""
    rest = enumerate(available)
    found = [next((i for i, key in rest if key == target), -1) for target in wanted]
    if -1 in found:
        raise ValueError("every row must be found, in order.")
    return found


def _numbered(names: list[str]) -> list[str]:
    """Unique names: the k-th repeat of a name gets the suffix ".k", from .2 on."""
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return unique
