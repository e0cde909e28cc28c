"""Every tensor is drawn by the initializer of its own layer: compared with what the layers themselves draw."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.initializers import ByModule, initializers_of
from rekindle.graph.scan import scan


def layers():
    return {
        "linear": nn.Linear(7, 5),
        "conv": nn.Conv2d(6, 4, 3, groups=2),
        "transposed": nn.ConvTranspose1d(3, 5, 4),
        "embedding": nn.Embedding(60, 9, padding_idx=3),
        "attention": nn.MultiheadAttention(12, 3),
        "attention_of_three": nn.MultiheadAttention(12, 3, kdim=5, vdim=7, add_bias_kv=True),
        "lstm": nn.LSTM(5, 6),
        "projected": nn.LSTM(5, 6, proj_size=3),
        "gru": nn.GRU(5, 6, num_layers=2, bidirectional=True),
        "lstm_cell": nn.LSTMCell(5, 6),
        "rnn_cell": nn.RNNCell(5, 6, bias=False),
        "bilinear": nn.Bilinear(4, 5, 6),
        "prelu": nn.PReLU(3),
        "batch_norm": nn.BatchNorm2d(4),
        "layer_norm": nn.LayerNorm(4),
    }


@pytest.mark.parametrize("name", layers())
def test_law_matches_the_layer_s_own_draws(name):
    """Range and spread over many draws of ours against many of torch's."""
    layer = layers()[name]
    graph = scan(layer)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = [layers()[name] for _ in range(60)]
    for tensor, shape in graph.parameters.items():
        ours = torch.stack([graph.fresh(tensor, shape, seed, "test") for seed in range(60)])
        them = torch.stack([dict(m.named_parameters())[tensor].detach() for m in theirs])
        assert float(ours.std()) == pytest.approx(float(them.std()), rel=0.12, abs=1e-6), tensor
        assert float(ours.abs().max()) == pytest.approx(float(them.abs().max()), rel=0.3, abs=1e-6), tensor
        assert float(ours.mean()) == pytest.approx(float(them.mean()), abs=0.3 * float(them.std()) + 1e-6), tensor


@pytest.mark.parametrize("base", [nn.LSTM, nn.GRUCell])
def test_a_recurrent_layer_that_draws_its_own_way(base):
    class Positive(base):
        def reset_parameters(self):
            for parameter in self.parameters():
                nn.init.uniform_(parameter, 2, 3)

    graph = scan(Positive(4, 5))
    for name, shape in graph.parameters.items():
        drawn = graph.fresh(name, shape, 0, "test")
        assert drawn.min() >= 2 and drawn.max() <= 3 and drawn.std() > 0


def test_statistics_go_back_to_their_start():
    norm = nn.BatchNorm1d(3)
    norm(torch.randn(5, 3))
    rk.full_reset_(norm)
    assert not norm.running_mean.any() and (norm.running_var == 1).all() and norm.num_batches_tracked == 0


def test_a_module_s_own_reset_is_used_on_a_copy():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.gamma = nn.Parameter(torch.zeros(4))
            self.reset_parameters()

        def reset_parameters(self):
            nn.init.uniform_(self.gamma, 5, 6)

    module = nn.Sequential(Scaled())
    before = module[0].gamma.detach().clone()
    assert isinstance(initializers_of(module)["0.gamma"], ByModule)
    drawn = scan(module).fresh("0.gamma", (4,), 0, "test")
    assert ((drawn >= 5) & (drawn < 6)).all() and torch.equal(module[0].gamma, before)


def test_weight_norm_is_drawn_through_its_layer():
    for wrap in (nn.utils.parametrizations.weight_norm, nn.utils.weight_norm):
        layer = nn.Sequential(wrap(nn.Linear(50, 40)))
        with torch.no_grad():
            for p in layer.parameters():
                p.add_(3.0)
        rk.full_reset_(layer)
        layer(torch.zeros(1, 50))
        weight = layer[0].weight
        assert float(weight.detach().abs().max()) <= 50**-0.5 + 1e-6 and float(weight.detach().std()) == pytest.approx(
            50**-0.5 / 3**0.5, rel=0.05
        )


def test_unknown_parameters_are_told_not_guessed():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.ones(3))

    model = nn.Sequential(Bare(), nn.Linear(3, 2))
    record = rk.full_reset_(model)
    assert [skip.tensor for skip in record.skips] == ["0.token"]
    assert (model[0].token == 1).all()


def test_transformers_config_gives_the_spread():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=8, n_head=2, n_embd=64, vocab_size=300, n_positions=16)
    graph = scan(transformers.GPT2LMHeadModel(config))
    wide = graph.fresh("transformer.h.0.attn.c_attn.weight", (64, 192), 0, "t")
    small = graph.fresh("transformer.h.0.attn.c_proj.weight", (64, 64), 0, "t")
    assert float(wide.std()) == pytest.approx(0.02, rel=0.05)
    assert float(small.std()) == pytest.approx(0.02 / 4, rel=0.05)  # sqrt(2 x 8 layers)
    assert not graph.fresh("transformer.h.0.attn.c_attn.bias", (192,), 0, "t").any()


def test_a_layer_that_replaces_reset_parameters_is_drawn_by_its_own():
    from rekindle.lab.models.mlp import MLP

    model = MLP([40, 30, 20], init="glorot")
    graph = rk.trace(model, torch.zeros(2, 40))
    bound = (6 / (40 + 30)) ** 0.5
    drawn = graph.fresh("layers.0.weight", (30, 40), 3, "test")
    assert 0.95 * bound < float(drawn.abs().max()) <= bound, "torch's own would reach 1/sqrt(40) only"
    assert not graph.fresh("layers.0.bias", (30,), 3, "test").any()


@pytest.mark.parametrize(
    "spec", ["scnn:channels=16|16,hidden=64", "mobilenet:width=0.25", "vgg16:width=8", "resnet50:width=8"]
)
def test_a_network_that_starts_by_hes_law_is_drawn_by_it(spec):
    """As it starts, and as methods draw it afresh: variance 2 / inputs of a unit, biases zero."""
    from rekindle.lab.models.catalog import build

    torch.manual_seed(0)
    model = build(f"{spec},init=he", SimpleNamespace(shape=(3, 32, 32), classes=10))
    graph, layers = scan(model), [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    names = {id(p): name for name, p in model.named_parameters()}
    for layer in layers:
        fresh = graph.fresh(names[id(layer.weight)], tuple(layer.weight.shape), 3, "test")
        for drawn in (layer.weight.detach(), fresh):
            assert float(drawn.std()) == pytest.approx((2 / drawn[0].numel()) ** 0.5, rel=0.3)
        assert layer.bias is None or not layer.bias.any()
    assert len(layers) > 4
