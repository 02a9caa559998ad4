"""Whatever the file, reading and fitting it end well or in one sentence."""

import warnings

import pytest
from hypothesis import HealthCheck, given, settings

from nsfa import NSFA
from nsfa.data import observe
from nsfa.readers import read_table
from tables import files

OUTCOMES = []


def attempt(path):
    """The fit's number of factors, or the sentence that came instead."""
    try:
        X = read_table(path).X
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            observe(X)
            return NSFA(chains=1, tune=0, draws=3, thin=1, random_state=0).fit(X).n_components_draws_.shape
    except (ValueError, OSError) as error:
        return str(error)


@settings(max_examples=600, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(file=files)
def test_any_file_is_read_or_refused_in_one_sentence(tmp_path_factory, file):
    suffix, content = file
    path = tmp_path_factory.getbasetemp() / f"table{suffix}"
    path.write_bytes(content)
    outcome = attempt(path)
    OUTCOMES.append(outcome)
    if isinstance(outcome, str):
        assert outcome.endswith((".", "drop it.")) and "\n" not in outcome and len(outcome) < 400, outcome
        assert "Got" in outcome or "must" in outcome, outcome
    path.unlink()


def test_a_good_part_of_the_files_is_readable():
    if not OUTCOMES:
        pytest.skip("the fuzz test did not run")
    fitted = sum(not isinstance(outcome, str) for outcome in OUTCOMES)
    assert len(OUTCOMES) >= 300 and fitted >= len(OUTCOMES) // 10, fitted
