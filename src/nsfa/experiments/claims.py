"""The paper's claims, each with the numbers that speak for or against it.

The words are in the TOML file of the experiment: ``[claims.ID]`` has the claim in our words, where the paper makes it
(if not where most of the experiment's claims are), why it holds, and why not, if there is more to say then.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "cannot be tested"

Finding = tuple[str, bool | None, Mapping[str, float]]
"""A claim's ID, whether it holds, None where the numbers cannot tell, and the figures that decide."""


@dataclass(frozen=True)
class Claim:
    """A claim in our words, where the paper makes it, what came out, and why."""

    claim: str
    where: str
    verdict: str
    figures: dict[str, float]
    why: str


def words(name: str) -> dict[str, Any]:
    """The TOML file of that name."""
    return tomllib.loads((files(__package__) / f"{name}.toml").read_text(encoding="utf-8"))


def judge(name: str, findings: Iterable[Finding]) -> list[Claim]:
    """What was found, in the words of the experiment and in those that the real data sets share."""
    own = words(name)
    texts = own["claims"] | words("heldout")["claims"]
    out = []
    for key, holds, figures in findings:
        text = texts[key]
        verdict = UNTESTED if holds is None else HOLDS if holds else FAILS
        why = text.get("why_not", text["why"]) if verdict == FAILS else text["why"]
        rounded = {what: float(f"{value:.4g}") for what, value in figures.items()}
        out.append(Claim(text["claim"], text.get("where", own["where"]), verdict, rounded, why))
    return out
