import itertools
from types import SimpleNamespace

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import PathCollection, PolyCollection
from sklearn.exceptions import NotFittedError

from nsfa import NSFA, SPCA, pl
from nsfa.datasets import make_sparse_factors
from nsfa.display import block_order, group_codes
from nsfa.pl.matrices import left_ordered
from nsfa.posterior.consensus import Consensus

SIZES = [(3, 100), (3, 2000), (80, 100), (80, 2000)]


def fake(n_factors, n_features=100, n_samples=60, n_chains=4, names=None):
    rng = np.random.default_rng(n_factors + n_features)
    shape = (n_features, n_factors)
    active = rng.random(shape) < min(0.3, 3 / max(n_factors, 1))
    inclusion = np.where(active, rng.uniform(0.6, 1.0, shape), rng.uniform(0.0, 0.3, shape))
    loadings = np.where(active, rng.normal(size=shape), 0.02) * inclusion
    share = np.sort(rng.gamma(1.0, size=n_factors))[::-1]
    chain_support = rng.random((n_chains, n_factors))
    return Consensus(
        loadings=loadings,
        lower=loadings - 0.3,
        upper=loadings + 0.2,
        level=0.9,
        inclusion=inclusion,
        relevance=np.where(np.abs(loadings) > 0.5, inclusion, 0.0),
        support=chain_support.mean(axis=0),
        chain_support=chain_support,
        variance_explained=0.7 * share / max(share.sum(), 1e-9),
        scores=rng.normal(size=(n_samples, n_factors)),
        scores_std=np.full((n_samples, n_factors), 0.1),
        feature_names=tuple(names or (f"GENE{d}" for d in range(n_features))),
    )


class FakePosterior:
    def __init__(self, n_components, **traces):
        self.n_factors = self.n_shared = self.n_substantial = np.asarray(n_components)
        self.traces = {"n_factors": self.n_factors.astype(float), **traces}

    def trace(self, name):
        return self.traces[name]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    X = make_sparse_factors(40, 20, 3, density=0.4, random_state=0).X
    return NSFA(chains=2, tune=50, draws=30, random_state=0).fit(X)


FACTOR_PLOTS = {
    "loadings": pl.loadings,
    "top_features": lambda model, ax=None: pl.top_features(model, 0, ax=ax),
    "scores": pl.scores,
    "scores of a pair": lambda model, ax=None: pl.scores(model, factors=(0, 1), ax=ax),
    "variance_explained": pl.variance_explained,
    "inclusion_curve": pl.inclusion_curve,
    "hinton": pl.hinton,
    "chain_agreement": pl.chain_agreement,
}


def x_labels(ax):
    return [t.get_text() for t in ax.get_xticklabels() if t.get_text()]


def overlaps(labels, axis):
    """Whether neighbours among drawn tick labels touch along x (0) or y (1)."""
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    spans = sorted((box.x0, box.x1) if axis == 0 else (box.y0, box.y1) for box in boxes)
    return any(left[1] > right[0] for left, right in itertools.pairwise(spans))


@pytest.mark.parametrize("plot", FACTOR_PLOTS.values(), ids=FACTOR_PLOTS)
def test_without_factors_there_is_a_note(plot):
    ax = plot(fake(0))
    assert [t.get_text() for t in ax.texts] == ["no factors"]
    mine = plt.figure().add_subplot()
    assert plot(fake(0), ax=mine) is mine


@pytest.mark.parametrize("plot", FACTOR_PLOTS.values(), ids=FACTOR_PLOTS)
def test_draws_into_the_given_axes_and_reads_any_kind_of_model(plot):
    consensus = fake(3)
    posterior = SimpleNamespace(consensus=lambda: consensus)
    for model in (consensus, posterior, SimpleNamespace(posterior_=posterior)):
        figure, mine = plt.subplots()
        assert plot(model, ax=mine) is mine
        assert mine.has_data()
        assert plt.get_fignums() == [figure.number]
        plt.close(figure)
    assert plot(consensus).figure is not figure


