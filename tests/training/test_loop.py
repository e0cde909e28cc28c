import math

import numpy as np
import pytest
import torch
from torch import nn

from rekindle.keeper import Keeper
from rekindle.lab.data import Examples
from rekindle.lab.models import GPT
from rekindle.training.evaluation import TrainingError, loss_of
from rekindle.training.loop import train, train_on
from rekindle.training.progress import StageProgress, TrainConfig
from rekindle.training.schedules import Decay, Plateau, Steps
from rekindle.training.stage import Stage
from rekindle.training.tokens import Tokens


def blobs(count=64):
    labels = torch.arange(count) % 2
    return Examples(torch.randn(count, 3, generator=torch.Generator().manual_seed(0)) + 4 * labels[:, None], labels)


def linear(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(3, 2)


def stage(**given):
    return Stage("all", blobs(), blobs(), **({"epochs": 2} | given))


def fit(model, stage, config=None, optimizer=None, **given):
    rows = []
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=given.pop("lr", 1e-3))
    progress = given.pop("progress", None) or StageProgress()
    train(model, optimizer, stage, config or TrainConfig(), progress, after_epoch=rows.append, **given)
    return [row for row in rows if row is not None]


def test_learns():
    model = linear()
    rows = fit(model, stage(epochs=50), TrainConfig(batch_size=16), lr=0.05)
    assert len(rows) == 50 and rows[-1]["train_loss"] < rows[0]["train_loss"]
    assert rows[-1]["accuracy"] > 0.95 and rows[-1]["step"] == 200


def test_same_seed_same_weights_and_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    models = [linear() for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        fit(model, stage(), TrainConfig(batch_size=8), seed=seed)
    assert torch.equal(models[0].weight, models[1].weight)
    assert not torch.equal(models[0].weight, models[2].weight)
    assert torch.equal(before, torch.random.get_rng_state())


def test_matches_the_loop_written_out():
    model, other = linear(), linear()
    rows = fit(model, stage(epochs=5), TrainConfig(batch_size=1000, clip=0.1))
    optimizer = torch.optim.Adam(other.parameters(), lr=1e-3)
    for row in rows:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(other(blobs().inputs), blobs().labels)
        assert loss.item() == pytest.approx(row["train_loss"], rel=1e-4)  # the whole set, in another order
        loss.backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        optimizer.step()
    torch.testing.assert_close(model.weight, other.weight)


def test_clip_bounds_the_step_of_plain_descent():
    model = linear()
    start = [p.detach().clone() for p in model.parameters()]
    far = Examples(blobs().inputs * 100, blobs().labels)
    fit(model, Stage("x", far, far, steps=1), TrainConfig(clip=0.5), torch.optim.SGD(model.parameters(), lr=1.0))
    moved = torch.cat([(p - s).flatten() for p, s in zip(model.parameters(), start, strict=True)])
    assert moved.norm().item() == pytest.approx(0.5, rel=1e-3)


def test_decay_moves_less_each_epoch():
    model = linear()
    steps, last = [], model.weight.detach().clone()

    def after(row):
        nonlocal last
        steps.append((model.weight - last).norm().item())
        last = model.weight.detach().clone()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    flat = Examples(torch.ones(4, 3), torch.zeros(4, dtype=torch.long))
    train(
        model,
        optimizer,
        Stage("x", flat, flat, 4, schedule=Decay(by=0.1)),
        TrainConfig(),
        StageProgress(),
        after_epoch=after,
    )
    assert all(b < 0.2 * a for a, b in zip(steps, steps[1:], strict=False))


def worse_and_worse():
    """Validation whose labels are the wrong way round: the loss only rises while the training data are learned."""
    return Examples(blobs().inputs, 1 - blobs().labels)


def test_early_stopping():
    rows = fit(linear(), stage(epochs=50, validation=worse_and_worse(), patience=3), lr=0.1)
    losses = [row["validation_loss"] for row in rows]
    assert len(rows) < 50 and len(rows) == losses.index(min(losses)) + 1 + 3


def test_plateau_halves_again_and_again():
    progress = StageProgress()
    rows = fit(
        linear(), stage(epochs=9, validation=worse_and_worse(), schedule=Plateau(patience=2)), lr=0.1, progress=progress
    )
    best = min(range(9), key=lambda e: rows[e]["validation_loss"])
    assert progress.plateaus == (8 - best) // 2 >= 2
    assert rows[-1]["rate_factor"] < rows[0]["rate_factor"]


def test_evaluates_when_asked_and_at_the_end():
    rows = fit(linear(), stage(epochs=7), TrainConfig(evaluate_each=3))
    assert [row["epoch"] for row in rows] == [3, 6, 7]
    assert [row["epoch"] for row in fit(linear(), stage(epochs=7, evaluate_each=5), TrainConfig())] == [5, 7]


def test_other_data_have_their_column():
    rows = fit(linear(), stage(epochs=1, also={"wrong": worse_and_worse()}))
    assert rows[0]["accuracy_wrong"] == pytest.approx(1 - rows[0]["accuracy"])


def test_a_loss_that_is_not_finite_is_an_error():
    model = linear()
    with pytest.raises(TrainingError, match="smaller learning rate"):
        fit(model, stage(epochs=20), optimizer=torch.optim.SGD(model.parameters(), lr=math.inf))


def test_augmentation_is_drawn_anew_for_each_step_and_not_for_tests():
    drawn = []

    def augment(inputs, random):
        drawn.append(torch.rand(1, generator=random).item())
        return inputs

    fit(linear(), stage(epochs=2), TrainConfig(batch_size=32, augment=augment))
    assert len(drawn) == len(set(drawn)) == 4
    again = list(drawn)
    drawn.clear()
    fit(linear(), stage(epochs=2, augment=augment), TrainConfig(batch_size=32))
    assert drawn == again


class Counting(Keeper):
    def __init__(self, model):
        super().__init__(model)
        self.calls = []

    def penalty(self):
        self.calls.append("penalty")
        return 0.0

    def step(self):
        self.calls.append("step")

    def rebase(self):
        self.calls.append("rebase")


def test_the_keeper_is_called_in_order():
    model = linear()
    keeper = Counting(model)
    drops = stage(epochs=3, schedule=Steps(at=(1, 2)), rebase=True)
    fit(model, drops, TrainConfig(batch_size=64), keeper=keeper)
    assert keeper.calls == ["penalty", "step", "rebase"] * 2 + ["penalty", "step"]
    keeper.calls.clear()
    fit(model, stage(epochs=3, schedule=Steps(at=(1, 2))), keeper=keeper)
    assert "rebase" not in keeper.calls


def test_the_penalty_is_trained_but_not_told():
    class Pull(Counting):
        def penalty(self):
            return 1000 * sum((p**2).sum() for p in self._model.parameters())

    plain, pulled = linear(), linear()
    one = fit(plain, stage(epochs=3), lr=0.01)
    other = fit(pulled, stage(epochs=3), lr=0.01, keeper=Pull(pulled))
    assert pulled.weight.norm() < plain.weight.norm()
    assert one[0]["train_loss"] == other[0]["train_loss"]


def test_goes_on_from_any_place_bit_equal():
    def parts(stop):
        model = linear()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        progress, steps = StageProgress(), 0

        class Stop(Exception):
            pass

        def after_step():
            nonlocal steps
            steps += 1
            if steps == stop:
                raise Stop

        given = stage(epochs=3), TrainConfig(batch_size=16, warmup=0.5, schedule=Decay())
        rows = []
        try:
            train(model, optimizer, *given, progress, after_step=after_step, after_epoch=rows.append)
        except Stop:
            progress = StageProgress.from_state(progress.state_dict())
            train(model, optimizer, *given, progress, after_epoch=rows.append)
        return model, [{k: v for k, v in row.items() if k != "stage_seconds"} for row in rows]

    whole, rows = parts(stop=0)
    for stop in (1, 3, 4, 8):
        model, same = parts(stop)
        assert torch.equal(whole.weight, model.weight)
        assert rows == same


def test_bfloat16_trains_in_channels_last():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2)).to(memory_format=torch.channels_last)
    seen = []
    model[0].register_forward_hook(lambda module, given, made: seen.append((made.dtype, given[0].stride())))
    labels = torch.arange(32) % 2
    images = Examples(torch.rand(32, 1, 8, 8) + labels.view(-1, 1, 1, 1), labels)
    rows = fit(model, Stage("x", images, images, 20), TrainConfig(batch_size=16, precision="bfloat16"), lr=0.01)
    assert seen[0][0] == torch.bfloat16
    assert model[0].weight.dtype == torch.float32 and rows[-1]["accuracy"] > 0.95


