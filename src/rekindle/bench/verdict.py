"""The verdict of a comparison: what the intervals say, in words, and no more than they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekindle.bench.door import FRESH, NONE

if TYPE_CHECKING:
    from rekindle.bench.comparison import Comparison, Gap, Outcome

FEW = 5  # seeds below which only large differences can be clear
LEVEL = 0.05
AFRESH = "start afresh"


def verdict(found: Comparison) -> str:
    """Say whether to go on, to treat or to start afresh: a sentence, and one about cost and doubt if there is any."""
    by_name = {outcome.method: outcome for outcome in found.outcomes}
    treated = [outcome for name, outcome in by_name.items() if name not in (NONE, FRESH)]
    good = [outcome for outcome in treated if outcome.to_none is not None and outcome.to_none.better]
    fresh = by_name.get(FRESH)
    if good:
        best = max(good, key=lambda outcome: outcome.score.mean)
        said, chosen = _treat_or_reset(found, best, fresh)
    elif fresh is not None and fresh.to_none is not None and fresh.to_none.better:
        said, chosen = f"{AFRESH}: {_told(found, fresh.to_none)} over going on{_no_treatment(treated)}", fresh
    else:
        return f"{_go_on(found)}.{_few(found)}"
    return f"{said}. {_cost(chosen, found)}"


def _treat_or_reset(found: Comparison, best: Outcome, fresh: Outcome | None) -> tuple[str, Outcome]:
    over, to_fresh = _told(found, best.to_none), best.to_fresh
    if to_fresh is None or fresh is None:
        return f"treat with {best.method}: {over} over going on; there is no fresh start to compare with", best
    if to_fresh.worse:
        to_best = found.gap(FRESH, best.method)
        more = f"{_told(found, fresh.to_none)} over going on, {_told(found, to_best)} over {best.method}"
        return f"{AFRESH}: {more}, the best treatment", fresh
    beside = (
        f"{_told(found, to_fresh)} over a fresh start" if to_fresh.better else "no clear difference to a fresh start"
    )
    return f"treat with {best.method}: {over} over going on, {beside}", best


def _no_treatment(treated: list[Outcome]) -> str:
    return ", which no treatment clearly improves" if treated else ""


def _go_on(found: Comparison) -> str:
    worse = [o for o in found.outcomes if o.to_none is not None and o.to_none.worse]
    hopes = [o for o in found.outcomes if o.to_none is not None and o.to_none.promising]
    if hopes:
        best = max(hopes, key=lambda outcome: outcome.score.mean)
        more = f"{_told(found, best.to_none)} over going on"
        return f"nothing is clear yet: {_way(best)} looks better, {more}; run more seeds"
    if not worse:
        return "no evidence of a difference: go on as you are"
    told = ", ".join(f"{_way(o)} {found.shown_gap(o.to_none)}" for o in worse)
    return f"go on as you are: nothing is clearly better, and clearly worse {'is' if len(worse) == 1 else 'are'} {told}"


def _way(outcome: Outcome) -> str:
    return "a fresh start" if outcome.method == FRESH else outcome.method


def _told(found: Comparison, gap: Gap | None) -> str:
    assert gap is not None
    points = " points" if found.score == "accuracy" else f" in {found.score}"
    return f"{found.shown(gap.mean, '+')}{points} [{found.shown(gap.low)}, {found.shown(gap.high)}]"


def _cost(chosen: Outcome, found: Comparison) -> str:
    said = f"It takes {chosen.cost:.2f} times the time of going on"
    if found.score == "accuracy":
        said += f" and begins at {found.shown(chosen.after)}%"
    if chosen.p_holm is not None and chosen.p_holm >= LEVEL:
        said += f"; the sign test alone would not settle it (p = {chosen.p_holm:.2g} after Holm)"
    return f"{said}.{_few(found)}"


def _few(found: Comparison) -> str:
    n = found.outcomes[0].score.n
    return f" {n} seeds are few, only large differences can show: take {FEW} or more." if n < FEW else ""
