"""Batches as people have them: the loss is no part of the graph, whatever arguments it is computed from."""

from collections import UserDict

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph import trace
from rekindle.graph.calls.targets import without_targets
from rekindle.graph.export import export
from rekindle.testing.aged import bits, same

SMALL = {"vocab_size": 50, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
TEXT = SMALL | {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
GPT = SMALL | {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16}
T5 = SMALL | {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
ONLY = "on which only it depends"
BOTH = SMALL | {"d_model": 16, "max_position_embeddings": 16, "decoder_start_token_id": 2}
BOTH |= {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("attention_heads", 2))}
VIT = TEXT | {"image_size": 8, "patch_size": 4, "num_labels": 3}

FAMILIES = {  # name: model, configuration, settings, and what the loss alone, or it too, is made of
    "bert": ("BertForSequenceClassification", "BertConfig", TEXT | {"num_labels": 3}, ["labels"]),
    "bert_tokens": ("BertForTokenClassification", "BertConfig", TEXT, ["labels"]),
    "bert_qa": ("BertForQuestionAnswering", "BertConfig", TEXT, ["start_positions", "end_positions"]),
    "bert_pretraining": ("BertForPreTraining", "BertConfig", TEXT, ["labels", "next_sentence_label"]),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT, ["labels"]),
    "vit": ("ViTForImageClassification", "ViTConfig", VIT, ["labels"]),
    # the inputs of the decoder are made of the labels; the last has no function that tells how
    "t5": ("T5ForConditionalGeneration", "T5Config", T5, []),
    "bart": ("BartForConditionalGeneration", "BartConfig", BOTH, []),
    "blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", BOTH, []),
}


def tokens(seed=0):
    return torch.randint(3, 50, (4, 7), generator=torch.Generator().manual_seed(seed))


def batch_for(name):
    if name == "vit":
        return {"pixel_values": torch.randn(4, 3, 8, 8), "labels": torch.tensor([0, 1, 2, 0])}
    batch = {"input_ids": tokens(), "attention_mask": torch.ones(4, 7, dtype=torch.long)}
    batch["attention_mask"][0, 5:] = 0
    classes = torch.tensor([0, 1, 1, 0])
    more = {"bert": {"labels": classes}, "bert_tokens": {"labels": tokens() % 2}}
    more["bert_qa"] = {"start_positions": classes, "end_positions": classes + 2}
    more["bert_pretraining"] = {"labels": tokens(), "next_sentence_label": classes}
    return batch | more.get(name, {"labels": tokens(1)})


def build(name):
    T = pytest.importorskip("transformers")
    model, config, settings, alone = FAMILIES[name]
    torch.manual_seed(0)
    return getattr(T, model)(getattr(T, config)(**settings)), T.BatchEncoding(batch_for(name)), alone


def shape(graph):
    groups = [(group.name, group.size, group.kind) for group in graph.groups]
    return groups, [(weight.name, weight.role) for weight in graph.weights]


@pytest.mark.parametrize("name", FAMILIES)
def test_batches_of_transformers_are_examples(name):
    model, batch, alone = build(name)
    before, given = bits(model), dict(batch)
    graph = trace(model, batch)  # strict: nothing is left out as not understood
    told = f", and {', '.join(alone)} of the example, on which only it depends" if alone else ""
    assert graph.notes == (f"left out: the loss in the output{told}",) and graph.notes[0] in str(graph)
    same(before, bits(model), "tracing changed")
    assert all(batch[key] is value for key, value in given.items()) and set(batch) == set(given)
    proof = graph.verify(model, batch)
    assert set(proof.proved) | set(proof.not_provable) == {group.name for group in graph.groups}
    assert all(why.startswith("reaches the model's output") for why in proof.not_provable.values())
    rest = {key: value for key, value in batch.items() if key not in alone}
    assert shape(graph) == shape(trace(model, rest))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_is_found_by_running_them(name):
    model, batch, alone = build(name)
    call, notes = without_targets(model, batch)
    gone = set(batch) - set(call.kwargs)
    if alone:
        assert gone == set(alone) and notes == (f"left out: the loss, and {', '.join(alone)} of the example, {ONLY}",)
    elif name == "blenderbot":
        assert not gone and not notes
    else:
        assert gone == {"labels"} and set(call.kwargs) - set(batch) == {"decoder_input_ids"}
        assert notes == ("left out: the loss, and labels of the example, for decoder_input_ids made of them",)
    assert shape(trace(model, call.kwargs)) == shape(trace(model, batch))


