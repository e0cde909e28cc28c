"""muon against torch's own two optimizers, and as an optimizer like any other."""

import copy
import io

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError, NoEffectWarning, PlanError, SettingsError
from rekindle.methods.optimizers.muon import Muon, MuonWithAdamW
from rekindle.testing import check_card
from rekindle.testing.aged import moments
from rekindle.testing.zoo import ZOO

GPT_PARTS = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(6, 4))


def convolutional() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 5, 3), nn.ReLU(), nn.ConvTranspose2d(5, 9, 2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(9 * 25, 4))


def batch(model: nn.Module, seed: int = 0) -> torch.Tensor:
    shape = (16, 3, 8, 8) if isinstance(model[0], nn.Conv2d) else (16, 8)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1, first: int = 0) -> None:
    for number in range(first, first + steps):
        optimizer.zero_grad()
        model(batch(model, number)).square().mean().backward()
        optimizer.step()


def hidden(optimizer: MuonWithAdamW) -> dict[str, bool]:
    groups = [group for group in optimizer.param_groups if group["algorithm"] == "muon"]
    return {name: group["transposed"] for group in groups for name in group["param_names"]}


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_card():
    check_card(Muon())


# --- the two algorithms ---


@pytest.mark.parametrize(
    "chosen", [{}, {"nesterov": False, "ns_steps": 3, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}]
)
def test_is_torchs_own_two_optimizers_bit_for_bit(chosen):
    ours, theirs = mlp(), mlp()
    optimizer = rk.muon(ours, example=torch.zeros(1, 8), lr=0.03, adamw_lr=1e-2, adamw_weight_decay=0.01, **chosen)
    matrices = [theirs[2].weight, theirs[5].weight]
    rest = [p for p in theirs.parameters() if all(p is not m for m in matrices)]
    pair = [
        torch.optim.Muon(matrices, lr=0.03, momentum=0.95, **{"weight_decay": 0.0, **chosen}),
        torch.optim.AdamW(rest, lr=1e-2, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.01),
    ]
    learn(ours, optimizer, 3)
    for number in range(3):
        theirs.zero_grad()
        theirs(batch(theirs, number)).square().mean().backward()
        for each in pair:
            each.step()
    assert same(ours, theirs)
    assert not same(ours, mlp())


def test_convolutions_are_matrices_of_outputs_and_keep_their_shape():
    """The oracle: torch's Muon on a matrix [out, in * kernel] that is copied there and back."""
    model, start = convolutional(), convolutional()
    optimizer = rk.muon(model, example=batch(model)[:1], lr=0.02)
    assert hidden(optimizer) == {"2.weight": False, "4.weight": True}
    learn(model, optimizer)
    for index, transposed in ((2, False), (4, True)):
        old, grad = start[index].weight.detach(), model[index].weight.grad
        matrix, slope = (t.flatten(1).T if transposed else t.flatten(1) for t in (old, grad))
        alone = nn.Parameter(matrix.clone())
        alone.grad = slope.clone()
        torch.optim.Muon([alone], lr=0.02, weight_decay=0.0).step()
        new = (alone.T if transposed else alone).reshape(old.shape)
        torch.testing.assert_close(model[index].weight.detach(), new.detach(), rtol=0, atol=0)
        assert not torch.equal(model[index].weight, old)
        (moment,) = moments(optimizer, model[index].weight)
        torch.testing.assert_close(moment, 0.05 * grad)


def test_updates_are_nearly_orthogonal():
    model, start = mlp(), mlp()
    model[2].weight.grad = torch.linspace(1, 30, 6).diag() @ torch.eye(6, 12)
    rk.muon(model, lr=1.0).step()
    update = torch.linalg.svdvals((model[2].weight - start[2].weight).detach())
    assert update.min() > 0.5 and update.max() < 1.5, update


