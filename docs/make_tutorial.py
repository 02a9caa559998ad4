"""Run the code of docs/tutorial.md and put its output and its figures into the page: ``python docs/make_tutorial.py``.

What a block prints replaces the text block that follows it, and the figure it draws becomes the picture that follows.
Needs scanpy and umap-learn, and the prostate table (NSFA_DATA_DIR, or a network).
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

DOCS = Path(__file__).absolute().parent
PAGE = DOCS / "tutorial.md"
# code, then what it prints, then the picture it draws
BLOCK = re.compile(
    r"```python\n(?P<code>.*?)```\n"
    r"(?P<text>\n```text\n.*?```\n)?"
    r"(?P<picture>\n!\[[^]]*\]\((?P<name>[^)]*)\)\n)?",
    re.S,
)
OPTIONS = {"display.width": 110, "display.max_columns": 20, "display.max_colwidth": 40, "display.precision": 3}


def run_blocks(page: str, change: Callable[[str], str] = str) -> Iterator[tuple[re.Match[str], str]]:
    """Run the blocks of a page one after another, as ``change`` makes them; yield each with what it printed."""
    names: dict[str, Any] = {}
    options = [word for option in OPTIONS.items() for word in option]
    for block in BLOCK.finditer(page):
        printed = io.StringIO()
        with redirect_stdout(printed), pd.option_context(*options):
            exec(compile(change(block["code"]), str(PAGE), "exec"), names)
        yield block, "\n".join(line.rstrip() for line in printed.getvalue().rstrip().splitlines())


def write_page() -> None:
    """Write the page anew, with its pictures."""
    page = PAGE.read_text(encoding="utf-8")
    done, end = [], 0
    for block, printed in run_blocks(page):
        text = f"\n```text\n{printed}\n```\n" if printed else ""
        done += [page[end : block.start()], f"```python\n{block['code']}```\n", text, block["picture"] or ""]
        end = block.end()
        if block["name"]:
            plt.gcf().savefig(DOCS / block["name"], dpi=80, bbox_inches="tight")
        plt.close("all")
    PAGE.write_text("".join([*done, page[end:]]), encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        write_page()
