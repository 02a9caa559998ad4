from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact, mannwhitneyu

from nsfa.enrichment import best_sets, enrich, enrich_both, read_gmt, set_notes
from nsfa.posterior.consensus import Consensus

COMMON = ["factor", "gene_set", "overlap", "set_size", "list_size", "direction", "p", "fdr", "genes"]


def consensus(loadings, inclusion=None, names=None, relevance=None):
    """Consensus factors with given loadings; by default one that is not zero is certainly active, and in the core."""
    loadings = np.asarray(loadings, dtype=float)
    inclusion = (loadings != 0).astype(float) if inclusion is None else inclusion
    D, K = loadings.shape
    return Consensus(
        loadings=loadings,
        lower=loadings,
        upper=loadings,
        level=0.9,
        inclusion=inclusion,
        relevance=inclusion if relevance is None else relevance,
        support=np.ones(K),
        chain_support=np.ones((1, K)),
        variance_explained=np.full(K, 0.1),
        scores=np.zeros((4, K)),
        scores_std=np.ones((4, K)),
        feature_names=tuple(f"g{i}" for i in range(D)) if names is None else tuple(names),
    )


@pytest.fixture
def two_factors():
    """20 features; factor 0 has g0..g5 (g5 negative), factor 1 has g10..g13 (all negative)."""
    loadings = np.zeros((20, 2))
    loadings[:6, 0] = [3.0, 2.5, 2.0, 1.5, 1.0, -0.5]
    loadings[10:14, 1] = [-1.0, -2.0, -3.0, -4.0]
    return consensus(loadings)


def genes(*numbers):
    return [f"g{i}" for i in numbers]


class TestGMT:
    def test_reads_what_people_have(self, tmp_path):
        path = tmp_path / "sets.gmt"
        path.write_bytes("\ufeffcycle\thttp://x\tA\tB\tA\tC \t\r\n\r\n   \nempty\tno genes\nné\t\tD\n".encode())
        assert read_gmt(path) == {"cycle": ["A", "B", "C"], "empty": [], "né": ["D"]}
        assert read_gmt(str(path)) == read_gmt(path)

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("a\tx\tA\n\nb x B\n", r"separated by tabs\. Got 'b x B' on line 3 of .*bad\.gmt; correct that line\."),
            ("\tx\tA\n", "on line 1 of"),
            ("a\tx\tA\nb\tx\tB\na\ty\tC\n", "different names. Got 'a' again on line 3 of"),
        ],
    )
    def test_a_bad_line_is_named(self, tmp_path, text, sentence):
        path = tmp_path / "bad.gmt"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=sentence):
            read_gmt(path)

    def test_a_long_bad_line_is_cut(self, tmp_path):
        path = tmp_path / "bad.gmt"
        path.write_text("x" * 500, encoding="utf-8")
        with pytest.raises(ValueError, match=r"Got 'x{57}\.\.\.' on line 1"):
            read_gmt(path)

    def test_bytes_are_not_text(self, tmp_path):
        path = tmp_path / "sets.gmt"
        path.write_bytes(b"\x1f\x8b\x08\xff\xfe")
        with pytest.raises(ValueError, match="must be plain UTF-8 text"):
            read_gmt(path)


