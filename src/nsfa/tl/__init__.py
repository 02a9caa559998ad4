"""Factor analysis of AnnData objects: fit, project new cells, test gene sets. Cells are samples, genes features."""

from nsfa.tl.verbs import enrich, nsfa, transform

__all__ = ["enrich", "nsfa", "transform"]
