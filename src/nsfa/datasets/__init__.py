"""Simulated data, the paper's real data sets, and GEO series."""

from nsfa.datasets.geo import fetch_expression
from nsfa.datasets.real import fetch_breast, fetch_ecoli, fetch_prostate
from nsfa.datasets.simulated import make_sparse_factors

__all__ = ["fetch_breast", "fetch_ecoli", "fetch_expression", "fetch_prostate", "make_sparse_factors"]
