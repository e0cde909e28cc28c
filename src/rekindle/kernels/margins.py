"""By how much the true class beats the next one, sample by sample."""

from __future__ import annotations

import torch
from torch import Tensor


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the margin of each sample.

    Args:
        logits: [samples, classes], two classes or more.
        labels: [samples], whole numbers.

    Example:
        >>> margin(torch.tensor([[0.0, 0.0], [3.0, 0.0]]).log_softmax(1), torch.tensor([0, 1])).round(decimals=3)
        tensor([ 0.0000, -0.9050], dtype=torch.float64)
    """
    p = logits.double().softmax(dim=1)
    true = p.gather(1, labels.long()[:, None])[:, 0]
    others = p.scatter(1, labels.long()[:, None], -torch.inf)
    return true - others.amax(dim=1)
