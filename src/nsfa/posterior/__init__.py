"""What was learned: the draws of all chains, their diagnostics and predictions."""

from nsfa.posterior.core import Posterior

__all__ = ["Posterior"]
