"""What is summed up while data streams by, against keeping all of it."""

import pytest
import torch
from torch import nn

from rekindle.metrics import _gather
from rekindle.metrics._gather import HeadSums, OutputSums, Reservoir, UnitSums, by_sample
from rekindle.observe.read_points import Reader, ReadPoint


def test_the_reservoir_is_even_and_keeps_the_order():
    counts = torch.zeros(40)
    for seed in range(400):
        reservoir = Reservoir(10, torch.Generator().manual_seed(seed))
        for start in (0, 15, 20):
            size = {0: 15, 15: 5, 20: 20}[start]
            numbers, keys = reservoir.offer(size)
            reservoir.take(keys, {"rows": start + numbers})
        kept = reservoir.values["rows"]
        assert len(kept) == 10 and bool((kept[1:] > kept[:-1]).all())
        counts[kept] += 1
    assert counts.min() > 60 and counts.max() < 140  # 100 expected, deviation 9


def test_a_reservoir_keeps_all_of_a_short_stream_and_does_not_look_at_values():
    rows = torch.arange(6.0)
    kept = []
    for values in (rows, -100 * rows):
        reservoir = Reservoir(4, torch.Generator().manual_seed(1))
        for part in (values[:3], values[3:]):
            numbers, keys = reservoir.offer(len(part))
            reservoir.take(keys, {"rows": part[numbers]})
        kept.append(reservoir.values["rows"])
    assert torch.equal(kept[1], -100 * kept[0])
    small = Reservoir(9, torch.Generator())
    numbers, keys = small.offer(6)
    small.take(keys, {"rows": rows[numbers]})
    assert torch.equal(small.values["rows"], rows)


REPEATED = ReadPoint("g", Reader("fc", 6), torch.tensor([[0, 1], [2, 3], [4, 5]]), ("fc.weight",))
CHANNELS = ReadPoint("g", Reader("conv", 3, channels_first=True, spatial=1), torch.arange(3)[:, None], ("w",))


def test_positions_and_what_a_flatten_repeats_are_samples():
    x = torch.arange(12.0).reshape(2, 6)
    assert by_sample(REPEATED, x).tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    images = torch.arange(12.0).reshape(2, 3, 2)
    assert by_sample(CHANNELS, images).tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]


@pytest.mark.parametrize("chunk", [2**20, 5])
@pytest.mark.parametrize("chosen", [None, torch.tensor([2, 0])])
def test_sums_over_batches_are_those_of_all_samples(chunk, chosen, monkeypatch):
    monkeypatch.setattr(_gather, "CHUNK", chunk)
    sums = UnitSums("g", 3, chosen, keep=100, seed=0)
    batches = [torch.randn(n, 6, generator=torch.Generator().manual_seed(n)).relu() for n in (4, 3)]
    for x in batches:
        sums.add(REPEATED, x)
    rows = torch.cat([by_sample(REPEATED, x) for x in batches]).double()
    assert sums.samples == 14 == len(rows) and torch.equal(sums.rows.values["rows"].double(), rows)
    torch.testing.assert_close(sums.total, rows.sum(0))
    torch.testing.assert_close(sums.magnitude, rows.abs().sum(0))
    torch.testing.assert_close(sums.zeros, (rows == 0).sum(0).double())
    part = rows if chosen is None else rows[:, chosen]
    torch.testing.assert_close(sums.moment, part.T @ part)


def test_labels_stay_with_the_rows_of_a_head():
    head = HeadSums("0", "0.weight", nn.Sequential(nn.Linear(2, 2)), keep=100, seed=0)
    assert not head.seen
    for labels in ([3, 1], [2, 5, 4]):
        head.add(torch.tensor([[float(label), 0.0] for label in labels]))
        head.finish(torch.tensor(labels))
    inputs, labels = head.taken()
    assert head.seen and inputs[:, 0].tolist() == labels.tolist() == [3, 1, 2, 5, 4]
    head.add(torch.ones(2, 2))
    head.finish(None)
    assert head.taken()[1] is None, "one batch without labels leaves none"


def test_margins_of_what_is_counted():
    sums = OutputSums()
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0], [5.0, 0.0]])
    labels = torch.tensor([0, 0, 1, -100])
    assert torch.equal(sums.add(logits, labels), labels)
    high = float(torch.tensor([2.0, 0.0]).softmax(0)[0])
    assert sums.margins.tolist() == pytest.approx([1 - 2 * high, 0.0, 2 * high - 1])
    assert (sums.answers, sums.wrong) == (3, 1)


def test_answers_that_do_not_fit_are_named():
    sums = OutputSums()
    assert sums.add("words", torch.tensor([1])) is not None and sums.why_not == "outputs of type str"
    sums.add(torch.zeros(3, 2), torch.zeros(2, dtype=torch.long))
    assert sums.why_not == "outputs (3, 2) for targets (2,)" and sums.margins is None
    assert sums.add(torch.zeros(3, 2), None) is None


def test_margins_of_outputs_that_hold_logits():
    logits, labels = torch.randn(2, 4, 3), torch.randint(3, (2, 4))
    rows = OutputSums()
    rows.add(logits.flatten(0, 1), labels.flatten())
    for output in (
        {"logits": logits, "loss": torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())},
        {"logits": logits.movedim(-1, 1), "loss": torch.nn.functional.cross_entropy(logits.movedim(-1, 1), labels)},
        logits.movedim(-1, 1),
    ):
        sums = OutputSums()
        assert torch.equal(sums.add(output, labels), labels.flatten())
        assert torch.equal(sums.margins, rows.margins) and sums.answers == 8
    unknown = OutputSums()
    unknown.add({"logits": logits}, labels)
    assert unknown.margins is None and unknown.why_not == "outputs (2, 4, 3) for targets (2, 4)"
