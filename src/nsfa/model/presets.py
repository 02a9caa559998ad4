"""The paper's models as specifications."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nsfa.model.spec import ModelSpec

_FIXED_K = 1  # a placeholder every user replaces; None would not be a valid fixed-K model

PRESETS: dict[str, ModelSpec] = {
    "fa": ModelSpec("fa", pattern="dense", precision="shared", n_components=_FIXED_K),
    "afa": ModelSpec("afa", pattern="dense", precision="factor", n_components=_FIXED_K),
    "fok": ModelSpec("fok", pattern="dense", precision="element", n_components=_FIXED_K),
    "sfa": ModelSpec("sfa", pattern="finite", n_components=_FIXED_K),
    "nsfa": ModelSpec("nsfa"),
    "bfrm": ModelSpec("bfrm", pattern="two-level", scores="dirichlet", n_components=_FIXED_K),
}
"""FA, AFA, FOK, SFA, NSFA and BFRM of Knowles & Ghahramani (2011), Section 5."""


def preset(name: str, **changes: Any) -> ModelSpec:
    """The named model with some settings changed: ``preset("sfa", n_components=16, concentration=1.0)``."""
    if name not in PRESETS:
        raise ValueError(f"model must be one of {', '.join(PRESETS)}. Got {name!r}.")
    if name != "nsfa":
        changes.setdefault("n_components", None)
    return replace(PRESETS[name], **changes)
