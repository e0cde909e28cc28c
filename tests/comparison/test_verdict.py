"""What the verdict says of given scores."""

import re

import pytest

from tests.comparison.comparing import told

GOING_ON = [0.50, 0.51, 0.52, 0.51, 0.50]


def above(points, noise=(0.001, -0.001, 0.0, 0.002, -0.002)):
    return [base + points + each for base, each in zip(GOING_ON, noise, strict=True)]


@pytest.mark.parametrize(
    ("fire", "fresh", "said"),
    [
        (
            0.10,
            0.10,
            "treat with fire: +10.0 points [] over going on, no clear difference to a fresh start. It takes 1",
        ),
        (
            0.10,
            0.00,
            "treat with fire: +10.0 points [] over going on, +10.0 points [] over a fresh start. It takes 1.00",
        ),
        (0.10, 0.20, "start afresh: +20.0 points [] over going on, +10.0 points [] over fire, the best treatment. It "),
        (0.00, 0.20, "start afresh: +20.0 points [] over going on, which no treatment clearly improves. It takes 1.00"),
        (0.00, 0.00, "no evidence of a difference: go on as you are."),
        (-0.1, 0.00, "go on as you are: nothing is clearly better, and clearly worse is fire -10.0 []."),
    ],
)
def test_verdict(fire, fresh, said):
    found = told(none=GOING_ON, fire=above(fire), fresh=above(fresh, (-0.001, 0.001, 0.002, -0.002, 0.0)))
    intervals = re.findall(r"\[(.*?), (.*?)\]", found.verdict)
    assert re.sub(r"\[.*?\]", "[]", found.verdict).startswith(said)
    assert all(0 < float(high) - float(low) < 1 for low, high in intervals)


def test_two_seeds_cannot_be_clear():
    found = told(none=[0.5, 0.5], fire=[0.6, 0.7], fresh=[0.5, 0.4])
    # 0.15 +- t(0.9875, 1) 0.05; two ways are held against going on
    assert found.verdict.startswith(
        "nothing is clear yet: fire looks better, +15.0 points [-112.3, 142.3] over going on; run more seeds, 6 at"
    )
    assert "2 seeds are few" in found.verdict and found.verdict.endswith("take 6 or more.")


def test_two_equal_seeds_are_not_clear_either():
    found = told(none=[0.5, 0.5], fire=[0.6, 0.6], fresh=[0.4, 0.4])
    assert found.verdict.startswith("nothing is clear yet: fire looks better, +10.0 points [10.0, 10.0]")


def test_where_signs_cannot_settle_it_the_seeds_that_could_are_told():
    five = told(none=GOING_ON, fire=above(0.1), a=GOING_ON, b=GOING_ON, c=GOING_ON, fresh=above(0.0))
    assert "the sign test alone cannot settle it with 5 seeds, 7 could (p = 0.16 after Holm)" in five.verdict
    assert "sign test" not in told(none=GOING_ON, fire=above(0.1)).verdict, "1 in 32 settles one comparison"
    none, fire = GOING_ON * 2, [0.5, *above(0.1)[1:], *above(0.1)]
    assert "sign test" not in told(none=none, fire=fire).verdict
    split = told(none=none, fire=[*above(0.1), *above(0.1)[:3], 0.505, 0.495], fresh=none)
    assert "would not settle it" in split.verdict


def test_more_ways_make_wider_intervals():
    noisy = above(0.01, (0.02, -0.01, 0.0, 0.01, -0.02))
    few, many = told(none=GOING_ON, a=noisy), told(none=GOING_ON, **dict.fromkeys("abcdef", noisy))
    assert (few.level, many.level) == (0.95, 1 - 0.05 / 6)
    assert many.gap("a", "none").low < few.gap("a", "none").low
