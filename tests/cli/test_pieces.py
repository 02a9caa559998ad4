"""Settings, memory, progress and words, one by one."""

import tomllib

import pytest

from nsfa.cli import errors, memory, progress, settings, words
from nsfa.cli.options import ReportOptions, SamplingOptions, TableOptions
from nsfa.runner import Progress


def report(**given):
    fields = {"chain": 0, "done": 10, "total": 100, "warming_up": True, "n_factors": 3, "log_joint": -12.34}
    return Progress(**{**fields, "acceptance": 0.25, "seconds": 1.0, **given})


@pytest.mark.parametrize("text", ["plain", 'a "b" \\ c', "two\nlines\x00\x7f\x1b", "名前 é", "\udce9", "[x]\t#", "'''"])
def test_what_is_written_as_toml_is_read_back(text):
    written = settings.to_toml({"name": text, "none": None}, {"part": {"number": 1.5, "yes": True, "big": 10**12}})
    read = tomllib.loads(written)
    assert read["name"] == text.encode("utf-8", "replace").decode()
    assert read["part"] == {"number": 1.5, "yes": True, "big": 10**12} and "none" not in read


def test_the_command_line_names_what_differs_from_the_defaults(tmp_path):
    groups = TableOptions(log2=True, top_genes=5), SamplingOptions(), ReportOptions(title="a b", report=False)
    line = settings.command_line("fit", "x y.csv", tmp_path, *groups)
    assert line == f"nsfa fit 'x y.csv' -o {tmp_path} --log2 --top-genes 5 --seed 0 --title 'a b' --no-report"


def test_the_estimate_grows_with_everything_it_should():
    size = {"chains": 4, "draws": 500, "processes": 2, "model": "nsfa", "n_components": None}
    small = memory.estimate((100, 1000), **size)
    assert 0.3e9 < small < 1.5e9
    for bigger in ({"chains": 400}, {"draws": 50_000}, {"n_components": 99, "draws": 5000}, {"processes": 8}):
        assert memory.estimate((100, 1000), **{**size, **bigger}) > 1.1 * small
    assert memory.estimate((1000, 10_000), **size) > 1.1 * small
    assert memory.estimate((100, 1000), **{**size, "model": "fa", "draws": 5000}) > 1.5 * small


def test_the_check_says_both_numbers(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 7.9e9)
    memory.check(7.8e9)
    with pytest.raises(ValueError, match="needs about 12.4 GB of memory, 7.9 GB are available: use --top-genes"):
        memory.check(12.4e9)
    monkeypatch.setattr(memory, "available", lambda: None)
    memory.check(1e15)


def test_available_memory_is_the_least_of_machine_and_container(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_machine", lambda: 5e9)
    monkeypatch.setattr(memory, "_container", lambda *names: {"memory.max": 3e9}.get(names[0]))
    assert memory.available() == 3e9
    monkeypatch.undo()
    (tmp_path / "limit").write_text("1000\n")
    (tmp_path / "used").write_text("400\n")
    assert memory._container("limit", "used", str(tmp_path)) == 600
    (tmp_path / "limit").write_text("max\n")
    assert memory._container("limit", "used", str(tmp_path)) is None


def test_a_line_has_phase_k_log_joint_acceptance_speed_and_time_left():
    assert progress.phase(report()) == "warm-up" and progress.phase(report(warming_up=False)) == "sampling"
    assert progress.phase(report(done=100)) == "done"
    assert progress.describe(report(), 9.0) == "K 3  log joint -12.3  births 25%  9.0 sweeps/s  0:10 left"
    assert progress.describe(report(acceptance=float("nan")), float("nan")) == "K 3  log joint -12.3"
    assert progress.duration(3725) == "1:02:05" and progress.duration(59.6) == "1:00"


def test_speed_is_that_of_the_last_seconds():
    pace = progress._Pace()
    speeds = [pace.speed(report(done=10 * t), float(t)) for t in range(100)]
    assert speeds[50] == pytest.approx(10)
    speeds = [pace.speed(report(done=990 + t), 99.0 + t) for t in range(1, 60)]
    assert speeds[-1] == pytest.approx(1) and speeds[0] > 5


def test_a_log_gets_few_lines(monkeypatch, capsys):
    clock = iter(float(i) for i in range(10_000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock) / 10)
    with progress.watch(1, quiet=False) as monitor:
        for done in range(1, 1001):
            monitor(report(done=done, total=1000, warming_up=done <= 500))
            monitor(report(done=1000, total=1000)) if done == 1000 else None
    lines = capsys.readouterr().err.splitlines()
    assert 10 <= len(lines) <= 12 and "warm-up" in lines[0] and "sampling" in lines[-2] and "done" in lines[-1]
    with progress.watch(1, quiet=True) as monitor:
        monitor(report())
    assert capsys.readouterr().err == ""


def test_a_slow_chain_is_heard_of_every_half_minute(monkeypatch, capsys):
    clock = iter(float(10 * i) for i in range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.watch(1, quiet=False) as monitor:
        for done in range(1, 31):
            monitor(report(done=done, total=10_000))
    assert 5 <= len(capsys.readouterr().err.splitlines()) <= 30


def test_a_terminal_gets_a_line_per_chain(monkeypatch):
    import io

    from rich.console import Console

    file = io.StringIO()
    monkeypatch.setattr(progress, "err", Console(file=file, force_terminal=True, width=120, no_color=True))
    with progress.watch(2, quiet=False) as monitor:
        monitor(report())
        monitor(report(chain=1, done=100, warming_up=False))
    shown = file.getvalue()
    assert "chain 0 warm-up" in shown and "chain 1 done" in shown and "log joint -12.3" in shown


def test_exceptions_become_sentences():
    assert errors.sentence(ValueError("What.")) == "What."
    assert "No such file or directory" in errors.sentence(FileNotFoundError(2, "No such file or directory", "x.csv"))
    assert "--top-genes" in errors.sentence(MemoryError())
    assert "KeyError" in errors.sentence(KeyError("x")) and "NSFA_DEBUG=1" in errors.sentence(KeyError("x"))


def test_text_of_unknown_origin_cannot_steer_the_terminal(capsys):
    words.fail("a\x1b[2Jb[red]c[/red]\x07")
    assert capsys.readouterr().err == "Error: a\\x1b[2Jb[red]c[/red]\\x07\n"
