from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from rekindle.errors import GraphError, PlanError
from rekindle.observe.losses import class_dimension, default_loss

X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 2, 1, 0])


class Holding(nn.Module):
    """Gives its logits in a container, as models of transformers do without labels."""

    def __init__(self, give):
        super().__init__()
        self.fc, self.give = nn.Linear(4, 3), give

    def forward(self, x, mask=None):
        return self.give(self.fc(x))


class Own(Holding):
    def forward(self, x, labels=None):
        loss = None if labels is None else 7 * mse_loss(self.fc(x).mean(1), labels.float())
        return SimpleNamespace(loss=loss, logits=self.fc(x))


GIVEN = [
    lambda t: t,
    lambda t: SimpleNamespace(logits=t),
    lambda t: {"logits": t},
    lambda t: (t, None),
    lambda t: [t, t],
]


@pytest.mark.parametrize("give", GIVEN, ids=["tensor", "attribute", "mapping", "tuple", "list"])
@pytest.mark.parametrize(
    "batch",
    [(X, Y), [X, Y.int()], ({"x": X}, Y), ((X, None), Y), {"x": X, "labels": Y}],
    ids=["pair", "list", "dict and targets", "arguments and targets", "labels that forward does not take"],
)
def test_cross_entropy_of_the_logits_in_any_output_and_batch(give, batch):
    model = Holding(give)
    assert torch.equal(default_loss(model, batch), cross_entropy(model.fc(X), Y))


@pytest.mark.parametrize("batch", [{"x": X, "labels": Y}, (X, Y), ({"x": X}, Y), (X, Y.float())], ids=range(4))
def test_the_models_own_loss_comes_first(batch):
    model = Own(None)
    assert torch.equal(default_loss(model, batch), 7 * mse_loss(model.fc(X).mean(1), Y.float()))


def test_own_losses_under_other_names():
    Output = namedtuple("Output", "loss")

    class Required(nn.Linear):
        def forward(self, x, y):
            return Output(mse_loss(super().forward(x), y))

    class Nano(nn.Linear):
        def forward(self, idx, targets=None):
            logits = super().forward(idx)
            return logits, None if targets is None else 3 * cross_entropy(logits, targets)

    model, nano = Required(4, 2), Nano(4, 3)
    y = torch.ones(6, 2)
    alone = mse_loss(nn.functional.linear(X, model.weight, model.bias), y)
    assert torch.equal(default_loss(model, {"x": X, "y": y}), alone)
    assert torch.equal(default_loss(nano, (X, Y)), 3 * cross_entropy(nano(X)[0], Y))


def test_labels_that_are_an_input_are_given_only_to_look_for_a_loss():
    class Conditional(nn.Linear):
        def forward(self, x, labels=None):
            return super().forward(x) + (0 if labels is None else 100)

    model = Conditional(4, 3)
    assert torch.equal(default_loss(model, (X, Y)), cross_entropy(model(X), Y))
    assert torch.isfinite(default_loss(model, ((X, Y), Y)))  # the inputs have taken its place


@pytest.mark.parametrize(
    ("batch", "got"),
    [
        (X, "a Tensor without targets"),
        ((X,), "a tuple without targets"),
        ((X, Y, Y), "a tuple without targets"),
        ((X, Y.float()), "a tuple whose targets are not integers"),
        ((X, Y[:3]), r"outputs \(6, 3\) for targets \(3,\)"),
        ({"x": X}, "a dict without labels, and a model that gives no loss for it"),
        ({"x": X, "labels": Y.float()}, "a dict whose targets are not integers"),
    ],
    ids=range(7),
)
def test_no_default_loss(batch, got):
    with pytest.raises(PlanError, match=got) as refused:
        default_loss(Holding(lambda t: t), batch)
    assert "pass loss=" in refused.value.fix and ("mse_loss" in refused.value.fix) == ("not integers" in got)
    with pytest.raises(PlanError, match="outputs SimpleNamespace for targets"):
        default_loss(Holding(lambda t: SimpleNamespace(answer=t)), (X, Y))


def test_batches_with_more_than_forward_takes():
    with pytest.raises(GraphError, match="pixels is not among them"):
        default_loss(Holding(lambda t: t), ({"x": X, "pixels": X}, Y))


def test_the_dimension_of_the_classes():
    labels = torch.randint(3, (2, 5), generator=torch.Generator().manual_seed(1))
    images, words = torch.randn(2, 3, 5), torch.randn(2, 5, 3)
    assert class_dimension(images, labels) == 1 and class_dimension(words, labels) is None
    assert class_dimension(X[:, :3], Y) == 1 == class_dimension({"logits": X[:, :3]}, Y)
    assert class_dimension(X[:, :1], Y) is None is class_dimension(torch.zeros(6), Y)  # one class; none

    def output(logits, loss=None):
        return SimpleNamespace(logits=logits, loss=loss)

    labels[0, 2] = -100
    last = cross_entropy(words.movedim(-1, 1), labels)
    second = cross_entropy(images, labels)
    assert class_dimension(output(words, last), labels) == 2 and class_dimension(output(images, second), labels) == 1
    assert class_dimension(output(words), labels) is None is class_dimension(output(images), labels)
    shifted = cross_entropy(words[:, :-1].movedim(-1, 1), labels[:, 1:])
    assert class_dimension(output(words, shifted), labels) is None  # a language model: answers are for the next word
    assert class_dimension(output(words.bfloat16(), last.bfloat16()), labels) == 2
    same = torch.zeros(2, 5, 3)
    assert class_dimension(output(same, torch.tensor(3.0).log()), labels) is None  # may be shifted or not
    labels[0, 0] = -1
    assert class_dimension(output(words, last), labels) is None


def test_as_many_words_as_classes():
    """Of [2, 5, 5] only the model's own loss tells which are the classes."""
    logits, labels = torch.randn(2, 5, 5), torch.randint(5, (2, 5))
    for dim in (1, 2):
        loss = cross_entropy(logits.movedim(dim, 1), labels)
        assert class_dimension(SimpleNamespace(logits=logits, loss=loss), labels) == dim