class TestHypergeometric:
    def test_a_row_is_fishers_exact_test(self, two_factors):
        table = enrich(two_factors, {"first": genes(0, 1, 2, 5, 15, 99)})
        assert list(table.columns) == [*COMMON[:5], "odds_ratio", *COMMON[5:]]
        row = table[table.factor == 0].iloc[0]
        odds, p = fisher_exact([[4, 2], [1, 13]], alternative="greater")
        assert (row.overlap, row.set_size, row.list_size) == (4, 5, 6)
        assert row.odds_ratio == pytest.approx(odds) and row.p == pytest.approx(p)
        assert row.genes == "g0,g1,g2,g5" and row.direction == "+"
        none = table[table.factor == 1].iloc[0]
        assert (none.overlap, none.odds_ratio, none.p, none.genes) == (0, 0.0, 1.0, "")

    def test_direction_is_that_of_most_of_the_overlap(self, two_factors):
        sets = {"up": genes(0, 1, 5), "tie": genes(0, 5, 19), "down": genes(10, 11, 0)}
        table = enrich(two_factors, sets).set_index(["factor", "gene_set"])
        assert table.direction[0, "up"] == "+"
        assert table.direction[0, "tie"] == "both"
        assert table.direction[1, "down"] == "-"
        assert table.direction[1, "up"] == "both"

    def test_false_discovery_rates_count_every_test(self, two_factors):
        sets = {f"s{i}": genes(i, i + 1, i + 2, i + 3) for i in range(10)}
        table = enrich(two_factors, sets)
        assert len(table) == 20
        p = np.sort(table.p)
        expected = np.minimum.accumulate((p * 20 / np.arange(1, 21))[::-1])[::-1]
        np.testing.assert_allclose(np.sort(table.fdr), expected)
        assert (table.groupby("factor").p.diff().dropna() >= 0).all()

    def test_the_gene_list_is_that_at_the_asked_rate(self):
        inclusion = np.zeros((20, 1))
        inclusion[:4, 0] = [1.0, 0.99, 0.9, 0.6]
        factors = consensus(inclusion * 2, inclusion)
        sets = {"s": genes(1, 2, 3)}
        assert enrich(factors, sets, fdr=0.05).iloc[0].genes == "g1,g2"
        assert enrich(factors, sets, fdr=0.2).iloc[0].genes == "g1,g2,g3"

    def test_a_list_inside_its_set_has_infinite_odds(self, two_factors):
        table = enrich(two_factors, {"s": genes(*range(8))})
        assert table[table.factor == 0].iloc[0].odds_ratio == np.inf


class TestRank:
    def test_without_ties_a_row_is_scipys_test(self, rng):
        loadings = rng.normal(size=(60, 2))
        member = rng.choice(60, 12, replace=False)
        table = enrich(consensus(loadings), {"s": genes(*member)}, method="rank").set_index("factor")
        assert list(table.reset_index().columns) == [*COMMON[:5], "score", *COMMON[5:]]
        others = np.setdiff1d(np.arange(60), member)
        for k in range(2):
            size = np.abs(loadings[:, k])
            known = mannwhitneyu(size[member], size[others], alternative="greater", method="asymptotic")
            assert table.p[k] == pytest.approx(known.pvalue)
            assert table.score[k] == pytest.approx(2 * known.statistic / (12 * 48) - 1)

    def test_ties_do_not_make_small_sets_look_certain(self, rng):
        """Under the null the share of p < 0.001 is at most about 0.001; scipy's normal curve gives ten times that."""
        loadings = np.zeros((2000, 1))
        loadings[:60, 0] = rng.normal(size=60)
        sets = {f"s{i}": genes(*rng.choice(2000, 12, replace=False)) for i in range(5000)}
        table = enrich(consensus(loadings), sets, method="rank")
        assert (table.p < 1e-3).mean() < 3e-3
        assert (table.p < 0.05).mean() == pytest.approx(0.05, abs=0.04)
        assert table.fdr.min() > 0.05

    def test_score_is_one_where_all_members_lead(self, rng):
        loadings = np.r_[3 + rng.random(5), rng.random(30)][:, None]
        row = enrich(consensus(loadings), {"s": genes(*range(5))}, method="rank").iloc[0]
        assert row.score == pytest.approx(1.0) and row.direction == "+" and row.p < 1e-3
        assert enrich(consensus(-loadings), {"s": genes(*range(5))}, method="rank").iloc[0].direction == "-"

    def test_members_on_both_sides(self, rng):
        loadings = np.r_[3 + rng.random(5), -3 - rng.random(5), rng.normal(size=40) / 10][:, None]
        row = enrich(consensus(loadings), {"s": genes(*range(10))}, method="rank").iloc[0]
        assert row.direction == "both" and row.p < 1e-4
        assert row.overlap == 10

    def test_nothing_to_rank_gives_p_one(self):
        flat = consensus(np.zeros((10, 1)))
        row = enrich(flat, {"s": genes(1, 2, 3)}, method="rank").iloc[0]
        assert (row.p, row.score, row.overlap, row.direction) == (1.0, 0.0, 0, "both")
        everything = enrich(consensus(np.arange(5.0)[:, None]), {"s": genes(*range(5))}, method="rank").iloc[0]
        assert (everything.p, everything.score) == (1.0, 0.0)


