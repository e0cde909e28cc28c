import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from rekindle.training import evaluation
from rekindle.training.evaluation import TrainingError, batch_loss, evaluate, loss_of
from rekindle.training.examples import Examples
from rekindle.training.loop import train
from rekindle.training.progress import StageProgress, TrainConfig
from rekindle.training.stage import Stage
from rekindle.training.tokens import Tokens
from tests.training.test_loop import blobs, linear, stage


def test_evaluation_keeps_the_mode_and_counts_all(monkeypatch):
    monkeypatch.setattr(evaluation, "AT_ONCE", 2)
    model = nn.Sequential(nn.Dropout(0.9)).train()
    accuracy, loss = evaluate(model, Examples(torch.eye(5), torch.arange(5)))
    assert accuracy == 1.0 and model.training
    assert loss == pytest.approx(math.log(math.e + 4) - 1)


def test_the_loss_of_tokens_is_the_mean_over_all_of_them():
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 4, 7), torch.randint(7, (3, 4))
    slow = -sum(logits[i, j].log_softmax(0)[labels[i, j]] for i in range(3) for j in range(4)) / 12
    assert float(loss_of(nn.Identity(), logits, labels)) == pytest.approx(float(slow), rel=1e-5)
    assert float(batch_loss(nn.Identity(), (logits, labels))) == pytest.approx(float(slow), rel=1e-5)


class Table(nn.Module):
    """Gives each token the logits of its row."""

    def __init__(self, tokens):
        super().__init__()
        torch.manual_seed(1)
        self.rows = nn.Embedding(tokens, tokens)

    def forward(self, tokens):
        return self.rows(tokens)


def test_each_stream_has_its_loss_and_the_mixture_their_mean_by_shares():
    model = Table(4)
    streams = {"first": np.array([0, 1, 2, 3, 0]), "second": np.array([3, 2, 1, 0, 3])}
    mixed = Tokens(streams, context=2, shares=(0.25, 0.75))
    row = evaluation.evaluation(model, Stage("text", mixed, mixed, steps=1))
    for name, stream in streams.items():
        slow = [-float(model.rows.weight[a].log_softmax(0)[b]) for a, b in zip(stream, stream[1:], strict=False)]
        assert row[f"loss_{name}"] == pytest.approx(sum(slow) / 4)
    assert row["loss"] == pytest.approx(0.25 * row["loss_first"] + 0.75 * row["loss_second"])
    alone = evaluation.evaluation(model, Stage("text", mixed, mixed.parts["second"], steps=1))
    assert alone == {"loss": pytest.approx(row["loss_second"])}


def test_models_that_hold_their_logits_train_and_are_evaluated_as_those_that_give_them():
    class Holding(nn.Module):
        def __init__(self, give):
            super().__init__()
            self.net, self.give = linear(), give

        def forward(self, x):
            return self.give(self.net(x))

    def trained(model):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), stage(), TrainConfig(batch_size=16), StageProgress())
        return evaluate(model, blobs())

    plain = trained(linear())
    for give in (lambda t: {"logits": t}, lambda t: (t, None), lambda t: SimpleNamespace(logits=t)):
        assert trained(Holding(give)) == plain
    with pytest.raises(TrainingError, match="a dict without"):
        evaluate(Holding(lambda t: {"answer": t}), blobs())