def test_channels_last_learns_the_same():
    plain, last = convolutional(), convolutional().to(memory_format=torch.channels_last)
    pair = [rk.muon(plain), rk.muon(last)]
    assert last[2].weight.stride() != plain[2].weight.stride()
    for model, optimizer in zip((plain, last), pair, strict=True):
        learn(model, optimizer, 2)
    # The order of the columns of a matrix changes sums in bfloat16, and nothing else.
    torch.testing.assert_close(last[2].weight, plain[2].weight, atol=2e-3, rtol=0)
    assert (plain[2].weight - convolutional()[2].weight).abs().max() > 0.01
    moved = pair[0].state_dict()  # the memory of the plain one: laid out otherwise than the parameters
    pair[1].load_state_dict(moved)
    before = pair[1].state[last[2].weight]["momentum_buffer"].clone()
    learn(last, pair[1], 1, first=2)
    after = pair[1].state[last[2].weight]["momentum_buffer"]
    torch.testing.assert_close(after, 0.95 * before + 0.05 * last[2].weight.grad)


# --- who gets what ---


@pytest.mark.parametrize("example", [True, False])
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("mlp", {"layers.1.weight"}),
        ("mobilenet", {"blocks.0.pointwise.weight", "blocks.1.pointwise.weight"}),
        ("gpt", {f"h.{n}.{part}.weight" for n in (0, 1) for part in GPT_PARTS}),
        ("conv3d", {"conv2.weight"}),
    ],
)
def test_hidden_matrices_of_the_zoo(name, found, example):
    member = ZOO[name]
    model = member.build()
    optimizer = rk.muon(model, example=member.example() if example else None)
    assert set(hidden(optimizer)) == found
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len(set(held)) and set(held) == set(model.parameters())


def test_only_an_example_shows_two_heads():
    member = ZOO["dueling"]
    assert "value.weight" not in hidden(rk.muon(member.build(), example=member.example()))
    assert "value.weight" in hidden(rk.muon(member.build()))


def test_transposed_storage_is_seen():
    pytest.importorskip("transformers")
    member = ZOO["gpt2"]
    found = hidden(rk.muon(member.build(), example=member.example()))
    assert found and all(found.values())


def test_skip_and_a_model_without_hidden_matrices():
    assert set(hidden(rk.muon(mlp(), skip=("2.*",)))) == {"5.weight"}
    with pytest.warns(NoEffectWarning, match="no hidden matrix"):
        optimizer = rk.muon(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    assert [group["algorithm"] for group in optimizer.param_groups] == ["adamw"]
    with pytest.warns(NoEffectWarning):
        rk.muon(ZOO["weight_norm_mlp"].build(), example=ZOO["weight_norm_mlp"].example())


def test_compiled_model():
    model = mlp()
    optimizer = rk.muon(torch.compile(model, backend="eager"), example=torch.zeros(1, 8))
    assert set(hidden(optimizer)) == {"2.weight", "5.weight"}


# --- an optimizer like any other ---


def test_schedulers_move_both_rates():
    model = mlp()
    optimizer = rk.muon(model, lr=0.02, adamw_lr=0.001)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    learn(model, optimizer)
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.0005]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    before = copy.deepcopy(model)
    learn(model, optimizer)
    assert same(model, before)


@pytest.mark.parametrize("build", [mlp, convolutional])
def test_state_resumes_bit_equal(build):
    model = build()
    optimizer = rk.muon(model)
    learn(model, optimizer, 3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    learn(model, optimizer, 3, first=3)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again = build()
    resumed = rk.muon(again)
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    learn(again, resumed, 3, first=3)
    assert same(model, again)
    fresh = build()
    fresh.load_state_dict(saved["model"])
    learn(fresh, rk.muon(fresh), 3, first=3)
    assert not same(model, fresh), "the state has no effect, so that the test shows nothing"


def test_a_deep_copy_goes_on_alike():
    model = mlp()
    optimizer = rk.muon(model)
    learn(model, optimizer, 2)
    model_copy, optimizer_copy = copy.deepcopy((model, optimizer))
    learn(model, optimizer, 2, first=2)
    learn(model_copy, optimizer_copy, 2, first=2)
    assert same(model, model_copy)
    with pytest.raises(SettingsError):
        optimizer_copy.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})


