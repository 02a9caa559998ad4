from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_align import draw_of

from nsfa import AFA, BFRM, NSFA
from nsfa.data import observe
from nsfa.datasets import make_sparse_factors
from nsfa.kernels import get_kernels
from nsfa.posterior import build as module
from nsfa.posterior import columns, scores, shares
from nsfa.posterior.align import align, evenly
from nsfa.posterior.build import build_consensus
from nsfa.posterior.factors import on_few_samples


@pytest.fixture(scope="module")
def planted():
    data = make_sparse_factors(80, 40, 4, density=0.25, snr=20, missing=0.05, random_state=2)
    model = NSFA(chains=2, tune=800, draws=300, concentration=1.0, random_state=1).fit(data.X)
    return data, model, model.posterior_.consensus()


@pytest.fixture
def by_hand(rng):
    """Two chains of two draws with known loadings: factor b is missing from one draw, a is turned over in another."""
    a, b = np.array([2.0, -3.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 1.0])
    draws = [np.column_stack(g) for g in ([a, b], [b, -1.2 * a], [a], [1.4 * a, b * 2])]
    data = observe(rng.normal(size=(10, 4)))
    draws = [draw_of(g) for g in draws]
    return (
        data,
        draws,
        build_consensus(data, [draws[:2], draws[2:]], align(draws, dense=False), get_kernels("reference")),
    )


def test_means_are_over_the_draws_that_contain_the_factor(by_hand):
    data, _, found = by_hand
    scale = data.scale
    assert found.n_factors == 2
    np.testing.assert_allclose(found.support, [1.0, 0.75])
    np.testing.assert_allclose(found.chain_support, [[1.0, 1.0], [1.0, 0.5]])
    # 1, 1.2, 1, 1.4 times a; the largest mean loading, −3, is made positive
    np.testing.assert_allclose(found.loadings[:, 0], 1.15 * np.array([-2.0, 3.0, 0.0, 0.0]) * scale, rtol=1e-6)
    np.testing.assert_allclose(found.loadings[:, 1], 4 / 3 * np.array([0.0, 0.0, 1.0, 1.0]) * scale, rtol=1e-6)
    np.testing.assert_array_equal(found.inclusion, (found.loadings != 0).astype(float))
    assert (found.lower <= found.loadings + 1e-9).all() and (found.loadings <= found.upper + 1e-9).all()
    for values in (found.loadings, found.lower, found.upper):
        assert not np.signbit(values[values == 0]).any(), "−0 looks odd in a table"


def test_scores_of_a_factor_that_few_draws_have_are_taken_from_those(rng, monkeypatch):
    """Two evenly spread draws are the first and the last, which lack it."""
    a, b = np.array([2.0, -3.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 1.0])
    draws = [draw_of(np.column_stack(g)) for g in ([a], [a, b], [a, b], [a, b], [a, b], [a])]
    data = observe(rng.normal(size=(10, 4)))
    given = data, [draws], align(draws, dense=False), get_kernels("reference")
    every = build_consensus(*given)
    monkeypatch.setattr(scores, "SCORE_DRAWS", 2)
    few = build_consensus(*given)
    assert (few.support < 1).sum() == 1 and (few.scores_std > 0.1).all()
    np.testing.assert_allclose(few.scores, every.scores, atol=1e-9)
    np.testing.assert_allclose(few.scores_std, every.scores_std, atol=1e-9)


def test_variance_explained_is_a_share_of_loadings_and_noise(by_hand):
    _, draws, found = by_hand
    total = [d.scalars["loading_power"] + 4 for d in draws]
    np.testing.assert_allclose(
        found.variance_explained[0], np.mean(np.array([1, 1.44, 1, 1.96]) * 13 / np.array(total)), rtol=1e-6
    )
    assert found.variance_explained.sum() <= 1
    assert (np.diff(found.variance_explained) <= 0).all()


