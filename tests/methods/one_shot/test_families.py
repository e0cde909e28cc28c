"""The families of networks that FIRE was published for, against the published arithmetic by a plain loop."""

import math

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError, SettingsError
from rekindle.testing.zoo import ZOO


def built(name):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    return ZOO[name].build(), ZOO[name].example()


def chosen_skips(found):
    """Return what fire looked at and left alone; of vectors it says nothing, and the plan does for it."""
    return {skip.tensor for skip in found.skips if "which fire leaves alone" not in skip.reason}


def cubic(w, steps):
    x = w / w.norm()
    for _ in range(steps):
        x = 1.5 * x - 0.5 * (x @ (x.T @ x))
    return x * math.sqrt(x.shape[0] / x.shape[1])


@pytest.mark.parametrize("preset", ["cnn", "paper"])
def test_the_preset_of_convolutional_networks_is_ten_cubic_steps_on_everything(preset):
    model, _ = built("vit_separate")
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    rk.fire_(model, preset=preset)
    new = dict(model.named_parameters())
    for name in ("blocks.0.mlp.0.weight", "blocks.1.attention.v.weight", "blocks.1.attention.q.weight", "head.weight"):
        assert torch.allclose(new[name], cubic(old[name], 10), atol=1e-5), name
    convolution = next(n for n, p in old.items() if p.dim() == 4)
    kernel = old[convolution].shape[2] * old[convolution].shape[3]
    expected = cubic(old[convolution][:, :, 1, 0], 10) / kernel
    assert torch.allclose(new[convolution][:, :, 1, 0], expected, atol=1e-5), "the first layer, too"


@pytest.mark.parametrize("name", ["vit_separate", "vit_fused", "vit_mha"])
def test_the_preset_of_vision_transformers_is_ten_cubic_steps_on_queries_and_keys(name):
    model, example = built(name)
    graph = rk.trace(model, example)
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    record = rk.fire_(model, graph=graph, preset="vit")
    new = dict(model.named_parameters())
    for weight in graph.weights:
        before, after = (weight.view.read(each[weight.tensor])[0] for each in (old, new))
        same = torch.allclose(after, cubic(before, 10), atol=1e-5)
        assert same if weight.role in ("q", "k") else torch.equal(before, after), weight.name
    assert any(skip.tensor == "head.weight" and "preset='vit'" in skip.reason for skip in record.skips)
    with pytest.warns(rk.NoEffectWarning, match="neither query nor key"):
        rk.plan("fire:preset=vit", nn.Linear(3, 2), example=torch.ones(1, 3))


@pytest.mark.parametrize("name", ["gpt", "gpt2"])
@pytest.mark.parametrize("way", ["traced", "named"])
def test_the_preset_of_language_models_has_the_tied_head_and_no_table_of_positions(name, way):
    model, example = built(name)
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    rk.fire_(model, preset="gpt", example=example if way == "traced" else None)
    new = dict(model.named_parameters())
    words = next(n for n in old if n.endswith("wte.weight"))
    assert torch.allclose(new[words], cubic(old[words], 5), atol=1e-4), "words are the outputs of the head"
    assert model.get_output_embeddings().weight is new[words] if name == "gpt2" else True
    positions = next(n for n in old if n.endswith("wpe.weight"))
    assert torch.equal(new[positions], old[positions])
    for end in ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"):
        tensor = next(n for n in old if n.endswith(end))
        before, after = (each[tensor].T if name == "gpt2" else each[tensor] for each in (old, new))
        blocks = 3 if end == "attn.c_attn.weight" else 1
        for one, other in zip(before.chunk(blocks), after.chunk(blocks), strict=True):
            assert torch.allclose(other, cubic(one, 5), atol=1e-5), end


def test_the_preset_of_language_models_leaves_an_embedding_that_is_not_tied():
    model, example = built("llama")
    graph = rk.trace(model, example)
    free = [w.name for w in graph.weights if w.role == "embedding" and not w.tied]
    planned = rk.plan("fire:preset=gpt", model, graph=graph)
    assert free and chosen_skips(planned) == set(free)
    assert "lm_head.weight" in {edit.tensor for edit in planned.edits}


def nature():
    torch.manual_seed(0)
    layers = [nn.Conv2d(4, 8, 4, 2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 16)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(16, 3))


@pytest.mark.parametrize("example", [None, torch.zeros(2, 4, 10, 10)])
def test_the_preset_of_dqn_draws_linear_layers_afresh(example):
    model = nature()
    for parameter in model.parameters():
        parameter.data.mul_(5)
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    record = rk.fire_(model, preset="dqn", example=example, seed=4)
    new = dict(model.named_parameters())
    assert torch.allclose(new["2.weight"][:, :, 1, 2], cubic(old["2.weight"][:, :, 1, 2], 10) / 9, atol=1e-5)
    assert torch.equal(new["0.bias"], old["0.bias"]) and torch.equal(new["2.bias"], old["2.bias"])
    graph = rk.trace(nature(), torch.zeros(2, 4, 10, 10))
    for name in ("5.weight", "5.bias", "7.weight", "7.bias"):
        drawn = graph.fresh(name, tuple(old[name].shape), 4, "fire")
        assert torch.equal(new[name], drawn) and not torch.equal(new[name], old[name]), name
    assert [row.tensor for row in record.rows].count("5.weight") == 1 and not chosen_skips(record)


