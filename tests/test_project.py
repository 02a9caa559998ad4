"""The project itself: style, types, import time, and the documentation's examples."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "tutorial.md"})]


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("command", [("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)], ids=" ".join)
def test_style_and_types(command):
    done = run("-m", *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_loads_nothing_heavy():
    heavy = [
        "numba",
        "sklearn",
        "pandas",
        "matplotlib",
        "scipy",
        "joblib",
        "anndata",
        "arviz",
        "dask",
        "plotly",
        "pyarrow",
    ]
    done = run("-c", f"import sys, nsfa; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stdout


def test_every_public_name_can_be_loaded():
    import nsfa

    for name in nsfa.__all__:
        assert getattr(nsfa, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = nsfa.nonsense
    assert set(nsfa.__all__) == set(dir(nsfa))


def test_sampling_needs_none_of_the_optional_packages():
    code = (
        "import sys\n"
        "for name in 'pandas matplotlib anndata arviz dask plotly pyarrow'.split(): sys.modules[name] = None\n"
        "from nsfa import NSFA\n"
        "from nsfa.datasets import make_sparse_factors\n"
        "NSFA(chains=1, tune=5, draws=5).fit(make_sparse_factors(10, 8, 2).X)"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_every_python_example_runs_and_converges(page, tmp_path, monkeypatch):
    """The tutorial's, which fit a real table, are run shorter in test_docs.py."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_versions_agree():
    from nsfa import __version__

    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
