"""DASH by hand, against loops over rows and kernels, and on storage that others get wrong."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import rekindle as rk
from rekindle.errors import PlanError
from rekindle.testing import ZOO

ALPHA, FLOOR = 0.3, 0.05


def squares(model, x):
    return model(x).square().mean()


def some_batches(*shape, count=3):
    random = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=random) for _ in range(count)]


def averaged(model, batches, loss=squares, alpha=ALPHA):
    """The slow and obvious way: a copy, `backward`, one tensor at a time."""
    twin = copy.deepcopy(model)
    mean = {name: torch.zeros_like(p) for name, p in twin.named_parameters()}
    for batch in batches:
        twin.zero_grad()
        loss(twin, batch).backward()
        for name, p in twin.named_parameters():
            mean[name] = (1 - alpha) * mean[name] + alpha * (-p.grad)
    return mean


def shrunk(w, g, floor=FLOOR):
    """One vector."""
    if not w.any() or not g.any():
        return w * floor
    return w * (w.flatten() @ g.flatten() / (w.norm() * g.norm())).clamp(floor, 1)


def by_rows(weight, g):
    return torch.stack([shrunk(w, d) for w, d in zip(weight, g, strict=True)])


def by_kernels(weight, g):
    """Weight [a, b, kernel...]: each pair on its own."""
    return torch.stack([by_rows(w, d) for w, d in zip(weight, g, strict=True)])


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_by_hand():
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 4.0], [-3.0, -4.0], [0.0, 0.0]]))
        model.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    # The gradient of -sum is -x for each row and -1 for each bias: G is along (0, 1) and (1, 1, 1).
    rk.dash_(model, data=[torch.tensor([[0.0, 2.0]])], loss=lambda m, x: -m(x).sum(), floor=0.1)
    assert torch.allclose(model.weight, torch.tensor([[2.4, 3.2], [-0.3, -0.4], [0.0, 0.0]]))
    assert torch.allclose(model.bias, torch.tensor([3**-0.5, 0, 0]))


def test_linear_rows_and_biases():
    model, batches = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), some_batches(8, 5)
    old, g = weights(model), averaged(model, batches)
    record = rk.dash_(model, data=batches, loss=squares)
    for name, new in model.named_parameters():
        expected = shrunk(old[name], g[name]) if new.dim() == 1 else by_rows(old[name], g[name])
        assert torch.allclose(new, expected, atol=1e-6), name
    assert record.changed == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("layer", [nn.Conv1d(4, 6, 3), nn.Conv2d(4, 6, 3), nn.Conv3d(4, 6, 2)], ids=str)
@pytest.mark.parametrize("traced", [True, False])
def test_convolutions_by_kernel(layer, traced):
    model = copy.deepcopy(layer)
    shape = (2, 4, *[5] * (model.weight.dim() - 2))
    batches = some_batches(*shape)
    old, g = weights(model), averaged(model, batches)
    rk.dash_(model, data=batches, loss=squares, **({"example": batches[0]} if traced else {}))
    assert torch.allclose(model.weight, by_kernels(old["weight"], g["weight"]), atol=1e-6)
    assert torch.allclose(model.bias, shrunk(old["bias"], g["bias"]), atol=1e-6)


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_grouped_and_transposed_convolution(transposed, traced):
    model = (nn.ConvTranspose2d if transposed else nn.Conv2d)(6, 4, 3, groups=2, bias=False)
    batches = some_batches(2, 6, 5, 5)
    old, g = weights(model), averaged(model, batches)
    rk.dash_(model, data=batches, loss=squares, **({"example": batches[0]} if traced else {}))
    # [out, in/groups, k, k] or [in, out/groups, k, k]: in both each leading pair is one kernel.
    assert torch.allclose(model.weight, by_kernels(old["weight"], g["weight"]), atol=1e-6)


def test_a_1x1_kernel_makes_it_a_sign_rule():
    model, batches = nn.Conv2d(3, 5, 1, bias=False), some_batches(2, 3, 4, 4)
    old, g = weights(model)["weight"], averaged(model, batches)["weight"]
    rk.dash_(model, data=batches, loss=squares)
    assert torch.allclose(model.weight, torch.where(old * g > 0, old, FLOOR * old))


def test_channels_last():
    """Published code: without effect there."""
    model, batches = nn.Conv2d(4, 6, 3), some_batches(2, 4, 6, 6)
    twin = copy.deepcopy(model).to(memory_format=torch.channels_last)
    old = weights(model)["weight"]
    rk.dash_(model, data=batches, loss=squares)
    rk.dash_(twin, data=[b.to(memory_format=torch.channels_last) for b in batches], loss=squares)
    assert torch.allclose(model.weight, twin.weight, atol=1e-6) and not torch.allclose(model.weight, old)
    assert twin.weight.is_contiguous(memory_format=torch.channels_last)


def test_conv1d_of_gpt2_and_its_fused_parts():
    pytest.importorskip("transformers")
    model, example = ZOO["gpt2"].build(), ZOO["gpt2"].example()

    def loss(m, batch):
        return m(**batch).logits.square().mean()

    old, g = weights(model), averaged(model, [example], loss)
    record = rk.dash_(model, data=[example], loss=loss, example=example)
    new = dict(model.named_parameters())
    for name in ("transformer.h.0.attn.c_attn.weight", "transformer.h.1.mlp.c_fc.weight"):
        assert torch.allclose(new[name].T, by_rows(old[name].T, g[name].T), atol=1e-6)  # stored [in, out]
    name = "transformer.h.0.attn.c_attn.bias"
    parts = [shrunk(o, d) for o, d in zip(old[name].chunk(3), g[name].chunk(3), strict=True)]
    assert torch.allclose(new[name], torch.cat(parts), atol=1e-6)
    assert any("tied to the head" in skip.reason for skip in record.skips)
    assert torch.equal(new["transformer.wte.weight"], old["transformer.wte.weight"])
    assert torch.equal(new["transformer.ln_f.weight"], old["transformer.ln_f.weight"])


def test_fused_and_separate_attention_agree():
    fused, separate = nn.MultiheadAttention(6, 2, batch_first=True), nn.ModuleDict()
    nn.init.normal_(fused.in_proj_bias)
    nn.init.normal_(fused.out_proj.bias)
    for key, w, b in zip("qkv", fused.in_proj_weight.chunk(3), fused.in_proj_bias.chunk(3), strict=True):
        separate[key] = nn.Linear(6, 6)
        separate[key].load_state_dict({"weight": w, "bias": b})
    separate["o"] = copy.deepcopy(fused.out_proj)

    def attend(m, x):
        q, k, v = (m[key](x).unflatten(2, (2, 3)).transpose(1, 2) for key in "qkv")
        return m["o"](nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    batches = some_batches(4, 5, 6)
    rk.dash_(fused, data=batches, loss=lambda m, x: m(x, x, x)[0].sin().mean())
    rk.dash_(separate, data=batches, loss=lambda m, x: attend(m, x).sin().mean())
    # The bias of the keys has a gradient of rounding errors only: softmax does not see it.
    for part, key in enumerate("qkv"):
        assert torch.allclose(fused.in_proj_weight.chunk(3)[part], separate[key].weight, atol=1e-5)
        if key != "k":
            assert torch.allclose(fused.in_proj_bias.chunk(3)[part], separate[key].bias, atol=1e-5)


@pytest.mark.parametrize("wrap", [nn.utils.parametrizations.weight_norm, nn.utils.weight_norm])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weight_norm_through_the_effective_weight(wrap):
    for layer, shape in ((nn.Linear(4, 3), (8, 4)), (nn.Conv2d(4, 3, 3), (2, 4, 5, 5))):
        batches, plain = some_batches(*shape), copy.deepcopy(layer)
        model = wrap(copy.deepcopy(layer))
        with torch.no_grad():
            (model.weight_g if hasattr(model, "weight_g") else model.parametrizations.weight.original0).mul_(-1.5)
            plain.weight.mul_(-1.5)
        rk.dash_(plain, data=batches, loss=squares)
        rk.dash_(model, data=batches, loss=squares)
        model(batches[0])
        assert torch.allclose(model.weight, plain.weight, atol=1e-6)
        assert torch.allclose(model.bias, plain.bias, atol=1e-6)


def test_published_arithmetic_on_a_classifier():
    """As in the authors' code: convolution, linear and their biases, everything else as it was."""
    model = ZOO["cnn_bn"].build()
    random = torch.Generator().manual_seed(3)
    batches = [(torch.randn(8, 3, 8, 8, generator=random), torch.randint(5, (8,), generator=random)) for _ in range(4)]
    old, g = weights(model), averaged(model, batches, lambda m, b: cross_entropy(m(b[0]), b[1]), 0.1)
    record = rk.dash_(model, data=batches, alpha=0.1, floor=0.3, example=batches[0][0])
    new = dict(model.named_parameters())
    for name in ("conv1", "conv2"):
        cos = torch.cosine_similarity(g[f"{name}.weight"].flatten(2), old[f"{name}.weight"].flatten(2), dim=-1)
        expected = old[f"{name}.weight"] * cos.clamp(0.3, 1)[:, :, None, None]
        assert torch.allclose(new[f"{name}.weight"], expected, atol=1e-5)
    cos = torch.cosine_similarity(g["fc.weight"], old["fc.weight"], dim=-1).clamp(0.3, 1)
    assert torch.allclose(new["fc.weight"], old["fc.weight"] * cos[:, None], atol=1e-5)
    for name in ("bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias"):
        assert torch.equal(new[name], old[name])
    assert any("4 parameters that are no weight or bias" in notice for notice in record.notices)
    assert any("recalibrate_" in notice for notice in record.notices)