@pytest.mark.parametrize("plot", FACTOR_PLOTS.values(), ids=FACTOR_PLOTS)
@pytest.mark.parametrize("n_factors", [3, 80])
def test_tick_labels_are_few_and_do_not_touch(plot, n_factors):
    ax = plot(fake(n_factors))
    ax.figure.draw_without_rendering()
    assert 2 <= len(x_labels(ax)) <= 40
    assert not overlaps(ax.get_xticklabels(), 0)
    assert not overlaps(ax.get_yticklabels(), 1)


@pytest.mark.parametrize("plot", [pl.loadings, pl.variance_explained, pl.chain_agreement, pl.hinton])
def test_eighty_factors_also_fit_small_axes(plot):
    _, axes = plt.subplots(2, 3, figsize=(8, 5), layout="constrained")
    ax = plot(fake(80), ax=axes[0, 1])
    ax.figure.draw_without_rendering()
    assert 2 <= len(x_labels(ax)) <= 16
    assert not overlaps(ax.get_xticklabels(), 0)


def test_models_that_cannot_be_plotted_are_named():
    with pytest.raises(NotFittedError):
        pl.loadings(NSFA())
    with pytest.raises(NotFittedError):
        pl.traces(NSFA())
    X = make_sparse_factors(20, 8, 2, random_state=0).X
    with pytest.raises(TypeError, match="Got SPCA"):
        pl.loadings(SPCA(1).fit(X))
    with pytest.raises(TypeError, match="Got Consensus"):
        pl.n_components(fake(3))
    with pytest.raises(ValueError, match="from 0 to 2. Got 3"):
        pl.top_features(fake(3), 3)
    with pytest.raises(ValueError, match="Got -1"):
        pl.inclusion_curve(fake(3), [0, -1])


def test_number_of_factors_as_shares_of_draws():
    ax = pl.n_components(FakePosterior([[2, 2, 3, 5], [2, 3, 3, 3]]))
    bars = {round(b.get_x() + b.get_width() / 2): b.get_height() for b in ax.patches}
    assert bars == pytest.approx({2: 37.5, 3: 50.0, 4: 0.0, 5: 12.5})
    assert ax.get_title(loc="left") == "Most often 3 substantial: 50 % of draws"
    assert ax.get_xlabel() == "number of factors with 5 features or more"
    first, second = ax.lines
    np.testing.assert_allclose(first.get_ydata(), [50, 25, np.nan, 25])
    np.testing.assert_allclose(second.get_ydata(), [25, 75, np.nan, np.nan])
    assert not pl.n_components(FakePosterior([[2, 3], [2, 2]]), per_chain=False).lines
    every = pl.n_components(FakePosterior([[2, 2, 3, 5], [2, 3, 3, 3]]), count="all")
    assert every.get_title(loc="left") == "Most often K = 3: 50 % of draws"
    with pytest.raises(ValueError, match="count must be one of 'substantial', 'shared', 'all'. Got 'K'"):
        pl.n_components(FakePosterior([[2, 3]]), count="K")


def test_many_numbers_of_factors_are_shown_in_steps(rng):
    counts = rng.integers(31, 122, (3, 400))
    ax = pl.n_components(FakePosterior(counts), count="all")
    assert len(ax.patches) == 19 and ax.get_xlabel() == "number of factors K, in steps of 5"
    shares = [100 * ((counts >= start) & (counts < start + 5)).mean() for start in range(30, 125, 5)]
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], shares)
    np.testing.assert_allclose([bar.get_x() + bar.get_width() / 2 for bar in ax.patches], np.arange(32, 125, 5))
    first = 30 + 5 * int(np.argmax(shares))
    assert ax.get_title(loc="left").startswith(f"Most often K = {first} to {first + 4}: ")
    own = 100 * ((counts[0] >= 30) & (counts[0] < 35)).mean()
    assert ax.lines[0].get_ydata()[0] == pytest.approx(own)


