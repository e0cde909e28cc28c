"""What of a language model to treat: its cells, its verdicts on made-up losses, and all of it in small."""

import pytest

import rekindle as rk
from papers.catalog import experiment
from papers.fire.language_choice import AFTER, CHOICES, DEFAULT, HOW, LATER, SOON
from papers.pipeline import judge, run_experiment
from tests.papers.fire.texts import seen, shortened, write_texts
from tests.papers.test_pipeline import InProcess

pytest.importorskip("scipy")
CHOICE = experiment("fire-language-choice")
FIRE = [f"{what}, {how}" for what in CHOICES for how in HOW]
FRESH = {"going on": 2.2, **dict.fromkeys(FIRE, 2.21)}
OVERTRAINED = {
    "going on": 2.4,
    "S&P 0.5": 2.35,
    **dict.fromkeys(FIRE, 2.3),
    **{f"all matrices, {how}": 2.25 for how in HOW},
    **{f"with the tied head, {how}": 2.2 for how in HOW},
}


def verdicts(fresh=(), overtrained=()):
    found = seen({**FRESH, **dict(fresh)}, "fresh", LATER, seeds=3)
    found += seen({**OVERTRAINED, **dict(overtrained)}, "overtrained", LATER, seeds=3)
    return {row["claim"]: row["verdict"] for row in judge(CHOICE, found, False) if row["kind"] == "claim"}


def test_every_choice_on_both_networks():
    placed = {(cell.condition, cell.method) for cell in CHOICE.cpu_study.cells}
    expected = {("fresh", name) for name in FRESH} | {("overtrained", name) for name in OVERTRAINED}
    assert placed == expected and len(placed) == 27


def test_what_the_default_is():
    specs = {cell.method: cell.fields["methods"] for cell in CHOICE.cpu_study.cells}
    default, exact = rk.method("fire"), rk.method(specs[DEFAULT])
    assert (default.attention, default.tied) == (exact.attention, exact.tied) == ("qk", False)
    published = rk.method(specs["with the tied head, 5 steps"])
    assert (published.attention, published.tied, published.solver, published.iterations) == (
        *("all", True, "newton_schulz"),
        5,
    )


def test_all_claims_hold_where_losses_are_so():
    assert len(verdicts()) == 11 and set(verdicts().values()) == {"holds"}


@pytest.mark.parametrize(
    ("claim", "fresh", "overtrained"),
    [
        *((f"fresh: {one} costs at most 0.05 after 800 steps", {f"{one}, exact": 2.3}, {}) for one in CHOICES),
        *((f"overtrained: {one} ends lower than going on", {}, {f"{one}, exact": 2.5}) for one in CHOICES),
        ("overtrained: all matrices ends lower than q and k", {}, {"all matrices, exact": 2.35}),
        ("overtrained: with the tied head ends lower than q and k", {}, {"with the tied head, exact": 2.35}),
        *(
            (f"overtrained: five steps on {one} end within 0.05 of the exact isometry", {}, {f"{one}, 5 steps": other})
            for one in CHOICES
            for other in (2.0, 2.5)
        ),
    ],
)
def test_each_claim_fails_where_losses_are_the_other_way_round(claim, fresh, overtrained):
    assert verdicts(fresh, overtrained)[claim] == "does not hold"


def test_it_runs_in_small(tmp_path, monkeypatch):
    write_texts(tmp_path / "texts", monkeypatch)
    result = run_experiment(shortened(CHOICE, second_steps=100), "cpu", tmp_path, InProcess(), seeds=1)
    assert result.summary.is_whole and len(result.observations) == 27
    assert all(one[name] is not None for one in result.observations for name in (AFTER, SOON, LATER))
    after = {(one["condition"], one["method"]): one[AFTER] for one in result.observations}
    assert len(set(after.values())) == len(after), "each choice and number of steps gives another network"
    assert after["fresh", "going on"] == pytest.approx(5.5, abs=0.1), "a fresh network knows nothing of 256 bytes"
    assert f"| method | fresh: {AFTER} | fresh: {SOON} |" in result.page
