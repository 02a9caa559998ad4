"""The report of a fit: one self-contained HTML file to read, print and mail."""

from nsfa.report.page import write_report

__all__ = ["write_report"]
