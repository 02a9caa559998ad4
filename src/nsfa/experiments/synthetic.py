"""Section 5.1, Figures 4 and 5: ten simulated data sets with the E. coli network's pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nsfa.arrays import Bools, Floats
from nsfa.experiments import frames, peers, style
from nsfa.experiments.claims import Claim
from nsfa.tasks import Number, Task

TITLE = "Simulated data with the E. coli network's pattern (Section 5.1, Figures 4 and 5)"
DATA = ("ecoli",)
SAMPLES, SNR, TRUE = 100, 10.0, 16
SIZES = (10, 16, 20)
FIXED = ("FA", "AFA", "FOK", "SPCA", "BFRM", "SFA")
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
ALTERNATIONS = 30


def plan(quick: bool) -> list[Task]:
    """Every model on every data set; NSFA also where all active loadings are 1; peers at the true K or above."""
    sets, sweeps, sizes = (2, 300, (16, 20)) if quick else (10, 1000, SIZES)
    tasks = []
    for seed in range(sets):
        for family in ("FA", "AFA", "SFA") if quick else FIXED:
            for k in sizes:
                tasks.append(_task(f"{family} K{k}", seed, family, {"n_components": k}, sweeps))
        for name in list(NSFA)[: 2 if quick else None]:
            tasks.append(_task(name, seed, "NSFA", NSFA[name], sweeps))
        if not quick:
            for k in sizes:
                tasks.append(Task(f"{CONTROL} K{k}", seed, rotate_truth, {"size": k, "seed": seed}, 0.1))
            tasks.append(_task("NSFA a1, G = Z", seed, "NSFA", NSFA["NSFA a1"], sweeps, ones=True))
            for name, peer in peers.PEERS.items():
                for k in (16, 20) if name.startswith("mofapy2") else (16,):
                    if name != "soft-impute":
                        arguments = {"peer": name, "size": k, "seed": seed}
                        tasks.append(Task(f"{peer.label} K{k}", seed, fit_peer, arguments, 1.0, module=peer.module))
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
        yield from _recovery(data, loadings, loadings != 0, 0)
        return
    length = {"tune": sweeps - COUNTED, "draws": COUNTED, "thin": 1, "chains": 1, "n_jobs": 1}
    posterior = getattr(nsfa, family)(**settings, **length, random_state=seed).fit(data.X).posterior_
    for at, n_factors in enumerate(posterior.n_factors[0], sweeps - COUNTED + 1):
        yield "K", at, n_factors
    dense = posterior.spec.pattern == "dense"
    for at, draw in enumerate(posterior.draws[-AVERAGED:], sweeps - AVERAGED + 1):
        loadings = posterior.scaled_loadings(draw)
        yield from _recovery(data, loadings, _visible(loadings, data.X) if dense else loadings != 0, at)
    yield "seconds_per_sweep", 0, posterior.trace("seconds")[0, -1] / sweeps


def fit_peer(peer: str, size: int, seed: int) -> Iterator[Number]:
    """E_r, precision and recall of a point estimate."""
    data = simulate(seed)
    loadings = peers.predict(peer, data.X, size, seed).loadings
    yield from _recovery(data, loadings, _visible(loadings, data.X), 0)


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


def _visible(loadings: Floats, X: Floats) -> Bools:
    out: Bools = loadings**2 > VISIBLE * X.var(axis=0)[:, None]
    return out


def _recovery(data: Any, loadings: Floats, active: Bools, at: int) -> Iterator[Number]:
    from nsfa.metrics import pattern_precision_recall, reconstruction_error

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


def _shown(frame: Any) -> list[str]:
    return [name for name in frames.models(frame, "E_r") if name != "NSFA a1, G = Z"]


def _errors(frame: Any) -> Any:
    errors = {name: frames.by_replicate(frame, name, "E_r").to_numpy() for name in _shown(frame)}
    for name in frames.models(frame, "E_r_control"):
        errors[name] = frames.by_replicate(frame, name, "E_r_control").to_numpy()
    figure, axes = style.panels(1, 1, 0.9 + 0.21 * len(errors))
    style.boxes(axes[0, 0], errors)
    axes[0, 0].set_xlabel("reconstruction error E_r, mean of the last ten draws; a dot per data set")
    style.log_x(axes[0, 0])
    return figure


def _histograms(frame: Any) -> Any:
    figure, axes = style.panels(1, 2, 2.6, sharex=True, sharey=True)
    for ax, (name, title) in zip(axes[0], (("NSFA a1", "α = 1"), ("NSFA", "α inferred")), strict=True):
        found, count = np.unique(frames.values(frame, name, "K"), return_counts=True)
        ax.bar(found, count / count.sum(), color=style.colour("NSFA"), width=0.85)
        ax.axvline(TRUE, color="black", linestyle="--", linewidth=1)
        k = frames.values(frame, name, "K")
        ax.set(title=f"{title}: mean {k.mean():.1f}, sd {k.std():.1f}", xlabel="number of factors K")
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel("share of draws")
    top = axes[0, 0].get_ylim()[1]
    axes[0, 0].set_ylim(0, 1.12 * top)
    axes[0, 0].annotate("truth", (TRUE, 1.12 * top), (4, -8), textcoords="offset points", fontsize=8)
    return figure


def _patterns(frame: Any) -> Any:
    names = _shown(frame)
    figure, axes = style.panels(1, 2, 0.9 + 0.21 * len(names), sharey=True)
    for ax, quantity in zip(axes[0], ("precision", "recall"), strict=True):
        style.boxes(ax, {name: frames.by_replicate(frame, name, quantity).to_numpy() for name in names})
        ax.set(xlabel=f"{quantity} of the active loadings", xlim=(-0.02, 1.02))
    return figure


def claims(frame: Any, quick: bool) -> list[Claim]:
    """Section 5.1, claim by claim."""
    from nsfa.experiments.synthetic_claims import finite_models, number_of_factors, our_model

    out = finite_models(frame) if not quick else []
    return [*out, *our_model(frame, quick), *number_of_factors(frame, quick)]