def test_gene_list_keeps_the_expected_share_of_errors(by_hand):
    found = by_hand[2]
    inclusion = np.array([[0.99], [0.2], [0.97], [0.9]])
    one = replace(found, inclusion=inclusion, relevance=inclusion[::-1], loadings=np.ones((4, 1)))
    # expected errors: .01, .04/2, .14/3, .94/4
    assert one.genes(0, fdr=0.05, effect=0).tolist() == [0, 2, 3]
    assert one.genes(0, fdr=0.03, effect=0).tolist() == [0, 2]
    assert one.genes(0, fdr=0.001, effect=0).tolist() == []
    assert one.genes(0).tolist() == one.genes(0, fdr=0.05, effect=0.05).tolist() == [3, 1, 0]
    with pytest.raises(ValueError, match="fdr must lie between 0 and 1. Got 2"):
        one.genes(0, fdr=2)


def test_many_certain_genes_leave_no_room_for_one_that_is_none(by_hand):
    """Mean errors of 0.1/21, 0.6/22 and 1.11/23 would all do."""
    probability = np.r_[np.ones(20), 0.9, 0.5, 0.49, 0.0][:, None]
    one = replace(by_hand[2], inclusion=probability, relevance=probability, loadings=np.ones((24, 1)))
    for effect in (0, 0.05):
        assert one.genes(0, effect=effect).tolist() == list(range(22))
        assert one.genes(0, fdr=0.9, effect=effect).tolist() == list(range(22))
    every = replace(one, inclusion=np.full((24, 1), 0.5), relevance=np.full((24, 1), 0.4))
    assert len(every.genes(0, fdr=0.6, effect=0)) == 24 and not len(every.genes(0, fdr=0.9))


def share_of(draws, truth, effect):
    """By definition, one draw at a time: how often the factor like ``truth`` explains so much of each gene."""
    often, count = 0, 0
    for draw in draws:
        g = draw.loadings()
        match = np.abs(g.T @ truth) / np.linalg.norm(g, axis=0) / np.linalg.norm(truth)
        if match.max() > 0.6:
            share = g[:, match.argmax()] ** 2 / ((g**2).sum(axis=1) + 1 / draw.noise_precision)
            often, count = often + (share >= effect), count + 1
    return often / count


@pytest.mark.parametrize("effect", [0.01, 0.05, 0.2, 0.5])
def test_relevance_is_a_share_of_draws_and_of_the_genes_own_variance(planted, effect):
    data, model, found = planted
    truth = data.loadings / model.posterior_.data.scale[:, None]
    for factor in range(4):
        own = np.abs(np.corrcoef(data.scores[:, factor], found.scores.T)[0, 1:]).argmax()
        expected = share_of(model.posterior_.draws, truth[:, factor], effect)
        np.testing.assert_allclose(found.probability(effect)[:, own], expected)
    assert 0 < found.probability(effect).sum() < found.inclusion.sum()


def test_relevance_counts_draws_with_the_factor_and_all_factors_of_the_draw(rng):
    """Gene 0 has shares .2 and .01 of its variance in two draws of three, and the third lacks the factor.

    The mean loading would give .09, above .05 but of no draw; gene 3 is as strong, beside a factor that does not recur.
    """
    strong, weak = np.sqrt([0.25, 1 / 99])
    a = np.array([strong, 3.0, 3.0, 0.3, 0.0, 0.0])
    other = np.array([0.0, 0.0, 0.0, 0.0, 3.0, 3.0])
    rare = np.array([0.0, 0.0, 0.0, 4.0, 0.0, 0.0])
    again = np.where(np.arange(6) == 0, weak, a)
    draws = [draw_of(np.column_stack(g)) for g in ([a, other], [-again, other, rare], [other])]
    found = build_consensus(
        observe(rng.normal(size=(10, 6))), [draws], align(draws, dense=False), get_kernels("reference"), min_support=0.6
    )
    assert found.n_factors == 2
    own = int(found.loadings[0].argmax())
    # of gene 3: .09 / 1.09 in the one draw, .09 / 17.09 in the other
    np.testing.assert_allclose(found.relevance[:, own], [0.5, 1, 1, 0.5, 0, 0])
    np.testing.assert_allclose(found.probability(0.15)[:, own], [0.5, 1, 1, 0, 0, 0])
    np.testing.assert_allclose(found.probability(0)[:, own], [1, 1, 1, 1, 0, 0])
    assert set(found.genes(own)) == {1, 2} and set(found.genes(own, effect=0)) == {0, 1, 2, 3}


