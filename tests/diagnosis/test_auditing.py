"""The audit finds what was made sick on purpose, says nothing of the untrained, and the suggested remedy helps."""

import json
import math
from collections import UserDict
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils import _pytree as pytree

import rekindle as rk
from rekindle.diagnosis.findings import RULES
from rekindle.lab.data.digits import load_digits
from rekindle.testing.zoo import zoo
from tests.graph.same_graph import Exports

NOTE = "left out: the loss in the output, and labels of the example, on which only it depends"
DIGITS = load_digits(seed=0)
DATA = [(DIGITS.train_images[n : n + 128], DIGITS.train_labels[n : n + 128]) for n in range(0, 768, 128)]


@pytest.fixture
def exports(monkeypatch):
    return Exports(monkeypatch)


def network(seed=0):
    torch.manual_seed(seed)
    return rk.lab.models.MLP([64, 100, 100, 10])


def train(model, images, labels, steps, learning_rate=1e-3):
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    order = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = torch.randint(0, len(labels), (128,), generator=order)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    model.zero_grad()


def learned():
    model = network()
    train(model, DIGITS.train_images, DIGITS.train_labels, steps=60)
    return model


# --- untrained networks ---


@pytest.mark.parametrize("member", zoo(), ids=lambda member: member.name)
def test_an_untrained_network_gets_a_clean_bill(member):
    torch.manual_seed(0)
    model, example = member.build(), member.example()
    draws = torch.Generator().manual_seed(1)

    def larger(x):
        shape = (max(len(x), 64), *x.shape[1:])
        return (
            torch.randn(shape, generator=draws)
            if x.is_floating_point()
            else x.repeat(64 // len(x), *[1] * (x.dim() - 1))
        )

    data = [pytree.tree_map_only(torch.Tensor, larger, example) for _ in range(2)]
    found = rk.audit(model, data, example=example, reference=member.build)
    assert found.healthy, [finding.sentence for finding in found.findings]
    assert {"dfi", "weight_norm", "spectrum"} <= set(found.readings)


def test_an_untrained_network_learns_like_fresh_ones():
    assert rk.audit(network(3), DATA).healthy


# --- sick networks: what was done, which rule must speak, and what helps ---


def dead_units(model):
    with torch.no_grad():
        model.layers[0].bias[:60] = -100.0


def frozen_units(model):
    with torch.no_grad():
        model.layers[1].weight[:50] = 0
        model.layers[1].bias[:50] = 0
        model.layers[2].weight[:, :50] = 0


def collapsed(model):
    with torch.no_grad():
        for layer in model.layers[:2]:
            u, s, v = torch.linalg.svd(layer.weight, full_matrices=False)
            s[2:] *= 0.01  # what is left of the other directions
            layer.weight.copy_((u * s) @ v)


def blown_up(model):
    with torch.no_grad():
        model.layers[1].weight.mul_(12)


def overtrained(model):
    labels = torch.randint(0, 10, (120,), generator=torch.Generator().manual_seed(7))
    train(model, DIGITS.train_images[:120], labels, steps=1500, learning_rate=3e-3)


def recycled(model, suggestion):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    keeper = rk.Keeper(model, optimizer, f"{suggestion}:period=1", example=DATA[0][0])
    nn.functional.cross_entropy(model(DATA[0][0]), DATA[0][1]).backward()
    optimizer.step()
    keeper.step()
    keeper.close()


def treated(model, suggestion):
    rk.apply_(suggestion, model, example=DATA[0][0])


SICK = {
    "dormant_units": (dead_units, recycled),
    "frozen_weights": (frozen_units, treated),
    "collapsed_rank": (collapsed, treated),
    "uneven_spectrum": (collapsed, treated),
    "large_norms": (blown_up, treated),
    "slow_learner": (overtrained, treated),
}


def test_every_rule_has_a_sick_network():
    assert set(SICK) == set(RULES)


@pytest.mark.parametrize("rule", SICK)
def test_sickness_is_found_and_the_suggested_remedy_helps(rule):
    make_sick, remedy = SICK[rule]
    model = learned()
    assert rule not in [finding.rule for finding in rk.audit(model, DATA).findings]
    make_sick(model)
    findings = {finding.rule: finding for finding in rk.audit(model, DATA).findings}
    assert rule in findings
    remedy(model, findings[rule].suggestion)
    assert rule not in [finding.rule for finding in rk.audit(model, DATA).findings]


def test_findings_name_the_layers_the_paper_and_the_method():
    model = network()
    blown_up(model)
    (finding,) = rk.audit(model, example=DATA[0][0]).findings
    assert finding.parts == ("layers.1.weight",)
    assert finding.suggestion in {card.key for card in rk.list_methods()}
    assert "Soft Weight Rescaling" in finding.source
    assert finding.value == pytest.approx(12, rel=0.1)


def test_thresholds_can_be_changed():
    model = network()
    blown_up(model)
    assert rk.audit(model, example=DATA[0][0], thresholds={"large_norms": 20}).healthy
    with pytest.raises(rk.RekindleError, match="large_norms"):
        rk.audit(model, example=DATA[0][0], thresholds={"large_norm": 20})


# --- what is looked at ---


def test_the_model_is_left_as_it_was():
    model = learned()
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    rk.audit(model, DATA)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert model.training
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_state_dict_and_a_file_give_the_same_readings_of_weights(tmp_path):
    state = network().state_dict()
    save_file(state, tmp_path / "model.safetensors")
    from_file = rk.audit(tmp_path / "model.safetensors")
    from_dict = rk.audit(state)
    live = rk.audit(network(), example=DATA[0][0])
    for key in ("dfi", "weight_norm", "spectrum"):
        assert from_file.readings[key].parts == from_dict.readings[key].parts
        assert from_file.readings[key].summary == pytest.approx(live.readings[key].summary)
    assert "traced model" in from_file.skipped["frozen"]


def test_what_was_not_run_is_said_with_the_reason():
    found = rk.audit(network(), example=DATA[0][0])
    assert "data=" in found.skipped["dormant"]
    assert "reference=" in found.skipped["sfe"]
    assert "not run: dormant" in str(found)


def test_nan_weights_are_refused_by_name():
    model = network()
    model.layers[1].weight.data[0, 0] = math.nan
    with pytest.raises(rk.RekindleError, match=r"layers\.1\.weight"):
        rk.audit(model, example=DATA[0][0])


@pytest.mark.parametrize("wrong", [3, None])
def test_something_else_is_refused(wrong):
    with pytest.raises(rk.RekindleError, match="a model, a state dict"):
        rk.audit(wrong)


def test_one_batch_instead_of_many_is_refused():
    with pytest.raises(rk.RekindleError, match="put it into a list"):
        rk.audit(network(), DATA[0])


def test_one_metric_alone():
    assert set(rk.audit(network(), example=DATA[0][0], metrics=["dfi"]).readings) == {"dfi"}
    with pytest.raises(rk.RekindleError, match="a metric"):
        rk.audit(network(), metrics=["nonsense"])


def test_json_is_plain(tmp_path):
    found = rk.audit(network(), DATA, probe=False)
    content = json.loads(found.to_json(tmp_path / "audit.json").read_text())
    assert content["readings"]["dfi"]["summary"] == pytest.approx(found.readings["dfi"].summary)
    assert content["findings"] == []


def test_tensors_of_other_numbers_are_left_out_by_name(tmp_path):
    state = {
        "a.weight": torch.randn(4, 4),
        "b.weight": torch.ones(4, 4, dtype=torch.int8),
        "c.weight": torch.full((4, 4), float("nan")).to(torch.float8_e5m2),
        "table": torch.arange(16).reshape(4, 4),
        "n.num_batches_tracked": torch.tensor(3),
    }
    save_file(state, tmp_path / "model.safetensors")
    for source in (state, tmp_path / "model.safetensors"):
        found = rk.audit(source, reference={name: tensor.clone() for name, tensor in state.items()})
        assert set(found.left_out) == {"b.weight", "c.weight", "table"}
        assert set(found.readings["weight_norm"].parts) == {"a.weight"}
        assert "left out: b.weight: int8" in str(found) and "float8_e5m2" in found.to_dict()["left_out"]["c.weight"]
    assert "table" in found.to_html(tmp_path / "page.html").read_text()


def test_a_reference_of_other_numbers_is_no_start():
    model = nn.Sequential(nn.Linear(4, 4))
    found = rk.audit(model, reference={**model.state_dict(), "0.weight": torch.ones(4, 4, dtype=torch.int8)})
    assert "int8" in found.skipped["sfe"] and "int8" in found.skipped["distance_from_init"]


class Classifier(nn.Module):
    """Takes and gives what models of transformers do."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, pixels=None, mask=None, labels=None):
        logits = self.net(pixels if mask is None else pixels * mask)
        return SimpleNamespace(
            logits=logits, loss=None if labels is None else nn.functional.cross_entropy(logits, labels)
        )


class PlainClassifier(Classifier):
    """The same network under the same names, so that the same is drawn, with a tensor for its output."""

    def forward(self, pixels):
        return self.net(pixels)


def test_a_classifier_that_takes_and_gives_dicts_is_audited_as_any_other_and_needs_no_loss():
    keys = ["dormant", "margin", "gradient_norm", "fisher_score", "trainability"]
    plain = rk.audit(PlainClassifier(), DATA[:2], metrics=keys)
    assert list(plain.readings) == keys
    forms = {
        "labels among the arguments": [UserDict(pixels=x, labels=y) for x, y in DATA[:2]],
        "a dict and targets": [({"pixels": x, "mask": torch.ones_like(x)}, y) for x, y in DATA[:2]],
        "a tensor and targets": DATA[:2],
    }
    for name, data in forms.items():
        found = rk.audit(Classifier(), data, metrics=keys)
        told = {key: reading.summary for key, reading in found.readings.items()}
        assert told == pytest.approx({key: plain.readings[key].summary for key in keys}, rel=1e-4), name
        assert found.graph.notes == (NOTE,) * (name == "labels among the arguments")
    assert f"note: {NOTE}" in str(rk.audit(Classifier(), forms["labels among the arguments"], metrics=["dormant"]))


# --- the graph that was found before ---


def test_a_graph_that_is_given_is_used_and_nothing_is_traced(exports):
    model = network()
    graph = rk.trace(model, DATA[0][0])
    found = rk.audit(model, DATA[:1], graph=graph, probe=False)
    assert exports.count == 1 and found.graph is graph
    assert str(found) == str(rk.audit(model, DATA[:1], probe=False))


def test_an_audit_traces_at_most_once(exports):
    model = network()
    rk.audit(model, DATA[:2], reference=network(1))
    assert exports.count == 1
    rk.audit(model, DATA[:2], reference=network(1))
    assert exports.count == 1
    rk.audit(network(2))
    rk.audit(model.state_dict())
    assert exports.count == 1, "weights alone are not traced"


@pytest.mark.parametrize(
    "subject", [lambda model: model, lambda model: model.state_dict()], ids=["model", "state dict"]
)
def test_a_graph_of_another_model_is_refused(subject):
    graph = rk.trace(rk.lab.models.MLP([64, 50, 10]), DATA[0][0])
    with pytest.raises(rk.RekindleError) as raised:
        rk.audit(subject(network()), graph=graph)
    parts = raised.value
    assert parts.expected == "graph= of this model as it is" and "more differ" in parts.got and "example=" in parts.fix


def test_a_graph_tells_of_the_units_in_a_state_dict():
    model = learned()
    graph = rk.trace(model, DATA[0][0])
    whole, weights = rk.audit(model, graph=graph), rk.audit(model.state_dict(), graph=graph)
    assert "frozen" in rk.audit(model.state_dict()).skipped
    assert weights.readings["frozen"].parts == whole.readings["frozen"].parts != {}
