"""``config.toml``: every setting of a run, enough to repeat it."""

from __future__ import annotations

import platform
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import tomli_w

from nsfa.cli.options import COMPANIONS, ReportOptions
from nsfa.cli.output import write_text
from nsfa.version import __version__

CONFIG = "config.toml"
PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "pandas", "matplotlib", "joblib", "typer", "rich")
Sections = dict[str, dict[str, Any]]


def versions() -> dict[str, str]:
    """Of this package, Python, the system, and what the draws depend on."""
    return {
        "nsfa": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: metadata.version(name) for name in PACKAGES},
    }


def command_line(name: str, argument: str | None, out: Path, *groups: Any) -> str:
    """The command that repeats a run: what differs from the defaults, and the seed in any case."""
    words = ["nsfa", name, *([argument] if argument else []), "-o", str(out)]
    for group in groups:
        for field in fields(group):
            value, flag = getattr(group, field.name), "--" + field.name.replace("_", "-")
            default = None if field.default is MISSING else field.default
            if value == default and field.name != "seed":
                continue
            if isinstance(value, bool):
                words.append(flag if value else flag.replace("--", "--no-", 1))
            else:
                words += [flag, str(value)]
    return shlex.join(words)


def section(group: Any) -> dict[str, Any]:
    """A group of options as plain values; what is not set is left out."""
    return _scalars(asdict(group))


def write_config(out: Path, command: str, sections: Mapping[str, Mapping[str, Any]]) -> None:
    """Write ``config.toml``: the command, when, the sections, and the versions."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    _write(out, command.split()[1], {"command": command, "created": now}, {**sections, "versions": versions()})


def _write(out: Path, name: str, top: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> None:
    head = f"# {name} of nsfa {__version__}; the command, with another -o, repeats it.\n"
    write_text(out / CONFIG, head + to_toml(top, sections))


def read_config(out: Path) -> dict[str, Any]:
    """What ``config.toml`` holds; empty if there is none."""
    path = out / CONFIG
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} must be a TOML file. Got one that cannot be read ({error}); mend or remove it."
        ) from None


def change_config(out: Path, sections: Mapping[str, Mapping[str, Any]], also: Sequence[str] = ()) -> None:
    """Update some values of ``config.toml`` where there is one, in its command, and where ``also`` repeats them.

    None takes a value away.
    """
    config = read_config(out)
    if not config:
        return
    command = shlex.split(config.pop("command", "nsfa fit"))
    for name, values in sections.items():
        for part in (name, *also):
            config[part] = _scalars({**config.get(part, {}), **values})
        # the demo's results are its own: it has no options for them
        for key, value in values.items() if name != "results" or command[1] == "fit" else ():
            _set_flag(command, "--" + key.replace("_", "-"), None if value is None else _scalar(value))
    _write(out, command[1], {"command": shlex.join(command), "created": config.pop("created", "")}, config)


def _set_flag(command: list[str], flag: str, value: Any) -> None:
    if isinstance(value, bool):
        if value and (opposite := flag.replace("--", "--no-", 1)) in command:
            command.remove(opposite)
        elif value and flag not in command:
            command.append(flag)
        elif not value and flag in command:
            command.remove(flag)
    elif value is None and flag in command:
        place = command.index(flag)
        del command[place : place + 2]
    elif flag in command:
        command[command.index(flag) + 1] = str(value)
    elif value is not None:
        command += [flag, str(value)]


def report_options(config: Mapping[str, Any]) -> ReportOptions:
    """The options of the results, as a run was started with."""
    given: dict[str, Any] = dict(config.get("results", {}))
    for name in COMPANIONS:
        if name in given:
            given[name] = Path(given[name])
    known = {field.name for field in fields(ReportOptions)}
    return ReportOptions(**{name: value for name, value in given.items() if name in known})


def to_toml(top: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Scalars, then tables of scalars; None is left out."""
    return tomli_w.dumps({**_scalars(top), **{name: _scalars(values) for name, values in sections.items()}})


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _scalar(value) for key, value in values.items() if value is not None}


def _scalar(value: Any) -> Any:
    """A number, or text: file names may hold what is none."""
    return value if isinstance(value, (int, float)) else str(value).encode("utf-8", "replace").decode("utf-8")
