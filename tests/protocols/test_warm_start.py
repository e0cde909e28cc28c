import pytest
import torch

from rekindle.core.errors import RekindleError
from rekindle.data.digits import load_digits
from rekindle.models.mlp import MLP
from rekindle.protocols.loop import Budget
from rekindle.protocols.warm_start import WarmStart, _first_stage, warm_start

SHORT = WarmStart(first_images=50, before=Budget(steps=5), after=Budget(steps=5))


def network():
    return MLP([64, 20, 10])


def test_one_row_for_each_treatment_from_the_same_point():
    treatments = (None, "full_reset", "fire")
    rows = warm_start(SHORT, network, load_digits(), treatments, seed=4)
    assert [row["treatment"] for row in rows] == list(treatments)
    assert {row["seed"] for row in rows} == {4}
    assert len({row["accuracy_first"] for row in rows}) == 1
    untreated, reset, _ = rows
    assert untreated["accuracy_treated"] == untreated["accuracy_first"]
    assert reset["accuracy_treated"] != reset["accuracy_first"]
    assert all(0 <= row["accuracy"] <= 1 for row in rows)


def test_same_seed_same_rows_whatever_else_is_run():
    digits = load_digits()
    both = warm_start(SHORT, network, digits, ("full_reset", "shrink_perturb:shrink=0.8"), seed=1)
    torch.manual_seed(99)
    alone = warm_start(SHORT, network, digits, ("shrink_perturb:shrink=0.8",), seed=1)
    assert both[1] == alone[0]


def test_the_first_stage_gets_its_share_of_random_labels():
    digits = load_digits()
    spec = WarmStart(first_images=1000, random_labels=0.5)
    images, labels = _first_stage(spec, digits, seed=0)
    kept = (labels == digits.train_labels[:1000]).float().mean().item()
    assert images.shape[0] == 1000 and kept == pytest.approx(0.5 + 0.5 / 10, abs=0.04)
    clean = _first_stage(WarmStart(first_images=1000), digits, seed=0)[1]
    assert torch.equal(clean, digits.train_labels[:1000])


@pytest.mark.parametrize("wrong", [{"first_images": 0}, {"random_labels": 1.5}, {"random_labels": -0.1}])
def test_the_spec_is_checked_at_the_door(wrong):
    with pytest.raises(RekindleError, match=next(iter(wrong))):
        WarmStart(**wrong)