class Conditional(nn.Module):
    """Its `labels` are an input, its `truth` is the target, and it counts how often it is run."""

    def __init__(self):
        super().__init__()
        self.fc, self.of_class, self.head = nn.Linear(4, 5), nn.Embedding(3, 5), nn.Linear(5, 2)
        self.register_buffer("count", torch.zeros(()))
        self.weight_of_loss = nn.Parameter(torch.ones(()))
        self.runs = 0

    def forward(self, x, labels=None, truth=None, weight=None):
        self.runs += 1
        self.count.add_(1)
        hidden = self.fc(x) + (self.of_class(labels) if labels is not None else 0)
        out = self.head(torch.nn.functional.dropout(hidden.relu(), training=True) + torch.rand(1))
        if truth is None:
            return {"out": out}
        each = cross_entropy(out, truth, reduction="none") * self.weight_of_loss
        return {"out": out, "loss": (each if weight is None else each * weight).mean()}


def batch():
    more = {"labels": torch.tensor([0, 1, 2]), "truth": torch.tensor([0, 1, 0]), "weight": torch.tensor([1.0, 2, 3])}
    return {"x": torch.randn(3, 4), **more}


def test_targets_are_told_by_what_the_model_gives_and_not_by_names():
    model = Conditional()
    call, (note,) = without_targets(model, batch())
    assert set(call.kwargs) == {"x", "labels"}
    assert note == f"left out: the loss, and truth, weight of the example, {ONLY}"
    assert model.runs == 5 and float(model.count) == 0  # whole, without each of three, without both
    graph = trace(model, batch())
    assert "of_class.weight" in {weight.tensor for weight in graph.weights}
    assert graph.uncovered == {"weight_of_loss": "not used in the forward pass of this example"}
    assert graph.notes == (f"left out: the loss in the output, and truth, weight of the example, {ONLY}",)


def test_a_loss_that_looks_at_the_values_of_its_labels():
    """Such as CTC and matched boxes: torch.export cannot follow it, and need not."""

    class Looking(Conditional):
        def forward(self, x, labels=None, truth=None, weight=None):
            if truth is not None and truth.max() > 1:
                raise ValueError("a class that there is none of")
            return super().forward(x, labels, truth, weight)

    model = Looking()
    with pytest.raises(GraphError, match="torch.export can follow"):
        export(model, batch())
    graph = trace(model, batch())
    assert graph.notes == (f"left out: the loss, and truth, weight of the example, {ONLY}",)
    assert shape(graph) == shape(trace(Conditional(), batch()))
    assert graph.verify(model, batch()).proved
    given = batch()
    given["truth"][0] = 5
    with pytest.raises(GraphError, match="model.example. fails"):  # the batch is wrong: that is not glossed over
        trace(model, given)


def test_positions_too():
    given = batch()
    call, (note,) = without_targets(Conditional(), (given["x"], given["labels"], given["truth"]))
    assert call.args[2] is None and call.args[1] is given["labels"] and "truth" in note


def test_only_optional_arguments_are_tried_and_only_where_there_is_a_loss():
    model, given = Conditional(), batch()
    assert without_targets(model, given["x"]) == (((given["x"],), {}), ()) and model.runs == 0
    _, notes = without_targets(model, {"x": given["x"], "labels": given["labels"]})
    assert not notes and model.runs == 1


def test_labels_that_forward_does_not_take():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    graph = trace(net, UserDict(input=torch.ones(2, 4), labels=torch.ones(2)))
    assert graph.notes == ("left out of the example: labels, which forward does not take",)


def test_generators_and_surroundings_stay_as_they_were():
    model, given = Conditional().train(), batch()
    state = torch.get_rng_state()
    without_targets(model, given)
    assert model.training and torch.equal(state, torch.get_rng_state()) and torch.is_grad_enabled()


def test_a_batch_that_the_model_does_not_run_on_is_told():
    given = batch()
    given["x"] = given["x"][:, :2]
    with pytest.raises(GraphError, match=r"model\(example\) fails: RuntimeError: mat1"):
        trace(Conditional(), given)


def test_a_loss_among_outputs_that_always_has_it():
    """As in nanoGPT: without targets the answer is another one, so that they stay."""

    class Nano(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mid, self.head = nn.Embedding(50, 8), nn.Linear(8, 6), nn.Linear(6, 50)

        def forward(self, idx, targets=None):
            x = self.mid(self.embed(idx)).relu()
            if targets is None:
                return self.head(x[:, [-1]]), None
            logits = self.head(x)
            return logits, cross_entropy(logits.flatten(0, 1), targets.flatten())

    model = Nano()
    graph = trace(model, (tokens(), tokens(1)))
    assert graph.notes == (f"left out: the loss in the output, and targets of the example, {ONLY}",)
    assert [group.kind for group in graph.groups] == [group.kind for group in trace(model, tokens()).groups]
    assert rk.fire_(model, example=(tokens(), tokens(1))).changed
