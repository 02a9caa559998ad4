"""The paper's claims, each with the numbers that speak for or against it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "cannot be tested"


@dataclass(frozen=True)
class Claim:
    """A claim in our words, where the paper makes it, what came out, and why."""

    claim: str
    where: str
    verdict: str
    figures: dict[str, float]
    why: str


def judge(claim: str, where: str, true: bool, figures: dict[str, float], why: str, why_not: str = "") -> Claim:
    """A claim that the numbers decide; ``why_not`` is said instead of ``why`` where it does not hold."""
    return Claim(claim, where, HOLDS if true else FAILS, _rounded(figures), why if true or not why_not else why_not)


def untested(claim: str, where: str, why: str) -> Claim:
    """A claim that the numbers cannot decide."""
    return Claim(claim, where, UNTESTED, {}, why)


def write_claims(path: Path, claims: Sequence[Claim]) -> None:
    """All claims of an experiment as JSON."""
    path.write_text(json.dumps([asdict(claim) for claim in claims], indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_claims(path: Path) -> list[Claim]:
    """The claims of a run."""
    return [Claim(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in figures.items()}
