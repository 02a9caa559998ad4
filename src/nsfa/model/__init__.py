"""The models as data: specifications, presets, priors, the joint density and simulation from it."""

from nsfa.model.presets import PRESETS, preset
from nsfa.model.spec import Gamma, ModelSpec, Priors

__all__ = ["PRESETS", "Gamma", "ModelSpec", "Priors", "preset"]