@pytest.mark.parametrize("method", ["hypergeometric", "rank"])
class TestEmptyThings:
    @pytest.mark.parametrize(
        ("factors", "sets"),
        [
            (np.ones((6, 0)), {"s": genes(0, 1, 2)}),
            (np.eye(6), {}),
            (np.eye(6), {"s": []}),
            (np.eye(6), {"s": genes(0, 1)}),
        ],
        ids=["no factors", "no sets", "empty set", "small set"],
    )
    def test_no_tests_is_an_empty_table(self, method, factors, sets):
        table = enrich(consensus(factors), sets, method=method)
        assert len(table) == 0 and set(COMMON) < set(table.columns)
        full = enrich(consensus(np.eye(6)), {"s": genes(0, 1, 2)}, method=method)
        assert (table.dtypes == full.dtypes).all() and list(table.columns) == list(full.columns)
        assert len(pd.concat([table, full])) == 6

    def test_unknown_genes_are_told_when_there_is_nothing_else(self, method, two_factors):
        with pytest.warns(UserWarning, match="check that both use the same kind of name"):
            assert len(enrich(two_factors, {"s": ["ENSG1", "ENSG2", "ENSG3"]}, method=method)) == 0

    def test_sizes_count_genes_in_the_data(self, method, two_factors):
        sets = {"three": genes(0, 1, 2, 77, 78), "five": genes(*range(5)), "twice": genes(3, 3, 3, 4)}
        assert set(enrich(two_factors, sets, method=method).gene_set) == {"three", "five"}
        assert set(enrich(two_factors, sets, method=method, max_size=3).gene_set) == {"three"}
        assert set(enrich(two_factors, sets, method=method, min_size=1, max_size=2).gene_set) == {"twice"}

    def test_a_file_and_its_dict_give_the_same(self, method, two_factors, tmp_path):
        path = tmp_path / "s.gmt"
        path.write_text("a\t-\tg0\tg1\tg2\nb\t-\tg10\tg11\tg12\n", encoding="utf-8")
        sets = {"a": (g for g in genes(0, 1, 2)), "b": set(genes(10, 11, 12))}
        pd.testing.assert_frame_equal(
            enrich(two_factors, str(path), method=method), enrich(two_factors, sets, method=method)
        )


def test_factors_without_genes_are_not_tested(two_factors):
    lost = consensus(two_factors.loadings, two_factors.inclusion * [1.0, 0.4])
    assert set(enrich(lost, {"s": genes(0, 1, 2)}).factor) == {0}
    assert set(enrich(lost, {"s": genes(0, 1, 2)}, method="rank").factor) == {0, 1}


def test_the_list_is_the_core_unless_every_gene_is_asked_for(two_factors):
    core = consensus(two_factors.loadings, relevance=np.where(np.abs(two_factors.loadings) > 1.9, 1.0, 0.0))
    sets = {"s": genes(0, 1, 2, 3, 4, 10)}
    for method in ("hypergeometric", "rank"):
        row, whole = (enrich(core, sets, method=method, **given).iloc[0] for given in ({}, {"effect": 0}))
        assert (row.list_size, row.genes) == (3, "g0,g1,g2")
        assert (whole.list_size, whole.genes) == (6, "g0,g1,g2,g3,g4")


