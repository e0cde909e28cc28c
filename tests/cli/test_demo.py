import pytest

from rekindle.cli import main
from rekindle.cli.demo import RESET, UNTREATED, Difference, measure, sentences, setting, summarise, table


def rows(scores):
    return [
        {"treatment": treatment, "seed": seed, "accuracy": value / 100}
        for treatment, values in scores.items()
        for seed, value in enumerate(values)
    ]


def test_summary_by_hand():
    outcomes = summarise(rows({UNTREATED: [90, 92], RESET: [93, 93], "fire": [95, 91]}))
    warm, reset, fire = outcomes
    assert (warm.mean, warm.to_untreated.mean, warm.to_untreated.won) == pytest.approx((91, 0, 0))
    assert (reset.mean, reset.std) == pytest.approx((93, 0))
    assert (reset.to_untreated.mean, reset.to_untreated.won) == pytest.approx((2, 2))
    assert (fire.to_reset.mean, fire.to_reset.std, fire.to_reset.won) == pytest.approx((0, 8**0.5, 1))


@pytest.mark.parametrize(
    ("reset", "fire", "said"),
    [
        ([95, 96, 97], [98, 99, 99], ["ended above the warm start", "ended above fresh weights"]),
        ([85, 86, 85], [80, 80, 81], ["ended below the warm start", "ended below fresh weights"]),
        ([89, 92, 91], [92, 89, 91], ["cannot be told apart", "cannot be told apart"]),
    ],
)
def test_sentences_follow_the_numbers(reset, fire, said):
    found = sentences(summarise(rows({UNTREATED: [90, 91, 91], RESET: reset, "fire": fire})))
    assert len(found) == 2
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


def test_table_has_a_row_for_each_treatment():
    outcomes = summarise(rows({UNTREATED: [90, 91], RESET: [93, 95], "fire": [94, 94]}))
    assert table(outcomes, 2).row_count == 3


def test_clear_is_two_standard_errors():
    assert Difference(mean=1.0, std=1.0, won=3, seeds=5).clear
    assert not Difference(mean=0.8, std=1.0, won=3, seeds=5).clear


def test_one_seed_has_no_spread(capsys):
    assert main(["demo", "--seeds", "1"]) == 2
    assert "at least 2 seeds" in capsys.readouterr().err


def test_demo_runs(capsys):
    assert main(["demo", "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert "2 seeds" in said and "fire" in said and "fresh weights" in said


@pytest.mark.slow
def test_warm_starting_hurts_and_a_reset_helps():
    """The claim of the demo on seeds that it shows: above the noise, in at least four of five."""
    reset = summarise(measure(setting(random_labels=0.5), seeds=5))[1]
    assert reset.treatment == RESET
    assert reset.to_untreated.clear and reset.to_untreated.mean > 1 and reset.to_untreated.won >= 4
