"""Polar factor of a matrix: the nearest matrix with orthonormal rows or columns (FIRE, eq. 5).

All functions take matrices [..., out, in] and treat leading dimensions as a batch. Half precision is computed in
float32 and rounded once, at the end. A zero matrix has the zero matrix as its result, and directions that a
rank-deficient matrix lacks stay zero: the polar factor is unique only on the range of W, and inventing directions would
need a random draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rekindle.kernels.parallel import side_by_side
from rekindle.kernels.precision import widened

Multiply = Callable[[Tensor], Tensor]
CUBIC = (1.5, -0.5, 0.0)
QUINTIC = (2.0, -1.5, 0.5)
MUON = (3.4445, -4.7750, 2.0315)

BATCHED = 96  # below this size products of a whole batch are faster than a loop with inverses
TALL = 1.25  # from this ratio of the sides on, singular values are near each other and the small Gram matrix will do
NEWTON = 384  # from this size on a general inverse is cheaper than two products and a Cholesky factor
ALONE = 1024  # above this size a matrix keeps all threads busy by itself
PIECE = 512  # columns of a large matrix that are worked on at once, to spare memory
CACHED = 1 << 17  # values in a batch that stays in a processor's cache
NEAR = 0.2  # looked at when no singular value can be farther from one
SINGULAR = 1e6  # condition from which on float32 inverses are not trusted


def newton_schulz(matrices: Tensor, iterations: int = 10, coefficients: tuple[float, float, float] = CUBIC) -> Tensor:
    """Iterate X <- aX + bX(X^T X) + cX(X^T X)^2 from X = W/|W|_F (FIRE, Algorithm 1 and B.3).

    Example:
        >>> newton_schulz(torch.diag(torch.tensor([2.0, 2.0]))).diagonal().round(decimals=4).tolist()
        [1.0, 1.0]
    """
    a, b, c = coefficients
    x, turned = _wide(widened(matrices))
    x = x / _positive(torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True))
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram) if c else b * gram) @ x
    return (x.mT if turned else x).to(matrices.dtype)


def polar_exact(matrices: Tensor) -> Tensor:
    """Return (W W^T)^(-1/2) W by the eigenvectors of the small Gram matrix in float64; null directions give zero."""
    return _each(matrices, lambda one: _by_eigenvectors(one, torch.float64))


def polar(matrices: Tensor, tolerance: float = 1e-4) -> Tensor:
    """Return the polar factor to a deviation from isometry per row of at most `tolerance`, as cheaply as is known here.

    Square matrices: rational steps - by Cholesky factors (QDWH, Nakatsukasa et al. 2010), for large ones Newton's with
    the best scaling (Higham 1986) - until all singular values are near one; then, as for small matrices and on other
    devices than the CPU from the start, cubic steps with the best coefficients (Chen and Chow 2014). Tall and wide
    ones: the Gram matrix of the small side. What does not reach the tolerance (nearly singular) is done exactly.

    All products are in the precision of the input: bfloat16 ones were tried, and left errors of 1 to 3 percent in the
    factor of square Gaussian matrices, whose small singular values drown in the rounding.

    Args:
        matrices: Any batch.
        tolerance: Largest |X X^T - I|_F^2 per row of the small side.
    """
    return _cheapest(widened(matrices), tolerance).to(matrices.dtype)


def _cheapest(matrices: Tensor, tolerance: float) -> Tensor:
    small, large = sorted(matrices.shape[-2:])
    if matrices.device.type != "cpu" or small < BATCHED:
        return _batch(matrices, tolerance)
    if small < NEWTON and large < TALL * small:
        flat = matrices.reshape(-1, *matrices.shape[-2:]).contiguous()
        pieces = flat.split(max(1, CACHED // (small * large)))
        return torch.cat([_rational(piece, tolerance) for piece in pieces]).reshape(matrices.shape)
    return _each(matrices, lambda one: _single(one, tolerance))


def _single(matrix: Tensor, tolerance: float) -> Tensor:
    x, turned = _wide(matrix)
    if x.shape[1] >= TALL * x.shape[0]:
        done = _cubic_steps(_by_eigenvectors(x, x.dtype), 0.99, tolerance)
    else:
        done = _newton(x, tolerance)
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
    invert = _Inverse(x)
    largest, smallest = _norm(x.__matmul__, x.mT.__matmul__, x), _norm(invert.times, invert.times_turned, x)
    condition = 1.2 * largest * smallest
    if not 1 <= condition < SINGULAR:  # nearly singular, or zero, or not finite
        return None
    scale, spread = math.sqrt(smallest / largest), condition
    x = invert.mean(x.clone(), scale)
    del invert  # a copy less
    while True:
        spread = (math.sqrt(spread) + 1 / math.sqrt(spread)) / 2  # singular values now lie in [1, spread]
        if spread < 1.3:
            return _cubic_steps(x.mul_(2 / (1 + spread)), 2 / (1 + spread), tolerance)
        x = _Inverse(x).mean(x, 1 / math.sqrt(spread))


class _Inverse:
    """The inverse of the transposed matrix by its LU factors, applied piece by piece: a whole one would be a copy."""

    def __init__(self, x: Tensor) -> None:
        self.factors, self.pivots, _ = torch.linalg.lu_factor_ex(x.mT)

    def times(self, vectors: Tensor) -> Tensor:
        return torch.linalg.lu_solve(self.factors, self.pivots, vectors)

    def times_turned(self, vectors: Tensor) -> Tensor:
        return torch.linalg.lu_solve(self.factors, self.pivots, vectors, adjoint=True)

    def mean(self, x: Tensor, scale: float) -> Tensor:
        """Return (gX + (gX)^(-T))/2 in the memory of X."""
        piece = PIECE if len(x) > 4 * PIECE else len(x)
        for start in range(0, len(x), piece):
            columns = x[:, start : start + piece]
            unit = torch.zeros_like(columns)
            unit[start : start + piece].fill_diagonal_(1)
            columns.mul_(scale / 2).add_(self.times(unit), alpha=1 / (2 * scale))
        return x


def _rational(matrices: Tensor, tolerance: float) -> Tensor:
    """A batch by X <- X (aI + bG)(I + cG)^(-1) with G = X X^T, twice, and cubic steps."""
    x, turned = _wide(matrices)
    if x.shape[-1] == x.shape[-2]:
        x, turned = matrices.mT, True  # column by column in memory, as the solvers want it, which saves copies
    gram = x @ x.mT
    low = 0.1 / x.shape[-2]  # a square Gaussian matrix of size n reaches down to about 1/n
    x, low = _lift(x, gram, 1.1 * _norms(gram).sqrt(), low)
    x, low = _lift(x, x @ x.mT, None, low)
    middle = 2 / (1 + low)  # [low, 1] becomes an interval around one
    return _cubic_finish(x.mul_(middle), middle * low, 2 - middle * low, matrices, tolerance, turned)


def _lift(x: Tensor, gram: Tensor, scale: Tensor | None, low: float) -> tuple[Tensor, float]:
    """Take the best such step of X/scale for singular values in [low, 1]; return also how low they reach afterwards."""
    d = (4 * (1 - low**2) / low**4) ** (1 / 3)
    root = math.sqrt(1 + d)
    a = root + 0.5 * math.sqrt(8 - 4 * d + 8 * (2 - low**2) / (low**2 * root))
    b = (a - 1) ** 2 / 4
    c = a + b - 1
    shifted = gram.mul_(c if scale is None else c / scale.square())
    shifted.diagonal(dim1=-2, dim2=-1).add_(1)
    factor = torch.linalg.cholesky_ex(shifted.mT)[0]  # symmetric; turned it needs no copy
    lifted = torch.cholesky_solve(x, factor).mul_(a - b / c).add_(x, alpha=b / c)
    return (lifted if scale is None else lifted.div_(scale)), min(1.0, low * (a + b * low**2) / (1 + c * low**2))


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
        now = _per_row(gram) if 1 - low < NEAR else math.inf
        if now <= tolerance:
            return x
        if after_a_step(now, len(gram)) <= tolerance:  # sure to be enough: no need to look again
            return _cubic_step(x, gram, *CUBIC[:2])
        a, b, low = _cubic(low, 2 - low)
        x = _cubic_step(x, gram, a, b)
        del gram  # before the next one
    return None


def after_a_step(deviation: float, rows: int) -> float:
    """Return a bound of the deviation per row after one plain cubic step, from the one before it.

    An eigenvalue 1 - e of the Gram matrix becomes 1 - e^2 (3 + e)/4, and no |e| is larger than |G - I|_F.

    Example:
        >>> round(after_a_step(0.01, 1), 8), after_a_step(4.0, 1)
        (6.006e-05, inf)
    """
    size = math.sqrt(deviation * rows)
    return (size * size * (3 + size) / 4) ** 2 / rows if size < 1 else math.inf


def _cubic_step(x: Tensor, gram: Tensor, a: float, b: float) -> Tensor:
    """Return aX + bGX, in the memory of X if that is large."""
    if x.shape[1] <= 4 * PIECE:
        return torch.addmm(x.mT, x.mT, gram, beta=a, alpha=b).mT  # G is symmetric; the result lies as X does
    for columns in x.split(PIECE, dim=1):
        columns.copy_(torch.addmm(columns, gram, columns, beta=a, alpha=b))
    return x


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
    return _cubic_finish(x, low, high, flat, tolerance, turned).reshape(matrices.shape)


def _cubic_finish(x: Tensor, low: float, high: float, matrices: Tensor, tolerance: float, turned: bool) -> Tensor:
    """Step on until each has reached the tolerance, what is done stepping no further; the rest is done exactly."""
    done, going = x, torch.arange(len(x), device=x.device)
    for _ in range(8):
        gram = x @ x.mT
        now = _gram_deviation(gram) if 1 - low < NEAR else torch.full(going.shape, math.inf, device=x.device)
        ready = now <= tolerance
        if len(going) == len(done) and after_a_step(float(now.max()), gram.shape[-1]) <= tolerance:
            a, b, going = *CUBIC[:2], going[:0]
            done = torch.baddbmm(x.mT, x.mT, gram, beta=a, alpha=b).mT
            break
        if bool(ready.any()):
            done = _put(done, going[ready], x[ready]) if len(x) < len(done) or not bool(ready.all()) else x
            x, gram, going = x[~ready], gram[~ready], going[~ready]
        if not len(going):
            break
        a, b, low = _cubic(low, high)
        high = 2 - low
        x = torch.baddbmm(x.mT, x.mT, gram, beta=a, alpha=b).mT  # G is symmetric; the result lies as X does
    done = done.mT if turned else done
    return _put(done, going, polar_exact(matrices[going])) if len(going) else done


def _put(batch: Tensor, index: Tensor, values: Tensor) -> Tensor:
    return batch.index_copy(0, index, values)


def _each(matrices: Tensor, solve: Callable[[Tensor], Tensor]) -> Tensor:
    """Solve matrix by matrix into one new tensor; small ones side by side."""
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    if len(flat) == 1:
        return solve(flat[0].contiguous()).reshape(matrices.shape)
    done = flat.new_empty(flat.shape)

    def one(n: int) -> None:
        done[n] = solve(flat[n].contiguous())  # a kernel position is strided, and every product would copy it

    if min(flat.shape[1:]) <= ALONE:
        side_by_side(one, range(len(flat)))
    else:
        for n in range(len(flat)):
            one(n)
    return done.reshape(matrices.shape)


def _wide(matrices: Tensor) -> tuple[Tensor, bool]:
    """Return the matrices with at least as many columns as rows, and whether they were turned for it."""
    turned = matrices.shape[-2] > matrices.shape[-1]
    return (matrices.mT if turned else matrices), turned


def _positive(values: Tensor) -> Tensor:
    return torch.where(values > 0, values, torch.ones_like(values))


def _norm(times: Multiply, times_turned: Multiply, like: Tensor) -> float:
    """Return about the largest singular value (never above it) of what multiplies, by powers applied to a row."""
    vector = (like[0] + like.mean(dim=0))[:, None]
    for _ in range(3):
        vector = times_turned(times(vector / torch.linalg.vector_norm(vector)))
    size = float(torch.linalg.vector_norm(times(vector)) / torch.linalg.vector_norm(vector))
    return size if math.isfinite(size) else 0.0


def _norms(grams: Tensor) -> Tensor:
    """Return about the largest eigenvalue of each of a batch [batch, n, n], as [batch, 1, 1]; 1 for a zero matrix."""
    vectors = grams.mean(dim=-1, keepdim=True) + grams[..., :1]
    for _ in range(5):
        vectors = grams @ (vectors / _positive(torch.linalg.vector_norm(vectors, dim=-2, keepdim=True)))
    return _positive(torch.linalg.vector_norm(vectors, dim=-2, keepdim=True))


def _per_row(gram: Tensor) -> float:
    """Return the largest |G - I|_F^2 per row in a batch."""
    return float(_gram_deviation(gram).max())


def _gram_deviation(gram: Tensor) -> Tensor:
    """Return |G - I|_F^2 per row; the Gram matrix is put back as it was, which saves a copy."""
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    diagonal.sub_(1)
    deviation = torch.linalg.vector_norm(gram, dim=(-2, -1)).square() / gram.shape[-1]
    diagonal.add_(1)
    return deviation