def test_the_mean_loss_of_uneven_batches_is_that_of_all_samples_at_once():
    model, every = linear(), blobs(10)
    x, y = every.batch(slice(None)), every.labels
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    batches = [(x[:7], y[:7]), (x[7:9], y[7:9]), (x[9:], y[9:])]
    mean = train_on(model, still, batches, lambda model, batch: loss_of(model, *batch))
    assert mean == pytest.approx(float(loss_of(model, x, y).detach()))


def test_an_accumulated_batch_is_the_batch():
    whole, parts = linear(), linear()
    fit(whole, stage(epochs=3), TrainConfig(batch_size=32, clip=0.3))
    fit(parts, stage(epochs=3), TrainConfig(batch_size=32, clip=0.3, accumulate=3))  # of 11, 11 and 10 examples
    assert not torch.equal(whole.weight, linear().weight)
    assert torch.allclose(whole.weight, parts.weight, atol=1e-6)


def test_the_penalty_counts_once_in_an_accumulated_batch():
    def trained(accumulate):
        model = linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        keeper = Keeper(model, optimizer, ["l2:strength=0.1"])
        config = TrainConfig(batch_size=32, accumulate=accumulate)
        train(model, optimizer, stage(epochs=2), config, StageProgress(), keeper=keeper)
        return model.weight

    assert torch.allclose(trained(1), trained(4), atol=1e-6)


def test_streams_of_tokens_are_learned():
    text = np.tile(np.arange(8, dtype=np.uint16), 40)
    tokens = Tokens({"text": text}, context=4)
    torch.manual_seed(0)
    model = GPT(vocabulary=8, context=4, dim=16, depth=1, heads=2)
    rows = fit(model, Stage("text", tokens, tokens, steps=60, epoch_steps=25), TrainConfig(batch_size=8), lr=1e-2)
    assert [row["step"] for row in rows] == [25, 50, 60]
    assert rows[-1]["loss"] < 0.3 < rows[0]["loss"]
    assert "accuracy" not in rows[0]
