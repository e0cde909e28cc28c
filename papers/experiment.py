"""What an experiment is: a table or figure of a paper, its published numbers, two ways to run it, and its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from papers.rules import Rule
from rekindle.lab.data import EMBEDDED
from rekindle.lab.runs import Run, Sweep
from rekindle.methods import split

Fields = Mapping[str, Any]
Row = dict[str, Any]
Preset = Literal["paper", "cpu"]
CellName = tuple[str, str]  # condition and method


@dataclass(frozen=True)
class Paper:
    """A paper.

    Args:
        folder: Its folder beside this file; the results of its experiments are in the folder `results` there.
        name: What pages call it; the letter in brackets is the one that the cards of methods use.
        title: Title and authors.
    """

    folder: str
    name: str
    title: str


@dataclass(frozen=True)
class Published:
    """A number as printed.

    Args:
        mean: In the unit of the experiment's first measure.
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
        column: Column of the rows.
        at: Which rows are read:
            "last": the last row.
            "best": the row of the last stage with the highest value.
            "rise": that value minus the highest value of all stages before.
            "boundary": the last boundary row.
            "gap": the value at the last boundary minus the value before it.
            "step": the row of the last stage after `step` steps.
            "first": the end of the first stage.
            "rebound": that value minus the lowest of the first stage.
            "ends": the mean over the ends of all stages.
            "late": the mean over the ends of the last quarter of the stages.
            "trend": that mean minus the same mean over the first quarter.
        scale: The number is multiplied by this: 100 for percent.
        step: See "step" above.
    """

    name: str = "accuracy"
    column: str = "accuracy"
    at: Literal["last", "step", "best", "rise", "boundary", "gap", "first", "rebound", "ends", "late", "trend"] = "last"
    scale: float = 1.0
    step: int = 0


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a condition, a method, and the fields of its runs."""

    condition: str
    method: str
    fields: Fields


@dataclass(frozen=True)
class Study:
    """One way to run an experiment.

    Args:
        cells: What to train; or
        compute: A function of the number of seeds that returns observations: condition, method, seed and numbers.
        seeds: How many, from 0.
        minutes: About how long two cores take; None if that was not estimated.
        reduced: What is smaller than published.
        comparable: Whether numbers may be compared with published ones although something is reduced, such as the
            number of runs. Claims are always judged.
    """

    cells: tuple[Cell, ...] = ()
    compute: Callable[[int], list[Row]] | None = None
    seeds: int = 5
    minutes: float | None = None
    reduced: str = "nothing"
    comparable: bool = False

    @property
    def is_as_published(self) -> bool:
        """Whether measured numbers may be compared with the published ones."""
        return self.comparable or self.reduced == "nothing"

    def runs(self, seeds: int | None = None, device: str | None = None) -> list[tuple[Cell, list[Run]]]:
        """Return the runs of each cell, expanded and checked like those of any sweep."""
        extra = {} if device is None else {"device": device}
        numbers = tuple(range(self.seeds if seeds is None else seeds))
        return [(cell, Sweep(fixed={**cell.fields, **extra}, seeds=numbers).expand()) for cell in self.cells]

    def data(self) -> tuple[str, ...]:
        """Return the names of the data sets that must be in the cache."""
        specs = [str(cell.fields.get("data", "digits")) for cell in self.cells]
        specs += [split(str(cell.fields.get("protocol", "warm_start")))[1].get("to", "digits") for cell in self.cells]
        return tuple(dict.fromkeys(name for spec in specs if (name := split(spec)[0]) not in EMBEDDED))


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    Args:
        name: As in "layerwise-table-1".
        paper: Where it is from.
        where: Table, figure or section.
        claim: What it says, in one sentence.
        rules: How the verdict is found. They were written before the runs.
        gates: Rules of the setting: where their claims do not hold, the other claims are not judged.
        paper_study: The published settings.
        cpu_study: The largest honest reduction for two cores; None if the published scale is small enough.
        published: The printed numbers, by condition and method.
        measures: What is read of each run; published numbers are in the unit of the first.
        notes: What the paper leaves open, what our copy of it lacks, how we explain differences.
        waits_for: What is missing to run it at all.
        extra: Makes more Markdown for its page from the observations: a matrix, a tree.
    """

    name: str
    paper: Paper
    where: str
    claim: str
    rules: tuple[Rule, ...] = ()
    gates: tuple[Rule, ...] = ()
    paper_study: Study | None = None
    cpu_study: Study | None = None
    published: Mapping[CellName, Published] = field(default_factory=dict)
    measures: tuple[Measure, ...] = (Measure(),)
    notes: tuple[str, ...] = ()
    waits_for: str = ""
    extra: Callable[[Sequence[Row]], str] | None = None

    def study(self, preset: Preset) -> Study | None:
        """Return the study of a preset; where the published scale is small enough, both have the same one."""
        return self.cpu_study or self.paper_study if preset == "cpu" else self.paper_study


def cells(
    base: Fields, conditions: Mapping[str, Fields], methods: Mapping[str, Fields | str], skip: Sequence[CellName] = ()
) -> tuple[Cell, ...]:
    """Return every condition with every method.

    Args:
        base: Fields of all cells.
        conditions: By name, their fields; they override the base.
        methods: By name, their fields, or the field `methods` alone; they override both.
        skip: Pairs that are left out.

    Example:
        >>> found = cells({"data": "digits"}, {"small": {"model": "mlp"}}, {"plain": "none", "FIRE": "fire"})
        >>> [(cell.condition, cell.method, cell.fields["methods"]) for cell in found]
        [('small', 'plain', 'none'), ('small', 'FIRE', 'fire')]
    """
    found = []
    for condition, own in conditions.items():
        for method, given in methods.items():
            fields = {"methods": given} if isinstance(given, str) else given
            if (condition, method) not in skip:
                found.append(Cell(condition, method, {**base, **own, **fields}))
    return tuple(found)


def published(
    conditions: Sequence[str], columns: Mapping[str, Sequence[Any]], n: int | None = None
) -> dict[CellName, Published]:
    """Return numbers that are printed in columns, one for each method: (mean, deviation) or a mean for each condition.

    Example:
        >>> published(["0.5"], {"BL": [(20.3, 0.6)]})
        {('0.5', 'BL'): Published(mean=20.3, deviation=0.6, n=None)}
    """
    found = {}
    for method, numbers in columns.items():
        for condition, number in zip(conditions, numbers, strict=True):
            mean, deviation = number if isinstance(number, tuple) else (number, None)
            found[condition, method] = Published(mean, deviation, n)
    return found
