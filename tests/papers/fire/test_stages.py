import re

import pytest
import torch

from papers.catalog import experiment
from rekindle.lab.data import Dataset, Examples
from rekindle.lab.protocols import protocol
from rekindle.lab.runs.training_run import train_config_of
from rekindle.methods import method
from rekindle.training.progress import length_of


def steps_of(run):
    """Return the steps of a run on 50,000 examples, counted from its stages."""
    count = round(50_000 * run.sample_fraction)
    labels = torch.arange(count) % (100 if run.data == "cifar100" else 10)
    examples = Examples(torch.zeros(count, 1), labels)
    stages = protocol(run.protocol).stages(Dataset("", examples, examples, int(labels.max()) + 1), 0)
    return sum(length_of(stage, train_config_of(run)).total for stage in stages)


@pytest.mark.parametrize("name", ["fire-fig-2a", "fire-fig-2b", "fire-fig-2c"])
def test_methods_that_count_steps_act_as_much_more_often_as_runs_are_shorter(name):
    study = experiment(name).study("cpu")
    runs = {cell.method: of_cell[0] for cell, of_cell in study.runs(seeds=1)}
    published = experiment(name).study("paper").runs(seeds=1)[0][1][0]
    shorter = steps_of(published) / steps_of(runs["no intervention"])
    stated = int(re.search(r"ReDo (\d+) times as often", study.reduced)[1])
    assert stated == round(shorter)
    assert method(runs["ReDo"].methods).period == pytest.approx(1000 / stated, abs=1)
    assert method(runs["CBP"].methods).maturity == pytest.approx(1000 / stated, abs=1)
    assert 1e-5 * 0.9 < method(runs["CBP"].methods).rate / shorter < 1e-4 * 1.1