def test_number_of_factors_when_there_are_none():
    ax = pl.n_components(FakePosterior(np.zeros((2, 5), dtype=int)))
    assert [b.get_height() for b in ax.patches] == [100.0]
    assert ax.get_title(loc="left") == "No such factors in any draw"


def test_a_real_fit(fitted):
    ax = pl.n_components(fitted)
    assert sum(b.get_height() for b in ax.patches) == pytest.approx(100.0)
    panels = pl.traces(fitted.posterior_)
    assert [p.get_ylabel() for p in panels] == ["log joint", "factors K", "active loadings", "concentration α"]
    for panel, name in zip(panels, ("log_joint", "n_factors", "n_active", "concentration"), strict=True):
        drawn = np.array([line.get_ydata() for line in panel.lines])
        np.testing.assert_array_equal(drawn, fitted.posterior_.trace(name))
    assert [t.get_text() for t in panels[0].get_legend().get_texts()] == ["chain 0", "chain 1"]


@pytest.mark.parametrize("plot", FACTOR_PLOTS.values(), ids=FACTOR_PLOTS)
def test_consensus_of_a_real_fit(plot, fitted):
    assert fitted.posterior_.consensus().n_factors >= 2, "choose another seed"
    ax = plot(fitted)
    ax.figure.draw_without_rendering()
    assert ax.has_data()


def test_traces_leave_out_what_the_model_fixes_unless_asked():
    rng = np.random.default_rng(0)
    flat = np.full((12, 9), 2.0)
    model = FakePosterior(
        flat.astype(int), log_joint=rng.normal(size=(12, 9)), n_active=rng.random((12, 9)), concentration=flat
    )
    panels = pl.traces(model)
    assert [p.get_ylabel() for p in panels] == ["log joint", "active loadings"]
    assert panels[0].get_legend() is None, "twelve names do not fit"
    assert len({tuple(line.get_color()) for line in panels[0].lines}) == 12
    figure, mine = plt.subplots()
    assert pl.traces(model, ["concentration"], axes=mine)[0] is mine
    with pytest.raises(ValueError, match="one Axes per quantity, 2. Got 1"):
        pl.traces(model, axes=[mine])
    with pytest.raises(ValueError, match="Got 'nonsense'"):
        pl.traces(model, ["nonsense"])
    with pytest.raises(ValueError, match="list of names"):
        pl.traces(model, "log_joint")


@pytest.mark.parametrize(("n_factors", "n_features"), SIZES)
def test_heatmap_masks_what_is_not_in_the_factor(n_factors, n_features):
    consensus = fake(n_factors, n_features)
    ax = pl.loadings(consensus, max_features=n_features)
    (image,) = ax.images
    shown = image.get_array()
    used = (consensus.inclusion >= 0.5).any(axis=1)
    assert shown.shape == (used.sum(), n_factors)
    assert (~shown.mask).sum() == (consensus.inclusion >= 0.5).sum()
    np.testing.assert_allclose(np.sort(shown.compressed()), np.sort(consensus.loadings[consensus.inclusion >= 0.5]))
    low, high = image.get_clim()
    assert low == -high
    assert not np.allclose(image.cmap.get_bad()[:3], image.cmap(0.5)[:3], atol=0.02), "zero and absent look alike"


def test_heatmap_rows_form_blocks_with_their_names():
    consensus = fake(3, 40)
    ax = pl.loadings(consensus)
    shown = ax.images[0].get_array().filled(0.0)
    strongest = np.abs(shown).argmax(axis=1)
    assert (np.diff(strongest) >= 0).all()
    for k in range(3):
        assert (np.diff(shown[strongest == k, k]) <= 0).all()
    names = [t.get_text() for t in ax.get_yticklabels()]
    rows = [consensus.feature_names.index(name) for name in names]
    np.testing.assert_allclose(shown, np.where(consensus.inclusion[rows] >= 0.5, consensus.loadings[rows], 0.0))


