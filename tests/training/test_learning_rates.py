import pytest
import torch

from rekindle.training.learning_rates import rate_factor, remember_rates, rising_steps, set_rates
from rekindle.training.progress import Length, StageProgress, TrainConfig
from rekindle.training.schedules import ConstantRate, Decay, Linear
from tests.training.test_loop import linear, stage


def test_warm_up_rises_from_almost_nothing_to_all():
    length = Length(64, 16, 5, None)  # 20 steps
    places = [StageProgress(epoch=step // 4, step=step % 4) for step in range(20)]
    factors = [rate_factor(ConstantRate(), 10, length, progress) for progress in places]
    assert factors == pytest.approx([min(1, (step + 1) / 10) for step in range(20)])
    assert rate_factor(Decay(by=0.5), 0, length, StageProgress(epoch=2)) == 0.25


def test_the_steps_of_the_stage_go_before_the_part_of_the_run():
    length = Length(64, 16, 5, None)
    assert rising_steps(stage(), TrainConfig(warmup=0.5), length) == 10
    assert rising_steps(stage(warmup=3), TrainConfig(warmup=0.5), length) == 3
    assert rising_steps(stage(warmup=0), TrainConfig(warmup=0.5), length) == 0
    assert rising_steps(stage(), TrainConfig(warmup=1.0), length) == 20


def test_a_line_falls_from_the_end_of_the_warmup_to_its_floor():
    length = Length(100, 10, None, 12, epoch_steps=5)
    factors = [rate_factor(Linear(to=0.1), 2, length, StageProgress(n // 5, n % 5)) for n in range(12)]
    assert factors[:2] == [0.5, 1.0]
    assert factors[2:] == pytest.approx([1 - 0.9 * n / 10 for n in range(10)])


def test_rates_of_a_stage_keep_the_ratio_of_groups():
    model = linear()
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.02}]
    optimizer = torch.optim.SGD(groups, weight_decay=0.3)
    remember_rates(optimizer)
    set_rates(optimizer, stage(learning_rate=0.5, weight_decay=0.7), 0.1)
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.05, 0.01])
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.7, 0.7]
    set_rates(optimizer, stage(), 1.0)  # the next stage finds what the optimizer was made with
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.1, 0.02])
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.3, 0.3]
