"""Settings, memory, progress and words, one by one."""

import tomllib

import numpy as np
import pandas as pd
import pytest

from nsfa import progress
from nsfa.annotations import is_measurement
from nsfa.cli import errors, memory, settings, words
from nsfa.cli.companions import read_samples, write_samples
from nsfa.cli.options import ReportOptions, SamplingOptions, TableOptions
from nsfa.cli.results import _groups
from nsfa.cli.run import _numbers
from nsfa.monitor import Progress


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


@pytest.mark.parametrize(
    ("library", "command"),
    [
        ("use noise='robust', or", "use --noise robust, or"),
        ("Got likelihood='counts' with size_factors='total'.", "Got --likelihood counts with --size-factors total."),
        ("use --samples-in-rows (samples_in_rows=True) if", "use --samples-in-rows if"),
        ("leave out --log2 (log2=False) if so", "leave out --log2 if so"),
        ("applies to .h5ad files only. Got layer='a b' for", "applies to .h5ad files only. Got --layer 'a b' for"),
        ("tf32=True is for GPUs. Got it with backend='cpu';", "--tf32 is for GPUs. Got it with --backend cpu;"),
        ("(shape=(1, 2)) while", "(shape=(1, 2)) while"),
    ],
)
def test_messages_are_in_the_words_of_the_command(library, command):
    assert errors.in_command_words(library) == command
    assert errors.in_command_words(command) == command


def test_the_estimate_grows_with_everything_it_should():
    size = {"chains": 4, "draws": 500, "processes": 2, "model": "nsfa", "n_components": None}
    small = memory.estimate((100, 1000), **size)
    assert 0.3e9 < small < 1.5e9
    for bigger in ({"chains": 400}, {"draws": 50_000}, {"n_components": 99, "draws": 5000}, {"processes": 8}):
        assert memory.estimate((100, 1000), **{**size, **bigger}) > 1.1 * small
    assert memory.estimate((1000, 10_000), **size) > 1.1 * small
    assert memory.estimate((100, 1000), **{**size, "model": "fa", "draws": 5000}) > 1.5 * small
    large = memory.estimate((10_000, 20_000), **size)
    assert memory.estimate((10_000, 20_000), **size, single=True) < 0.9 * large
    assert memory.estimate((10_000, 20_000), **size, stored=10**7) < 0.7 * large


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


def test_sweeps_that_wait_for_a_compiler_say_nothing_of_the_speed():
    pace, now = progress._Pace(compiling=True), 0.0
    for done in range(1, 21):
        now += 8.0
        told = report(done=done, total=2000)
        speed = pace.speed(told, now)
        assert progress.describe(told, speed, pace.compiling).endswith("births 25%  compiling")
    for done in range(21, 400):
        now += 0.01
        told = report(done=done, total=2000)
        speed = pace.speed(told, now)
    assert speed == pytest.approx(100, rel=0.05) and not pace.compiling
    assert progress.describe(told, speed, pace.compiling).endswith("100 sweeps/s  0:16 left")


@pytest.mark.parametrize(("compiling", "silence"), [(False, progress.SHORT), (True, progress.LONG)])
def test_sweeps_of_large_tables_have_a_speed_before_there_are_many(compiling, silence):
    pace = progress._Pace(compiling)
    speeds = {17.0 * n: pace.speed(report(done=n), 17.0 * n) for n in range(1, 25)}
    told = {time: speed for time, speed in speeds.items() if np.isfinite(speed)}
    # a first report, the silence, and one to measure from
    assert silence + 17 < min(told) <= silence + 3 * 17
    np.testing.assert_allclose(list(told.values()), 1 / 17)
    assert not pace.compiling


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
    log, now = progress._Log(), 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    for done in range(1, 61):
        now = 5.0 * done
        log.update(report(done=done, total=10_000))
    # 300 seconds, of which the first report is at the fifth
    lines = capsys.readouterr().err.splitlines()
    assert [int(line.split("/")[0].split()[-1]) for line in lines] == [7, 13, 19, 25, 31, 37, 43, 49, 55]


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


def test_the_library_s_way_to_go_on_becomes_the_command_s():
    said = "Writing to a b/draws failed. Go on with nsfa.resume('a b/draws')."
    assert errors.sentence(RuntimeError(said)).endswith("Go on with nsfa resume 'a b'.")
    assert errors.sentence(RuntimeError('see nsfa.resume("it\'s/draws").')) == """see nsfa resume 'it'"'"'s'."""
    assert errors.sentence(ValueError("nsfa.resume is a function.")) == "nsfa.resume is a function."


