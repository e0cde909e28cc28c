from dataclasses import replace

from papers.catalog import experiment
from papers.frozen.two_tasks import fronts
from papers.markdown import page

# Loss, frozen filters, Fisher score. "often" is worse than "some" in loss and equal in both other numbers.
POINTS = {"none": (0.9, 0.0, 3.0), "some": (1.0, 5.0, 1.0), "often": (1.1, 5.0, 1.0), "much": (2.0, 9.0, 4.0)}
ROWS = [
    {
        "condition": "all_cnn",
        "method": method,
        "seed": seed,
        "loss": loss + shift,
        "double frozen": frozen,
        "Fisher": fisher,
    }
    for method, (loss, frozen, fisher) in POINTS.items()
    for seed, shift in enumerate((-0.3, 0.3))
]


def test_fronts_name_what_nothing_dominates():
    frozen, fisher = fronts(ROWS).split("\n\n")
    assert frozen == "On the front of test loss (low) and double frozen filters (high), of 4: none, some, much."
    assert fisher == "On the front of test loss (low) and Fisher score (high), of 4: none, much."


def test_what_was_not_measured_is_on_no_front():
    rows = [{**row, "Fisher": None} if row["method"] == "much" else row for row in ROWS]
    assert fronts(rows).endswith("Fisher score (high), of 3: none.")


def test_the_page_has_fronts_only_where_something_was_observed():
    found = experiment("frozen-fig-6")
    study = found.study("cpu")
    assert "On the front of" in page(found, "cpu", study, [], ROWS)
    assert "On the front of" not in page(found, "cpu", study, [])
    assert "On the front of" not in page(replace(found, extra=None), "cpu", study, [], ROWS)
