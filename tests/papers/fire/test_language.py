"""Fig. 3: its arms, its verdicts on made-up losses, and all of it in small."""

import pytest

from papers.catalog import experiment
from papers.fire.language import CHOICES, GOING_ON, LOSS, MARGIN, QK, RISE, SHOWN
from papers.pipeline import GATED, judge, run_experiment
from rekindle.lab.protocols import protocol
from tests.papers.fire.texts import seen, shortened, write_texts
from tests.papers.test_pipeline import InProcess

pytest.importorskip("scipy")
FIGURE = experiment("fire-fig-3")
AS_CLAIMED = {
    "full reset": 2.4,
    "best: going on": 2.10,
    "best: S&P 0.5": 2.08,
    "best: FIRE on q and k": 2.05,
    "middle: going on": 2.15,
    "middle: S&P 0.8": 2.13,
    "middle: FIRE on q and k": 2.06,
    "late: going on": 2.20,
    "late: S&P 0.5": 2.15,
    "late: S&P 0.8": 2.18,
    "late: FIRE on q and k": 2.07,
    "late: FIRE on all matrices": 2.06,
    "late: FIRE as published": 2.05,
}


def verdicts(rise=1.0, **changed):
    """Return the verdict on each claim."""
    losses = {**AS_CLAIMED, **changed}
    assert set(losses) == set(AS_CLAIMED)
    found = judge(FIGURE, seen(losses, "Gutenberg", LOSS, **{RISE: rise}), comparable=False)
    return {row["claim"]: row["verdict"] for row in found if row["kind"] == "claim"}


def test_every_arm_of_the_reduction_has_made_up_losses():
    assert {cell.method for cell in FIGURE.cpu_study.cells} == set(AS_CLAIMED)


def test_all_claims_hold_where_losses_are_as_the_paper_has_them():
    assert len(verdicts()) == 10 and set(verdicts().values()) == {"holds"}


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("going on gets worse from best to late", {"best: going on": 2.30, "full reset": 2.22}),
        ("a full reset ends higher than going on", {"full reset": 2.12}),
        *((f"from best, {QK} ends lower than going on and S&P", {"best: FIRE on q and k": x}) for x in (2.09, 2.3)),
        *((f"from middle, {QK} ends lower than going on and S&P", {"middle: FIRE on q and k": x}) for x in (2.14, 2.3)),
        *((f"from late, {one} ends lower than going on and S&P", {f"late: {one}": 2.16}) for one in CHOICES),
        *((f"from late, {one} ends lower than going on and S&P", {f"late: {one}": 2.3}) for one in CHOICES),
        (f"from late, {QK} ends at most {MARGIN} above the same from best", {"late: FIRE on q and k": 2.15}),
    ],
)
def test_each_claim_fails_where_losses_are_the_other_way_round(claim, changed):
    assert verdicts(**changed)[claim] == "does not hold"


def test_one_s_and_p_that_is_lower_refutes_a_claim_about_both():
    found = verdicts(**{"late: S&P 0.8": 2.01})
    assert [found[f"from late, {one} ends lower than going on and S&P"] for one in CHOICES] == ["does not hold"] * 3


def test_equal_losses_decide_nothing():
    assert verdicts(**{"best: FIRE on q and k": 2.08})[f"from best, {QK} ends lower than going on and S&P"] == (
        "not decided"
    )


@pytest.mark.parametrize(
    ("rise", "changed", "failing"),
    [
        (0.0, {}, f"gate: the loss rises by more than {MARGIN} in the first phase"),
        (1.0, {"best: going on": 2.25}, "gate: going on has lost something"),
    ],
)
def test_nothing_is_claimed_in_a_setting_that_loses_nothing(rise, changed, failing):
    found = verdicts(rise, **changed)
    assert found.pop(failing) == "does not hold"
    assert set(found.values()) == {"holds", GATED}
    assert all(verdict == GATED for claim, verdict in found.items() if not claim.startswith("gate"))


def test_a_reset_that_is_about_as_good_opens_the_second_gate_too():
    found = verdicts(**{"best: going on": 2.25, "full reset": 2.22})
    assert found["gate: going on has lost something"] == "holds"


def test_arms_start_where_their_names_say_and_share_the_first_phase():
    for preset in ("paper", "cpu"):
        placed = FIGURE.study(preset).runs(seeds=1)
        starts = {"best": "best", "middle": "early", "late": "late", "full reset": "late"}
        paths = {cell.method: protocol(run.protocol) for cell, [run] in placed}
        assert all(path.start == starts[method.partition(":")[0]] for method, path in paths.items())
        assert len({(path.steps, path.early, path.second_steps, path.share, path.to) for path in paths.values()}) == 1
        assert [run.methods for cell, [run] in placed if cell.method == "full reset"] == ["fresh"]
        going_on = [run.methods for cell, [run] in placed if cell.method.endswith(GOING_ON)]
        assert going_on == ["none"] * 3


def test_it_runs_in_small_and_its_page_has_both_texts(tmp_path, monkeypatch):
    write_texts(tmp_path / "texts", monkeypatch)
    result = run_experiment(shortened(FIGURE), "cpu", tmp_path, InProcess(), seeds=1)
    assert result.summary.is_whole and len(result.observations) == len(AS_CLAIMED)
    by_method = {one["method"]: one for one in result.observations}
    assert len({one[RISE] for one in by_method.values()}) == 1 and by_method["full reset"][RISE] >= 0
    for method, one in by_method.items():
        first, second = one["loss on the first text"], one["loss on the second text"]
        assert one[LOSS] == pytest.approx(0.1 * first + 0.9 * second), method
    assert by_method[f"late: {QK}"]["loss right after"] != by_method[f"late: {GOING_ON}"]["loss right after"]
    assert f"| method | {' | '.join(SHOWN)} |" in result.page and "lower is better" in result.page
    late = [one[LOSS] for method, one in by_method.items() if method.startswith(("late", "full reset"))]
    assert len(set(late)) == len(late) == 7, "every arm does something of its own"
    assert by_method[f"middle: {GOING_ON}"][LOSS] != by_method[f"late: {GOING_ON}"][LOSS], "and starts elsewhere"