class TestBoth:
    def test_rows_are_those_of_both_methods(self, two_factors):
        sets = {f"s{i}": genes(i, i + 1, i + 2, i + 3) for i in range(10)}
        two_factors = replace(two_factors, relevance=np.where(np.abs(two_factors.loadings) > 1.9, 1.0, 0.0))
        table = enrich_both(two_factors, sets)
        assert list(table.columns) == ["method", *COMMON[:5], "odds_ratio", "score", *COMMON[5:]]
        for method, other in (("hypergeometric", "score"), ("rank", "odds_ratio")):
            own = table[table.method == method].drop(columns=["method", other]).reset_index(drop=True)
            pd.testing.assert_frame_equal(own, enrich(two_factors, sets, method=method))
            assert table[table.method == method][other].isna().all()
        assert (table.factor.diff().dropna() >= 0).all()

    def test_the_best_set_of_each_factor(self, two_factors):
        sets = {"first": genes(0, 1, 2, 3, 4, 5), "second": genes(10, 11, 12, 13), "any": genes(1, 7, 12, 18)}
        table = enrich_both(two_factors, sets)
        best = best_sets(table)
        assert best.gene_set.tolist() == ["first", "second"] and best.index.tolist() == [0, 1]
        np.testing.assert_array_equal(best.fdr, table.groupby("factor").fdr.min())
        assert best_sets(table, fdr=best.fdr.min()).index.tolist() == [best.fdr.idxmin()]

    @pytest.mark.parametrize(
        ("factors", "sets", "rows"),
        [
            (np.ones((6, 0)), {"s": genes(0, 1, 2)}, 0),
            (np.eye(6)[:, :1], {"s": genes(0, 1, 2)}, 2),
            (np.zeros((6, 1)), {"s": genes(0, 1, 2)}, 1),
            (np.eye(6)[:, :1], {"s": genes(0, 1, 2, 77), "lost": genes(77, 78, 79)}, 2),
            (np.eye(6)[:, :1], {}, 0),
            (np.eye(6)[:, :1], {"s": []}, 0),
        ],
        ids=["no factors", "one factor", "empty list", "absent genes", "no sets", "empty set"],
    )
    def test_little_or_nothing_to_test(self, factors, sets, rows):
        table = enrich_both(consensus(factors), sets)
        full = enrich_both(consensus(np.eye(6)), {"s": genes(0, 1, 2)})
        assert len(table) == rows and list(table.columns) == list(full.columns)
        assert (table.dtypes == full.dtypes).all() and set(table.gene_set) <= {"s"}
        assert len(best_sets(table, fdr=1.0)) == min(rows, 1) and len(best_sets(table)) == 0
        assert (table.p.between(0, 1) & table.fdr.between(0, 1)).all()

    def test_unknown_genes_are_told_once(self, two_factors):
        with pytest.warns(UserWarning, match="check that both use the same kind of name") as told:
            assert len(enrich_both(two_factors, {"s": ["ENSG1", "ENSG2", "ENSG3"]})) == 0
        assert len(told) == 1 and told[0].filename == __file__


def test_sets_that_are_not_tested_are_told(two_factors):
    sets = {"all there": genes(0, 1, 2), "gone": ["X", "Y", "Z"], "empty": [], "two": genes(3, 4), "other": ["Q"]}
    told = [
        "3 of 5 gene sets have no gene in the table and are not tested: 'gone', 'empty', 'other'.",
        "1 of 5 gene sets have fewer than 3 genes in the table and are not tested: 'two'.",
    ]
    for table in (enrich(two_factors, sets), enrich(two_factors, sets, method="rank"), enrich_both(two_factors, sets)):
        assert set(table.gene_set) == {"all there"} and table.attrs["notes"] == told
    assert set_notes(sets, two_factors.feature_names) == told
    assert set_notes({"all there": genes(0, 1, 2)}, two_factors.feature_names) == []
    assert enrich_both(two_factors, {}).attrs["notes"] == ["There are no gene sets to test."]


def test_genes_are_matched_by_either_name(two_factors):
    symbols = [f"SYMBOL{i}" for i in range(19)] + ["SYMBOL0"]
    table = enrich(two_factors, {"s": ["SYMBOL0", "g0", "SYMBOL1", "g2", "elsewhere"]}, symbols=symbols)
    assert set(table.set_size) == {3}, "g0 and its symbol are one gene, as is g19 of the same symbol"
    assert table.genes[0] == "SYMBOL0,SYMBOL1,SYMBOL2" and table.overlap[0] == 3
    assert set_notes({"s": ["SYMBOL3", "SYMBOL4", "SYMBOL5"]}, two_factors.feature_names, symbols) == []
    with pytest.raises(ValueError, match="symbols must have one name per feature, 20. Got 3."):
        enrich(two_factors, {"s": ["g0"]}, symbols=["a", "b", "c"])


