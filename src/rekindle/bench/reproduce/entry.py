"""What an entry of the catalogue is: a table or figure, its published numbers, two ways to run it, and its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rekindle.bench.reproduce.rules import Rule
from rekindle.bench.spec import Run
from rekindle.bench.sweep import Sweep
from rekindle.core.spec import split
from rekindle.data.catalogue import EMBEDDED

Fields = Mapping[str, Any]
Row = dict[str, Any]
Preset = Literal["paper", "cpu"]
Name = tuple[str, str]  # condition and method


@dataclass(frozen=True)
class Published:
    """A number as printed.

    Args:
        mean: In the unit of the entry's first measure.
        deviation: None where the paper gives none.
        n: Runs behind it; None where the paper does not say.
    """

    mean: float
    deviation: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Measure:
    """One number from the rows of one run.

    Args:
        name: What it is called in tables.
        column: Of the rows.
        at: "last" row, "best" row of the last stage (highest), its "rise" over the best of the stages before, last
            "boundary" row, "gap" of the column and its value before at the last boundary, end of the "first" stage,
            mean over the "ends" of all stages, "late": the same over the last quarter of the stages, or "trend": that
            minus the same over the first quarter.
        scale: It is multiplied by this: 100 for per cent.
    """

    name: str = "accuracy"
    column: str = "accuracy"
    at: Literal["last", "best", "rise", "boundary", "gap", "first", "ends", "late", "trend"] = "last"
    scale: float = 1.0


@dataclass(frozen=True)
class Cell:
    """One place of a table: a condition, a method, and the fields of its runs."""

    condition: str
    method: str
    fields: Fields


@dataclass(frozen=True)
class Study:
    """One way to run an entry.

    Args:
        cells: What to train; or
        compute: a pure function of the number of seeds that gives observations: condition, method, seed and numbers.
        seeds: How many, from 0.
        minutes: About how long two cores take; None if that was not estimated.
        reduced: What is smaller than published.
        comparable: Whether numbers may be compared with published ones all the same, as with fewer runs; claims always
            are.
    """

    cells: tuple[Cell, ...] = ()
    compute: Callable[[int], list[Row]] | None = None
    seeds: int = 5
    minutes: float | None = None
    reduced: str = "nothing"
    comparable: bool = False

    @property
    def is_as_published(self) -> bool:
        """Whether measured numbers stand for the published ones."""
        return self.comparable or self.reduced == "nothing"

    def runs(self, seeds: int | None = None, device: str | None = None) -> list[tuple[Cell, list[Run]]]:
        """Return the runs of each cell, expanded and checked as those of any sweep."""
        placed = {} if device is None else {"device": device}
        chosen = tuple(range(self.seeds if seeds is None else seeds))
        return [(cell, Sweep(fixed={**cell.fields, **placed}, seeds=chosen).expand()) for cell in self.cells]

    def data(self) -> tuple[str, ...]:
        """Return the names of the data sets that must be in the cache."""
        named = [str(cell.fields.get("data", "digits")) for cell in self.cells]
        named += [split(str(cell.fields.get("protocol", "warm_start")))[1].get("to", "digits") for cell in self.cells]
        return tuple(dict.fromkeys(name for spec in named if (name := split(spec)[0]) not in EMBEDDED))


@dataclass(frozen=True)
class Entry:
    """A table or figure.

    Args:
        name: As in "layerwise-table-1".
        paper: F, S, L or Z as the method notes name them, or a citation.
        where: Table or figure.
        claim: What it says, in one sentence.
        rules: How the verdict is found; they were written before the runs.
        paper_study: The published settings.
        cpu_study: The largest honest reduction for two cores; None if the published scale is small enough.
        published: The numbers, by condition and method.
        measures: What is read of each run; published numbers are in the unit of the first.
        notes: What the paper leaves open, what our copy of it lacks, what we think of differences.
        waits_for: What is missing to run it at all.
        more: What else its page has, in Markdown, made from the observations: a matrix, a tree.
    """

    name: str
    paper: str
    where: str
    claim: str
    rules: tuple[Rule, ...] = ()
    paper_study: Study | None = None
    cpu_study: Study | None = None
    published: Mapping[Name, Published] = field(default_factory=dict)
    measures: tuple[Measure, ...] = (Measure(),)
    notes: tuple[str, ...] = ()
    waits_for: str = ""
    more: Callable[[Sequence[Row]], str] | None = None

    def study(self, preset: Preset) -> Study | None:
        """Return the study of a preset; what is small enough as published has one only."""
        return self.cpu_study or self.paper_study if preset == "cpu" else self.paper_study


def cells(
    base: Fields, conditions: Mapping[str, Fields], methods: Mapping[str, Fields | str], skip: Sequence[Name] = ()
) -> tuple[Cell, ...]:
    """Return every condition with every method.

    Args:
        base: Fields of all.
        conditions: By name, their fields; they win over the base.
        methods: By name, their fields, or the field `methods` alone; they win over both.
        skip: Pairs that are left out.

    Example:
        >>> made = cells({"data": "digits"}, {"small": {"model": "mlp"}}, {"plain": "none", "FIRE": "fire"})
        >>> [(cell.condition, cell.method, cell.fields["methods"]) for cell in made]
        [('small', 'plain', 'none'), ('small', 'FIRE', 'fire')]
    """
    made = []
    for condition, own in conditions.items():
        for method, given in methods.items():
            fields = {"methods": given} if isinstance(given, str) else given
            if (condition, method) not in skip:
                made.append(Cell(condition, method, {**base, **own, **fields}))
    return tuple(made)


def published(conditions: Sequence[str], columns: Mapping[str, Sequence[Any]], n: int | None = None) -> dict[Name, Any]:
    """Return numbers that stand in columns, a method each: (mean, deviation) or a mean for each condition.

    Example:
        >>> published(["0.5"], {"BL": [(20.3, 0.6)]})
        {('0.5', 'BL'): Published(mean=20.3, deviation=0.6, n=None)}
    """
    made = {}
    for method, numbers in columns.items():
        for condition, number in zip(conditions, numbers, strict=True):
            mean, deviation = number if isinstance(number, tuple) else (number, None)
            made[condition, method] = Published(mean, deviation, n)
    return made
