"""Results as tables and as one self-contained HTML page."""

from rekindle.lab.report.load_runs import LoadedRuns, ReportError, read_runs
from rekindle.lab.report.runs_page import write_runs_page
from rekindle.lab.report.tables import results_table, significance_table

__all__ = ["LoadedRuns", "ReportError", "read_runs", "results_table", "significance_table", "write_runs_page"]
