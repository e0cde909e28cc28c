"""Two experiments from outside the four papers, on permuted MNIST."""

from papers.experiment import Paper

CONTINUAL_BACKPROP = Paper(
    "other_papers",
    "Dohare et al. 2024",
    "Loss of plasticity in deep continual learning (Dohare et al., Nature 632)",
)
L2_INIT = Paper(
    "other_papers",
    "Kumar et al. 2023",
    "Maintaining Plasticity via Regenerative Regularization (Kumar et al.)",
)
