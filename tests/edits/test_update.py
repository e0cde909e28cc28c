"""What per-step methods want written, against one tensor after the other."""

import torch
from torch import nn

from rekindle.edits.update import Clamp, Multiply, Replace
from rekindle.edits.write import carry_out


def some():
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (5,), ())]


def before(tensors):
    return [tensor.detach().clone() for tensor in tensors]


def test_multiply_by_numbers_and_by_factors_of_the_own_shape():
    tensors = some()
    old, factors = before(tensors), [torch.tensor(2.0), torch.arange(5.0), torch.tensor(-1.0)]
    carry_out(Multiply(tensors, factors))
    for tensor, was, factor in zip(tensors, old, factors, strict=True):
        assert torch.equal(tensor, was * factor)


def test_clamp_on_both_sides():
    tensors, bounds = some(), [0.5, 0.1, 0.0]
    old = before(tensors)
    carry_out(Clamp(tensors, bounds))
    for tensor, was, bound in zip(tensors, old, bounds, strict=True):
        assert torch.equal(tensor, was.clamp(-bound, bound))
    assert tensors[0].min() == -0.5 and tensors[0].max() == 0.5


def test_replace():
    tensors = some()
    values = [torch.full_like(tensor, 7.0) for tensor in tensors[:2]]
    untouched = tensors[2].detach().clone()
    carry_out(Replace(tensors[:2], values))
    assert all(torch.equal(tensor, value) for tensor, value in zip(tensors, values, strict=False))
    assert torch.equal(tensors[2], untouched)


def test_parameters_stay_the_same_objects_without_a_gradient_function():
    tensors = some()
    pointers = [tensor.data_ptr() for tensor in tensors]
    carry_out(Multiply(tensors, [torch.tensor(0.5)] * 3))
    assert [tensor.data_ptr() for tensor in tensors] == pointers
    assert all(tensor.is_leaf and tensor.requires_grad for tensor in tensors)
