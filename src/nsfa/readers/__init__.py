"""Reading users' tables from files: ``read_table``, and the lists that go with them."""

from nsfa.readers.lists import read_annotations, read_gene_names, read_genes
from nsfa.readers.pipeline import Table, read_table

__all__ = ["Table", "read_annotations", "read_gene_names", "read_genes", "read_table"]
