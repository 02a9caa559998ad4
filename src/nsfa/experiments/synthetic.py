"""Section 5.1, Figures 4 and 5: ten simulated data sets with the E. coli network's pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nsfa.arrays import Floats
from nsfa.experiments import frames, peers, style
from nsfa.experiments.claims import Finding
from nsfa.tasks import Number, Task

DATA = ("ecoli",)
SAMPLES, SNR, TRUE = 100, 10.0, 16
SIZES = (10, 16, 20)
FIXED, FEW = ("FA", "AFA", "FOK", "SPCA", "BFRM", "SFA"), ("FA", "AFA", "SFA")
PEER_SIZES = {"mofapy2": (16, 20), "mofapy2-sparse": (16, 20), "factor-analysis": (16,), "sparse-pca": (16,)}
# the claims about the number of factors are about the paper's priors
NSFA: dict[str, dict[str, Any]] = {
    "NSFA a1": {"concentration": 1.0, "prior": "paper"},
    "NSFA": {"prior": "paper"},
    "NSFA a1 sc": {"concentration": 1.0, "noise": "shared", "prior": "paper"},
    "NSFA sc": {"noise": "shared", "prior": "paper"},
}
# a loading of a method without exact zeros counts if it explains this share of the feature's variance
VISIBLE = 0.01
COUNTED, AVERAGED = 100, 10
# the true loadings, rotated at random: what E_r makes of a model that has all but the rotation
CONTROL = "true G, rotated"
ONES = "NSFA a1, G = Z"
SPARSE = ["SFA K16", "NSFA a1", "NSFA"]
ALTERNATIONS = 30


def plan(quick: bool) -> list[Task]:
    """Every model on every data set; NSFA also where all active loadings are 1; peers at the true K or above."""
    sets, sweeps, sizes = (2, 300, (16, 20)) if quick else (10, 1000, SIZES)
    models = [(f"{name} K{k}", name, {"n_components": k}) for name in FIXED if not quick or name in FEW for k in sizes]
    models += [(name, "NSFA", NSFA[name]) for name in list(NSFA)[: 2 if quick else None]]
    tasks = []
    for seed in range(sets):
        tasks += [_task(name, seed, family, settings, sweeps) for name, family, settings in models]
        if not quick:
            tasks += [Task(f"{CONTROL} K{k}", seed, rotate_truth, {"size": k, "seed": seed}, 0.1) for k in sizes]
            tasks.append(_task(ONES, seed, "NSFA", NSFA["NSFA a1"], sweeps, ones=True))
            for peer, k in ((name, k) for name, some in PEER_SIZES.items() for k in some):
                label, module = f"{peers.PEERS[peer].label} K{k}", peers.PEERS[peer].module
                tasks.append(Task(label, seed, fit_peer, {"peer": peer, "size": k, "seed": seed}, 1.0, module=module))
    return tasks


def _task(name: str, seed: int, family: str, settings: dict[str, Any], sweeps: int, ones: bool = False) -> Task:
    arguments = {"family": family, "settings": settings, "seed": seed, "sweeps": sweeps, "ones": ones}
    return Task(name, seed, fit, arguments, seconds={"SPCA": 10.0, "BFRM": 4.0}.get(family, 1.2) * sweeps / 1000)


def simulate(seed: int, ones: bool = False) -> Any:
    """Data set number ``seed``; with ``ones`` all active loadings are 1, which no small value can hide."""
    from nsfa.datasets import fetch_ecoli, make_sparse_factors

    data = make_sparse_factors(SAMPLES, pattern=fetch_ecoli().connectivity, snr=SNR, random_state=seed)
    if ones:
        data.loadings = data.active.astype(float)
        signal = data.scores @ data.loadings.T
        noise = np.random.default_rng([seed, 1]).standard_normal(signal.shape)
        data.X = signal + noise * np.sqrt(signal.var() / SNR)
    return data


def fit(family: str, settings: dict[str, Any], seed: int, sweeps: int, ones: bool) -> Iterator[Number]:
    """E_r, precision and recall of each of the last ten draws, and K of the last hundred."""
    import nsfa

    data = simulate(seed, ones)
    if family == "SPCA":
        # past the true K its superfluous components never come to rest
        model = nsfa.SPCA(max_iter=ALTERNATIONS, **settings).fit(data.X)
        loadings = model.components_.T * np.sqrt(model.explained_variance_) * data.X.std(axis=0)[:, None]
        yield from _recovery(data, loadings, 0)
        return
    length = {"tune": sweeps - COUNTED, "draws": COUNTED, "thin": 1, "chains": 1, "n_jobs": 1}
    posterior = getattr(nsfa, family)(**settings, **length, random_state=seed).fit(data.X).posterior_
    for at, n_factors in enumerate(posterior.n_factors[0], sweeps - COUNTED + 1):
        yield "K", at, n_factors
    for at, draw in enumerate(posterior.draws[-AVERAGED:], sweeps - AVERAGED + 1):
        yield from _recovery(data, posterior.scaled_loadings(draw), at, exact=posterior.spec.pattern != "dense")
    yield "seconds_per_sweep", 0, posterior.trace("seconds")[0, -1] / sweeps


def fit_peer(peer: str, size: int, seed: int) -> Iterator[Number]:
    """E_r, precision and recall of a point estimate."""
    data = simulate(seed)
    yield from _recovery(data, peers.predict(peer, data.X, size, seed).loadings, 0, exact=False)


def rotate_truth(size: int, seed: int) -> Iterator[Number]:
    """E_r of random rotations of the true loadings, or of their best approximation by ``size`` factors."""
    from nsfa.metrics import reconstruction_error

    loadings = simulate(seed).loadings
    left, strength, _ = np.linalg.svd(loadings, full_matrices=False)
    some = min(size, TRUE)
    rng = np.random.default_rng([seed, size])
    for at in range(1, AVERAGED + 1):
        # the first rows of a rotation in ``size`` dimensions: the others meet factors of zeros
        rotation = np.linalg.qr(rng.standard_normal((size, size)))[0][:some]
        rotated = (left * strength)[:, :some] @ rotation
        yield "E_r_control", at, reconstruction_error(loadings, rotated)


def _recovery(data: Any, loadings: Floats, at: int, exact: bool = True) -> Iterator[Number]:
    """E_r, precision and recall; without exact zeros a loading is active if it explains enough to be visible."""
    from nsfa.metrics import pattern_precision_recall, reconstruction_error

    active = loadings != 0 if exact else loadings**2 > VISIBLE * data.X.var(axis=0)[:, None]
    precision, recall = pattern_precision_recall(data.active, active, data.loadings, loadings)
    yield "E_r", at, reconstruction_error(data.loadings, loadings)
    yield "precision", at, precision
    yield "recall", at, recall


def figures(frame: Any, quick: bool) -> dict[str, Any]:
    """Box plots of E_r; histograms of K; precision and recall."""
    return {
        "figure_4_reconstruction_error": _errors(frame),
        "figure_5_number_of_factors": _histograms(frame),
        "supplement_precision_recall": _patterns(frame),
    }


def _shown(frame: Any, quantity: str) -> Any:
    """The models whose truth has loadings of all sizes."""
    return frames.by_replicate(frame, quantity).drop(index=ONES, errors="ignore")


def _errors(frame: Any) -> Any:
    import pandas as pd

    errors = pd.concat([_shown(frame, "E_r"), frames.by_replicate(frame, "E_r_control")])
    label = "reconstruction error E_r, mean of the last ten draws; a dot per data set"
    return style.boxes({label: errors}, log=True)[0]


def _histograms(frame: Any) -> Any:
    figure, axes = style.panels(1, 2, 2.6, sharex=True, sharey=True)
    for ax, (name, title) in zip(axes[0], (("NSFA a1", "α = 1"), ("NSFA", "α inferred")), strict=True):
        k = frames.part(frame, name, "K").value
        share = k.value_counts(normalize=True).sort_index()
        ax.bar(share.index, share, color=style.colour("NSFA"), width=0.85)
        ax.axvline(TRUE, color="black", linestyle="--", linewidth=1)
        ax.set(title=f"{title}: mean {k.mean():.1f}, sd {k.std(ddof=0):.1f}", xlabel="number of factors K")
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel("share of draws")
    top = axes[0, 0].get_ylim()[1]
    axes[0, 0].set_ylim(0, 1.12 * top)
    axes[0, 0].annotate("truth", (TRUE, 1.12 * top), (4, -8), textcoords="offset points", fontsize=8)
    return figure


def _patterns(frame: Any) -> Any:
    tables = {f"{quantity} of the active loadings": _shown(frame, quantity) for quantity in ("precision", "recall")}
    figure, axes = style.boxes(tables)
    for ax in axes:
        ax.set_xlim(-0.02, 1.02)
    return figure


def findings(frame: Any, quick: bool) -> Iterator[Finding]:
    """Section 5.1, claim by claim."""
    if not quick:
        yield from _dense_models(frame)
        yield from _sparse_models(frame)
    e = frames.means(frame, "E_r")
    yield "nsfa-like-sfa", e["NSFA a1"] <= 1.3 * e["SFA K16"], e[SPARSE]
    yield "sparse-better", e[SPARSE].max() < 0.5 * e[["FA K16", "AFA K16"]].min(), e[[*SPARSE, "FA K16", "AFA K16"]]
    both = e[["NSFA a1", "NSFA"]]
    yield "alpha-alike", both.max() <= 2 * both.min(), both
    if not quick:
        yield from _variants(frame)
    yield from _number_of_factors(frame, quick)


def _dense_models(frame: Any) -> Iterator[Finding]:
    """FA, AFA and FOK against each other."""
    e, rotated = frames.means(frame, "E_r"), frames.means(frame, "E_r_control")
    fa, afa, fok = (frames.sized(e, name) for name in ("FA", "AFA", "FOK"))
    largest = e[[f"{name} K20" for name in FIXED]]
    yield "fa-worst", largest.idxmax() == "FA K20", largest
    yield "fa-overfits", fa.diff().min() > 0, {**fa, **rotated}
    spread = frames.by_replicate(frame, "E_r").loc[fa.index].std(axis=1)
    yield "fa-spread", spread["FA K20"] > 2 * spread[["FA K10", "FA K16"]].max(), spread
    yield "afa-improves", all(e[f"AFA K{k}"] < e[f"FA K{k}"] for k in (16, 20)), {**fa, **afa}
    yield "afa-does-not-overfit", e["AFA K20"] <= e["AFA K16"], afa
    yield "fok-near-afa", e["FOK K16"] < e["AFA K16"] < 2 * e["FOK K16"], {**afa, **fok}
    yield "fok-overfits", e["FOK K20"] > e["FOK K16"], fok


def _sparse_models(frame: Any) -> Iterator[Finding]:
    """SPCA, SFA and BFRM against each other and the dense ones."""
    e = frames.means(frame, "E_r")
    dense, bfrm = e[["FA K16", "AFA K16"]], frames.sized(e, "BFRM")
    between = e[["BFRM K16", *SPARSE]].max() < e["SPCA K16"] < dense.min()
    yield "spca-between", between, e[[*dense.index, "SPCA K16", "BFRM K16", *SPARSE]]
    well = e["SFA K16"] < 0.5 * min(dense.min(), e["SPCA K16"])
    yield "sfa-well", well, e[["SFA K16", "SFA K20", *dense.index, "SPCA K16"]]
    median = frames.by_replicate(frame, "E_r").loc[["BFRM K16", "SFA K16"]].median(axis=1).add_prefix("median ")
    figures = {**e[["AFA K16", "BFRM K16", "SFA K16"]], **median}
    yield "bfrm-between", e["SFA K16"] < e["BFRM K16"] < e["AFA K16"], figures
    yield "bfrm-falls", bfrm.diff().max() < 0, bfrm


def _variants(frame: Any) -> Iterator[Finding]:
    """Shared noise, and whether the patterns agree with the errors."""
    draws = frame[frame.quantity == "E_r"].groupby(["model", "replicate"]).value.std()
    spread = draws.groupby("model").mean()[["NSFA a1", "NSFA a1 sc", "NSFA", "NSFA sc"]]
    less = all(spread[f"{name} sc"] < spread[name] for name in ("NSFA a1", "NSFA"))
    yield "shared-noise", less, spread.add_prefix("sd of E_r over draws, ")
    found = {q: frames.means(frame, q).filter(regex=r" K16$|^NSFA( a1)?$") for q in ("E_r", "precision", "recall")}
    error = found.pop("E_r")
    rank = {f"rank correlation of E_r and {q}": error.corr(some, method="spearman") for q, some in found.items()}
    yield "pattern-agrees", max(rank.values()) < -0.5, rank


def _number_of_factors(frame: Any, quick: bool) -> Iterator[Finding]:
    """Figure 5: K with α = 1 and with α inferred."""
    one, free, ones = (frames.part(frame, name, "K").value for name in ("NSFA a1", "NSFA", ONES))
    fixed = {"mean": one.mean(), "sd": one.std(ddof=0), "paper's mean": 16.1, "paper's sd": 1.46}
    inferred = {"mean": free.mean(), "sd": free.std(ddof=0), "paper's mean": 18.3, "paper's sd": 2.0}
    yield "k-alpha-one", abs(one.mean() - TRUE) < 1.0, fixed
    yield "k-alpha-inferred", free.mean() > one.mean(), inferred | {"mean with α = 1": one.mean()}
    if not quick:
        range_ = {"least": ones.min(), "most": ones.max(), "mean": ones.mean(), "share below 16": (ones < TRUE).mean()}
        yield "k-all-ones", ones.quantile(0.01) >= TRUE and ones.max() > TRUE, range_
