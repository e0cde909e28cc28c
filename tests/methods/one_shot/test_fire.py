"""FIRE against the paper's formulas and a plain loop."""

import math

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError, SettingsError
from rekindle.testing.zoo import ZOO


def by_svd(w):
    u, _, vh = torch.linalg.svd(w.double(), full_matrices=False)
    return (u @ vh).float()


def test_linear_and_convolution_by_a_plain_loop():
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, (3, 2), groups=2), nn.Flatten(), nn.Linear(160, 5)
    )
    old = {n: t.clone() for n, t in model.state_dict().items()}
    rk.fire_(model, example=torch.ones(1, 3, 8, 8), solver="exact")
    for i in range(3):
        for j in range(3):
            expected = by_svd(old["0.weight"][:, :, i, j]) * math.sqrt(6 / 3) / 9
            assert torch.allclose(model[0].weight[:, :, i, j], expected, atol=1e-6)
    for g in range(2):
        for i in range(3):
            for j in range(2):
                rows = slice(4 * g, 4 * g + 4)
                expected = by_svd(old["2.weight"][rows, :, i, j]) * math.sqrt(4 / 3) / 6
                assert torch.allclose(model[2].weight[rows, :, i, j], expected, atol=1e-6)
    assert torch.allclose(model[4].weight, by_svd(old["4.weight"]) * math.sqrt(5 / 160), atol=1e-6)
    for bias in ("0.bias", "2.bias", "4.bias"):
        assert torch.equal(model.state_dict()[bias], old[bias])


def test_newton_schulz_is_the_published_arithmetic():
    model = nn.Linear(6, 4)
    x = model.weight.detach() / model.weight.detach().norm()
    for _ in range(5):
        x = 1.5 * x - 0.5 * (x @ (x.T @ x))
    rk.fire_(model, example=torch.ones(1, 6), solver="newton_schulz", iterations=5)
    assert torch.allclose(model.weight, x * math.sqrt(4 / 6), atol=1e-5)


def test_transposed_and_conv1d_of_gpt2_are_seen_the_right_way_round():
    model = nn.ConvTranspose1d(3, 5, 2)
    old = model.weight.detach().clone()
    rk.fire_(model, example=torch.ones(1, 3, 4), solver="exact")
    assert torch.allclose(model.weight[:, :, 1].T, by_svd(old[:, :, 1].T) * math.sqrt(5 / 3) / 2, atol=1e-6)
    pytest.importorskip("transformers")
    gpt2 = ZOO["gpt2"].build()
    attention = gpt2.transformer.h[0].attn.c_attn
    before = attention.weight.detach().clone()  # [in, out]
    rk.fire_(gpt2, example=ZOO["gpt2"].example(), solver="exact")
    d = before.shape[0]
    for part in range(2):  # q and k; v stays
        cut = slice(part * d, (part + 1) * d)
        assert torch.allclose(attention.weight[:, cut].T, by_svd(before[:, cut].T), atol=1e-5)
    assert torch.equal(attention.weight[:, 2 * d :], before[:, 2 * d :])


RECURRENT = {
    "lstm": (lambda: nn.LSTM(5, 6, num_layers=2, bidirectional=True), 4),
    "projected": (lambda: nn.LSTM(5, 6, proj_size=3), 4),
    "gru": (lambda: nn.GRU(5, 6), 3),
    "rnn": (lambda: nn.RNN(5, 6), 1),
    "cell": (lambda: nn.LSTMCell(5, 6), 4),
}


@pytest.mark.parametrize("example", [None, torch.ones(3, 5)], ids=["scanned", "traced"])
@pytest.mark.parametrize("name", RECURRENT)
def test_every_gate_of_a_recurrent_layer_alone(name, example):
    build, gates = RECURRENT[name]
    model = build()
    old = {n: t.clone() for n, t in model.state_dict().items()}
    settings = {} if example is not None else {"attention": "all"}
    rk.fire_(model, example=example, solver="exact", **settings)
    for tensor, before in old.items():
        after = model.state_dict()[tensor]
        if before.dim() == 1:
            assert torch.equal(after, before)
            continue
        count = 1 if "_hr" in tensor else gates
        for block, was in zip(after.chunk(count), before.chunk(count), strict=True):  # [out, in] of one gate
            assert torch.allclose(block, by_svd(was) * math.sqrt(len(was) / was.shape[1]), atol=1e-6), tensor


