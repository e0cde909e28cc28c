import pytest
import torch
from torch import nn

from rekindle.graph.calls.model_output import loss_alone
from rekindle.graph.calls.needed import needed, nodes_in, op_name, subgraph
from rekindle.graph.export import export
from rekindle.graph.tracing import trace


class Scored(nn.Module):
    """A model that gives logits and a loss, computed in a region of its own as accelerate's mixed precision does."""

    def __init__(self, region):
        super().__init__()
        self.fc, self.head, self.region = nn.Linear(4, 6), nn.Linear(6, 3), region

    def forward(self, x, labels=None):
        with self.region():
            logits = self.head(self.fc(x).relu())
            loss = None if labels is None else nn.functional.cross_entropy(logits.float(), labels)
        return {"logits": logits.float(), "loss": loss}


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


EXAMPLE = {"x": torch.ones(2, 4), "labels": torch.tensor([0, 2])}
REGIONS = {"autocast": autocast, "no_grad": torch.no_grad, "both": lambda: Both()}


class Both:
    """A region in a region."""

    def __enter__(self):
        self.inside = [autocast(), torch.no_grad()]
        for each in self.inside:
            each.__enter__()

    def __exit__(self, *args):
        for each in reversed(self.inside):
            each.__exit__(*args)


@pytest.mark.parametrize("region", REGIONS)
def test_the_loss_is_left_out_of_a_region_as_out_of_any_model(region):
    found = trace(Scored(REGIONS[region]), EXAMPLE)
    plain = trace(Scored(torch.enable_grad), EXAMPLE)
    assert not found.not_understood and found.notes == plain.notes and "labels" in found.notes[0]
    assert [(group.name, group.size) for group in found.groups] == [(g.name, g.size) for g in plain.groups]


def test_a_result_of_a_subgraph_needs_its_own_part_of_it():
    program = export(Scored(autocast), EXAMPLE)
    held = [node for node in program.graph.nodes if subgraph(node) is not None]
    assert [op_name(node) for node in held] == ["wrap_with_autocast"]
    alone = {op_name(node) for node in loss_alone(program) if node.op == "call_function"}
    assert "cross_entropy_loss" in alone and not {"linear", "relu", "wrap_with_autocast"} & alone
    (end,) = [node for node in program.graph.nodes if node.op == "output"]
    every = needed(node for node in end.args[0] if isinstance(node, torch.fx.Node))
    assert {op_name(node) for node in every} >= {"cross_entropy_loss", "linear", "relu", "wrap_with_autocast"}
    assert every <= set(nodes_in(program.graph))
