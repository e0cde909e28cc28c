"""Adapters of PEFT: told by their layers' class, and left alone by everything that treats a model."""

import copy

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError, NoEffectWarning
from rekindle.graph.adapters import ADAPTER, PROMPT, adapters_in
from rekindle.graph.scan import scan

EXAMPLE = {"input_ids": torch.arange(16).reshape(2, 8)}


class BaseTunerLayer:
    """Stands for PEFT's class, which is known by this name."""


class Lora(nn.Module, BaseTunerLayer):
    def __init__(self, base):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, base.out_features, bias=False)})
        nn.init.zeros_(self.lora_B["default"].weight)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


def small():
    torch.manual_seed(0)
    return nn.Sequential(Lora(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


@pytest.fixture(scope="module")
def gpt2():
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 32, "n_positions": 8}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    kinds = peft.LoraConfig(r=2, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)
    return peft.get_peft_model(transformers.GPT2LMHeadModel(config), kinds)


@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PrefixTuningConfig"])
def test_prompts_that_are_learned_stay_as_they_are(kind):
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 32, "n_positions": 16}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    asked = getattr(peft, kind)(num_virtual_tokens=3, task_type="CAUSAL_LM")
    model = peft.get_peft_model(transformers.GPT2LMHeadModel(config), asked)
    assert adapters_in(model) == {"prompt_encoder.default.embedding.weight": PROMPT}
    before = copy.deepcopy(model.state_dict())
    with pytest.warns(NoEffectWarning):
        rk.shrink_perturb_(model, example=EXAMPLE)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert "inside.prompt_encoder.default.embedding.weight" in adapters_in(nn.ModuleDict({"inside": model}))


def test_the_parts_of_an_adapter_are_told_and_its_base_is_none():
    assert list(adapters_in(small())) == ["0.lora_A.default.weight", "0.lora_B.default.weight"]
    assert adapters_in(nn.Linear(2, 2)) == {}


def test_a_trace_and_a_scan_tell_them():
    net = small()
    assert rk.trace(net, torch.zeros(2, 4)).adapters == scan(net).adapters == adapters_in(net)


@pytest.mark.parametrize("method", ["fire", "shrink_perturb", "full_reset", "rescale:proportional=false", "wels"])
def test_one_shot_methods_leave_them_alone_and_say_so(method):
    net = small()
    record = rk.apply_(method, net, example=torch.zeros(2, 4))
    edited, skipped = {row.tensor for row in record.rows}, {skip.tensor: skip.reason for skip in record.skips}
    assert edited and not any(name.startswith("0.") for name in edited)
    assert skipped["0.lora_A.default.weight"] == skipped["0.lora_B.default.weight"] == ADAPTER


def test_frozen_treats_the_base_and_not_the_adapter():
    record = rk.full_reset_(small(), example=torch.zeros(2, 4), frozen=True)
    edited = {row.tensor for row in record.rows}
    assert "0.base_layer.weight" in edited and not any("lora" in name for name in edited)


@pytest.mark.parametrize(
    "method", ["soft_rescale", "l2_init", "parseval", "redo:period=1,threshold=0.9", "weight_clip"]
)
def test_the_keeper_leaves_them_alone_and_says_so(method):
    net = small()
    before = copy.deepcopy(net.state_dict())
    keeper = rk.Keeper(net, None, method, example=torch.zeros(2, 4))
    for _ in range(2):
        (net(torch.randn(8, 4)).square().mean() + keeper.penalty()).backward()
        gradients = {name: p.grad for name, p in net.named_parameters()}
        with torch.no_grad():
            net[2].weight.mul_(1.5)
        keeper.step()
    assert keeper.skipped["0.lora_B.default.weight"] == ADAPTER
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items() if "lora" in name)
    assert gradients["0.lora_A.default.weight"] is not None


def test_a_penalty_has_no_gradient_for_them():
    net = small()
    keeper = rk.Keeper(net, None, "l2:strength=0.1", example=torch.zeros(2, 4))
    keeper.penalty().backward()
    assert net[0].lora_A["default"].weight.grad is None and net[2].weight.grad is not None


def test_a_model_in_which_only_adapters_are_trained_is_refused():
    with pytest.raises(KeeperError, match="frozen=True to treat the base") as refused:
        rk.Keeper(nn.Sequential(Lora(nn.Linear(4, 6))), None, "soft_rescale", example=torch.zeros(2, 4))
    assert "0.lora_A.default.weight" in refused.value.got


@pytest.mark.parametrize("method", ["fire", "shrink_perturb", "full_reset"])
def test_a_model_of_peft_stays_as_it_is_by_default(gpt2, method):
    before = copy.deepcopy(gpt2.state_dict())
    with pytest.warns(NoEffectWarning, match="adapter|frozen"):
        record = rk.apply_(method, gpt2, example=EXAMPLE)
    told = {skip.tensor.partition("[")[0]: skip.reason for skip in record.skips}
    assert set(told) == {name for name, _ in gpt2.named_parameters()} and not record.rows
    assert {reason for name, reason in told.items() if "lora" in name} == {ADAPTER}
    assert all(torch.equal(value, before[name]) for name, value in gpt2.state_dict().items())


def test_the_base_of_a_model_of_peft_is_treated_on_purpose(gpt2):
    net = copy.deepcopy(gpt2)
    edited = {row.tensor for row in rk.fire_(net, example=EXAMPLE, frozen=True).rows}
    assert edited == {"base_model.model.transformer.h.0.attn.c_attn.base_layer.weight"}
