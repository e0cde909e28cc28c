"""Scores against a loop over all examples."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from rekindle.comparison.scores import ScoreError, Scorer, accuracy, scorer
from rekindle.observe.losses import default_loss


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


def classes(*sizes):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(n, 4, generator=generator), torch.randint(3, (n,), generator=generator)) for n in sizes]


def loss(model, batch):
    return cross_entropy(model(batch[0]), batch[1])


def test_accuracy_and_loss_count_examples_and_not_batches():
    model, batches = net(), classes(2, 7, 1)
    found = scorer(model, batches, loss, None)(model)
    model.eval()
    whole = [torch.cat(parts) for parts in zip(*batches, strict=True)]
    right = (model(whole[0]).argmax(1) == whole[1]).float().mean()
    assert found["accuracy"] == found["score"] == pytest.approx(float(right))
    assert found["loss"] == pytest.approx(float(loss(model, whole).detach()), rel=1e-5)


def test_the_model_rests_and_is_left_as_it_was():
    model, batches, modes = net().train(), classes(8), []
    model[1].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()

    def noting(model, batch):
        modes.append((model.training, model[2].training, torch.is_grad_enabled()))
        return loss(model, batch)

    score = scorer(model, batches, noting, None)
    assert score(model) == score(model)
    assert set(modes) == {(False, False, False)}
    assert [part.training for part in model] == [True, False, True, True] and model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_what_is_scored():
    model, numbers = nn.Linear(4, 3), [(torch.randn(5, 4), torch.randn(5, 3))]
    mean = lambda m, b: mse_loss(m(b[0]), b[1])  # noqa: E731
    plain = scorer(model, numbers, mean, None)
    assert (
        plain.name == "minus loss" and plain(model)["score"] == -plain(model)["loss"] and "accuracy" not in plain(model)
    )
    assert scorer(net(), classes(4), loss, None).name == "accuracy"
    own = scorer(net(), classes(4), loss, lambda model, batches: len(batches) + 0.5)
    found = own(net())
    assert own.name == "metric" and found["score"] == 1.5 and set(found) == {"score", "loss", "accuracy"}


def test_classes_at_every_place_of_a_sequence():
    outputs = torch.zeros(2, 3, 4)  # [examples, classes, places]
    outputs[:, 1] = 1.0
    labels = torch.tensor([[1, 1, 0, -100], [1, 2, 1, 1]])
    batches = [(outputs, labels)]
    assert scorer(nn.Identity(), batches, lambda m, b: torch.tensor(1.0), None).counts
    assert accuracy(nn.Identity(), batches) == pytest.approx(5 / 7)


def test_without_known_targets_nothing_is_right():
    assert accuracy(nn.Identity(), [(torch.eye(2), torch.tensor([-100, -100]))]) == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_refused(value):
    with pytest.raises(ScoreError, match="a finite metric"):
        Scorer(classes(4), loss, lambda model, batches: value, True)(net())
    with pytest.raises(ScoreError, match="a finite minus loss"):
        Scorer([(torch.ones(1, 4), torch.ones(1, 3))], lambda m, b: torch.tensor(value), None, False)(net())


class Words(nn.Module):
    """Tells a class for each word, as models of transformers do: classes last, its own loss for labels."""

    def __init__(self, shift=0):
        super().__init__()
        self.fc, self.shift = nn.Linear(4, 5), shift

    def forward(self, x, labels=None):
        logits = self.fc(x)  # [batch, 5 words, 5 classes]
        if labels is None:
            return {"logits": logits}
        kept, wanted = (logits[:, :-1], labels[:, 1:]) if self.shift else (logits, labels)
        return {"logits": logits, "loss": cross_entropy(kept.flatten(0, 1), wanted.flatten())}


def test_accuracy_of_outputs_that_hold_logits():
    torch.manual_seed(0)
    batches = [{"x": torch.randn(3, 5, 4), "labels": torch.randint(5, (3, 5))} for _ in range(2)]
    batches[0]["labels"][0] = -100
    model = Words()
    found = scorer(model, batches, default_loss, None)
    answers = torch.cat([model(b["x"])["logits"].argmax(-1)[b["labels"] >= 0] for b in batches])
    wanted = torch.cat([b["labels"][b["labels"] >= 0] for b in batches])
    assert found.name == "accuracy" and found(model)["score"] == pytest.approx(
        float((answers == wanted).float().mean())
    )
    assert scorer(Words(shift=1), batches, default_loss, None).name == "minus loss"  # the answers are for the next word
    pairs = [({"x": b["x"]}, b["labels"]) for b in batches]
    assert found(model)["loss"] == scorer(model, pairs, default_loss, None)(model)["loss"]
