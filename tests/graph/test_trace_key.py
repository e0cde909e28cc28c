"""The key of a trace: there is one for every model that we know, and it stays while nothing changes."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.trace_key import trace_key
from rekindle.testing import ZOO


@pytest.mark.parametrize("name", ZOO)
def test_every_zoo_model_has_a_key_that_training_does_not_change(name):
    member = ZOO[name]
    model, example = member.build(), member.example()
    key = trace_key(model, example)
    assert key is not None
    rk.testing.aged.learn(model, example, torch.optim.SGD(model.parameters(), lr=1e-3))
    assert key == trace_key(model, member.example())
    assert key != trace_key(model, (member.example(), 1))


def test_a_trace_leaves_the_key_as_it_is():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.LlamaConfig(**sizes, vocab_size=20, num_key_value_heads=1)
    model, example = transformers.LlamaForCausalLM(config), {"input_ids": torch.zeros(1, 4, dtype=torch.long)}
    key = trace_key(model, example)
    rk.trace(model, example, strict=False)
    assert key is not None and key == trace_key(model, example)
    model.config.hidden_act = "gelu"
    assert key != trace_key(model, example)


def test_under_somebody_s_mode_there_is_none():
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Functions(torch.overrides.TorchFunctionMode):
        pass

    net, x = nn.Linear(2, 2), torch.zeros(1, 2)
    with Mode():
        assert trace_key(net, x) is None
    with Functions():
        assert trace_key(net, x) is None
    key = trace_key(net, x)
    with torch.device("meta"):
        assert trace_key(net, x) not in (None, key)
