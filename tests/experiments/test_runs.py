"""The six experiments in their quick versions: their files, and the claims that are robust at that size."""

import json
import re

import pytest

from nsfa.experiments import NAMES, run
from nsfa.experiments.experiment import read_numbers
from nsfa.experiments.page import write_page
from nsfa.tasks import COLUMNS, LAST

SCORES = {
    "K", "K_mean", "active_mean", "lppd", "mean_of_logs", "rmse", "seconds_per_sweep", "seconds_per_sweep_and_factor",
}  # fmt: skip
QUANTITIES = {
    "ibp": {"K_count", "first_row_count", "last_row_count", "active_column", "entries_mean", "entries_standard_error"},
    "synthetic": {"E_r", "precision", "recall", "K", "seconds_per_sweep"},
    "convergence": {"K", "K_step", "births_accepted", "seconds_per_sweep"},
    "ecoli": SCORES,
    "breast": SCORES,
    "prostate": SCORES,
}
# what must come out whatever the seed
ROBUST = {
    "ibp": ["Poisson with mean", "limit of finite models", "exchangeable", "expected number of entries"],
    "synthetic": [
        "NSFA does as well as SFA",
        "far better than the dense ones",
        "centred at the true 16",
        "more factors, and skew",
    ],
    "convergence": ["More moves need no more sweeps"],
    "ecoli": [],
    "breast": [],
    "prostate": [],
}


@pytest.fixture(scope="module")
def runs(data_dir, tmp_path_factory):
    """All six, one after another in this process."""
    folder = tmp_path_factory.mktemp("experiments")
    return {name: run(name, folder / name, quick=True, n_jobs=1) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_tidy_and_complete(runs, name):
    frame = read_numbers(runs[name])
    assert tuple(frame.columns) == COLUMNS
    assert set(frame.quantity) == QUANTITIES[name] | {LAST}
    assert frame.notna().all(axis=None)
    assert not frame.duplicated(["task", "quantity", "at"]).any() or name == "ibp"
    assert (frame.task == frame.model + " #" + frame.replicate.astype(str)).all()
    settings = json.loads((runs[name] / "settings.json").read_text())
    assert frame.task.nunique() == settings["tasks"] and settings["quick"] is True


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_written_twice(runs, name):
    pictures = {path.stem for path in runs[name].glob("*.png")}
    assert pictures and pictures == {path.stem for path in runs[name].glob("*.svg")}
    assert all(path.stat().st_size > 5000 for path in runs[name].glob("*.png"))


@pytest.mark.parametrize("name", NAMES)
def test_claims_have_verdicts_and_robust_ones_hold(runs, name):
    claims = json.loads((runs[name] / "claims.json").read_text())
    for claim in claims:
        assert set(claim) == {"claim", "where", "verdict", "figures", "why"}
        assert claim["verdict"] in ("holds", "does not hold", "cannot be tested")
        assert claim["figures"] and claim["why"].endswith(".")
    for words in ROBUST[name]:
        (found,) = [claim for claim in claims if words in claim["claim"]]
        assert found["verdict"] == "holds", found


def test_the_paper_s_priors_find_few_factors_in_ecoli(runs):
    claims = json.loads((runs["ecoli"] / "claims.json").read_text())
    (found,) = [claim for claim in claims if "median of 4 factors" in claim["claim"]]
    assert 3 <= found["figures"]["median K, NSFA, paper's priors"] <= 5 < found["figures"]["median K, NSFA"]


def test_more_factors_predict_better_than_too_few(runs):
    for name, family, few, many in (("ecoli", "FA", 3, 20), ("breast", "SFA", 5, 20), ("prostate", "AFA", 3, 10)):
        frame = read_numbers(runs[name])
        mean = frame[frame.quantity == "lppd"].groupby("model").value.mean()
        assert mean[f"{family} K{many}"] > mean[f"{family} K{few}"]
        assert mean["NSFA"] > mean[f"{family} K{few}"]


def test_the_log_of_the_mean_is_above_the_mean_of_the_logs(runs):
    frame = read_numbers(runs["breast"])
    part = frame[frame.quantity.isin(["lppd", "mean_of_logs"])]
    part = part.pivot(index="task", columns="quantity", values="value").dropna()
    assert len(part) > 5 and (part["lppd"] > part["mean_of_logs"]).all()


def test_page_shows_numbers_of_the_files_and_links_that_exist(runs, tmp_path):
    page = write_page(list(runs.values()), tmp_path)
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([\w/.]+\.(?:png|csv|json))\)", text)
    assert len(links) > 20 and all((tmp_path / link).is_file() for link in links)
    frame = read_numbers(runs["breast"])
    score = frame[(frame.quantity == "lppd") & (frame.model == "NSFA")].value.mean()
    assert f"| NSFA | {score:.3f} |" in text
    for name in NAMES:
        for claim in json.loads((runs[name] / "claims.json").read_text()):
            assert claim["claim"] in text and claim["why"] in text


def test_page_needs_finished_runs(tmp_path):
    with pytest.raises(ValueError, match="page needs the directories of finished runs"):
        write_page([], tmp_path)
    with pytest.raises(ValueError, match="holds no finished run"):
        write_page([tmp_path], tmp_path)