def test_closure_is_called_once_and_its_loss_comes_back():
    model, plain = mlp(), mlp()
    optimizer = rk.muon(model)
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = model(batch(model)).square().mean()
        loss.backward()
        calls.append(loss)
        return loss

    assert optimizer.step(closure) is calls[0] and len(calls) == 1
    learn(plain, rk.muon(plain))
    assert same(model, plain)


def test_zero_grad_frees_the_gradients():
    model = mlp()
    optimizer = rk.muon(model)
    learn(model, optimizer)
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    assert not optimizer._muon.state and not optimizer._muon.param_groups


def test_parameters_without_gradients_stay():
    model, start = mlp(), mlp()
    model[2].requires_grad_(False)
    learn(model, rk.muon(model, weight_decay=0.1))
    assert torch.equal(model[2].weight, start[2].weight) and not torch.equal(model[5].weight, start[5].weight)


def test_misuse_is_told():
    optimizer = rk.muon(mlp())
    with pytest.raises(SettingsError, match="build a new one with rk.muon"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2, 2))]})
    with pytest.raises(SettingsError, match="same skip"):
        optimizer.load_state_dict(rk.muon(mlp(), skip=("2.*",)).state_dict())
    with pytest.raises(SettingsError, match="got: one with"):
        optimizer.load_state_dict(torch.optim.AdamW(mlp().parameters()).state_dict())
    with pytest.raises(SettingsError, match="Muon.momentum"):
        rk.muon(mlp(), momentum=1.0)
    with pytest.raises(PlanError):
        rk.apply_("muon", mlp())


def test_an_old_torch_is_told(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(SettingsError, match="2.9 or later"):
        rk.muon(mlp())


# --- with the rest of rekindle ---


def test_registry_and_list(capsys):
    from rekindle.cli.list import run

    assert rk.method("muon:lr=0.05,adamw_betas=0.8|0.9,nesterov=false") == Muon(
        lr=0.05, adamw_betas=(0.8, 0.9), nesterov=False
    )
    assert next(card for card in rk.list_methods() if card.key == "muon").kind == "optimizer"
    assert "muon" in dir(rk) and "muon_" not in dir(rk)
    run("muon")
    assert "torch.optim.Muon" in capsys.readouterr().out


def test_apply_clears_moments_of_both_algorithms():
    model = convolutional()
    optimizer = rk.muon(model, example=batch(model)[:1])
    learn(model, optimizer)
    assert all(moment.abs().max() > 0 for p in model.parameters() for moment in moments(optimizer, p))
    rk.apply_("full_reset", model, optimizer)
    assert not any(optimizer.state.get(p) for p in model.parameters())


def test_with_a_keeper():
    model = mlp()
    optimizer = rk.muon(model, example=torch.zeros(1, 8))
    model[2].weight.data[3], model[3].bias.data[3], model[3].weight.data[3] = 0.0, -9.0, 1e-3
    keeper = rk.Keeper(model, optimizer, "redo:period=1", example=torch.zeros(1, 8))
    learn(model, optimizer)
    (record,) = keeper.step()
    assert keeper.recycled["2"] >= 1
    # Muon mixes the entries of a matrix, so that its memory of the whole tensor begins again; AdamW's does not.
    assert model[2].weight not in optimizer.state and model[5].weight not in optimizer.state
    assert (
        optimizer.state[model[2].bias]["exp_avg"][3] == 0 and optimizer.state[model[2].bias]["exp_avg"].abs().max() > 0
    )
    assert any("begins again for 2 tensors (2.weight, 5.weight)" in told for told in record.notices)
    learn(model, optimizer)


def test_a_keeper_says_how_to_use_it():
    with pytest.raises(KeeperError, match=r"optimizer = rk.muon\(model, example=x\)"):
        rk.Keeper(mlp(), None, "muon")
