"""Claims that are made, or that we make, of more than one real data set."""

from __future__ import annotations

from typing import Any

from nsfa.experiments import frames, peers
from nsfa.experiments.claims import Claim, judge


def scores(frame: Any, names: list[str]) -> dict[str, float]:
    """Mean lppd of the named models."""
    return {name: frames.mean(frame, name, "lppd") for name in names}


def peer_names(frame: Any) -> list[str]:
    """The peers among the models of a run."""
    labels = tuple(peer.label for peer in peers.PEERS.values())
    return [name for name in frames.models(frame, "lppd") if name.startswith(labels)]


def against_all(frame: Any, within_noise: bool) -> Claim:
    """NSFA beside the best fixed-K model and the best peer, each at its own best K."""
    ours = [name for name in frames.models(frame, "lppd") if name.startswith("NSFA")]
    other = peer_names(frame)
    fixed = [name for name in frames.models(frame, "lppd") if name not in ours and name not in other]
    figures = {"NSFA": frames.mean(frame, "NSFA", "lppd")}
    good = True
    for some in (fixed, other):
        if some:
            rival = frames.best(frame, "lppd", some)
            gap, error = frames.difference(frame, "lppd", "NSFA", rival)
            figures |= {rival: frames.mean(frame, rival, "lppd"), f"NSFA − {rival}": gap, f"± {rival}": error}
            good &= gap >= (-error if within_noise else 0.0)
    text = "NSFA predicts hidden entries at least as well as every fixed-K model and every peer at its own best K"
    return judge(
        text + (", within the noise of the splits." if within_noise else "."), "this package", good, figures,
        "It averages over the number of factors, and over all that is uncertain.",
        "The best fixed-K model has the larger mean; the figures say whether by more than the noise of the splits.",
    )  # fmt: skip
