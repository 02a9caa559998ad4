"""The page about all experiments, written from their files: every number on it is in a CSV beside it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nsfa.experiments import NAMES, frames
from nsfa.experiments.claims import FAILS, HOLDS, UNTESTED, Claim, read_claims
from nsfa.experiments.experiment import CLAIMS, NUMBERS, load, read_numbers, read_settings
from nsfa.experiments.page_text import INTRODUCTION, NOTES, compare_section
from nsfa.tasks import LAST

FIGURES, TABLES = Path("figures") / "reproduction", Path("reproduction")
MARK = {HOLDS: "holds", FAILS: "**does not hold**", UNTESTED: "*cannot be tested*"}


class Run(NamedTuple):
    """A finished experiment."""

    name: str
    folder: Path
    frame: Any
    settings: dict[str, Any]
    claims: list[Claim]

    @property
    def seconds(self) -> float:
        """Seconds of all tasks together."""
        return float(self.frame[self.frame.quantity == LAST].value.sum())


def write_page(results: Sequence[Path], docs: Path) -> Path:
    """Write ``reproduction.md`` into a documentation folder, with figures and CSVs in folders below it."""
    found = sorted((_read(folder) for folder in results), key=lambda run: NAMES.index(run.name))
    if not found:
        raise ValueError("page needs the directories of finished runs. Got none; run the experiments first.")
    for folder in (docs / FIGURES, docs / TABLES):
        folder.mkdir(parents=True, exist_ok=True)
    for run in found:
        shutil.copyfile(run.folder / NUMBERS, docs / TABLES / f"{run.name}.csv")
        shutil.copyfile(run.folder / CLAIMS, docs / TABLES / f"{run.name}.json")
        for figure in run.folder.glob("*.png"):
            shutil.copyfile(figure, docs / FIGURES / figure.name)
    parts = [INTRODUCTION, _totals(found), *map(_section, found), *map(compare_section, _only(found, "ecoli"))]
    path = docs / "reproduction.md"
    path.write_text("\n\n".join([*parts, _machine(found)]) + "\n", encoding="utf-8")
    return path


def _read(folder: Path) -> Run:
    if not (folder / CLAIMS).exists():
        raise ValueError(f"{str(folder)!r} holds no finished run; run the experiment to its end first.")
    settings = read_settings(folder)
    return Run(settings["experiment"], folder, read_numbers(folder), settings, read_claims(folder / CLAIMS))


def _only(runs: list[Run], name: str) -> list[Any]:
    return [run.frame for run in runs if run.name == name and (run.frame.model == "nsfa.compare").any()]


def _totals(runs: list[Run]) -> str:
    """What was run, what it took, and how the claims fared."""
    rows = [
        [
            f"[{load(run.name).TITLE}](#{run.name})", f"`nsfa reproduce {run.name} -o out/{run.name}`",
            str(run.settings["tasks"]), f"{run.seconds:,.0f}",
            *(str(sum(c.verdict == verdict and c.where != "this package" for c in run.claims)) for verdict in MARK),
        ]
        for run in runs
    ]  # fmt: skip
    total = ["all", "", *(f"{sum(float(row[i].replace(',', '')) for row in rows):,.0f}" for i in range(2, 7))]
    head = ["experiment", "command", "tasks", "core seconds", "claims that hold", "do not", "cannot be tested"]
    return table(head, [*rows, total])


def _section(run: Run) -> str:
    """Figures, notes, scores and claims of one experiment."""
    experiment = load(run.name)
    lines = [f"## {experiment.TITLE} {{: #{run.name} }}"]
    lines += [f"![{figure.stem}]({(FIGURES / figure.name).as_posix()})" for figure in sorted(run.folder.glob("*.png"))]
    if run.name in NOTES:
        lines.append(NOTES[run.name](run.frame, bool(run.settings["quick"])))
    if "remark" in run.settings:
        # what whoever ran it has to say about the run, added to settings.json by hand
        lines.append(f"*About this run:* {run.settings['remark']}")
    if frames.models(run.frame, "lppd"):
        lines.append(_scores(run.frame))
    rows = [[claim.claim, claim.where, MARK[claim.verdict], _figures(claim), claim.why] for claim in run.claims]
    lines.append(table(["claim", "where", "verdict", "figures", "why"], rows))
    name = run.name
    lines.append(f"All numbers: [{name}.csv]({TABLES}/{name}.csv); claims: [{name}.json]({TABLES}/{name}.json).")
    return "\n\n".join(lines)


def _figures(claim: Claim) -> str:
    return "; ".join(f"{name}: {value:g}" for name, value in claim.figures.items())


def _scores(frame: Any) -> str:
    """Means over the splits, the best first."""
    names = sorted(frames.models(frame, "lppd"), key=lambda name: -frames.mean(frame, name, "lppd"))
    rows = []
    for name in names:
        gap, margin = frames.difference(frame, "lppd", name, "NSFA")
        beside = "" if name == "NSFA" else f"{gap:+.3f} ± {margin:.3f}"
        rows.append(
            [
                name, f"{frames.mean(frame, name, 'lppd'):.3f}", beside, f"{frames.mean(frame, name, 'rmse'):.3f}",
                f"{frames.mean(frame, name, 'K_mean'):.1f}", f"{frames.mean(frame, name, LAST):.1f}",
            ]
        )  # fmt: skip
    head = ["model", "lppd", "less that of NSFA, 95 % interval", "rmse", "K", "seconds per split"]
    return table(head, rows)


def _machine(runs: list[Run]) -> str:
    """Versions and hardware."""
    s = runs[0].settings
    packages = ", ".join(f"{name} {version}" for name, version in s["packages"].items())
    size = "quick" if any(run.settings["quick"] for run in runs) else "full"
    return (
        f"## Versions and hardware\n\nThe {size} versions, with Python {s['python']}, {packages}; {s['system']} on "
        f"{s['machine']}, {s['processor'] or 'unknown processor'}, {s['cores']} cores."
    )


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
