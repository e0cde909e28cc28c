"""Verdicts on hand-made observations."""

import pytest

from papers.experiment import Published
from papers.rules import Either, Larger, Numbers, Within, overall

pytest.importorskip("scipy")


def seen(method, numbers, condition="a", measure="accuracy"):
    return [{"condition": condition, "method": method, "seed": seed, measure: x} for seed, x in enumerate(numbers)]


def verdict(rule, observations, published=None):
    return rule.judge(observations, published or {})[-1]["verdict"]


@pytest.mark.parametrize(
    ("numbers", "mean", "deviation", "expected"),
    [
        ([1.0, 2.0, 3.0], 4.4, 0.0, "agrees"),  # 2 +- 4.303 / sqrt(3) = 2 +- 2.484
        ([1.0, 2.0, 3.0], 4.6, 0.0, "differs"),
        ([1.0, 2.0, 3.0], 4.6, 3.6, "agrees"),  # pooled sqrt((1 + 12.96) / 2) = 2.642
        ([1.0, 2.0, 3.0], 4.6, None, "differs"),  # the measured deviation, 1, stands for both
        ([2.0], 2.0, 1.0, "not decided"),
        ([], 2.0, 1.0, "not decided"),
    ],
)
def test_numbers(numbers, mean, deviation, expected):
    rows = Numbers().judge(seen("m", numbers), {("a", "m"): Published(mean, deviation, 5)})
    assert [row["verdict"] for row in rows] == [expected]
    assert (rows[0]["published"], rows[0]["published_deviation"], rows[0]["n"]) == (mean, deviation, len(numbers))


def test_what_was_not_published_has_no_verdict():
    row = Numbers().judge(seen("m", [1.0, 2.0]), {})[0]
    assert (row["measured"], row["n"], row["verdict"]) == (1.5, 2, "")


BASE = [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("gains", "expected", "p"),
    [
        ([1, 1, 1, 1, 1], "holds", 1 / 32),
        ([-1, -1, -1, -1, -1], "does not hold", 1.0),
        ([1, 1, 1, 1, -0.5], "not decided", 2 / 32),
        ([0, 0, 0, 0, 0], "not decided", 1.0),
    ],
)
def test_larger(gains, expected, p):
    other = [b + g for b, g in zip(BASE, gains, strict=True)]
    rows = Larger("a claim", "new", ("old",)).judge(seen("old", BASE) + seen("new", other), {})
    assert [row["verdict"] for row in rows] == [expected, expected]
    assert rows[0]["p"] == pytest.approx(p) and rows[0]["n"] == 5
    assert rows[1] == {"kind": "claim", "claim": "a claim", "verdict": expected}


def test_smaller_is_the_same_turned_around():
    both = seen("old", BASE) + seen("new", [b - 1 for b in BASE])
    assert verdict(Larger("", "new", ("old",), flip=True), both) == "holds"
    assert verdict(Larger("", "new", ("old",)), both) == "does not hold"
    assert Larger("", "new", ("old",), flip=True).judge(both, {})[0]["measured"] == -1.0


def test_better_than_all_needs_each():
    three = seen("new", BASE) + seen("worse", [b - 1 for b in BASE]) + seen("same", BASE)
    assert verdict(Larger("", "new", ("worse",)), three) == "holds"
    assert verdict(Larger("", "new", ("worse", "same")), three) == "not decided"


def test_one_significant_defeat_among_many_is_corrected():
    rows = [{"verdict": "does not hold", "p_against_holm": 0.04}, {"verdict": "not decided", "p_against_holm": 1.0}]
    assert overall(rows) == "does not hold"
    assert overall([{**rows[0], "p_against_holm": 0.06}, rows[1]]) == "not decided"
    others = [name for i in range(3) for name in seen(f"other {i}", [b + (1 if i == 0 else 0) for b in BASE])]
    rule = Larger("", "new", tuple(f"other {i}" for i in range(3)))
    assert verdict(rule, seen("new", BASE) + others) == "not decided", "1/32 three times is above 0.05"


def test_pairs_share_condition_and_seed():
    rows = seen("new", [9.0], "a") + seen("new", [9.0], "b") + seen("old", [1.0, 1.0], "a")
    assert Larger("", "new", ("old",)).judge(rows, {})[0]["n"] == 1
    assert Larger("", "new", ("old",)).judge(seen("new", BASE), {})[0]["n"] == 0
    assert Larger("", "new", ("old",), conditions=("b",)).judge(rows, {})[0]["n"] == 0


def test_by_condition_one_setting_is_one_pair():
    rows = [o for c in "abcde" for m, x in (("new", [3.0, 1.0]), ("old", [1.0, 2.0])) for o in seen(m, x, c)]
    row = Larger("", "new", ("old",), by_condition=True).judge(rows, {})[0]
    assert (row["n"], row["wins"], row["p"], row["measured"]) == (5, 5, 1 / 32, 0.5)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-1.0, 5.0, "holds"), (0.0, 1.0, "not decided"), (5.0, 9.0, "does not hold"), (-9.0, -1.0, "does not hold")],
)
def test_within(low, high, expected):
    assert verdict(Within("", "m", low, high), seen("m", [1.0, 2.0, 3.0])) == expected  # -0.484 to 4.484


def test_within_of_a_paired_difference():
    both = seen("m", [11.0, 22.0, 33.0]) + seen("n", [10.0, 21.0, 32.0])
    assert verdict(Within("", "m", 0.9, 1.1, minus="n"), both) == "holds"
    assert verdict(Within("", "m", 0.9, 1.1, minus="other"), both) == "not decided"


@pytest.mark.parametrize(
    ("gain", "mean", "expected"),
    [(1, 0.0, "holds"), (-1, 9.0, "holds"), (-1, 0.0, "does not hold"), (0, 0.0, "not decided")],
)
def test_either_of_two(gain, mean, expected):
    rule = Either("one or the other", (Larger("more", "new", ("old",)), Within("high", "other", low=8.0)))
    found = seen("old", BASE) + seen("new", [b + gain for b in BASE]) + seen("other", [mean, mean + 0.01])
    rows = rule.judge(found, {})
    assert [row["kind"] for row in rows] == ["comparison", "part", "part", "claim"]
    assert (rows[-1]["claim"], rows[-1]["verdict"]) == ("one or the other", expected)
