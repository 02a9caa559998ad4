"""Known gene sets among the genes of the factors."""

from nsfa.enrichment.sets import GeneSets, read_gmt, set_notes
from nsfa.enrichment.testing import METHODS, SET_FDR, best_sets, enrich, enrich_both

__all__ = ["METHODS", "SET_FDR", "GeneSets", "best_sets", "enrich", "enrich_both", "read_gmt", "set_notes"]
