"""The verdict of a comparison: what the intervals say, in words, and no more than they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rekindle.comparison.outcomes import Gap, Outcome, shown, shown_gap
from rekindle.methods.spec import FRESH, UNTREATED
from rekindle.statistics.significance import seeds_needed

FEW = 5  # seeds below which only very large differences can be clear
LEVEL = 0.05
AFRESH = "start afresh"
GapBetween = Callable[[str, str], Gap | None]


def verdict(outcomes: Sequence[Outcome], score: str, gap: GapBetween) -> str:
    """Say whether to go on, to treat or to start afresh: a sentence, and one about cost and doubt if there is any.

    Args:
        outcomes: What came of each way; going on untreated first.
        score: What the score is.
        gap: Gives the difference of two ways by their names.
    """
    by_name = {outcome.method: outcome for outcome in outcomes}
    treated = [outcome for name, outcome in by_name.items() if name not in (UNTREATED, FRESH)]
    good = [outcome for outcome in treated if outcome.to_none is not None and outcome.to_none.better]
    fresh = by_name.get(FRESH)
    if good:
        best = max(good, key=lambda outcome: outcome.score.mean)
        said, chosen = _treat_or_reset(best, fresh, score, gap)
    elif fresh is not None and fresh.to_none is not None and fresh.to_none.better:
        said, chosen = f"{AFRESH}: {_told(fresh.to_none, score)} over going on{_no_treatment(treated)}", fresh
    else:
        return f"{_go_on(outcomes, score)}.{_few(outcomes)}"
    return f"{said}. {_cost(chosen, score, _enough(outcomes))}{_few(outcomes)}"


def _treat_or_reset(best: Outcome, fresh: Outcome | None, score: str, gap: GapBetween) -> tuple[str, Outcome]:
    over, to_fresh = _told(best.to_none, score), best.to_fresh
    if to_fresh is None or fresh is None:
        return f"treat with {best.method}: {over} over going on; there is no fresh start to compare with", best
    if to_fresh.worse:
        to_best = gap(FRESH, best.method)
        more = f"{_told(fresh.to_none, score)} over going on, {_told(to_best, score)} over {best.method}"
        return f"{AFRESH}: {more}, the best treatment", fresh
    beside = (
        f"{_told(to_fresh, score)} over a fresh start" if to_fresh.better else "no clear difference to a fresh start"
    )
    return f"treat with {best.method}: {over} over going on, {beside}", best


def _no_treatment(treated: list[Outcome]) -> str:
    return ", which no treatment clearly improves" if treated else ""


def _go_on(outcomes: Sequence[Outcome], score: str) -> str:
    worse = [o for o in outcomes if o.to_none is not None and o.to_none.worse]
    hopes = [o for o in outcomes if o.to_none is not None and o.to_none.promising]
    if hopes:
        best = max(hopes, key=lambda outcome: outcome.score.mean)
        more = f"{_told(best.to_none, score)} over going on"
        return f"nothing is clear yet: {_way(best)} looks better, {more}; run more seeds, {_enough(outcomes)} at least"
    if not worse:
        return "no evidence of a difference: go on as you are"
    told = ", ".join(f"{_way(o)} {shown_gap(o.to_none, score)}" for o in worse)
    return f"go on as you are: nothing is clearly better, and clearly worse {'is' if len(worse) == 1 else 'are'} {told}"


def _way(outcome: Outcome) -> str:
    return "a fresh start" if outcome.method == FRESH else outcome.method


def _told(gap: Gap | None, score: str) -> str:
    assert gap is not None
    points = " points" if score == "accuracy" else f" in {score}"
    return f"{shown(gap.mean, score, '+')}{points} [{shown(gap.low, score)}, {shown(gap.high, score)}]"


def _cost(chosen: Outcome, score: str, enough: int) -> str:
    said = f"It takes {chosen.cost:.2f} times the time of going on"
    if score == "accuracy":
        said += f" and begins at {shown(chosen.after, score)}%"
    if chosen.p_holm is not None and chosen.p_holm >= LEVEL:
        n = chosen.score.n
        settle = "would not settle it" if n >= enough else f"cannot settle it with {n} seeds, {enough} could"
        said += f"; the sign test alone {settle} (p = {chosen.p_holm:.2g} after Holm)"
    return f"{said}."


def _few(outcomes: Sequence[Outcome]) -> str:
    n = outcomes[0].score.n
    few = f" {n} seeds are few, only large differences can show: take {_enough(outcomes)} or more."
    return few if n < FEW else ""


def _enough(outcomes: Sequence[Outcome]) -> int:
    """Return how many seeds could settle each difference to going on by signs alone, whatever their distribution."""
    return max(FEW, seeds_needed(max(1, len(outcomes) - 1), LEVEL))
