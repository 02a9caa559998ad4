"""What to run next: one answer, put into the words of the command line, the report and Python."""

from __future__ import annotations

from typing import Any, NamedTuple


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