def test_another_effect_is_a_pass_over_the_draws_made_once(planted, monkeypatch):
    found, passes = planted[1].posterior_.consensus(level=0.8), []
    every = shares.aligned_blocks
    monkeypatch.setattr(shares, "aligned_blocks", lambda *given: passes.append(1) or every(*given))
    lists = [found.genes(k, effect=0.3) for k in range(4)]
    assert len(passes) == 1
    _ = [found.genes(k, effect=effect) for k in range(4) for effect in (0, 0.05)]
    assert len(passes) == 1, "inclusion and the core are there already"
    sizes = [len(own) for own in lists]
    assert max(sizes) > 0 and all(size < len(found.genes(k)) for k, size in enumerate(sizes))


@pytest.mark.parametrize("effect", [1, -0.1, 5, float("nan"), "5 %", None, True])
def test_a_wrong_effect_is_one_sentence(by_hand, effect):
    with pytest.raises(ValueError, match="effect must be a share of the variance, at least 0 and below 1. Got .*0.05."):
        by_hand[2].genes(0, effect=effect)


def test_without_draws_there_are_two_effects(by_hand):
    stored = replace(by_hand[2], shares=None)
    assert len(stored.genes(0, effect=0)) == len(stored.genes(0)) == 2
    with pytest.raises(ValueError, match="effect must be 0 or 0.05 where there are no draws .* Got 0.1; use the cons"):
        stored.genes(0, effect=0.1)


def test_a_gene_that_does_not_vary_is_relevant_to_nothing(rng):
    X = np.column_stack([np.ones(10), rng.normal(size=(10, 4))])
    draws = [draw_of(np.array([[2.0], [3.0], [1.0], [0.0]]))] * 2
    with pytest.warns(UserWarning, match="do not vary"):
        data = observe(X)
    found = build_consensus(data, [draws], align(draws, dense=False), get_kernels("reference"))
    np.testing.assert_array_equal(found.relevance[:, 0], [0, 1, 1, 1, 0])
    np.testing.assert_array_equal(found.probability(0.6)[:, 0], [0, 1, 1, 0, 0])


def test_planted_factors_are_found(planted):
    from nsfa.metrics import match_factors, pattern_precision_recall

    data, model, found = planted
    assert model.n_components_ == 4 and (found.support > 0.9).all()
    precision, recall = pattern_precision_recall(data.active, found.inclusion > 0.5, data.loadings, found.loadings)
    assert precision > 0.95 and recall > 0.85
    true, hat, cosine = match_factors(data.loadings, found.loadings)
    assert (np.abs(cosine) > 0.97).all()
    for k, j in zip(true, hat, strict=True):
        assert abs(np.corrcoef(data.scores[:, k], found.scores[:, j])[0, 1]) > 0.95


def test_summary_has_a_row_per_factor(planted):
    table = planted[1].posterior_.summary()
    checks = ["verdict", "agreement", "rhat", "ess"]
    rest = ["minor", "two_samples", "n_core", "n_features", "top_features"]
    assert list(table.columns) == ["support", "chains", *checks, "variance_explained", *rest]
    assert len(table) == 4 and (table.chains == 2).all() and not table.minor.any()
    assert (table.n_core > 0).all() and (table.n_core <= table.n_features).all()


def test_a_printed_summary_fits_a_terminal(planted):
    names = tuple(f"a rather long name of gene {d}" for d in range(len(planted[2].feature_names)))
    table = replace(planted[2], feature_names=names).summary()
    lines = repr(table).splitlines()
    assert str(table) == repr(table) and max(map(len, lines)) <= 80 and len(lines) == 2 + 4 + 2
    assert lines[0].split() == ["support", "verdict", "variance", "core", "all", "top_features"]
    assert lines[2].split()[:3] == ["0", f"{table.support[0]:.1%}", table.verdict[0]] and lines[2].endswith("…")
    assert " ".join(lines[6:]) == f"Columns: {', '.join(table.columns)}."
    assert type(table.head()) is pd.DataFrame
    short = replace(planted[2], feature_names=tuple(f"g{d}" for d in range(len(names)))).summary()
    assert repr(short).splitlines()[2].endswith(f"  {short.top_features[0]}")
    assert repr(table.__class__(table.iloc[:0])) == "No factor is in more than half of the draws."


