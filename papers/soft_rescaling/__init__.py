"""Soft weight rescaling."""

from papers.experiment import Paper

PAPER = Paper(
    "soft_rescaling",
    "Soft weight rescaling (S)",
    "Recovering Plasticity of Neural Networks via Soft Weight Rescaling",
)
