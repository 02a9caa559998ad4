"""The table of the consensus factors, printed within the width of a terminal."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nsfa.posterior.factors import OUTLYING, on_few_samples

WIDTH = 80
# What is printed, and under which heading.
_SHOWN = {
    "support": "support",
    "verdict": "verdict",
    "variance_explained": "variance",
    "n_core": "core",
    "n_features": "all",
    "top_features": "top_features",
}


class Summary(pd.DataFrame):  # type: ignore[misc]
    """A DataFrame whose text has the columns that most people want. What is taken from it is a plain one."""

    def __repr__(self) -> str:
        # changed in place, it is another table
        if not {*_SHOWN, "verdict"} <= {*self.columns, "verdict"} or self.index.name != "factor":
            return str(super().__repr__())
        shown = self[[name for name in _SHOWN if name in self]].rename(columns=_SHOWN)
        if len(shown) == 0:
            return "No factor is in more than half of the draws."
        with pd.option_context("display.width", None, "display.max_colwidth", None, "display.max_columns", None):
            rest = shown.drop(columns="top_features").to_string(formatters={"support": _share, "variance": _share})
        lines = rest.splitlines()
        room = WIDTH - len(lines[0]) - 2
        top = ["top_features", "", *(_cut(text, room) for text in shown["top_features"])]
        lines = [f"{line}  {text}".rstrip() for line, text in zip(lines, top, strict=True)]
        few = [int(k) for k in self.index[self["two_samples"] > OUTLYING]] if "two_samples" in self else []
        told = [] if not few else _wrapped(on_few_samples(few, "see two_samples"))
        return "\n".join([*lines, *told, *_wrapped(f"Columns: {', '.join(self.columns)}.")])

    def __str__(self) -> str:
        return self.__repr__()


def _share(value: Any) -> str:
    return f"{value:.1%}" if isinstance(value, float) else str(value)


def _cut(text: Any, room: int) -> str:
    """As many of the names as there is room for."""
    names = str(text).split(", ")
    for n in range(len(names), 0, -1):
        short = ", ".join(names[:n]) + (", …" if n < len(names) else "")
        if len(short) <= room:
            return short
    return names[0][: room - 1] + "…"


def _wrapped(text: str) -> list[str]:
    """A sentence in lines."""
    import textwrap

    return textwrap.wrap(text, WIDTH)