@pytest.mark.parametrize("method", ["hypergeometric", "rank"])
def test_probes_of_one_symbol_are_one_gene(method, rng):
    """The table is that of one feature per gene, with the loading of its largest probe."""
    loading = np.r_[2.0, 1.5, -1.0, np.zeros(27)]
    loading[10:] = 0.01 * rng.normal(size=20)
    genes = consensus(loading[:, None], (np.abs(loading) > 0.5).astype(float)[:, None])
    order = np.r_[0, 1, 1, np.arange(30), 2]
    smaller = np.r_[0.5, -0.2, 0.0, np.ones(30), -0.9]
    probe = (loading[order] * smaller)[:, None]
    inclusion = genes.inclusion[order] * np.r_[1, 0, 0, np.ones(31)][:, None]
    probes = consensus(probe, inclusion, [f"p{i}" for i in range(34)])
    symbols = [f"g{i}" for i in order]
    sets = {"own": ["g0", "g1", "g2"], "any": ["g1", "g7", "g12", "g13"], "one": ["g0", "g1"]}
    found = enrich(probes, sets, method=method, symbols=symbols)
    expected = enrich(genes, sets, method=method)
    alike = found.drop(columns="genes"), expected.drop(columns="genes")
    pd.testing.assert_frame_equal(*alike)
    assert [set(text.split(",")) for text in found.genes] == [set(text.split(",")) for text in expected.genes]
    assert found.attrs == expected.attrs and "'one'" in found.attrs["notes"][0]
    by_id = enrich(probes, {"own": ["p0", "p3", "p4", "p33"]}, method=method, symbols=symbols)
    assert by_id.set_size[0] == 3, "probes of three genes"


def test_a_set_of_one_gene_is_one_gene_however_many_probes_it_has():
    factors = consensus(np.r_[np.ones(3), np.zeros(400)][:, None])
    symbols = ["KLK3"] * 3 + [f"S{i}" for i in range(400)]
    assert len(enrich(factors, {"ONE_GENE": ["KLK3"]}, symbols=symbols)) == 0
    row = enrich(factors, {"ONE_GENE": ["KLK3"]}, symbols=symbols, min_size=1).iloc[0]
    assert (row.overlap, row.set_size, row.list_size, row.genes) == (1, 1, 1, "KLK3")
    assert row.p == pytest.approx(1 / 401)
    assert "fewer than 3 genes" in set_notes({"ONE_GENE": ["KLK3"]}, factors.feature_names, symbols)[0]


def test_features_without_a_symbol_are_genes_of_their_own(two_factors):
    table = enrich(two_factors, {"s": genes(0, 1, 2, 15)}, symbols=[""] * 20)
    pd.testing.assert_frame_equal(table, enrich(two_factors, {"s": genes(0, 1, 2, 15)}))


def test_features_of_one_name_all_count():
    factors = consensus(np.r_[np.ones(3), np.zeros(7)][:, None], names=["A", "A", "B", *"CDEFGHI"])
    row = enrich(factors, {"s": ["A", "B"]}).iloc[0]
    assert (row.overlap, row.set_size, row.genes) == (3, 3, "A,A,B")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"method": "gsea"}, "method must be 'hypergeometric' or 'rank'. Got 'gsea'"),
        ({"min_size": 0}, "min_size must be an int >= 1. Got 0"),
        ({"max_size": 2}, "max_size must be None or an int >= min_size = 3. Got 2"),
        ({"fdr": 1.5}, "fdr must lie between 0 and 1. Got 1.5"),
        ({"effect": 5}, "effect must be a share of the variance, at least 0 and below 1. Got 5; 5 % is 0.05."),
        ({"gene_sets": [["a"]]}, "gene_sets must be a dict of names and genes, or the path of a GMT file. Got list"),
        ({"gene_sets": {"s": "TP53"}}, r"Got the text 'TP53' for 's'; use \['TP53'\]"),
    ],
)
def test_bad_settings_get_one_sentence(change, sentence, two_factors):
    with pytest.raises(ValueError, match=sentence):
        enrich(two_factors, **{"gene_sets": {"s": genes(0, 1, 2)}, **change})
