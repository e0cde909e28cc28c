"""Entry-wise norms of a network, and the least one among all networks that compute the same function.

A unit with a positively homogeneous activation computes the same when its incoming weights are multiplied by a > 0 and
its outgoing ones divided by a. Among all such rescalings there is one with the least entry-wise norm (the problem is
convex in log a); multiplicative updates find it (Saul 2023, Weight-balancing fixes and flows for deep learning,
Algorithm 1; Soft Weight Rescaling, C.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def entrywise_norm(weights: Sequence[Tensor], p: float = 2.0, q: float = 2.0) -> float:
    """Return |W|_{p,q} = (sum_i (sum_j |W_ij|^p)^(q/p))^(1/q) of all matrices [out, in] together (S, eq. 16).

    Example:
        >>> entrywise_norm([torch.tensor([[3.0, 4.0]]), torch.tensor([[12.0]])])
        13.0
    """
    return math.fsum(float(_rows(weight.double(), p, q).sum()) for weight in weights) ** (1 / q)


def _rows(weight: Tensor, p: float, q: float) -> Tensor:
    return weight.abs().pow(p).sum(1).pow(q / p)


def shares(weight: Tensor, p: float, q: float) -> tuple[Tensor, Tensor]:
    """Return how much of |W|^q comes in at each row's unit and goes out at each column's."""
    powers = weight.abs().pow(p)
    sums = powers.sum(1)
    slopes = torch.where(sums > 0, sums, torch.ones_like(sums)).pow(q / p - 1)
    return sums.pow(q / p), slopes @ powers


def rescaling(incoming: Tensor, outgoing: Tensor, power: float) -> Tensor:
    """Return a = (outgoing / incoming)^power; one for a unit that has nothing on one side.

    Such a unit passes nothing on: its other side could shrink to nothing, and there is no least norm to reach.

    Example:
        >>> rescaling(torch.tensor([1.0, 0.0]), torch.tensor([16.0, 2.0]), 0.25)
        tensor([2., 1.])
    """
    both = (incoming > 0) & (outgoing > 0)
    ratio = torch.where(both, outgoing, 1.0) / torch.where(both, incoming, 1.0)
    return ratio.pow(power)


def least_chain(
    weights: Sequence[Tensor], p: float = 2.0, q: float = 2.0, *, tolerance: float = 1e-12, steps: int = 10_000
) -> list[Tensor]:
    """Return the weights of the network of layers [out, in], one after the other, with the least |W|_{p,q}.

    All units are updated together: a = (outgoing / incoming)^(1/(4 max(p, q))), which never raises the norm.

    Args:
        weights: One matrix a layer; each one's columns are the rows of the one before.
        p: Inside a row.
        q: Between rows.
        tolerance: Stop when a step lowers the norm by less, relative to it.
        steps: Largest number of steps.
    """
    now = [weight.double() for weight in weights]
    norm = entrywise_norm(now, p, q)
    for _ in range(steps):
        flows = [shares(weight, p, q) for weight in now]
        for layer in range(len(now) - 1):
            factor = rescaling(flows[layer][0], flows[layer + 1][1], 1 / (4 * max(p, q)))
            now[layer], now[layer + 1] = now[layer] * factor[:, None], now[layer + 1] / factor
        before, norm = norm, entrywise_norm(now, p, q)
        if before - norm <= tolerance * before:
            break
    return now


def layer_balance(before: tuple[float, float], now: tuple[float, float]) -> float:
    """Return b_t = |r_t - r_0|, r = |W'| / |W|, of two layers' norms; W is the one that was smaller (S, Definition 2).

    Example:
        >>> layer_balance((1.0, 2.0), (1.0, 5.0)), layer_balance((2.0, 1.0), (5.0, 1.0))
        (3.0, 3.0)
    """
    small, large = (0, 1) if before[0] <= before[1] else (1, 0)
    if not before[small] or not now[small]:
        return math.nan  # a layer of zeros has no ratio
    return abs(now[large] / now[small] - before[large] / before[small])