@pytest.mark.parametrize(("n_factors", "rows"), [(3, 200), (150, 300)])
def test_heatmap_of_many_features_takes_the_best_of_each_factor(n_factors, rows):
    consensus = fake(n_factors, 2000)
    ax = pl.loadings(consensus)
    shown = ax.images[0].get_array()
    assert shown.shape == (rows, n_factors)
    likely = np.abs(np.where(consensus.inclusion >= 0.5, consensus.loadings, 0.0))
    np.testing.assert_allclose(np.abs(shown.filled(0.0)).max(axis=0), likely.max(axis=0))
    assert not [t for t in ax.get_yticklabels() if t.get_text()], "200 names do not fit"
    assert f"top {rows} of 2,000" in ax.get_title(loc="left")


def test_heatmap_with_no_likely_loading_says_so():
    ax = pl.loadings(fake(3), threshold=1.0)
    assert "no loading" in ax.texts[0].get_text()
    with pytest.raises(ValueError, match="threshold must lie between 0 and 1. Got 2"):
        pl.loadings(fake(3), threshold=2)
    with pytest.raises(ValueError, match="max_features must be an int >= 1 or None. Got 0"):
        pl.loadings(fake(3), max_features=0)


def test_order_of_rows():
    values = np.array([[0, 0], [1, 0], [0, 5], [-3, 1], [2, 0], [0, -6.0]])
    assert block_order(values, 10).tolist() == [4, 1, 3, 2, 5]
    assert block_order(values, 3).tolist() == [4, 3, 5], "the strongest of both columns, then the next of the first"


def test_top_features_show_mean_interval_and_certainty():
    consensus = fake(3)
    consensus.relevance[:, 1] = np.arange(100) < 4
    ax = pl.top_features(consensus, 1, n=7)
    top = np.argsort(-np.abs(consensus.loadings[:, 1]))[:7]
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"GENE{d}" for d in top]
    dots = next(c for c in ax.collections if isinstance(c, PathCollection))
    np.testing.assert_allclose(dots.get_offsets(), np.column_stack([consensus.loadings[top, 1], np.arange(7)]))
    np.testing.assert_allclose(dots.get_array(), consensus.inclusion[top, 1])
    segments = np.array(next(c for c in ax.collections if c is not dots).get_segments())
    np.testing.assert_allclose(segments[:, 0, 0], consensus.lower[top, 1])
    np.testing.assert_allclose(segments[:, 1, 0], consensus.upper[top, 1])
    low, high = ax.get_ylim()
    assert low > high, "the largest stands on top"
    assert "90 %" in ax.get_xlabel()
    core, every = len(consensus.genes(1)), len(consensus.genes(1, effect=0))
    assert core == 4 != every and f"({every} at 5 % FDR, {core} core)" in ax.get_title(loc="left")


def test_names_are_shortened_and_are_no_formulas():
    ax = pl.top_features(fake(3, names=[f"gene$_{d}${'x' * 40}" for d in range(100)]), 0, n=3)
    ax.figure.draw_without_rendering()
    assert all(len(t.get_text()) <= 30 and t.get_text().startswith(r"gene\$_") for t in ax.get_yticklabels())


def test_scores_of_one_factor_by_group():
    consensus = fake(3, n_samples=6)
    ax = pl.scores(consensus, 2, groups=["b", "a", "b", "b", None, "a"])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a (2)", "b (3)", "unlabelled (1)"]
    clouds = [c.get_offsets() for c in ax.collections if isinstance(c, PathCollection)]
    for row, members in enumerate([[1, 5], [0, 2, 3], [4]]):
        np.testing.assert_allclose(clouds[row][:, 0], consensus.scores[members, 2])
        assert (np.abs(clouds[row][:, 1] - row) < 0.5).all()
        low, high = np.percentile(consensus.scores[members, 2], [25, 75])
        box = ax.patches[row]
        assert (box.get_x(), box.get_width()) == pytest.approx((low, high - low))


