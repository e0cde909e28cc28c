"""Mutually frozen units: what belongs to them, and that training does not bring them back."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError
from rekindle.testing import ZOO, check_method
from rekindle.testing.aged import graph_of


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 6), nn.ReLU(), nn.Linear(6, 2)
    )


IMAGES = torch.randn(16, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def frozen_of(model):
    units = (model[0].weight == 0).flatten(1).all(1)
    return units, (model[4].weight == 0).all(1)


def test_row_bias_norm_and_column_of_the_same_unit():
    model = net()
    old = {n: t.clone() for n, t in model.state_dict().items()}
    rk.mutually_frozen_(model, probability=0.5, example=IMAGES, seed=1)
    channels, hidden = frozen_of(model)
    assert 0 < channels.sum() < 8 and 0 < hidden.sum() < 6
    for tensor in (model[0].bias, model[1].weight, model[1].bias):
        assert torch.equal(tensor == 0, channels | (old["1.bias"] == 0) if tensor is model[1].bias else channels)
    columns = channels.repeat_interleave(4)  # a channel is four columns after the flatten
    assert torch.equal(model[4].weight == 0, hidden[:, None] | columns[None, :])
    assert torch.equal(model[6].weight == 0, hidden.expand(2, -1))
    kept = model[4].weight != 0
    assert torch.equal(model[4].weight[kept], old["4.weight"][kept]) and torch.equal(model[6].bias, old["6.bias"])


def test_training_does_not_bring_them_back_and_dirac_reset_does():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    labels = torch.arange(16) % 2

    def train():
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(IMAGES), labels).backward()
            optimizer.step()

    train()
    rk.mutually_frozen_(model, optimizer, probability=0.5, example=IMAGES, seed=1)
    before = frozen_of(model)
    train()
    assert all(torch.equal(a, b) for a, b in zip(before, frozen_of(model), strict=True)) and before[0].any()
    rk.dirac_reset_(model, optimizer, strength=0.2, example=IMAGES)
    train()
    assert float((model[1].weight != 0).float().mean()) == 1.0


def test_the_notices_count():
    model = net()
    record = rk.mutually_frozen_(model, probability=0.5, example=IMAGES, seed=1)
    channels, hidden = (int(f.sum()) for f in frozen_of(model))
    zeros = channels * (27 + 1 + 2) + 32 * 6 - (32 - 4 * channels) * (6 - hidden) + hidden * (1 + 2)
    every = sum(p.numel() for p in model.parameters())
    assert record.notices[0].startswith(f"sets {zeros} of {every} parameters to zero")
    assert record.notices[1] == f"{channels + hidden} of 14 units in 2 groups are frozen"


def test_probability_one_and_zero():
    model = net()
    rk.mutually_frozen_(model, probability=1.0, example=IMAGES)
    assert not model[4].weight.any() and not model[4].bias.any() and model[6].bias.any()
    with pytest.warns(rk.NoEffectWarning):
        rk.mutually_frozen_(net(), probability=0.0, example=IMAGES)


def test_streams_only_when_asked_for():
    member = ZOO["resnet_basic"]
    hidden = rk.plan("mutually_frozen:probability=1", member.build(), graph=graph_of(member))
    assert "conv.weight" not in {edit.tensor for edit in hidden.edits}
    assert any("kinds='stream' adds" in skip.reason for skip in hidden.skips)
    both = rk.plan("mutually_frozen:probability=1,kinds=hidden|stream", member.build(), graph=graph_of(member))
    assert "conv.weight" in {edit.tensor for edit in both.edits}


def test_weight_norm_keeps_the_other_columns():
    """Zeros in the direction alone would make the rest of the row larger."""
    member = ZOO["weight_norm_mlp"]
    model = member.build()
    old = model.fc.weight.detach().clone()
    rk.apply_("mutually_frozen:probability=0.4", model, graph=graph_of(member), seed=2)
    new = model.fc.weight.detach()
    assert (new == 0).any() and torch.allclose(new[new != 0], old[new != 0], atol=1e-6)
    assert torch.isfinite(model(member.example())).all()


def test_the_contract_holds_for_all_kinds_and_all_units():
    members = [ZOO[n] for n in ("vit_fused", "squeeze_excite", "densenet", "weight_norm_mlp", "gpt")]
    check_method("mutually_frozen:probability=0.6,kinds=hidden|stream|gated|score", members)
    check_method("mutually_frozen:probability=1.0", members)


def test_an_example_is_asked_for():
    with pytest.raises(PlanError, match="pass example="):
        rk.mutually_frozen_(net())
