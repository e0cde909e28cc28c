"""Polar factor of a matrix: the nearest matrix with orthonormal rows or columns (FIRE, eq. 5).

All functions take matrices [..., out, in] in float32 or float64 and treat leading dimensions as a batch. A zero matrix
has the zero matrix as its result, and directions that a rank-deficient matrix lacks stay zero: the polar factor is
unique only on the range of W, and inventing directions would need a random draw.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

CUBIC = (1.5, -0.5, 0.0)
QUINTIC = (2.0, -1.5, 0.5)
MUON = (3.4445, -4.7750, 2.0315)

BATCHED = 96  # below this size products of a whole batch are faster than a loop with inverses
TALL = 1.25  # from this ratio of the sides on, singular values are near each other and the small Gram matrix will do
NEWTON = 384  # from this size on a general inverse is cheaper than two products and a Cholesky factor
SINGULAR = 1e6  # condition from which on float32 inverses are not trusted


def newton_schulz(matrices: Tensor, iterations: int = 10, coefficients: tuple[float, float, float] = CUBIC) -> Tensor:
    """Iterate X <- aX + bX(X^T X) + cX(X^T X)^2 from X = W/|W|_F (FIRE, Algorithm 1 and B.3).

    Example:
        >>> newton_schulz(torch.diag(torch.tensor([2.0, 2.0]))).diagonal().round(decimals=4).tolist()
        [1.0, 1.0]
    """
    a, b, c = coefficients
    x, turned = _wide(matrices)
    x = x / _positive(torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True))
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram) if c else b * gram) @ x
    return x.mT if turned else x


def polar_exact(matrices: Tensor) -> Tensor:
    """Return (W W^T)^(-1/2) W by the eigenvectors of the small Gram matrix in float64; null directions give zero."""
    return _each(matrices, lambda one: _by_eigenvectors(one, torch.float64))


def polar(matrices: Tensor, tolerance: float = 1e-4) -> Tensor:
    """Return the polar factor to a deviation from isometry per row of at most `tolerance`, as cheaply as is known here.

    Square matrices: rational steps - by Cholesky factors (QDWH, Nakatsukasa et al. 2010), for large ones Newton's with
    the best scaling (Higham 1986) - until all singular values are near one; then, as for small matrices and on other
    devices than the CPU from the start, cubic steps with the best coefficients (Chen and Chow 2014). Tall and wide
    ones: the Gram matrix of the small side. What does not reach the tolerance (nearly singular) is done exactly.

    All products are in the precision of the input: bfloat16 ones were tried, and left errors of 1 to 3 per cent in the
    factor of square Gaussian matrices, whose small singular values drown in the rounding.

    Args:
        matrices: Any batch.
        tolerance: Largest |X X^T - I|_F^2 per row of the small side.
    """
    if matrices.device.type != "cpu" or min(matrices.shape[-2:]) < BATCHED:
        return _batch(matrices, tolerance)
    return _each(matrices, lambda one: _single(one, tolerance))


def _single(matrix: Tensor, tolerance: float) -> Tensor:
    x, turned = _wide(matrix)
    if x.shape[1] >= TALL * x.shape[0]:
        done = _cubic_steps(_by_eigenvectors(x, x.dtype), 0.99, tolerance)
    else:
        done = _newton(x, tolerance) if x.shape[0] >= NEWTON else _rational(x, tolerance)
    if done is None:
        return _by_eigenvectors(matrix, torch.float64)
    return done.mT if turned else done


def _by_eigenvectors(matrix: Tensor, precision: torch.dtype) -> Tensor:
    x, turned = _wide(matrix.to(precision))
    size = float(torch.linalg.vector_norm(x))
    if size == 0:
        return torch.zeros_like(matrix)
    x = x / size
    values, vectors = torch.linalg.eigh(x @ x.mT)
    smallest = (4 * torch.finfo(torch.float32).eps) ** 2 if precision == torch.float64 else 1e-6
    inverse = torch.where(values > values[-1] * smallest, values.clamp_min(0).rsqrt(), torch.zeros_like(values))
    factor = ((vectors * inverse) @ vectors.mT) @ x
    return (factor.mT if turned else factor).to(matrix.dtype)


def _newton(x: Tensor, tolerance: float) -> Tensor | None:
    """X <- (gX + (gX)^(-T))/2 on a square matrix (others: on their square factor); None if it is nearly singular."""
    if x.shape[0] != x.shape[1]:
        q, r = torch.linalg.qr(x.mT)
        core = _newton(r.mT, tolerance)
        return None if core is None else core @ q.mT
    inverse = torch.linalg.inv_ex(x)[0]
    largest, smallest = _norm(x), _norm(inverse)
    condition = 1.2 * largest * smallest
    if not 1 <= condition < SINGULAR:  # nearly singular, or zero, or not finite
        return None
    scale, spread = math.sqrt(smallest / largest), condition
    while True:
        x = inverse.mT.mul_(1 / (2 * scale)).add_(x, alpha=scale / 2)  # in the inverse's own memory
        spread = (math.sqrt(spread) + 1 / math.sqrt(spread)) / 2  # singular values now lie in [1, spread]
        if spread < 1.3:
            return _cubic_steps(x.mul_(2 / (1 + spread)), 2 / (1 + spread), tolerance)
        inverse, scale = torch.linalg.inv_ex(x)[0], 1 / math.sqrt(spread)


def _rational(x: Tensor, tolerance: float) -> Tensor | None:
    """X <- X (aI + bG)(I + cG)^(-1) with G = X X^T, twice; None if the matrix is zero or nearly singular."""
    gram = x @ x.mT
    scale = 1.1 * math.sqrt(_norm(gram, 2))
    if not scale > 0:
        return None
    low = 0.1 / len(x)  # a square Gaussian matrix of size n reaches down to about 1/n
    x, low = _lift(x, gram, scale, low)
    x, low = _lift(x, x @ x.mT, 1.0, low)
    middle = 2 / (1 + low)  # [low, 1] becomes an interval around one
    return _cubic_steps(x.mul_(middle), middle * low, tolerance)


def _lift(x: Tensor, gram: Tensor, scale: float, low: float) -> tuple[Tensor, float]:
    """Take the best such step of X/scale for singular values in [low, 1]; return also how low they reach afterwards."""
    d = (4 * (1 - low**2) / low**4) ** (1 / 3)
    root = math.sqrt(1 + d)
    a = root + 0.5 * math.sqrt(8 - 4 * d + 8 * (2 - low**2) / (low**2 * root))
    b = (a - 1) ** 2 / 4
    c = a + b - 1
    shifted = gram.mul_(c / scale**2)
    shifted.diagonal().add_(1)
    solved = torch.cholesky_solve(x, torch.linalg.cholesky_ex(shifted)[0])
    lifted = solved.mul_((a - b / c) / scale).add_(x, alpha=b / (c * scale))
    return lifted, min(1.0, low * (a + b * low**2) / (1 + c * low**2))


def _cubic(low: float, high: float) -> tuple[float, float, float]:
    """Return a, b of the cubic ax + bx^3 nearest to one on [low, high], and how low it goes; it reaches up as far."""
    alpha = math.sqrt(3 / (high**2 + low * high + low**2))
    beta = 4 / (2 + low * high * (low + high) * alpha**3)
    a, b = 1.5 * alpha * beta, -0.5 * alpha**3 * beta
    return a, b, a * low + b * low**3


def _cubic_steps(x: Tensor, low: float, tolerance: float) -> Tensor | None:
    """Step until the tolerance is reached; None if some singular value was not in [low, 2 - low]."""
    for _ in range(8):
        gram = x @ x.mT
        if 1 - low < 0.02 and _per_row(gram) <= tolerance:
            return x
        a, b, low = _cubic(low, 2 - low)
        x = torch.addmm(x, gram, x, beta=a, alpha=b)
    return None


def _batch(matrices: Tensor, tolerance: float) -> Tensor:
    """A batch by cubic steps only, all matrices at once."""
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    x, turned = _wide(flat)
    x = x / _positive(torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True))
    x = x / _positive(torch.linalg.matrix_norm(x @ x.mT, keepdim=True).sqrt())  # at least the largest singular value
    low, high = min(1e-3, 0.05 / x.shape[-2]), 1.0
    while low < 0.3 * high:  # no use in looking yet
        a, b, low = _cubic(low, high)
        high = 2 - low
        x = torch.baddbmm(x, x @ x.mT, x, beta=a, alpha=b)
    done = _cubic_finish(x, low, high, tolerance)
    done = done.mT if turned else done
    wrong = _deviation(done) > tolerance
    if bool(wrong.any()):
        done = done.clone()
        done[wrong] = polar_exact(flat[wrong])
    return done.reshape(matrices.shape)


def _cubic_finish(x: Tensor, low: float, high: float, tolerance: float) -> Tensor:
    for _ in range(8):
        gram = x @ x.mT
        if 1 - low < 0.05 and _per_row(gram) <= tolerance:
            break
        a, b, low = _cubic(low, high)
        high = 2 - low
        x = torch.baddbmm(x, gram, x, beta=a, alpha=b)
    return x


def _each(matrices: Tensor, solve: object) -> Tensor:
    """Solve matrix by matrix into one new tensor."""
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    if len(flat) == 1:
        return solve(flat[0]).reshape(matrices.shape)  # type: ignore[operator]
    done = torch.empty_like(flat)
    for n in range(len(flat)):
        done[n] = solve(flat[n])  # type: ignore[operator]
    return done.reshape(matrices.shape)


def _wide(matrices: Tensor) -> tuple[Tensor, bool]:
    """Return the matrices with at least as many columns as rows, and whether they were turned for it."""
    turned = matrices.shape[-2] > matrices.shape[-1]
    return (matrices.mT if turned else matrices), turned


def _positive(values: Tensor) -> Tensor:
    return torch.where(values > 0, values, torch.ones_like(values))


def _norm(matrix: Tensor, steps: int = 3) -> float:
    """Return about the largest singular value (never above it), by powers applied to the first row."""
    vector = matrix[0] + matrix.mean(dim=0)
    for _ in range(steps):
        vector = matrix.mT @ (matrix @ (vector / torch.linalg.vector_norm(vector)))
    size = float(torch.linalg.vector_norm(matrix @ vector) / torch.linalg.vector_norm(vector))
    return size if math.isfinite(size) else 0.0


def _per_row(gram: Tensor) -> float:
    """Return the largest |G - I|_F^2 per row in a batch."""
    return float(_gram_deviation(gram).max())


def _deviation(wide_or_tall: Tensor) -> Tensor:
    x, _ = _wide(wide_or_tall)
    return _gram_deviation(x @ x.mT)


def _gram_deviation(gram: Tensor) -> Tensor:
    """Return |G - I|_F^2 per row; the Gram matrix is put back as it was, which saves a copy."""
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    diagonal.sub_(1)
    deviation = torch.linalg.vector_norm(gram, dim=(-2, -1)).square() / gram.shape[-1]
    diagonal.add_(1)
    return deviation
