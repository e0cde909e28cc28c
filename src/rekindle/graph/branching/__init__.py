"""Models that branch on data: what cannot be followed is left out by name, and the rest is traced."""