def test_numbers_written_as_text_are_in_their_order_and_counts_are_whole():
    labels = np.array([str(i % 12) for i in range(60)])
    ax = pl.scores(fake(2, n_samples=60), groups=labels)
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"{i} (5)" for i in range(12)]
    ax = pl.scores(fake(2, n_samples=60), groups=np.where(np.arange(60) < 30, "a" * 40, "b$c"))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a" * 27 + "… (30)", "b\\$c (30)"]


def test_scores_of_two_factors():
    consensus = fake(80, n_samples=40)
    groups = np.repeat([f"type {i}" for i in range(10)], 4)
    ax = pl.scores(consensus, factors=(3, 70), groups=groups)
    first = next(c for c in ax.collections if isinstance(c, PathCollection))
    np.testing.assert_allclose(first.get_offsets(), consensus.scores[:4][:, [3, 70]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("score on factor 3", "score on factor 70")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [f"type {i} (4)" for i in range(10)]
    ax.figure.draw_without_rendering()
    page, legend = ax.figure.bbox, ax.get_legend().get_window_extent()
    assert legend.x1 <= page.x1 and legend.y0 >= page.y0, "the legend is cut off"
    looks = {
        (tuple(c.get_facecolor()[0]), c.get_paths()[0].vertices.shape)
        for c in ax.collections
        if len(c.get_offsets()) == 4
    }
    assert len(looks) == 10, "two groups look the same"
    assert pl.scores(consensus, factors=(0, 1)).get_legend() is None
    with pytest.raises(ValueError, match="must be a pair"):
        pl.scores(consensus, factors=(1,))
    with pytest.raises(ValueError, match="one label per sample, 40. Got 3"):
        pl.scores(consensus, groups=["a", "b", "c"])


def test_many_groups_are_pooled_and_numbers_stay_in_order():
    labels = np.concatenate([np.arange(30), np.repeat([28, 29], 5)])
    names, codes = group_codes(labels, 40)
    assert len(names) == 20
    assert names[:3] == ["0", "1", "2"] and names[-3:] == ["28", "29", "all other groups"]
    counts = np.bincount(codes)
    assert counts.tolist() == [1] * 17 + [6, 6, 11]
    assert codes[labels == 29].tolist() == [18] * 6


@pytest.mark.parametrize("n_factors", [3, 80])
def test_variance_explained_in_percent(n_factors):
    consensus = fake(n_factors)
    ax = pl.variance_explained(consensus)
    np.testing.assert_allclose([b.get_height() for b in ax.patches], 100 * consensus.variance_explained)
    assert ax.get_title(loc="left") == f"{n_factors} factors explain 70 % of the variance"


def test_variance_explained_never_passes_a_hundred():
    consensus = SimpleNamespace(**{**vars(fake(2)), "variance_explained": np.array([0.99, 0.02])})
    model = SimpleNamespace(consensus=lambda: SimpleNamespace(**vars(consensus), n_factors=2))
    ax = pl.variance_explained(model)
    assert "100 %" in ax.get_title(loc="left")
    assert ax.get_ylim() == (0, 100)


@pytest.mark.parametrize(("n_factors", "n_features"), SIZES)
def test_inclusion_curves_fall_and_end_at_the_discovery_cut(n_factors, n_features):
    consensus = fake(n_factors, n_features)
    ax = pl.inclusion_curve(consensus)
    curves = [line for line in ax.lines if len(line.get_xdata()) == n_features]
    assert len(curves) == n_factors
    cuts = [line for line in ax.lines if len(line.get_xdata()) == 1]
    sizes = [len(consensus.genes(k, effect=0)) for k in range(n_factors)]
    assert [int(c.get_xdata()[0]) for c in cuts] == [size for size in sizes if size]
    for k, curve in enumerate(curves):
        np.testing.assert_array_equal(curve.get_ydata(), np.sort(consensus.inclusion[:, k])[::-1])
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert {"P = 0.5", "5 % FDR cut"} <= set(labels) and len(labels) <= 7
    assert (f"factor 0 ({sizes[0]} features)" in labels) == (n_factors == 3)


def test_inclusion_curves_of_chosen_factors():
    ax = pl.inclusion_curve(fake(80), [5, 70])
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert [label.split(" (")[0] for label in labels if "factor" in label] == ["factor 5", "factor 70"]
    with pytest.raises(ValueError, match="at least one factor"):
        pl.inclusion_curve(fake(80), [])


def squares(ax):
    (collection,) = (c for c in ax.collections if isinstance(c, PolyCollection))
    corners = np.array([path.vertices[:4] for path in collection.get_paths()]).reshape(-1, 4, 2)
    return corners.mean(axis=1), np.ptp(corners[:, :, 0], axis=1) ** 2, collection.get_facecolor()[:, 0]


def test_hinton_areas_are_the_entries():
    values = np.array([[1.0, 0.0, -0.5], [0.0, 0.25, 0.0]])
    ax = pl.hinton(values)
    centre, area, whiteness = squares(ax)
    np.testing.assert_allclose(centre, [[0, 0], [2, 0], [1, 1]], atol=1e-12)
    np.testing.assert_allclose(area / area[0], [1.0, 0.5, 0.25])
    assert whiteness.tolist() == [1.0, 0.0, 1.0]
    assert 0.2 < ax.get_facecolor()[0] < 0.8, "both colours must show on the background"
    assert ax.get_aspect() == 1.0


def test_hinton_of_a_binary_matrix_in_left_ordered_form():
    Z = np.array([[0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0.0]])
    assert left_ordered(Z).tolist() == [3, 1, 0, 2]
    ax = pl.hinton(Z, left_order=True)
    centre, area, whiteness = squares(ax)
    filled = np.zeros(Z.shape)
    filled[centre[:, 1].round().astype(int), centre[:, 0].round().astype(int)] = 1
    np.testing.assert_array_equal(filled, Z[:, [3, 1, 0, 2]])
    assert np.ptp(area) < 1e-12 and not whiteness.any()
    assert ax.get_facecolor()[:3] == (1.0, 1.0, 1.0)
    assert x_labels(ax) == ["3", "1", "0", "2"]


@pytest.mark.parametrize(("n_factors", "n_features"), SIZES)
def test_hinton_of_a_model(n_factors, n_features):
    consensus = fake(n_factors, n_features)
    ax = pl.hinton(consensus, max_features=n_features)
    _, area, _ = squares(ax)
    assert len(area) == (consensus.inclusion >= 0.5).sum()
    _, area, whiteness = squares(pl.hinton(consensus, pattern=True))
    assert np.ptp(area) < 1e-9 and not whiteness.any()


def test_hinton_takes_zeros_and_refuses_what_is_no_matrix():
    assert len(squares(pl.hinton(np.zeros((3, 2))))[1]) == 0
    with pytest.raises(ValueError, match="2-D and finite"):
        pl.hinton(np.ones(3))
    with pytest.raises(ValueError, match="2-D and finite"):
        pl.hinton([[1.0, np.nan]])


@pytest.mark.parametrize("n_factors", [3, 80])
def test_chain_agreement_is_the_support_by_chain(n_factors):
    consensus = fake(n_factors)
    ax = pl.chain_agreement(consensus)
    np.testing.assert_array_equal(ax.images[0].get_array(), consensus.chain_support)
    assert ax.images[0].get_clim() == (0, 1)
    numbers = [t.get_text() for t in ax.texts]
    expected = [f"{100 * share:.0f}" for share in consensus.chain_support.ravel()]
    assert numbers == (expected if n_factors == 3 else [])


def test_no_style_is_left_changed():
    before = dict(mpl.rcParams)
    for plot in FACTOR_PLOTS.values():
        plot(fake(3))
    assert dict(mpl.rcParams) == before
