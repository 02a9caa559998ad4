"""Runs that are interrupted, resumed, repeated elsewhere, or started in the wrong place."""

import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from nsfa.experiments import run
from nsfa.experiments.experiment import read_numbers
from nsfa.tasks import COLUMNS, LAST, Ledger, Task, _do_there, run_tasks


def numbers(a, b):
    yield "sum", 0, a + b
    yield "product", 1, a * b


def plan(n=4):
    return [Task("m", i, numbers, {"a": i, "b": 2}) for i in range(n)]


def stop_after(n):
    def progress(step):
        if step.done == n:
            raise KeyboardInterrupt

    return progress


def without_times(path):
    return [line for line in path.read_text().splitlines() if LAST not in line]


def test_rows_are_in_the_order_of_the_plan_whoever_finishes_first(tmp_path):
    ledger, tasks = Ledger(tmp_path / "a.csv"), plan()
    steps = []
    run_tasks(tasks[::-1], ledger, steps.append)
    ledger.finish(tasks)
    lines = without_times(tmp_path / "a.csv")
    assert lines[0] == ",".join(COLUMNS)
    assert lines[1:3] == ["m #0,m,0,sum,0,2", "m #0,m,0,product,1,0"] and lines[-1] == "m #3,m,3,product,1,6"
    assert [step.done for step in steps] == [1, 2, 3, 4] and steps[-1].seconds_left == 0


def test_a_torn_task_is_done_again_and_whole_ones_are_not(tmp_path):
    path, tasks = tmp_path / "a.csv", plan()
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks, Ledger(path), stop_after(2))
    with path.open("a") as file:
        file.write("m #2,m,2,sum,0,99\nm #2,m,2,prod")
    again = Ledger(path)
    assert set(again.rows) == {"m #0", "m #1"}
    done = []
    run_tasks(tasks, again, done.append)
    again.finish(tasks)
    assert [step.label for step in done] == ["m #2", "m #3"]
    whole = Ledger(tmp_path / "b.csv")
    run_tasks(tasks, whole)
    assert without_times(path) == without_times(whole.path)


def swallows(error):
    """What a fit does: it answers Ctrl-C with the draws it has, or, where there are none, an error of its own."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        yield "never", 0, 0
    except KeyboardInterrupt:
        if error:
            raise RuntimeError("Interrupted during warm-up.") from None
        yield "half", 0, 1


@pytest.mark.parametrize("error", [False, True])
def test_a_task_that_swallows_ctrl_c_is_not_done(tmp_path, error):
    # a shell's background job inherits an ignored SIGINT
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ledger = Ledger(tmp_path / "a.csv")
    try:
        with pytest.raises(KeyboardInterrupt):
            run_tasks([*plan(1), Task("m", 1, swallows, {"error": error})], ledger)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(ledger.rows) == {"m #0"} == set(Ledger(tmp_path / "a.csv").rows)


def warns(began, goes_on):
    began.set()
    assert goes_on.wait(60)
    warnings.warn("not converged", UserWarning, stacklevel=2)
    yield "sum", 0, 1


def test_tasks_of_one_process_that_overlap_leave_its_warnings_as_they_were():
    """The one that began first ends first: the other is still without warnings, and does not keep them off."""
    before, events = list(warnings.filters), [Event() for _ in range(4)]
    tasks = [Task("m", i, warns, {"began": events[i], "goes_on": events[2 + i]}) for i in range(2)]
    with ThreadPoolExecutor(2) as pool:
        running = []
        for i, task in enumerate(tasks):
            running.append(pool.submit(_do_there, {}, task))
            assert events[i].wait(60)
        for i, one in enumerate(running):
            events[2 + i].set()
            assert one.result(60)[0] == f"m #{i}"
    assert list(warnings.filters) == before


def test_a_file_of_somebody_else_s_is_left_alone(tmp_path):
    path = tmp_path / "mine.csv"
    for text in ("gene,a\nx,1\n", "task,mod\n", "x"):
        path.write_text(text)
        with pytest.raises(ValueError, match="must be a new file, or one that an earlier run kept its numbers in"):
            Ledger(path)
        assert path.read_text() == text and list(tmp_path.iterdir()) == [path]
    # a header that was cut short is ours
    path.write_text("task,mod")
    assert not Ledger(path).rows


def test_an_interrupted_experiment_resumes_to_the_same_numbers(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run("ibp", tmp_path / "a", quick=True, progress=stop_after(2), n_jobs=1)
    assert not (tmp_path / "a" / "claims.json").exists()
    steps = []
    run("ibp", tmp_path / "a", quick=True, progress=steps.append, n_jobs=1)
    assert [step.done for step in steps] == [3, 4, 5, 6]
    run("ibp", tmp_path / "b", quick=True, n_jobs=2)
    assert without_times(tmp_path / "a" / "numbers.csv") == without_times(tmp_path / "b" / "numbers.csv")
    assert (tmp_path / "a" / "claims.json").read_text() == (tmp_path / "b" / "claims.json").read_text()


def test_a_finished_run_is_drawn_again_without_any_task(tmp_path):
    run("ibp", tmp_path, quick=True, n_jobs=1)
    before = read_numbers(tmp_path)
    (tmp_path / "claims.json").unlink()
    run("ibp", tmp_path, quick=True, progress=stop_after(0), n_jobs=1)
    assert (tmp_path / "claims.json").exists() and read_numbers(tmp_path).equals(before)


def test_other_runs_are_not_mixed(tmp_path):
    run("ibp", tmp_path / "a", quick=True, n_jobs=1)
    with pytest.raises(ValueError, match="holds a run with another size .* choose another directory"):
        run("ibp", tmp_path / "a", n_jobs=1)
    with pytest.raises(ValueError, match="holds a run with another experiment"):
        run("convergence", tmp_path / "a", quick=True, n_jobs=1)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="out must be a new or empty directory"):
        run("ibp", tmp_path / "b", quick=True, n_jobs=1)
    with pytest.raises(ValueError, match="name must be one of ibp, synthetic, .* Got 'IBP'"):
        run("IBP", tmp_path / "c")


def test_a_damaged_settings_file_is_said_to_be(tmp_path):
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(ValueError, match=r"settings.json is damaged; delete"):
        run("ibp", tmp_path, quick=True, n_jobs=1)


def test_tasks_with_other_settings_are_other_tasks():
    first, second = Task("m", 0, numbers, {"a": 1}), Task("m", 0, numbers, {"a": 2})
    assert first.key == second.key and first.identity != second.identity
