import re

import numpy as np
import pytest

from nsfa.posterior.diagnostics import diagnose, ess_bulk, ess_tail, split_rhat


def autoregressive(rng, phi, shape):
    out = np.empty(shape)
    out[:, 0] = rng.normal(size=shape[0]) / np.sqrt(1 - phi**2)
    for t in range(1, shape[1]):
        out[:, t] = phi * out[:, t - 1] + rng.normal(size=shape[0])
    return out


def test_independent_draws_are_worth_themselves(rng):
    trace = rng.normal(size=(4, 2000))
    assert ess_bulk(trace) == pytest.approx(8000, rel=0.12)
    assert ess_tail(trace) == pytest.approx(8000, rel=0.2)
    assert split_rhat(trace) < 1.005


@pytest.mark.parametrize("phi", [0.5, 0.9])
def test_correlated_draws_are_worth_less(phi, rng):
    trace = autoregressive(rng, phi, (4, 20_000))
    assert ess_bulk(trace) == pytest.approx(80_000 * (1 - phi) / (1 + phi), rel=0.2)


def test_rhat_sees_different_means_and_different_spreads(rng):
    trace = rng.normal(size=(4, 1000))
    assert split_rhat(trace + np.arange(4)[:, None]) > 1.5
    assert split_rhat(trace * np.array([1, 1, 1, 5])[:, None]) > 1.1
    drifting = trace + np.linspace(0, 3, 1000)
    assert split_rhat(drifting) > 1.2


def test_constant_traces_are_no_error():
    assert split_rhat(np.ones((4, 100))) == 1.0
    assert ess_bulk(np.ones((4, 100))) == 400


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", [[np.inf], [-np.inf], [np.nan], [np.inf, -np.inf]])
@pytest.mark.parametrize("where", [np.s_[1, 7:9], np.s_[2], np.s_[:]], ids=["two draws", "a chain", "all"])
def test_traces_that_are_not_finite_agree_on_nothing(values, where, rng):
    trace = rng.normal(size=(4, 100))
    trace[where] = np.resize(values, trace[where].shape)
    assert split_rhat(trace) == np.inf and ess_bulk(trace) == ess_tail(trace) == 0
    found = diagnose({"K": trace, "other": rng.normal(size=(4, 100))})
    assert not found.converged and not np.isfinite(found.table[0].mean)
    assert "the number of factors K has values that are not finite" in found.verdict
    assert "inf" in repr(found) or "nan" in repr(found)


def test_two_values_each_in_half_of_the_draws_can_agree(rng):
    trace = rng.permutation(np.repeat([3.0, 4.0], 1000)).reshape(4, 500)
    assert split_rhat(trace) < 1.05
    assert split_rhat(np.repeat([3.0, 3.0, 4.0, 4.0], 500).reshape(4, 500)) > 2


def test_verdicts_are_sentences(rng):
    good = diagnose({"K": rng.normal(size=(4, 1000))})
    assert good.converged and good.verdict.startswith("Converged: 4 chains agree, R-hat ≤ 1.0")
    bad = diagnose({"K": rng.normal(size=(4, 1000)) + 3 * np.arange(4)[:, None]})
    assert not bad.converged and "Not converged: the number of factors K has R-hat" in bad.verdict
    assert bad.verdict.endswith(" (limit 1.05).") and not bad.partly_converged
    thin = diagnose({"K": rng.normal(size=(2, 20))})
    assert not thin.converged and "effective draws" in thin.verdict
    short = diagnose({"K": rng.normal(size=(2, 3))})
    assert not short.converged and short.verdict.startswith("Not assessed")
    assert "R-hat" in str(good).splitlines()[0]
    alone = diagnose({"K": rng.normal(size=(1, 1000))})
    assert alone.verdict.startswith("Converged: 1 chain agrees with itself") and "no factor can be" in alone.verdict


def test_quantities_that_are_not_finite_are_never_converged(rng):
    trace = rng.normal(size=(4, 500))
    trace[1, 3] = np.nan
    result = diagnose({"K": rng.normal(size=(4, 500)), "log joint": trace})
    assert not result.converged and "the log joint density has values that are not finite" in result.verdict


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Not converged: the number of factors K has R-hat 2.37 (limit 1.05)."),
        (["not judged"] * 2, "Not converged: the number of factors K has R-hat 2.37 (limit 1.05)."),
        (
            ["unsettled", "some chains"],
            "Not converged: the number of factors K has R-hat 2.37 (limit 1.05), and none of the 2 factors is settled.",
        ),
        (
            ["settled", "settled", "unsettled", "some chains"],
            "Partly converged: 2 of 4 factors are settled and can be read; the number of factors K (R-hat 2.37) and "
            "the other 2 are not.",
        ),
        (
            ["settled", "settled"],
            "Partly converged: both factors are settled and can be read; the number of factors K (R-hat 2.37) is not.",
        ),
    ],
)
def test_a_verdict_says_what_can_be_read(words, sentence):
    trace = np.random.default_rng(0).normal(size=(4, 1000)) + 3 * np.arange(4)[:, None]
    found = diagnose({"K": trace}).with_factors(words)
    assert re.sub(r"R-hat [0-9.]+[0-9]", "R-hat 2.37", found.verdict) == sentence
    assert found.settled == words.count("settled") and found.n_factors == len(words) and not found.converged
    assert found.partly_converged == (found.settled > 0)


def test_chains_that_agree_may_leave_a_factor_open(rng):
    found = diagnose({"K": rng.normal(size=(4, 1000))})
    told = found.with_factors(["settled", "unsettled"])
    assert told.converged and not told.partly_converged and told.verdict.endswith("; 1 of 2 factors is settled.")
    assert found.with_factors(["settled"]).verdict.endswith("; the factor is settled.")


def test_moves_of_a_fit_come_with_their_acceptance():
    from nsfa import FA, NSFA
    from nsfa.datasets import make_sparse_factors

    X = make_sparse_factors(30, 20, 3, density=0.4, random_state=0).X
    moves = {
        move.name: move
        for move in NSFA(chains=2, tune=50, draws=20, random_state=0).fit(X).posterior_.diagnostics().moves
    }
    for name in ("tilt", "rotation", "births", "split", "doublet"):
        assert 0 < moves[name].accepted < 1, name
    assert moves["loadings"].accepted is None and moves["doublet"].when == "every fifth sweep"
    dense = {move.name: move.when for move in FA(2, chains=1, tune=5, draws=5).fit(X).posterior_.diagnostics().moves}
    assert dense["tilt"] == "not used, the pattern is dense" and "births" not in dense


def test_rounding_does_not_decide_between_the_two_values_next_to_the_median():
    """Their distances from it are the same but for rounding, and so must their ranks be."""
    for seed in range(20):
        # chains that differ in spread, which distances show
        trace = np.array([[1.0], [3.0]]) * np.random.default_rng(seed).normal(size=(2, 20))
        low = np.sort(trace.ravel())[19]
        found = [split_rhat(np.where(trace == low, low * (1 + 1e-14 * step), trace)) for step in range(-3, 4)]
        np.testing.assert_allclose(found, found[3], rtol=1e-9)
