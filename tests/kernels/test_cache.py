"""Compiled code is that of the sources as they are."""

import os
import subprocess
import sys

from nsfa.kernels import cache

HELPER = "from pathlib import Path\nfrom nsfa.kernels.cache import folder_for, kept\njit = kept(folder_for(Path(__file__).parent))\n"
HELPER += "@jit\ndef helper(x):\n    return x + {}\n"
CALLER = "from helper import helper, jit\n@jit\ndef caller(x):\n    return helper(x)\n"
ASK = "import caller; print(caller.caller(1), sum(caller.caller.stats.cache_hits.values()))"


def ask(folder) -> list[int]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, env=env, check=True)
    return [int(word) for word in done.stdout.split()]


def test_a_change_in_another_file_is_compiled_and_the_rest_is_kept(tmp_path):
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "helper.py").write_text(HELPER.format(1))
    assert ask(tmp_path) == [2, 0]
    assert ask(tmp_path) == [2, 1]
    # nothing of the caller's own file changes
    (tmp_path / "helper.py").write_text(HELPER.format(10))
    assert ask(tmp_path) == [11, 0]


def test_where_compiled_code_goes(tmp_path, monkeypatch):
    sources = tmp_path / "package"
    sources.mkdir()
    (sources / "a.py").write_text("1")
    monkeypatch.setattr(cache._config, "CACHE_DIR", "")
    monkeypatch.setattr(cache, "_user_cache", lambda: [tmp_path / "home"])
    first = cache.folder_for(sources)
    assert first.parent == sources / "__pycache__" and cache.folder_for(sources) == first
    (sources / "a.py").write_text("2")
    second = cache.folder_for(sources)
    assert second != first and second.parent == first.parent
    monkeypatch.setattr(cache._config, "CACHE_DIR", str(tmp_path / "given"))
    assert cache.folder_for(sources) == tmp_path / "given" / second.name
    monkeypatch.setattr(cache._config, "CACHE_DIR", "")
    # a package that cannot be written to, and then a home as well
    for path in sources.rglob("nsfa-*"):
        path.rmdir()
    (sources / "__pycache__").rmdir()
    (sources / "__pycache__").write_text("")
    assert cache.folder_for(sources) == tmp_path / "home" / second.name
    (tmp_path / "home" / second.name).rmdir()
    (tmp_path / "home" / second.name).write_text("")
    assert cache.folder_for(sources) is None


def test_code_of_earlier_sources_is_removed_but_for_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr(cache._config, "CACHE_DIR", "")
    seen = []
    for i in range(8):
        (tmp_path / "a.py").write_text(str(i))
        seen.append(cache.folder_for(tmp_path).name)
        os.utime(tmp_path / "__pycache__" / seen[-1], (i, i))
    assert sorted(path.name for path in (tmp_path / "__pycache__").iterdir()) == sorted(seen[-4:])


def test_without_a_place_functions_are_compiled_all_the_same():
    assert cache.kept(None)(lambda x: x + 1)(1) == 2
