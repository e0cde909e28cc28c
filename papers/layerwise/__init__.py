"""Layerwise reinitialization."""

from papers.experiment import Paper

PAPER = Paper(
    "layerwise",
    "Layerwise reinitialization (L)",
    "The Impact of Reinitialization on Generalization in Convolutional Neural Networks (Alabdulmohsin et al.)",
)
