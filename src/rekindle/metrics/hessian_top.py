"""Top of the Hessian: the largest curvature of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rekindle.errors import PlanError
from rekindle.metrics._loss import MeanLoss, Parameters
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading
from rekindle.seeds import generator

SAMPLES = 128
TOLERANCE = 1e-2  # of the residual; the error of the eigenvalue itself is of the order of its square

METRIC = MetricCard(
    key="hessian_top",
    title="Largest eigenvalue of the Hessian",
    source="FIRE, Theorem 2 and Figure 5b; Lyle et al. 2023",
    what="Largest eigenvalue of the second derivative of the mean loss by all trained parameters, on at most about 128 "
    "samples. By Hessian-vector products under ARPACK's Lanczos (SciPy), each of which costs as much as two training "
    "steps. In evaluation mode: BatchNorm by its running statistics, dropout off.",
    unit="loss per squared unit of weight",
    direction="lower",
    range=(-float("inf"), float("inf")),
    needs=("loss",),
    known="High curvature on new data makes training on it unsteady. It depends on the scale of the weights: where "
    "normalization layers make the scale free, larger weights alone read as flatter.",
)


def hessian_top(
    product: Callable[[Tensor], Tensor],
    size: int,
    count: int = 1,
    *,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> list[float]:
    """Return the largest eigenvalues of a symmetric matrix, largest first, by its products alone.

    Args:
        product: From a vector [size] in float64 to the matrix times it.
        size: Number of rows.
        count: How many eigenvalues; at most `size`.
        tolerance: Relative residual at which an eigenvalue counts as found.
        seed: Seed of the first vector.

    Raises:
        PlanError: SciPy is missing, or the iteration does not come to an end.

    Example:
        >>> matrix = torch.diag(torch.arange(50.0, dtype=torch.float64))
        >>> [round(value, 3) for value in hessian_top(lambda v: matrix @ v, 50, 2)]
        [49.0, 48.0]
    """
    start = torch.randn(size, generator=generator(seed, "hessian", "hessian_top"), dtype=torch.float64)
    count = min(count, size)
    if size <= 2 * count + 2:  # too small for Lanczos: row by row
        rows = torch.stack([product(unit) for unit in torch.eye(size, dtype=torch.float64)])
        largest: list[float] = torch.linalg.eigvalsh((rows + rows.T) / 2).flip(0)[:count].tolist()
        return largest
    if float(product(start).norm()) == 0:  # flat: Lanczos has nowhere to go
        return [0.0] * count
    return _lanczos(product, start, count, tolerance)


def _lanczos(product: Callable[[Tensor], Tensor], start: Tensor, count: int, tolerance: float) -> list[float]:
    linalg: Any = _eigensolver()
    size = len(start)
    matrix = linalg.LinearOperator(
        (size, size), matvec=lambda v: product(torch.from_numpy(v).reshape(-1)).numpy(), dtype="float64"
    )
    basis = min(size, max(4 * count, 12))
    try:
        found = linalg.eigsh(
            matrix, k=count, which="LA", v0=start.numpy(), ncv=basis, tol=tolerance, return_eigenvectors=False
        )
    except linalg.ArpackNoConvergence as error:
        raise PlanError(
            expected=f"{count} eigenvalues of the Hessian to an accuracy of {tolerance}",
            got=f"{len(error.eigenvalues)} of them after all iterations",
            fix="ask for fewer, or for less accuracy, or give more data: a loss on few samples is noisy",
        ) from error
    return sorted((float(value) for value in found), reverse=True)


def _eigensolver() -> Any:
    try:
        import scipy.sparse.linalg as linalg
    except ImportError as error:
        raise PlanError(
            expected="SciPy, for the largest eigenvalues of the Hessian",
            got=f"an installation without it ({error})",
            fix="pip install rekindle[audit]",
        ) from error
    return linalg


def measure(inputs: MetricInputs) -> Reading:
    """Return the largest eigenvalue."""
    loss = MeanLoss(inputs, SAMPLES)
    parameters = loss.parameters(trained_only=True)
    if not parameters:
        raise PlanError(
            expected="parameters of plain floats that take gradients",
            got="none: all are frozen, or of other numbers",
            fix="set requires_grad",
        )

    def product(v: Tensor) -> Tensor:
        found = joined(loss.product(parameters, split(v, parameters)), parameters)
        if not bool(torch.isfinite(found).all()):
            raise PlanError(
                expected="finite second derivatives",
                got="NaN or infinite values",
                fix="check the weights, the batches and the loss; a half-precision model may need float32 for this",
            )
        return found

    size = sum(parameter.numel() for parameter in parameters.values())
    with loss.open(METRIC.key):
        [largest] = hessian_top(product, size, seed=inputs.seed)
    return Reading(METRIC.key, largest, details={"samples": loss.samples, "left_out": dict(inputs.graph.not_plain)})


def split(vector: Tensor, like: Parameters) -> Parameters:
    """Return a vector in pieces of the parameters' shapes."""
    pieces = vector.split([parameter.numel() for parameter in like.values()])
    return {name: piece.reshape(p.shape).to(p) for (name, p), piece in zip(like.items(), pieces, strict=True)}


def joined(parts: Parameters, like: Parameters) -> Tensor:
    """Return pieces as one vector in float64 on the CPU, in the order of `like`."""
    return torch.cat([parts[name].detach().cpu().double().reshape(-1) for name in like])
