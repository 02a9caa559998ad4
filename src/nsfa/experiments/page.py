"""The page about all experiments, written from their files: every number on it is in a CSV beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nsfa.experiments import frames
from nsfa.experiments.claims import FAILS, HOLDS, UNTESTED, Claim, words
from nsfa.experiments.experiment import CLAIMS, NAMES, NUMBERS, read_numbers, read_settings
from nsfa.tasks import LAST

FIGURES, TABLES = Path("figures") / "reproduction", Path("reproduction")
MARK = {HOLDS: "holds", FAILS: "**does not hold**", UNTESTED: "*cannot be tested*"}
COMPARED = ("lppd", "rmse", "K", "seconds")


class Run(NamedTuple):
    """A finished experiment."""

    name: str
    folder: Path
    frame: Any
    settings: dict[str, Any]
    claims: list[Claim]
    text: dict[str, Any]


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
    text = words("page")
    compared = (run.frame[run.frame.model == "nsfa.compare"] for run in found)
    parts = [
        text["introduction"], _totals(found), *(_section(run, text["peers"]) for run in found),
        *(text["compare"].format(table=_compared(rows)) for rows in compared if len(rows)),
        _machine(text["machine"], found),
    ]  # fmt: skip
    path = docs / "reproduction.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def _read(folder: Path) -> Run:
    if not (folder / CLAIMS).exists():
        raise ValueError(f"{str(folder)!r} holds no finished run; run the experiment to its end first.")
    settings = read_settings(folder)
    name, claims = settings["experiment"], json.loads((folder / CLAIMS).read_text(encoding="utf-8"))
    return Run(name, folder, read_numbers(folder), settings, [Claim(**claim) for claim in claims], words(name))


def _totals(runs: list[Run]) -> str:
    """What was run, what it took, and how the claims fared."""
    rows, sums = [], []
    for run in runs:
        verdicts = [claim.verdict for claim in run.claims if claim.where != "this package"]
        seconds = run.frame[run.frame.quantity == LAST].value.sum()
        sums.append([run.settings["tasks"], round(seconds), *map(verdicts.count, MARK)])
        rows.append([f"[{run.text['title']}](#{run.name})", f"`nsfa reproduce {run.name} -o out/{run.name}`"])
    head = ["experiment", "command", "tasks", "core seconds", "claims that hold", "do not", "cannot be tested"]
    every = zip([*rows, ["all", ""]], [*sums, [sum(column) for column in zip(*sums, strict=True)]], strict=True)
    return table(head, ([*row, *(f"{number:,}" for number in numbers)] for row, numbers in every))


def _section(run: Run, peers: str) -> str:
    """Figures, notes, scores and claims of one experiment."""
    name, frame = run.name, run.frame
    lines = [f"## {run.text['title']} {{: #{name} }}"]
    lines += [f"![{figure.stem}]({(FIGURES / figure.name).as_posix()})" for figure in sorted(run.folder.glob("*.png"))]
    if "note" in run.text:
        lines.append(_note(run.text["note"], frame, peers))
    if "remark" in run.settings:
        # what whoever ran it has to say about the run, added to settings.json by hand
        lines.append(f"*About this run:* {run.settings['remark']}")
    if (frame.quantity == "lppd").any():
        lines.append(_scores(frame))
    figures = ["; ".join(f"{what}: {value:g}" for what, value in claim.figures.items()) for claim in run.claims]
    rows = ([c.claim, c.where, MARK[c.verdict], some, c.why] for c, some in zip(run.claims, figures, strict=True))
    lines.append(table(["claim", "where", "verdict", "figures", "why"], rows))
    lines.append(f"All numbers: [{name}.csv]({TABLES}/{name}.csv); claims: [{name}.json]({TABLES}/{name}.json).")
    return "\n\n".join(lines)


def _note(note: str, frame: Any, peers: str) -> str:
    """The note with its numbers: splits, NSFA's K, how far the two averages of FA, at its ends, and NSFA are apart."""
    splits = frame[frame.quantity == "lppd"].replicate.nunique()
    ten = "as in the paper" if splits == 10 else "where the paper has ten"
    found = {"peers": peers, "splits": f"The scores are of {splits} splits, {ten}."}
    if "{k}" in note:
        found["k"] = f"{frames.means(frame, 'K_mean')['NSFA']:.0f}"
    if "{gaps}" in note:
        gap = frames.means(frame, "lppd") - frames.means(frame, "mean_of_logs")
        fa = frames.sized(frames.means(frame, "mean_of_logs"), "FA").index
        found["gaps"] = ", ".join(f"{gap[name]:.3f} for {name}" for name in (fa[0], fa[-1], "NSFA"))
    return note.format(**found)


def _scores(frame: Any) -> str:
    """Means over the splits, the best first."""
    score, error, k, seconds = (frames.means(frame, quantity) for quantity in ("lppd", "rmse", "K_mean", LAST))
    rows = []
    for name in score.sort_values(ascending=False, kind="stable").index:
        gap, margin = frames.difference(frame, "lppd", name, "NSFA")
        beside = "" if name == "NSFA" else f"{gap:+.3f} ± {margin:.3f}"
        numbers = [f"{error[name]:.3f}", f"{k[name]:.1f}", f"{seconds[name]:.1f}"]
        rows.append([name, f"{score[name]:.3f}", beside, *numbers])
    return table(["model", "lppd", "less that of NSFA, 95 % interval", "rmse", "K", "seconds per split"], rows)


def _compared(rows: Any) -> str:
    """What ``nsfa.compare`` gave on the E. coli table."""
    mean = rows.groupby("quantity").value.mean()
    found = {model: [mean[f"compare {model} {q}"] for q in COMPARED] for model in ("NSFA", "SFA 5", "FA 5")}
    lines = ([model, f"{a:.3f}", f"{b:.3f}", f"{c:.1f}", f"{d:.1f}"] for model, (a, b, c, d) in found.items())
    return table(["model", *COMPARED], lines)


def _machine(text: str, runs: list[Run]) -> str:
    """Versions and hardware."""
    s = runs[0].settings
    packages = ", ".join(f"{name} {version}" for name, version in s["packages"].items())
    size = "quick" if any(run.settings["quick"] for run in runs) else "full"
    processor = s["processor"] or "unknown processor"
    return text.format(**s | {"packages": packages, "size": size, "processor": processor})


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