ATTENTION = ["vit_separate", "vit_fused", "vit_mha", "transformer_encoder", "gpt", "gpt2", "llama"]


def built(name):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    return ZOO[name].build(), ZOO[name].example()


def chosen_skips(found):
    """Return what fire looked at and left alone; of vectors it says nothing, and the plan does for it."""
    return {skip.tensor for skip in found.skips if "which fire leaves alone" not in skip.reason}


def tables(graph):
    """Return parameters of two or more dimensions that are no weight of a layer: position tables, class tokens."""
    weights = {weight.tensor for weight in graph.weights}
    return {name for name, shape in graph.parameters.items() if len(shape) > 1 and name not in weights}


def elements(planned):
    """Return how many elements of each tensor a plan is about."""
    found = {edit.tensor: 0 for edit in planned.edits}
    for edit in planned.edits:
        found[edit.tensor] += int(edit.reach(planned.links[0].tensors[edit.tensor]).sum())
    return found


@pytest.mark.parametrize("name", ATTENTION)
def test_in_a_model_with_attention_queries_and_keys_and_nothing_else(name):
    model, example = built(name)
    graph = rk.trace(model, example)
    planned = rk.plan("fire", model, graph=graph)
    others = {w.name for w in graph.weights if w.role not in ("q", "k")} | tables(graph)
    assert chosen_skips(planned) == others
    treated = {w.tensor: 0 for w in graph.weights if w.role in ("q", "k")}
    for weight in graph.weights:
        treated[weight.tensor] = treated.get(weight.tensor, 0) + weight.out * weight.in_ * (weight.role in ("q", "k"))
    assert elements(planned) == {tensor: count for tensor, count in treated.items() if count}
    head = next(w for w in graph.weights if w.role in ("input", "head") or w.tied)
    reason = next(skip.reason for skip in planned.skips if skip.tensor == head.name)
    assert "tied to the head" in reason or "in a model with attention these alone" in reason
    everything = rk.plan("fire:attention=all", model, graph=graph)
    assert chosen_skips(everything) == {w.name for w in graph.weights if w.role == "embedding"} | tables(graph)


@pytest.mark.parametrize("name", ["mlp", "vgg", "mixer", "squeeze_excite"])
def test_in_any_other_model_every_linear_and_convolution_weight(name):
    model, example = built(name)
    planned = rk.plan("fire", model, example=example)
    layers = [f"{path}.weight" for path, m in model.named_modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    assert {edit.tensor for edit in planned.edits} == set(layers) and not chosen_skips(planned)


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("spec", ["fire", "fire:attention=all", "fire:preset=vit", "fire:preset=gpt"])
def test_without_an_example_the_same_where_names_leave_no_doubt(name, spec):
    (model, example), (twin, _) = built(name), built(name)
    traced, named = rk.apply_(spec, model, example=example), rk.apply_(spec, twin)
    for (tensor, one), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other), tensor
    assert chosen_skips(traced) == chosen_skips(named)
    assert sum(row.changed for row in named.rows) > 0


