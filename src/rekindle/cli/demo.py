"""`rekindle demo`: a warm start that hurts, and what helps, on the digits that come with the package.

The setting (200 images, half of their labels random, 500 steps; then 1,198 images with their own labels, 200 steps) was
chosen on other seeds than the ones shown, and chosen because warm starting hurts in it. With clean labels in the first
stage (`--random-labels 0`) it does not hurt on these digits.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from rekindle.protocols.warm_start import WarmStart

FIRST_IMAGES, FIRST_STEPS, THEN_STEPS = 200, 500, 200
UNTREATED = None
RESET = "full_reset"
TREATMENTS = (UNTREATED, RESET, "shrink_perturb:shrink=0.8", "fire")


def run(seeds: int = 10, random_labels: float = 0.5) -> None:
    """Train a small network on a little data, then on more: untreated, reset and treated. Takes under a minute.

    Args:
        seeds: Number of repetitions, each with its own split, weights, labels and batches; at least 2.
        random_labels: Fraction of the first stage's labels that is random; 0 for a first stage with clean labels.
    """
    from rich.console import Console

    from rekindle.core.errors import RekindleError

    if seeds < 2:
        raise RekindleError(expected="at least 2 seeds, for a spread", got=f"{seeds}", fix="leave --seeds out for 10")
    spec = setting(random_labels)
    console = Console(highlight=False)
    console.print(describe(spec))
    outcomes = summarise(measure(spec, seeds))
    console.print(table(outcomes, seeds))
    for sentence in sentences(outcomes):
        console.print(sentence)


def setting(random_labels: float = 0.5) -> WarmStart:
    """Return the protocol of the demo."""
    from rekindle.protocols.warm_start import WarmStart

    return WarmStart(images=FIRST_IMAGES, random_labels=random_labels, before_steps=FIRST_STEPS, after_steps=THEN_STEPS)


def describe(spec: WarmStart) -> str:
    """Say what is trained."""
    return (
        f"Warm start on handwritten digits: first {spec.images} images, {spec.random_labels:.0%} of their labels "
        f"random, {spec.before_steps} steps; then all training images with their own labels, {spec.after_steps} steps."
    )


def measure(spec: WarmStart, seeds: int) -> list[dict[str, Any]]:
    """Return one result row for each treatment and seed."""
    from rich.console import Console
    from rich.progress import track

    from rekindle.bench.run import execute
    from rekindle.bench.spec import Run

    settings = {name: getattr(spec, name) for name in ("images", "random_labels", "before_steps", "after_steps")}
    protocol = "warm_start:" + ",".join(f"{name}={value}" for name, value in settings.items())
    rows: list[dict[str, Any]] = []
    for seed in track(range(seeds), description="training", console=Console(stderr=True), transient=True):
        for treatment in TREATMENTS:
            asked = {"protocol": protocol, "data": f"digits:division={seed}", "methods": treatment or "none"}
            run = Run.from_dict({**asked, "seed": seed, "evaluate_each": max(FIRST_STEPS, THEN_STEPS)})
            rows.append({"treatment": treatment, **execute(run, None)[-1]})
    return rows


@dataclass(frozen=True)
class Difference:
    """A paired difference in points of accuracy, seed by seed."""

    mean: float
    std: float
    won: int
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether the mean is more than two standard errors away from zero."""
        return abs(self.mean) > 2 * self.std / math.sqrt(self.seeds)

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ± {self.std:.1f} points, {self.won} of {self.seeds} seeds won"


@dataclass(frozen=True)
class Outcome:
    """What came out for one treatment, in per cent of the test images."""

    treatment: str | None
    mean: float
    std: float
    to_untreated: Difference
    to_reset: Difference


def summarise(rows: Sequence[dict[str, Any]]) -> list[Outcome]:
    """Return an outcome for each treatment, in the order of the rows."""
    by_treatment: dict[str | None, dict[int, float]] = {}
    for row in rows:
        by_treatment.setdefault(row["treatment"], {})[row["seed"]] = 100 * row["accuracy"]
    return [
        Outcome(
            treatment,
            statistics.mean(scores.values()),
            statistics.stdev(scores.values()),
            _difference(scores, by_treatment[UNTREATED]),
            _difference(scores, by_treatment[RESET]),
        )
        for treatment, scores in by_treatment.items()
    ]


def _difference(ours: dict[int, float], theirs: dict[int, float]) -> Difference:
    gaps = [ours[seed] - theirs[seed] for seed in ours]
    return Difference(statistics.mean(gaps), statistics.stdev(gaps), sum(gap > 0 for gap in gaps), len(gaps))


def table(outcomes: Sequence[Outcome], seeds: int) -> Table:
    """Return the outcomes as a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = f"Test accuracy (%) at the end, {seeds} seeds: mean ± standard deviation, seeds won"
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    made.add_column("second stage from", no_wrap=True)
    for name in ("accuracy", "minus warm", "minus fresh"):
        made.add_column(name, justify="right", no_wrap=True)
    for outcome in outcomes:
        made.add_row(
            _name(outcome.treatment),
            f"{outcome.mean:.1f} ± {outcome.std:.1f}",
            _cell(outcome.to_untreated) if outcome.treatment != UNTREATED else "",
            _cell(outcome.to_reset) if outcome.treatment != RESET else "",
        )
    return made


def _cell(gap: Difference) -> str:
    return f"{gap.mean:+.1f} ± {gap.std:.1f}, {gap.won}/{gap.seeds}"


def _name(treatment: str | None) -> str:
    return {UNTREATED: "warm, untreated", RESET: f"fresh ({RESET})"}.get(treatment, str(treatment))


def sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """Say what came out: whether the warm start hurt, and how each treatment compares with a reset."""
    reset = next(outcome for outcome in outcomes if outcome.treatment == RESET)
    said = [_say("Fresh weights", reset.to_untreated, "the warm start")]
    treated = [outcome for outcome in outcomes if outcome.treatment not in (UNTREATED, RESET)]
    said += [_say(_name(outcome.treatment), outcome.to_reset, "fresh weights") for outcome in treated]
    return said


def _say(subject: str, gap: Difference, other: str) -> str:
    if not gap.clear:
        return f"{subject} and {other} cannot be told apart (within two standard errors): {gap}."
    return f"{subject} ended {'above' if gap.mean > 0 else 'below'} {other}: {gap}."
