"""Norms and factors in a few operations, against one tensor after the other."""

import pytest
import torch

from rekindle.graph.modules import tensors_of
from rekindle.graph.regions import MatrixView, Whole
from rekindle.graph.scaling.solve import prepare, wishes_of
from rekindle.methods.per_step._fused import Factors, Norms, each_for_itself, reader
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of

NAMES = ["mlp", "cnn_bn", "grouped_conv", "vit_fused", "weight_norm_mlp", "shared_module"]


@pytest.mark.parametrize("name", NAMES)
def test_norms_are_those_of_the_parts(name):
    graph, tensors = graph_of(ZOO[name]), tensors_of(ZOO[name].build())
    wishes = wishes_of(graph)
    found = Norms(wishes, torch.float64)([tensors[wish.tensor] for wish in wishes])
    for wish, norm in zip(wishes, found.tolist(), strict=True):
        part = wish.where.read(tensors[wish.tensor].detach())
        assert norm == pytest.approx(float(part.double().norm()), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["scaling", "each for itself"])
def test_factors_are_those_of_each_part(name, how):
    graph, tensors = graph_of(ZOO[name]), tensors_of(ZOO[name].build())
    wishes = wishes_of(graph)
    parts = prepare(graph, wishes, ()).parts if how == "scaling" else each_for_itself(wishes)
    columns = list(range(0, len(wishes), 2))  # the others want to stay
    wanted = torch.zeros(len(wishes), dtype=torch.float64)
    wanted[columns] = torch.randn(len(columns), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    factors = Factors(parts, columns, wanted)
    found = dict(zip(factors.names, factors(wanted[columns]), strict=True))
    for tensor, part in parts.items():
        expected = torch.ones(tensors[tensor].shape, dtype=torch.float64)
        for block, power in zip(part.blocks, part.powers, strict=True):
            inside = torch.ones_like(expected, dtype=torch.bool) if block.mask is None else block.mask
            expected = torch.where(inside.expand(expected.shape), (power @ wanted).exp(), expected)
        torch.testing.assert_close(
            found.get(tensor, torch.ones((), dtype=torch.float64)).expand(expected.shape), expected
        )


def test_each_weight_of_a_fused_tensor_gets_its_own_factor_and_the_rest_stays():
    wishes = wishes_of(graph_of(ZOO["vit_fused"]))
    tensor = next(wish.tensor for wish in wishes if [w.tensor for w in wishes].count(wish.tensor) == 3)
    mine = [number for number, wish in enumerate(wishes) if wish.tensor == tensor]
    wanted = torch.zeros(len(wishes), dtype=torch.float64)
    wanted[mine] = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64).log()
    factors = Factors(each_for_itself(wishes), range(len(wishes)), wanted)
    factor = dict(zip(factors.names, factors(wanted), strict=True))[tensor]
    rows = wishes[mine[0]].shape[0] // 3
    assert factor.flatten().tolist() == pytest.approx([1.0] * rows + [2.0] * rows + [4.0] * rows)


def test_a_slice_is_read_without_a_copy_and_other_regions_as_they_are():
    values = torch.arange(12.0).reshape(6, 2)
    assert reader(Whole(), (6, 2)) is None
    part = reader(MatrixView((6, 2), (0,), (1,), rows=torch.tensor([2, 3])), (6, 2))(values)
    assert part.data_ptr() == values[2:].data_ptr() and torch.equal(part, values[2:4])
    scattered = MatrixView((6, 2), (0,), (1,), rows=torch.tensor([0, 3]))
    assert torch.equal(reader(scattered, (6, 2))(values).reshape(2, 2), values[[0, 3]])