def test_text_of_unknown_origin_cannot_steer_the_terminal(capsys):
    words.fail("a\x1b[2Jb[red]c[/red]\x07")
    assert capsys.readouterr().err == "Error: a\\x1b[2Jb[red]c[/red]\\x07\n"


@pytest.mark.parametrize(
    ("n", "large", "words"),
    [
        (0, 0, "No substantial factors (5 genes or more): none recurs in more than half of the draws."),
        (1, 0, "No substantial factors (5 genes or more): 1 smaller recurs in more than half of the draws."),
        (3, 0, "No substantial factors (5 genes or more): 3 smaller recur in more than half of the draws."),
        (1, 1, "1 substantial factor (5 genes or more) recurs in more than half of the draws."),
        (3, 2, "2 substantial factors (5 genes or more), and 1 smaller, recur in more than half of the draws."),
    ],
)
def test_the_closing_words_are_plain_where_there_is_nothing(n, large, words):
    found = {"n_components": n, "n_substantial": large, "n_substantial_posterior": {str(large): 1.0}}
    assert _numbers({**found, "n_components_posterior": {"4": 0.5, "5": 0.5}})[0] == words
    (said,) = _numbers({**found, "n_components": large, "n_components_posterior": {str(large): 1.0}})
    assert said.startswith("No factors: none recurs" if not large else f"{large} factor")


@pytest.mark.parametrize(
    ("recurring", "every", "told"),
    [(37, {"69": 0.6, "68": 0.4}, True), (4, {"4": 0.5, "5": 0.5}, False), (0, {"1": 1.0}, False)],
)
def test_factors_that_do_not_recur_are_explained_where_they_are_many(recurring, every, told):
    found = {"n_components": recurring, "n_substantial": recurring, "n_substantial_posterior": every}
    for posterior in (every, {"80": 0.5, "81": 0.5}):
        said = " ".join(_numbers({**found, "n_components_posterior": posterior}))
        assert ("Factors that come and go, or change their genes, count in a draw but do not recur." in said) == told


def test_annotations_come_back_as_they_were(tmp_path):
    names = [f"{i:03d}" for i in range(24)]
    frame = pd.DataFrame(
        {
            "treatment": ["None", "NA", "drug", None] * 6,
            "dose": pd.Categorical([str(10 * (i % 12)) for i in range(24)]),
            "text": [str(10 * (i % 12)) for i in range(24)],
            "grade": pd.Categorical(["low", None, "high", "mid"] * 6, ["low", "mid", "high", "never"], ordered=True),
            "age": [0.1 * i if i else None for i in range(24)],
            "count": range(24),
            "ok": [True, False] * 12,
            "sample": names,
        },
        index=names,
    )
    frame.insert(8, "age", range(24), allow_duplicates=True)
    write_samples(tmp_path, names, frame)
    read = read_samples(tmp_path, 24)
    assert read.columns.tolist() == [*frame.columns[:7], "sample.1", "age.1"] and read.index.tolist() == names
    for i, name in enumerate(read):
        before, after = frame.iloc[:, i], read[name]
        assert is_measurement(before) == is_measurement(after), name
        assert before.isna().tolist() == after.isna().tolist(), name
        assert before.dropna().tolist() == pytest.approx(after.dropna().tolist()), name
    for name in ("dose", "grade"):
        assert read[name].dtype == frame[name].dtype
    assert _groups(read[["grade"]]).categories.tolist() == ["low", "mid", "high", "never"]


def test_samples_of_older_or_changed_files_are_read(tmp_path):
    write_samples(tmp_path, ["a", "b"], pd.DataFrame({"grade": pd.Categorical(["low", "high"], ["low", "high"])}))
    (tmp_path / "samples.csv").write_text("sample,grade,age\na,none,3\nb,high,4\n")
    read = read_samples(tmp_path, 2)
    assert read["grade"].cat.categories.tolist() == ["low", "high", "none"] and read["age"].tolist() == [3, 4]
    (tmp_path / "samples.json").write_text("{")
    with pytest.raises(ValueError, match="samples.json must be as the run wrote it. Got other text; restore or remove"):
        read_samples(tmp_path, 2)
    write_samples(tmp_path, ["a", "b"], None)
    assert not (tmp_path / "samples.json").exists() and read_samples(tmp_path, 2).index.tolist() == ["a", "b"]


def test_names_with_carriage_returns_stay_in_their_rows(tmp_path):
    names = ["a\rb", "c\nd", "e"]
    write_samples(tmp_path, names, pd.DataFrame({"kind": ["x\ry", None, "z"], "age": [1.5, None, 3]}))
    found = read_samples(tmp_path, 3)
    assert list(found.index) == names and found["kind"].fillna("").to_list() == ["x\ry", "", "z"]
    assert found["age"].isna().to_list() == [False, True, False]