class GroupedAttention(nn.Module):
    """Grouped queries: two heads of queries, one of keys and values."""

    def __init__(self, name, out):
        super().__init__()
        self.name = name
        self.add_module(name, nn.Linear(8, out))
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.get_submodule(self.name)(x).split([8, 4, 4], -1)
        q, k, v = (t.unflatten(-1, (-1, 4)).transpose(1, 2) for t in (q, k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("name", ["qkv_proj", "query_key_value", "W_pack"])
@pytest.mark.parametrize(
    "spec", ["fire:attention=all", "fire:preset=cnn", "fire:preset=gpt", "fire", "fire:preset=vit"]
)
def test_a_fused_projection_that_is_not_clear_is_refused_without_an_example(name, spec):
    model = nn.Sequential(nn.Linear(4, 8), GroupedAttention(name, 16))
    before = {n: p.clone() for n, p in model.state_dict().items()}
    with pytest.raises(PlanError, match=f"1.{name}.weight") as refused:
        rk.apply_(spec, model)
    assert "pass example=" in refused.value.fix
    assert all(torch.equal(before[n], p) for n, p in model.state_dict().items())
    if "preset=vit" not in spec:
        planned = rk.plan(f"{spec}{',' if ':' in spec else ':attention=all,'}skip=1.{name}.*", model)
        assert f"1.{name}.weight" in {skip.tensor for skip in planned.skips} and planned.edits


def test_with_an_example_its_parts_are_seen():
    model, x = nn.Sequential(nn.Linear(4, 8), GroupedAttention("qkv_proj", 16)), torch.ones(1, 3, 4)
    old = model[1].qkv_proj.weight.detach().clone()
    rk.fire_(model, example=x, solver="exact", attention="all")
    new = model[1].qkv_proj.weight
    for rows in (slice(0, 8), slice(8, 12), slice(12, 16)):
        expected = by_svd(old[rows]) * math.sqrt(old[rows].shape[0] / 8)
        assert torch.allclose(new[rows], expected, atol=1e-5), rows


def test_attention_that_the_trace_does_not_understand_is_refused():
    class SortedAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.to_q, self.to_k, self.to_v = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            scores = torch.cdist(self.to_q(x), self.to_k(x))
            return scores.softmax(-1) @ self.to_v(x)

    model, x = SortedAttention(), torch.randn(1, 3, 4)
    assert rk.trace(model, x, strict=False).not_understood
    with pytest.raises(PlanError, match="not understood"):
        rk.plan("fire", model, example=x)
    assert len(rk.plan("fire:attention=all", model, example=x).edits) == 3


def test_tied_embeddings_are_left_alone_with_a_word():
    record = rk.fire_(ZOO["gpt"].build(), example=ZOO["gpt"].example())
    assert any("tied to the head" in skip.reason for skip in record.skips)


def test_head_by_head():
    model, example = ZOO["vit_separate"].build(), ZOO["vit_separate"].example()
    graph = rk.trace(model, example)
    query = next(w for w in graph.weights if w.role == "q")
    old = dict(model.named_parameters())[query.tensor].detach().clone()
    rk.fire_(model, graph=graph, heads="each", solver="exact")
    new = dict(model.named_parameters())[query.tensor]
    size = query.out // query.heads
    for head in range(query.heads):
        rows = slice(head * size, (head + 1) * size)
        assert torch.allclose(new[rows], by_svd(old[rows]) * math.sqrt(size / query.in_), atol=1e-6)


def test_head_by_head_needs_to_know_how_many():
    model, example = built("vit_separate")
    with pytest.raises(PlanError, match="heads='each'"):
        rk.fire_(model, heads="each")
    (model, example), (twin, _) = built("vit_mha"), built("vit_mha")
    rk.fire_(model, heads="each")
    rk.fire_(twin, heads="each", example=example)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), twin.parameters(), strict=True))


def test_scales():
    model = nn.Conv2d(4, 4, 3)
    old = model.weight.detach().clone()
    rk.fire_(model, example=torch.ones(1, 4, 5, 5), scale="norm", solver="exact")
    assert torch.allclose(model.weight[:, :, 1, 2].norm(), old[:, :, 1, 2].norm())
    rk.fire_(model, example=torch.ones(1, 4, 5, 5), scale="init", solver="exact")
    bound = 1 / math.sqrt(4 * 9)
    assert float(model.weight.detach().square().mean().sqrt()) == pytest.approx(bound / math.sqrt(3), rel=1e-4)

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2, 3))

        def forward(self, x):
            return nn.functional.linear(x, self.w)

    with pytest.warns(rk.NoEffectWarning, match="its initializer is not known"):
        rk.plan("fire:scale=init", Bare(), example=torch.ones(1, 3))


def test_blend_lies_between():
    model = nn.Linear(3, 3)
    old = model.weight.detach().clone()
    full = by_svd(old)
    rk.fire_(model, example=torch.ones(1, 3), blend=0.25, solver="exact")
    assert torch.allclose(model.weight, 0.75 * old + 0.25 * full, atol=1e-6)


