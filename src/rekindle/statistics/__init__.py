"""Statistics of results: intervals, paired tests, corrections; pure functions of numbers."""

from rekindle.statistics.intervals import (
    Spread,
    StatisticsError,
    bootstrap_interval,
    iqm,
    mean_interval,
    needed,
    spread,
    stratified_interval,
    student_interval,
)
from rekindle.statistics.paired_tests import PairedTest, Results, collect, compare_all, last_rows
from rekindle.statistics.significance import SignTest, holm, permutation_test, seeds_needed, sign_test, wilcoxon_test

__all__ = [
    "PairedTest",
    "Results",
    "SignTest",
    "Spread",
    "StatisticsError",
    "bootstrap_interval",
    "collect",
    "compare_all",
    "holm",
    "iqm",
    "last_rows",
    "mean_interval",
    "needed",
    "permutation_test",
    "seeds_needed",
    "sign_test",
    "spread",
    "stratified_interval",
    "student_interval",
    "wilcoxon_test",
]
