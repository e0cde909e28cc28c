"""FIRE: resets that keep what was learned."""

from papers.experiment import Paper

PAPER = Paper(
    "fire",
    "FIRE (F)",
    "FIRE: Frobenius-Isometry Reinitialization for Balancing the Stability-Plasticity Tradeoff (Han et al.)",
)
