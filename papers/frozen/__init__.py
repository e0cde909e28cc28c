"""Frozen weights. Our copy is the appendix alone: the numbers of its tables and figures are not in it."""

from papers.experiment import Paper

PAPER = Paper(
    "frozen", "Frozen weights (Z)", "The paper on mutually frozen weights, of which our copy has the appendix"
)