def test_weight_norm_is_treated_through_gain_and_direction():
    for wrap in (nn.utils.parametrizations.weight_norm, nn.utils.weight_norm):
        model = nn.Sequential(wrap(nn.Linear(6, 4)), nn.ReLU(), nn.Linear(4, 2))
        old = model[0].weight.detach().clone()
        rk.fire_(model, example=torch.ones(1, 6), solver="exact")
        model(torch.ones(1, 6))
        assert torch.allclose(model[0].weight, by_svd(old) * math.sqrt(4 / 6), atol=1e-5)


def test_an_example_is_asked_for_when_roles_matter():
    for given in ({}, {"first": False, "attention": "all"}, {"preset": "vit"}):
        with pytest.raises(PlanError, match="example= for fire"):
            rk.fire_(nn.Linear(3, 2), **given)
    model = nn.Linear(3, 2)
    rk.fire_(model, attention="all", solver="exact")
    assert torch.allclose(torch.linalg.svdvals(model.weight), torch.tensor(2 / 3).sqrt(), atol=1e-6)


def test_one_column_and_one_row():
    for shape in ((1, 5), (5, 1), (1, 1)):
        model = nn.Linear(*shape)
        rk.fire_(model, example=torch.ones(1, shape[0]), solver="exact")
        expected = math.sqrt(shape[1] / shape[0])
        assert float(torch.linalg.svdvals(model.weight)[0]) == pytest.approx(expected, rel=1e-5)


def test_channels_last():
    model = nn.Conv2d(4, 6, 3)
    twin = nn.Conv2d(4, 6, 3)
    twin.load_state_dict(model.state_dict())
    twin.to(memory_format=torch.channels_last)
    for net in (model, twin):
        rk.fire_(net, example=torch.ones(1, 4, 5, 5), solver="exact")
    assert torch.allclose(model.weight, twin.weight, atol=1e-6)
    assert twin.weight.is_contiguous(memory_format=torch.channels_last)


def test_auto_reaches_its_tolerance_and_the_polar_factor():
    for shape in ((300, 200), (130, 130), (40, 64), (420, 420)):
        for tolerance in (1e-3, 1e-6):
            model = nn.Linear(*shape[::-1], bias=False)
            true = by_svd(model.weight.detach())
            record = rk.fire_(model, example=torch.ones(1, shape[1]), tolerance=tolerance)
            assert record.rows[0].dfi_after / min(shape) <= tolerance * 1.01
            found = model.weight.detach() / math.sqrt(shape[0] / shape[1])
            assert float((found - true).norm() / true.norm()) < 1e-2 if tolerance < 1e-5 else True


@pytest.mark.parametrize("preset", ["paper", "cnn", "vit", "gpt", "dqn"])
@pytest.mark.parametrize("other", ["iterations=1", "attention=qk,solver=exact", "first=false", "scale=init"])
def test_a_preset_refuses_what_it_decides(preset, other):
    with pytest.raises(SettingsError, match=f"preset='{preset}' alone") as refused:
        rk.method(f"fire:preset={preset},{other}")
    assert other.rpartition(",")[2].split("=")[0] in str(refused.value)


def test_the_paper_s_preset_takes_blend_and_skip():
    assert rk.method("fire:preset=paper,blend=0.5,skip=head.*,iterations=10").blend == 0.5


@pytest.mark.parametrize("solver", ["auto", "exact"])
def test_iterations_are_refused_where_there_are_none(solver):
    with pytest.raises(SettingsError, match="no iterations with solver"):
        rk.method(f"fire:solver={solver},iterations=5")


def test_tolerance_is_refused_where_nobody_looks_at_it():
    with pytest.raises(SettingsError, match="no tolerance with solver='quintic'"):
        rk.method("fire:solver=quintic,tolerance=1e-2")


def test_first_and_last_can_stay():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    planned = rk.plan("fire:first=false,last=false", model, example=torch.ones(1, 4))
    assert [edit.tensor for edit in planned.edits] == ["2.weight"]
    assert chosen_skips(planned) == {"0.weight", "4.weight"}