def test_zero_gradients_give_the_floor():
    model = nn.Linear(3, 2)
    old = weights(model)
    rk.dash_(model, data=[torch.ones(2, 3)], loss=lambda m, x: (0 * m(x)).sum(), floor=0.1)
    assert torch.allclose(model.weight, 0.1 * old["weight"]) and torch.allclose(model.bias, 0.1 * old["bias"])


def test_frozen_and_unreached_parameters_are_left_alone_with_a_word():
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)])
    model[0].requires_grad_(False)
    old = weights(model)
    record = rk.dash_(model, data=[torch.ones(2, 3)], loss=lambda m, x: m[2](m[0](x)).square().sum())
    reasons = {skip.tensor: skip.reason for skip in record.skips}
    assert "frozen" in reasons["0.weight"] and "frozen" in reasons["0.bias"]
    assert "no gradient reaches it" in reasons["1.weight"]
    assert all(torch.equal(old[n], p) for n, p in model.named_parameters() if n in reasons)
    assert {row.tensor for row in record.rows} == {"2.weight", "2.bias"}


def test_skip_patterns():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    record = rk.dash_(model, data=some_batches(4, 3), loss=squares, skip=("1.*",))
    assert {row.tensor for row in record.rows} == {"0.weight", "0.bias"}


def test_the_order_of_batches_counts():
    """The newest batch weighs alpha: with alpha = 1 it is all there is."""
    batches, model = some_batches(4, 3), nn.Linear(3, 2)
    twin = copy.deepcopy(model)
    rk.dash_(model, data=batches, loss=squares, alpha=1.0)
    rk.dash_(twin, data=batches[-1:], loss=squares, alpha=0.3)
    assert torch.allclose(model.weight, twin.weight, atol=1e-7)


def test_data_is_asked_for():
    with pytest.raises(PlanError, match=r"pass data=.*loss=lambda model, batch"):
        rk.dash_(nn.Linear(3, 2))
    with pytest.raises(PlanError, match="data for dash"):
        rk.plan("dash+fire", nn.Linear(3, 2), example=torch.ones(1, 3))


def test_nothing_is_run_for_methods_that_do_not_ask():
    def refuse():
        raise AssertionError("the data was looked at")
        yield

    assert rk.apply_("shrink_perturb", nn.Linear(3, 2), data=refuse()).changed


def test_a_state_dict_with_a_functional_loss():
    model, batches = nn.Linear(3, 2), some_batches(4, 3)
    state, graph = {n: t.clone() for n, t in model.state_dict().items()}, rk.trace(model, batches[0])
    skeleton = nn.Linear(3, 2)
    rk.dash_(model, data=batches, loss=squares)
    call = torch.func.functional_call
    rk.dash_(state, graph=graph, data=batches, loss=lambda s, x: call(skeleton, s, x).square().mean())
    assert torch.equal(state["weight"], model.weight) and not state["weight"].requires_grad
    with pytest.raises(PlanError, match="functional_call"):
        rk.dash_(state, graph=graph, data=batches)
