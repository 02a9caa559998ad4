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
    """NSFA beside every fixed-K model and every peer: figures of the best of both kinds, and of all that are ahead."""
    ours = [name for name in frames.models(frame, "lppd") if name.startswith("NSFA")]
    other = peer_names(frame)
    fixed = [name for name in frames.models(frame, "lppd") if name not in ours and name not in other]
    best = [frames.best(frame, "lppd", some) for some in (fixed, other) if some]
    gaps = {name: frames.difference(frame, "lppd", "NSFA", name) for name in [*fixed, *other]}
    ahead = [name for name, (gap, error) in gaps.items() if gap < (-error if within_noise else 0.0)]
    figures = {"NSFA": frames.mean(frame, "NSFA", "lppd")}
    for name in dict.fromkeys([*best, *ahead]):
        gap, error = gaps[name]
        figures |= {name: frames.mean(frame, name, "lppd"), f"NSFA − {name}": gap, f"± {name}": error}
    text = "NSFA predicts hidden entries at least as well as every fixed-K model and every peer"
    return judge(
        text + (", within the noise of the splits." if within_noise else "."), "this package", not ahead, figures,
        "It averages over the number of factors, and over all that is uncertain.",
        f"Ahead, with a K that was given: {', '.join(ahead)}; the figures say by how much. NSFA infers K, here in one "
        "chain.",
    )  # fmt: skip
