"""Continued pretraining as published: E.2 with Tables 3 and 10, checked number by number."""

from types import SimpleNamespace

import pytest
import torch

from rekindle.lab.models.catalog import build
from rekindle.lab.protocols.catalog import protocol
from rekindle.lab.runs.presets import preset
from rekindle.lab.runs.presets_language import LANGUAGE_BEST, LANGUAGE_RUNS
from rekindle.lab.runs.spec import Run
from rekindle.methods.registry import method
from rekindle.training.optimizers import optimizer

STRENGTHS = {"best": ("best", 0.5), "30k": ("early", 0.8), "60k": ("late", 0.5)}


@pytest.mark.parametrize("name", STRENGTHS)
def test_checkpoints_and_best_values_of_table_10(name):
    start, strength = STRENGTHS[name]
    run = Run.from_dict(preset(f"fire.language.{name}", "shrink_perturb"))
    assert protocol(run.protocol).start == start
    assert method(run.methods).shrink == strength
    assert preset(f"fire.language.{name}", "fire")["methods"] == "fire:preset=gpt"
    assert set(LANGUAGE_RUNS) == set(LANGUAGE_BEST) == {f"fire.language.{one}" for one in STRENGTHS}


def test_settings_of_table_3():
    run = Run.from_dict(preset("fire.language.60k"))
    assert (run.batch_size, run.batch_size // run.accumulate, run.clip) == (480, 12, 1.0)
    assert (run.precision, run.compile) == ("bfloat16", True)
    path = protocol(run.protocol)
    assert (path.steps, path.warmup, path.early, path.second_warmup) == (60_000, 2_000, 30_000, 0.1)
    assert path.floor * 6e-4 == pytest.approx(6e-5)
    assert path.share == pytest.approx(0.1 / 9.1, rel=0.01), "the published code draws one in 91"
    assert path.early % path.evaluate == 0 and path.second_steps % path.second_evaluate == 0


def test_the_network_has_124_million_parameters_without_biases():
    run = preset("fire.language.60k")
    with torch.device("meta"):
        made = build(run["model"], SimpleNamespace(shape=(1024,), classes=50257, is_text=True))
    assert made.wte.weight.shape == (50304, 768) and made.lm_head.weight is made.wte.weight
    assert not any(name.endswith("bias") for name, _ in made.named_parameters())
    assert sum(p.numel() for p in made.parameters()) == pytest.approx(124e6, rel=0.01)


def test_weight_decay_is_of_matrices_alone():
    made = optimizer(preset("fire.language.60k")["optimizer"], torch.nn.Linear(2, 2), torch.zeros(1, 2))
    assert [(group["weight_decay"], group["lr"], group["betas"]) for group in made.param_groups] == [
        (0.1, 6e-4, (0.9, 0.95)),
        (0.0, 6e-4, (0.9, 0.95)),
    ]
