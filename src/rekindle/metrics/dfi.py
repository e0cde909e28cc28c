"""Deviation from isometry: how uneven the singular values of the weights are."""

from __future__ import annotations

import math

from torch import Tensor

from rekindle.graph import Weight
from rekindle.kernels.isometry import deviation_from_isometry
from rekindle.metrics._matrices import left_out, matrices, weights_of
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="dfi",
    title="Deviation from isometry",
    source="FIRE, 3.2, eq. 2, Theorems 2 to 4",
    what="|W^T W - I|_F^2 on the smaller side of each matrix, which is where zero can be reached. A layer's reading "
    "is the sum over its matrices (kernel positions, groups) divided by their rows on the smaller side; the "
    "model's is the mean per row over all layers. In details: the undivided sum (total), the reading of W "
    "divided by the scale that fire gives it (fire_scale: zero right after fire), of W divided by its "
    "root-mean-square singular value (scale_free), and the layer that is worst.",
    unit="per row",
    direction="lower",
    range=(0.0, math.inf),
    needs=("weights",),
    known="Low values bound curvature, keep every unit active and the rank high (Theorems 2 to 4), as long as the "
    "total of a layer is below one; real networks are far above, also when fresh, so compare with the value at "
    "initialization.",
)


def dfi(matrices: Tensor, scale: float | None = 1.0) -> Tensor:
    """Return |W^T W - I|_F^2 of each matrix [..., out, in] divided by a scale, on the smaller side.

    Args:
        matrices: Any batch of matrices.
        scale: Divides the matrices first; None: each one's own root-mean-square singular value.

    Example:
        >>> import torch
        >>> round(float(dfi(2 * torch.eye(2, 3))), 3), float(dfi(2 * torch.eye(2, 3), scale=2.0))
        (18.0, 0.0)
    """
    if scale is None:
        return deviation_from_isometry(matrices, scale_free=True)
    return deviation_from_isometry(matrices if scale == 1.0 else matrices / scale)


def fire_scale(weight: Weight) -> float:
    """Return the scale of fire: sqrt(out/in), over the kernel positions (FIRE, 3.3 and C)."""
    return math.sqrt(weight.out / weight.in_) / weight.kernel


def measure(inputs: MetricInputs) -> Reading:
    """Return the deviation per row of each weight, and the mean per row."""
    kinds = ("plain", "fire_scale", "scale_free")
    found: dict[str, dict[str, float]] = {kind: {} for kind in kinds}
    rows: dict[str, int] = {}
    for weight in weights_of(inputs.graph):
        values = matrices(inputs.tensors, weight)
        rows[weight.name] = len(values) * min(values.shape[1:])
        for kind, scale in zip(kinds, (1.0, fire_scale(weight), None), strict=True):
            found[kind][weight.name] = float(dfi(values, scale).double().sum())
    per_row = {kind: {name: total / rows[name] for name, total in found[kind].items()} for kind in kinds}
    details = {
        "total": found["plain"],
        "fire_scale": per_row["fire_scale"],
        "scale_free": per_row["scale_free"],
        "fire_scale_summary": _mean(found["fire_scale"], rows),
        "scale_free_summary": _mean(found["scale_free"], rows),
        "worst": max(per_row["plain"], key=lambda name: per_row["plain"][name], default=None),
        "left_out": left_out(inputs.graph),
    }
    return Reading(METRIC.key, _mean(found["plain"], rows), per_row["plain"], details)


def _mean(totals: dict[str, float], rows: dict[str, int]) -> float:
    return math.fsum(totals.values()) / max(sum(rows.values()), 1)
