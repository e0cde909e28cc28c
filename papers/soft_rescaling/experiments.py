"""All experiments of the paper on soft weight rescaling."""

from papers.soft_rescaling import figures, tables

EXPERIMENTS = (*tables.EXPERIMENTS, *figures.EXPERIMENTS)
