"""What the record says is what happened."""

import json

import pytest
import torch
from torch import nn

import rekindle as rk


def net():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def test_numbers_of_a_row_by_hand():
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    record = rk.fire_(model, example=torch.ones(1, 2), solver="exact")
    (row,) = record.rows
    assert torch.allclose(model.weight, torch.eye(2))
    assert row.norm_before == pytest.approx(5.0) and row.norm_after == pytest.approx(2**0.5)
    assert row.sfe == pytest.approx(4 + 9)
    scaled = 12.5  # mean squared singular value: (9 + 16)/2
    assert row.dfi_before == pytest.approx((9 / scaled - 1) ** 2 + (16 / scaled - 1) ** 2, rel=1e-5)
    assert row.dfi_after == pytest.approx(0, abs=1e-10)
    assert (row.count, row.changed) == (4, 2)
    assert record.sfe == row.sfe and record.changed == 2


def test_running_statistics_do_not_count_as_changed_weights():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model[1].num_batches_tracked.fill_(1000)
    record = rk.full_reset_(model, example=torch.randn(2, 1, 5, 5))
    assert model[1].num_batches_tracked == 0
    moved = sum(float((new - old).square().sum()) for new, old in zip(model.parameters(), before, strict=True))
    assert 0 < record.sfe == pytest.approx(moved, rel=1e-5)


def test_dfi_is_told_for_methods_that_edit_whole_tensors():
    record = rk.full_reset_(net(), example=torch.ones(1, 6))
    by_name = {row.tensor: row for row in record.rows}
    assert by_name["0.weight"].dfi_before > 0 and by_name["0.bias"].dfi_before is None


def test_it_prints_as_a_table_with_skips_and_is_plain_data():
    record = rk.fire_(net(), example=torch.ones(1, 6), skip=("2.*",))
    text = str(record)
    assert "0.weight" in text and "skipped: 2.weight: named in skip" in text and "DfI" in text
    assert json.loads(json.dumps(record.to_dict()))["rows"][0]["tensor"] == "0.weight"
