"""Each penalty against plain autograd in float64, and where it is used: autocast, low precision, zero weights."""

import pytest
import torch

from rekindle.kernels.penalties import parseval, power_iteration, spectral, squared_distance


def some(*shape, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=random, dtype=dtype).requires_grad_()


def unit(*shape, seed=5):
    return torch.nn.functional.normalize(some(*shape, seed=seed).detach(), dim=-1)


def slow_parseval(matrices, scale):
    total = 0
    for matrix in matrices:
        for w in matrix.reshape(-1, *matrix.shape[-2:]):
            small = w if w.shape[0] <= w.shape[1] else w.T
            total = total + (small @ small.T - scale * torch.eye(len(small), dtype=w.dtype)).square().sum()
    return total


def slow_spectral(matrices, vectors, additive, power):
    total = 0
    for matrix, vector in zip(matrices, vectors, strict=True):
        flat = zip(matrix.reshape(-1, *matrix.shape[-2:]), vector.reshape(-1, vector.shape[-1]), strict=True)
        total = total + sum(((w.T @ u).norm() ** power - 1) ** 2 for w, u in flat)
    return total + sum(b.norm() ** (2 * power) for b in additive)


def same_as_autograd(fast, slow, inputs):
    """Value and gradients, with an upstream factor as a loss scaler or accumulation would have."""
    assert torch.allclose(fast, slow)
    for ours, theirs in zip(
        torch.autograd.grad(fast * 3.5, inputs), torch.autograd.grad(slow * 3.5, inputs), strict=True
    ):
        assert ours.shape == theirs.shape
        assert torch.allclose(ours, theirs)


def test_squared_distance():
    tensors, starts = [some(3, 2), some(4), some(2, 1, 2, 2)], [some(3, 2, seed=9), some(4, seed=9), some(2, 1, 2, 2)]
    starts = [start.detach() for start in starts]
    slow = 0.3 * sum((t - s).square().sum() for t, s in zip(tensors, starts, strict=True))
    same_as_autograd(squared_distance(tensors, starts, 0.3), slow, tensors)
    same_as_autograd(squared_distance(tensors, None, 0.3), 0.3 * sum(t.square().sum() for t in tensors), tensors)
    assert torch.autograd.gradcheck(lambda *ts: squared_distance(ts, starts, 0.3), tensors)


def test_squared_distance_goes_backward_twice():
    tensor, start = some(3, 2), some(3, 2, seed=9).detach()
    value = squared_distance([tensor], [start], 0.5)
    first, second = (torch.autograd.grad(value, [tensor], retain_graph=True)[0].clone() for _ in range(2))
    assert torch.allclose(first, tensor - start)
    assert torch.equal(first, second)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_parseval(scale):
    matrices = [some(3, 5), some(5, 3), some(2, 3, 4), some(2, 4, 3), some(3, 3)]
    same_as_autograd(parseval(matrices, scale, 0.7), 0.7 * slow_parseval(matrices, scale), matrices)
    assert torch.autograd.gradcheck(lambda *ms: parseval(ms, scale, 0.7), matrices)


def test_parseval_is_zero_at_isometries_of_either_kind():
    tall = torch.linalg.qr(some(5, 3).detach()).Q.requires_grad_()
    assert parseval([tall, torch.eye(2, 4, dtype=torch.float64)], 1.0, 1.0).item() < 1e-20


@pytest.mark.parametrize("power", [1, 2, 1.5])
def test_spectral(power):
    matrices, vectors, additive = [some(3, 5), some(2, 3, 4)], [unit(3), unit(2, 3)], [some(4), some(2)]
    inputs = [*matrices, *additive]
    slow = 0.6 * slow_spectral(matrices, vectors, additive, power)
    same_as_autograd(spectral(matrices, vectors, additive, power, 0.6), slow, inputs)
    assert torch.autograd.gradcheck(lambda *ts: spectral(ts[:2], vectors, ts[2:], power, 0.6), inputs)


def test_spectral_of_matrices_alone_and_of_vectors_alone():
    matrix, bias = some(3, 5), some(4)
    same_as_autograd(spectral([matrix], [unit(3)], [], 2, 1.0), slow_spectral([matrix], [unit(3)], [], 2), [matrix])
    same_as_autograd(spectral([], [], [bias], 2, 1.0), slow_spectral([], [], [bias], 2), [bias])


def test_power_iteration_finds_the_largest_singular_value():
    matrix = some(2, 4, 6).detach()
    vectors = [unit(2, 4)]
    for _ in range(200):
        vectors = power_iteration([matrix], vectors)
    found = (vectors[0].unsqueeze(-2) @ matrix).norm(dim=(-2, -1))
    assert torch.allclose(found, torch.linalg.svdvals(matrix)[:, 0])


def test_zero_weights_have_finite_gradients_and_keep_their_vector():
    weight, bias = torch.zeros(3, 4, requires_grad=True), torch.zeros(2, requires_grad=True)
    u = unit(3).float()
    total = spectral([weight], [u], [bias], 1, 1.0) + parseval([weight], 1.0, 1.0) + squared_distance([bias], None, 1.0)
    total.backward()
    assert total.item() == 1 + 3
    assert not weight.grad.any() and not bias.grad.any()
    assert torch.equal(power_iteration([weight], [u])[0], u)


def test_autocast_does_not_take_precision_away():
    inputs = [some(6, 40, dtype=torch.float32)]
    vectors = [unit(6).float()]
    for penalty in (lambda: parseval(inputs, 1.0, 1.0), lambda: spectral(inputs, vectors, [], 2, 1.0)):
        plain = torch.autograd.grad(penalty(), inputs)[0]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = penalty()
            gradient = torch.autograd.grad(cast, inputs)[0]
        assert cast.dtype == torch.float32
        assert torch.equal(gradient, plain)


def test_low_and_mixed_precision():
    low, full = some(3, 5).detach().bfloat16().requires_grad_(), some(4, dtype=torch.float32)
    exact = low.detach().double().square().sum() + full.detach().double().square().sum()
    value = squared_distance([low, full], None, 0.5)
    value.backward()
    assert value.dtype == torch.float32
    assert torch.allclose(value.double(), exact / 2, rtol=1e-6)
    assert low.grad.dtype == torch.bfloat16 and torch.equal(low.grad, low.detach())
    gram = slow_parseval([low.detach().double()], 1.0)
    assert torch.allclose(parseval([low], 1.0, 1.0).double(), gram, rtol=1e-5)


def test_one_node_whatever_the_number_of_tensors():
    tensors = [some(2, 2) for _ in range(20)]
    for penalty in (squared_distance(tensors, None, 1.0), parseval(tensors, 1.0, 1.0)):
        below = [node for node, _ in penalty.grad_fn.next_functions if node is not None]
        assert len(below) == 20
        assert {type(node).__name__ for node in below} == {"AccumulateGrad"}
