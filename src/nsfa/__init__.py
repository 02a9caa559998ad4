"""Bayesian sparse factor analysis: how many hidden factors, which features belong to each, and how sure we are."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nsfa.version import __version__

if TYPE_CHECKING:
    from nsfa import datasets, metrics, pl, readers, report, tl
    from nsfa.comparison import compare
    from nsfa.draws.files import StoreError
    from nsfa.estimators import AFA, BFRM, FA, FOK, NSFA, SFA, FactorModel
    from nsfa.model import Gamma, ModelSpec, Priors
    from nsfa.posterior import Posterior
    from nsfa.saved import load, resume
    from nsfa.spca import SPCA

_HOME = {
    **dict.fromkeys(("NSFA", "SFA", "FA", "AFA", "FOK", "BFRM", "FactorModel"), "nsfa.estimators"),
    **dict.fromkeys(("Gamma", "ModelSpec", "Priors"), "nsfa.model"),
    "Posterior": "nsfa.posterior",
    "compare": "nsfa.comparison",
    "SPCA": "nsfa.spca",
    "StoreError": "nsfa.draws.files",
    **dict.fromkeys(("load", "resume"), "nsfa.saved"),
}
_MODULES = ("datasets", "metrics", "pl", "readers", "report", "tl")

__all__ = [
    "AFA", "BFRM", "FA", "FOK", "NSFA", "SFA", "SPCA", "FactorModel", "Gamma", "ModelSpec", "Posterior", "Priors",
    "StoreError", "__version__", "compare", "datasets", "load", "metrics", "pl", "readers", "report", "resume", "tl",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load names when they are first used: importing ``nsfa`` alone stays fast (SPEC 1)."""
    if name in _MODULES:
        return importlib.import_module(f"nsfa.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'nsfa' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
