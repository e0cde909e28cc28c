"""All experiments of the paper on layerwise reinitialization."""

from papers.layerwise import images, synthetic

EXPERIMENTS = (*synthetic.EXPERIMENTS, *images.EXPERIMENTS)