def test_a_summary_that_was_changed_in_place_prints_as_a_table(planted):
    for change in (
        lambda table: table.reset_index(inplace=True),
        lambda table: table.drop(columns="top_features", inplace=True),
        lambda table: table.rename(columns={"support": "share"}, inplace=True),
    ):
        table = planted[2].summary()
        change(table)
        assert repr(table) == repr(pd.DataFrame(table)) == str(table)
    table = planted[2].summary()
    table["support"] = ["high"] * len(table)
    assert repr(table).splitlines()[2].split()[:2] == ["0", "high"]
    without = replace(planted[2], checks=None).summary()
    assert repr(without).splitlines()[0].split() == ["support", "variance", "core", "all", "top_features"]


def test_results_are_shown_in_a_few_lines(planted):
    posterior, found = planted[1].posterior_, planted[2]
    for thing, lines in ((posterior, 4), (found, 2)):
        assert len(repr(thing).splitlines()) == lines and max(map(len, repr(thing).splitlines())) <= 100
    assert "2 chains × " in repr(posterior) and f"seed {posterior.seed}" in repr(posterior)
    assert repr(found).startswith("Consensus of 4 factors (4 substantial)")
    assert repr(posterior.diagnostics()) == str(posterior.diagnostics())
    assert "Diagnostic(" not in repr(posterior.diagnostics())


def test_genes_by_name(planted):
    found = planted[2]
    table, genes = found.gene_table(1, fdr=0.1, effect=0), found.genes(1, fdr=0.1, effect=0)
    assert list(table.index) == [found.feature_names[d] for d in genes] and len(genes) > 2
    assert list(table.columns) == ["loading", "lower", "upper", "relevance", "inclusion"]
    np.testing.assert_array_equal(table.loading, found.loadings[genes, 1])
    np.testing.assert_array_equal(
        table[["relevance", "inclusion"]].T, [found.relevance[genes, 1], found.inclusion[genes, 1]]
    )
    assert len(replace(found, relevance=np.zeros_like(found.relevance)).gene_table(0)) == 0


def test_summary_names_the_core_or_else_the_first_of_all_genes(by_hand):
    relevance = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    table = replace(by_hand[2], relevance=relevance, feature_names=tuple("abcd")).summary()
    assert table.n_core.tolist() == [1, 0] and table.n_features.tolist() == [2, 2]
    assert table.top_features[0] == "b" and set(table.top_features[1].split(", ")) == {"c", "d"}


def test_factors_of_one_or_two_samples_are_told(planted):
    found = planted[1].posterior_.consensus()
    assert (found.two_samples < 0.3).all()
    scores = np.zeros((50, 2))
    scores[[3, 7, 9], 0], scores[:, 1] = [3.0, -4.0, 1.0], 1.0
    np.testing.assert_allclose(replace(found, scores=scores).two_samples, [25 / 26, 0.04])
    few = replace(found, scores=np.column_stack([scores, scores[:, [1, 1]]]))
    assert few.outlying.tolist() == [0] and not len(found.outlying)
    told = "1 factor rests on one or two samples (factor 0): see two_samples."
    assert told in repr(few.summary()).splitlines() and "rests" not in repr(found.summary())
    assert all(len(line) <= 80 for line in repr(few.summary()).splitlines())
    # of a table in blocks nobody knows
    assert not len(replace(found, scores=np.zeros((0, 2))).outlying)


def test_the_sentence_on_factors_of_few_samples():
    told = on_few_samples(range(9), "see them", "--noise robust")
    assert told.startswith(
        "9 factors rest on one or two samples (factors 0, 1, 2, 3, 4, 5, 6, 7, …): see them. If outl"
    )
    assert told.endswith("If outliers make them, --noise robust takes these as they are.")