def test_the_preset_of_dqn_takes_a_reference_and_skips():
    start, model = nature(), nature()
    for parameter in model.parameters():
        parameter.data.add_(1)
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    record = rk.fire_(model, preset="dqn", reference=start, skip=("5.*", "0.weight"), blend=0.5)
    new = dict(model.named_parameters())
    for name in ("7.weight", "7.bias"):
        assert torch.allclose(new[name], (old[name] + dict(start.named_parameters())[name]) / 2)
    assert chosen_skips(record) == {"5.weight", "5.bias", "0.weight"}
    assert torch.equal(new["5.weight"], old["5.weight"]) and torch.equal(new["0.weight"], old["0.weight"])


def test_the_preset_of_dqn_says_what_it_cannot_draw():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(2))
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))

        def forward(self, x):
            return self.normed(nn.functional.linear(x, self.w, self.b))

    model = Own()
    record = rk.fire_(model, preset="dqn", example=torch.ones(1, 3))
    assert chosen_skips(record) == {"w", "b"}
    assert all("pass reference=" in skip.reason for skip in record.skips)
    assert {row.tensor.partition(".")[0] for row in record.rows if row.changed} == {"normed"}
    assert len([row for row in record.rows if row.changed]) == 3, "gain, direction and bias"


@pytest.mark.parametrize("name", ["gpt", "gpt2"])
@pytest.mark.parametrize("way", ["traced", "named"])
def test_the_preset_of_language_models_is_five_cubic_steps_on_all_with_the_tied_head(name, way):
    (model, example), (twin, _) = built(name), built(name)
    shown = example if way == "traced" else None
    preset = rk.fire_(model, preset="gpt", example=shown)
    spelled = rk.apply_("fire:attention=all,tied=true,solver=newton_schulz,iterations=5", twin, example=shown)
    for (tensor, one), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other), tensor
    assert [(row.tensor, row.changed) for row in preset.rows] == [(row.tensor, row.changed) for row in spelled.rows]
    assert chosen_skips(preset) == chosen_skips(spelled)


def test_a_tied_embedding_is_treated_when_asked_for_and_left_with_a_hint_otherwise():
    model, example = built("gpt")
    planned = rk.plan("fire:attention=all,tied=true,solver=exact", model, example=example)
    assert "wte.weight" in {edit.tensor for edit in planned.edits} and chosen_skips(planned) == {"wpe.weight"}
    old = model.wte.weight.detach().clone()
    rk.fire_(model, example=example, attention="all", tied=True, solver="exact")
    values = torch.linalg.svdvals(model.wte.weight.detach())
    assert values.allclose(torch.tensor(math.sqrt(old.shape[0] / old.shape[1])), atol=1e-4), "words are outputs"
    assert model.lm_head.weight is model.wte.weight
    left = rk.plan("fire:attention=all", built("gpt")[0], example=example)
    [reason] = [skip.reason for skip in left.skips if skip.tensor == "wte.weight"]
    assert "tied=True" in reason


def test_tied_is_refused_where_it_would_change_nothing():
    model, example = built("llama")
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    with pytest.raises(PlanError, match="two tensors") as refused:
        rk.fire_(model, example=example, attention="all", tied=True)
    assert "leave out tied" in refused.value.fix
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())
    model, example = built("gpt")
    with pytest.raises(PlanError, match="attention='qk'") as refused:
        rk.fire_(model, example=example, tied=True)
    assert "add attention='all'" in refused.value.fix
    for other in ("first=false", "last=false"):
        with pytest.raises(SettingsError, match="is both layers"):
            rk.method(f"fire:attention=all,tied=true,{other}")
    with pytest.raises(SettingsError, match="preset='gpt' alone"):
        rk.method("fire:preset=gpt,tied=true")


def test_tied_needs_no_word_about_attention_where_there_is_none():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.rnn, self.head = nn.Embedding(9, 4), nn.RNN(4, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.words.weight

        def forward(self, tokens):
            return self.head(self.rnn(self.words(tokens))[0])

    model, example = Recurrent(), torch.zeros(2, 3, dtype=torch.long)
    assert "words.weight" not in {edit.tensor for edit in rk.plan("fire", model, example=example).edits}
    assert "words.weight" in {edit.tensor for edit in rk.plan("fire:tied=true", model, example=example).edits}
