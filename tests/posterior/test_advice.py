from dataclasses import replace

import numpy as np
import pytest

from nsfa.length import Length
from nsfa.posterior.diagnostics import advise, diagnose


def found(shape=(4, 500), apart=0.0):
    """Diagnostics of chains that lie ``apart``."""
    trace = np.random.default_rng(0).normal(size=shape)
    return diagnose({"K": trace + apart * np.arange(shape[0])[:, None]})


def test_chains_that_agree_need_no_advice():
    assert advise(found(), Length(), 4, 500) is None


@pytest.mark.parametrize(("made", "more"), [(3, 1000), (50, 1000), (500, 1000), (2000, 4000)])
def test_chains_that_disagree_run_longer(made, more):
    advice = advise(found((4, made), apart=3), Length(tune=300, draws=made), 4, made)
    assert advice.draws == more and advice.again == {"tune": 600, "draws": made + more}
    assert advice.for_command("out") == f"Run longer: nsfa resume out --draws {more}"
    assert advice.for_python() == (
        f"Run longer: fit again with tune=600 and draws={made + more}, or nsfa.resume(store, draws={more})."
    )
    assert f"{more} more draws per chain (nsfa resume), or fit again with tune=600" in advice.for_report()


def test_rough_averages_need_as_many_draws_as_are_missing():
    agreed = found()
    for ess, times in ((90.0, 2), (34.0, 3), (1.0, 20)):
        rough = replace(agreed, converged=False, table=(replace(agreed.table[0], ess_bulk=ess),))
        advice = advise(rough, Length(), 4, 500)
        assert advice.draws == (times - 1) * 500 and advice.again == {"draws": times * 500}


def test_one_chain_needs_company():
    advice = advise(found((1, 500)), Length(), 1, 500)
    assert advice.for_python() == "Run several chains: fit again with chains=4."
    assert advice.for_command("out") == "Run several chains: nsfa fit with --chains 4"
    assert "fit again with chains=4. One chain has nothing to agree with." in advice.for_report()


def test_after_a_preview_a_full_fit_has_its_whole_warm_up():
    """Going on would keep the preview's: a tenth of it."""
    advice = advise(found((4, 25)), Length(tune=50, draws=25, preview=True), 4, 25)
    assert advice.draws == 0 and "resume" not in advice.for_command("out") + advice.for_python() + advice.for_report()
    assert "the same nsfa fit without --preview" in advice.for_command("out")
    assert advice.for_python() == "Full run: fit again with preview=False."
    assert "warm-up, 50 sweeps" in advice.for_report()


def test_more_draws_do_not_mend_what_is_not_finite():
    trace = np.random.default_rng(0).normal(size=(4, 500))
    trace[0, 0] = np.nan
    assert advise(diagnose({"K": trace}), Length(), 4, 500) is None


def test_a_warm_up_cut_at_its_maximum_wants_a_longer_one_and_no_more_draws():
    apart = diagnose({"K": np.repeat([[1.0], [5.0]], 50, axis=1) + np.random.default_rng(0).normal(size=(2, 50))})
    length = Length(tune=100, draws=50, most=800)
    assert advise(apart, length, 2, 50).again == {"draws": 1050}
    cut = advise(apart, length, 2, 50, still_warming=True)
    assert cut.again == {"tune": 1600} and cut.draws == 0 and "800 sweeps" in cut.why
