"""What to run next, in numbers: one answer, put into the words of the command line, the report and Python."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from nsfa.length import Length
from nsfa.posterior.diagnostics import ESS_LIMIT, RHAT_LIMIT, TOO_FEW_DRAWS, Diagnostics

# Chains that disagree get so many more draws at least; rough averages at most so many times the draws they have.
LEAST_MORE = 1000
MOST_TIMES = 20


class Advice(NamedTuple):
    """``draws`` more per chain for a run that can go on, 0 if that does not help; ``again``, settings of a new fit."""

    what: str
    draws: int
    again: dict[str, Any]
    why: str

    def for_command(self, out: str) -> str:
        """A line that names the command, for a run in the directory ``out``."""
        if self.draws:
            return f"{self.what}: nsfa resume {out} --draws {self.draws}"
        if self.again == {"preview": False}:
            return f"{self.what}, with its whole warm-up: the same nsfa fit without --preview, to another directory"
        return f"{self.what}: nsfa fit with " + " ".join(f"--{name} {value}" for name, value in self.again.items())

    def for_python(self) -> str:
        """A sentence that names the calls."""
        resume = f", or nsfa.resume(store, draws={self.draws})" if self.draws else ""
        return f"{self.what}: fit again with {self._settings()}{resume}."

    def for_report(self) -> str:
        """A sentence for readers who may use either."""
        resume = f"go on for {self.draws} more draws per chain (nsfa resume), or " if self.draws else ""
        return f"What to do: {resume}fit again with {self._settings()}. {self.why}"

    def _settings(self) -> str:
        return " and ".join(f"{name}={value}" for name, value in self.again.items())


def advise(found: Diagnostics, length: Length, n_chains: int, made: int) -> Advice | None:
    """What to run after chains of ``made`` draws each; None if all is well, or if no more draws would help."""
    if length.preview:
        why = (
            "Strong factors and predictions are near those of a full fit; the number of factors, weak factors and "
            f"probabilities may change. More draws would keep this preview's warm-up, {length.tune} sweeps."
        )
        return Advice("Full run", 0, {"preview": False}, why)
    if n_chains == 1:
        return Advice("Run several chains", 0, {"chains": 4}, "One chain has nothing to agree with.")
    if found.converged or not all(math.isfinite(d.mean) for d in found.table):
        return None
    if made < TOO_FEW_DRAWS or max(d.rhat for d in found.table) > RHAT_LIMIT:
        more = max(LEAST_MORE, 2 * made)
        again = {"tune": 2 * max(length.tune, 100), "draws": made + more}
        return Advice("Run longer", more, again, "Until the chains agree, what is not settled may still change.")
    times = min(max(2, math.ceil(ESS_LIMIT / max(min(d.ess_bulk for d in found.table), 1.0))), MOST_TIMES)
    why = "The chains agree, but their averages are still rough."
    return Advice("Run longer", (times - 1) * made, {"draws": times * made}, why)
