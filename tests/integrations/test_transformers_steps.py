"""What counts as a step in the Trainer, and the penalty at its full strength whatever becomes of the loss."""

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

import rekindle as rk

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from accelerate.utils import AutocastKwargs  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from rekindle.integrations.transformers import KeeperCallback  # noqa: E402
from tests.integrations.trainers import gpt2, tokens, trainer, weights  # noqa: E402

PENALTIES = "parseval:strength=0.05+l2:strength=0.3"
RATE, STEPS, BATCH = 0.1, 3, 2


def of_different_lengths():
    """Return sequences of which a part has few labels, so that parts of an accumulated batch count differently."""
    data = tokens(BATCH * 4 * STEPS)
    for number, one in enumerate(data):
        one["labels"] = one["labels"].clone()
        one["labels"][: 1 + number % 6] = -100
    return data


def plain_loop(data, accumulate, clip):
    """Train with `loss + keeper.penalty()` as one writes it: the mean over all tokens of the accumulated batches."""
    model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    keeper = rk.Keeper(model, optimizer, PENALTIES, example=batch(data, range(2)))
    norms = []
    for step in range(STEPS):
        first = step * accumulate * BATCH
        parts = [batch(data, range(first + n * BATCH, first + (n + 1) * BATCH)) for n in range(accumulate)]
        every = sum(int((part["labels"][:, 1:] != -100).sum()) for part in parts)
        losses = [model(**part, num_items_in_batch=every).loss for part in parts]
        (sum(losses) + keeper.penalty()).backward()
        norms.append(float(clip_grad_norm_(model.parameters(), clip)))
        optimizer.step()
        keeper.step()
        optimizer.zero_grad()
    return weights(model), norms


def batch(data, places):
    return {name: torch.stack([data[place][name] for place in places]) for name in ("input_ids", "labels")}


def in_the_trainer(folder, data, accumulate, clip, methods=PENALTIES, prepare=lambda run: None):
    model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    callback = KeeperCallback(methods)
    settings = {
        "gradient_accumulation_steps": accumulate,
        "max_grad_norm": clip,
        "max_steps": STEPS,
        "logging_steps": 1,
    }
    run = trainer(
        folder,
        callback,
        model,
        data,
        given={"optimizers": (optimizer, constant)},
        per_device_train_batch_size=BATCH,
        train_sampling_strategy="sequential",
        **settings,
    )
    prepare(run)
    run.train()
    return weights(model), [row["grad_norm"] for row in run.state.log_history if "grad_norm" in row], callback


@pytest.mark.parametrize(("accumulate", "clip"), [(4, 0.5), (4, 1e6), (1, 0.5)])
def test_the_penalty_is_that_of_the_plain_loop(accumulate, clip, tmp_path):
    data = of_different_lengths()
    expected, norms = plain_loop(data, accumulate, clip)
    found, logged, _ = in_the_trainer(tmp_path, data, accumulate, clip)
    assert min(norms) > 0.5, "clipping is at work"
    torch.testing.assert_close(logged, norms, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_test_above_would_see_a_penalty_of_another_strength(tmp_path):
    data = of_different_lengths()
    expected, _ = plain_loop(data, 4, 0.5)
    weaker, _, _ = in_the_trainer(tmp_path, data, 4, 0.5, "parseval:strength=0.0125+l2:strength=0.075")
    with pytest.raises(AssertionError):
        torch.testing.assert_close(weaker, expected, rtol=1e-3, atol=1e-4)


def test_accumulated_batches_are_one_step(tmp_path):
    _, _, callback = in_the_trainer(tmp_path, of_different_lengths(), 4, 1.0)
    assert callback._hosted._left["keeper"]["steps"] == STEPS


class Overflow(TrainerCallback):
    """Makes a gradient infinite in one step, as float16 does, where GradScaler sees it."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            first = next(model.parameters())
            first.grad = torch.full_like(first, float("inf"))


def with_scaler(overflow=None):
    """Return what puts a GradScaler into a Trainer, as accelerate does on a device with float16."""

    def prepare(run):
        run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        run.accelerator.native_amp = True
        run.accelerator.state._mixed_precision = "fp16"
        run.accelerator.autocast_handler = AutocastKwargs(enabled=False)
        if overflow is not None:
            run.add_callback(Overflow(overflow))

    return prepare


@pytest.fixture
def put_back():
    """Let accelerate forget what was said about precision: its state is shared by all Trainers."""
    from accelerate.state import AcceleratorState

    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def test_the_penalty_is_scaled_with_the_loss(tmp_path, put_back):
    data = of_different_lengths()
    expected, _ = plain_loop(data, 4, 0.5)
    found, _, callback = in_the_trainer(tmp_path, data, 4, 0.5, prepare=with_scaler())
    assert callback._hosted._left["keeper"]["steps"] == STEPS
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_step_that_was_skipped_does_not_count(tmp_path, put_back):
    methods = "soft_rescale:strength=0.1+l2:strength=0.3+redo:period=2,threshold=0.9"
    _, _, callback = in_the_trainer(tmp_path, of_different_lengths(), 4, 1.0, methods, with_scaler(overflow=1))
    assert callback._hosted._left["keeper"]["steps"] == STEPS - 1
    assert [record.step for record in callback.records] == [2], (
        "it is the third of the Trainer, the second that was made"
    )