def test_small_and_weak_factors_are_minor(by_hand):
    inclusion = np.zeros((12, 5))
    for k, size in enumerate((12, 5, 4, 3, 12)):
        inclusion[:size, k] = 1.0
    inclusion[0, 1], inclusion[5, 3] = 0.9, 0.3  # 4.9 genes are five, 3.3 are three
    variance = np.array([0.5, 0.2, 0.1, 0.05, 0.0009])
    found = replace(by_hand[2], inclusion=inclusion, loadings=np.ones((12, 5)), variance_explained=variance)
    assert found.sizes.tolist() == [12, 5, 4, 3, 12] and found.n_substantial == 3
    assert found.minor.tolist() == [False, False, False, True, True]


def test_other_support_and_level(planted):
    posterior = planted[1].posterior_
    wide, default = posterior.consensus(level=0.99), posterior.consensus()
    assert (wide.upper - wide.lower >= default.upper - default.lower - 1e-9).all()
    assert posterior.consensus(min_support=0.05).n_factors >= 4
    with pytest.raises(ValueError, match="level must lie between 0 and 1. Got 1"):
        posterior.consensus(level=1)


def test_intervals_of_a_thinned_posterior_are_close(planted, monkeypatch):
    posterior, found = planted[1].posterior_, planted[2]
    monkeypatch.setattr(module, "INTERVAL_BYTES", 100)
    thin = build_consensus(posterior.data, posterior.chains, posterior.alignment(), get_kernels("numba"))
    assert np.abs(thin.upper - found.upper).max() < 0.3 and (thin.upper != found.upper).any()


@pytest.mark.parametrize("cache", [0, 10**9])
def test_draws_one_by_one_or_side_by_side_are_the_same(planted, monkeypatch, cache):
    posterior = planted[1].posterior_
    none = draw_of(np.zeros((40, 0)))
    chains = [[none, *chain[::10]] for chain in posterior.chains]
    draws, results = [draw for chain in chains for draw in chain], []
    monkeypatch.setattr(module, "CACHE_BYTES", cache)
    for size in (10**6, 3000, 1):
        monkeypatch.setattr(columns, "_BLOCK", size)
        aligned = align(draws, dense=False)
        results.append((aligned, build_consensus(posterior.data, chains, aligned, get_kernels("numba"))))
    first = results[0]
    assert first[1].n_factors == 4 and not first[0].support()[0].any()
    for aligned, found in results[1:]:
        assert all((a == b).all() for a, b in zip(aligned.factor, first[0].factor, strict=True))
        for name in ("loadings", "inclusion", "relevance", "lower", "upper", "support", "variance_explained"):
            np.testing.assert_allclose(getattr(found, name), getattr(first[1], name), atol=1e-9)


def test_a_rare_factor_in_none_of_the_thinned_draws(rng, monkeypatch):
    a, b = np.array([2.0, -3.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 1.0])
    draws = [draw_of(np.column_stack([a, b])) if 10 < i < 22 else draw_of(a[:, None]) for i in range(101)]
    data, aligned = observe(rng.normal(size=(10, 4))), align(draws, dense=False)
    monkeypatch.setattr(module, "evenly", lambda n, at_most: np.array([0, n - 1]))
    found = build_consensus(data, [draws], aligned, get_kernels("reference"), min_support=0.05)
    assert found.n_factors == 2 and (found.upper[:, 1] == 0).all()


def test_evenly_spread_indices():
    assert evenly(10, 3).tolist() == [0, 4, 9]
    assert evenly(3, 10).tolist() == [0, 1, 2]


def test_aligned_draws_average_to_the_consensus(planted):
    _, model, found = planted
    loadings, active = model.posterior_.aligned()
    assert loadings.shape == (2, 300, 40, 4)
    np.testing.assert_array_equal(active, loadings != 0)
    np.testing.assert_allclose(loadings.mean(axis=(0, 1)), found.loadings * found.support, atol=1e-10)


@pytest.mark.parametrize("model", [AFA, BFRM])
def test_dense_and_clustered_models_have_a_consensus(model):
    data = make_sparse_factors(50, 20, 2, density=0.5, snr=20, random_state=0)
    found = model(2, chains=2, tune=200, draws=50, random_state=0).fit(data.X).posterior_.consensus()
    assert found.n_factors == 2 and found.variance_explained.sum() > 0.5
