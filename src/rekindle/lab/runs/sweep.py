"""A sweep: a YAML spec, checked first and expanded into runs.

    protocol: warm_start:fraction=0.1     # any field of a run, the same for all
    data: digits
    grid:                                 # every combination of these
      methods: [none, fresh, fire]
      model: [mlp, cnn]
    seeds: 5                              # 0 to 4, or a list

`preset: fire.warm_start.cifar10` starts from a paper's run; what stands beside it wins. Without `methods` it takes all
that the paper tuned, each with its best value, beside none and fresh.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rekindle.errors import RekindleError
from rekindle.lab.runs.presets import BEST, RUNS
from rekindle.lab.runs.spec import Run

OWN = ("name", "preset", "grid", "seeds")


class SweepError(RekindleError):
    """A spec does not describe runs."""


@dataclass(frozen=True)
class Sweep:
    """What to run: fields that are fixed, fields that vary, and seeds.

    Args:
        fixed: Fields of a run that are the same for all.
        grid: Lists of values; every combination is run.
        seeds: Each combination is run with each of them.
        name: What the sweep is called.

    Example:
        >>> sweep = Sweep(fixed={"data": "digits"}, grid={"methods": ["none", "fresh"]}, seeds=(0, 1, 2))
        >>> len(sweep.expand())
        6
    """

    fixed: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    name: str = "sweep"

    def expand(self) -> list[Run]:
        """Return the runs, seeds varying slowest, so that early results cover the whole grid.

        Raises:
            RekindleError: A run is not possible, or stands there twice.
        """
        runs: dict[str, Run] = {}
        for fields in self.combinations():
            run = Run.from_dict(fields)
            if run.key in runs:
                varied = {name: fields[name] for name in (*self.grid, "seed")}
                raise SweepError(
                    expected="every run once",
                    got=f"{varied} twice",
                    fix="take out what says the same: of `seeds` or of a list in `grid`",
                )
            runs[run.key] = run
        return list(runs.values())

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of each run."""
        for seed in self.seeds:
            for values in itertools.product(*self.grid.values()):
                yield {**self.fixed, **dict(zip(self.grid, values, strict=True)), "seed": seed}


def read_sweep(path: str | Path) -> Sweep:
    """Read a spec.

    Raises:
        RekindleError: The file is not there, is no YAML, or says something that has no meaning.
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise SweepError(
            expected="a YAML spec",
            got=f"{path}: {error.strerror or error}",
            fix="give the path of a file such as those in benchmarks",
        ) from None
    return parse_sweep(text, where=str(path), name=path.stem)


def parse_sweep(text: str, *, where: str = "spec", name: str = "sweep") -> Sweep:
    r"""Return the sweep that a YAML text describes.

    Args:
        text: The spec.
        where: What to call it in messages.
        name: What to call the sweep if it gives itself no name.

    Example:
        >>> parse_sweep("data: digits\ngrid: {methods: [none, fire]}\nseeds: 2").seeds
        (0, 1)
    """
    given, lines = _load(text, where)

    def wrong(key: str, expected: str, got: Any, fix: str) -> SweepError:
        line = f"{where}, line {lines[key]}: " if key in lines else f"{where}: "
        return SweepError(expected=expected, got=f"{line}{key}: {got!r}", fix=fix)

    given = _with_preset(given, wrong)
    known = {field.name for field in dataclasses.fields(Run)}
    grid = _grid(given.get("grid", {}), known, wrong)
    fixed = _fixed(given, grid, known, wrong)
    called = given.get("name", name)
    if not isinstance(called, str):
        raise wrong("name", "a text", called, "write name: my_sweep")
    sweep = Sweep(fixed=fixed, grid=grid, seeds=_seeds(given, wrong), name=called)
    _try_each_value(sweep, lines, where)
    return sweep


Wrong = Callable[[str, str, Any, str], SweepError]


def _fixed(given: Mapping[str, Any], grid: Mapping[str, Any], known: set[str], wrong: Wrong) -> dict[str, Any]:
    fixed = {key: value for key, value in given.items() if key not in OWN}
    for key, value in fixed.items():
        if key not in known:
            fix = f"use one of {', '.join(sorted(known | set(OWN)))}"
            raise wrong(key, "a field of a run, `grid`, `seeds`, `preset` or `name`", value, fix)
        if key in grid:
            raise wrong(key, "each field once", value, f"take `{key}` out of the fixed fields or out of `grid`")
    if "seed" in fixed and "seeds" in given:
        raise wrong("seed", "`seed` or `seeds`", fixed["seed"], "take one of the two out")
    return fixed


def _with_preset(given: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
    """Put a paper's run under what is given; a method without settings gets its best value there."""
    if "preset" not in given:
        return given
    name, grid = given["preset"], given.get("grid", {})
    if name not in RUNS:
        raise wrong("preset", f"one of {', '.join(RUNS)}", name, "use one of these names")
    if not isinstance(grid, dict):
        return given  # told by _grid
    best, below = BEST.get(name, {}), {key: value for key, value in RUNS[name].items() if key not in grid}
    if "methods" in given:
        given = {**given, "methods": best.get(str(given["methods"]), given["methods"])}
    elif isinstance(grid.get("methods", []), list):
        methods = grid.get("methods", ["none", "fresh", *best])
        grid = {**grid, "methods": [best.get(str(method), method) for method in methods]}
    return {**below, **given, "grid": grid}


def _grid(grid: Any, known: set[str], wrong: Wrong) -> dict[str, list[Any]]:
    if not isinstance(grid, dict):
        raise wrong("grid", "a mapping from fields to lists", grid, "write grid: {methods: [none, fire]}")
    for key, values in grid.items():
        place = f"grid.{key}"
        if key == "seed":
            raise wrong(place, "seeds beside the grid", values, "write `seeds: 5` or `seeds: [0, 1]` at the top")
        if key not in known:
            raise wrong(place, "a field of a run", values, f"use one of {', '.join(sorted(known - {'seed'}))}")
        if not isinstance(values, list) or not values:
            raise wrong(place, "a list of at least one value", values, f"write {key}: [first, second]")
    return grid


def _seeds(given: Mapping[str, Any], wrong: Wrong) -> tuple[int, ...]:
    if "seeds" not in given:
        seed = given.get("seed", 0)
        if not _is_seed(seed):
            raise wrong("seed", "a whole number, 0 or more", seed, "write seed: 0")
        return (seed,)
    seeds = given["seeds"]
    if _is_seed(seeds) and seeds > 0:
        return tuple(range(seeds))
    if isinstance(seeds, list) and seeds and all(map(_is_seed, seeds)):
        return tuple(seeds)
    raise wrong("seeds", "a number of seeds or a list of them, each 0 or more", seeds, "write seeds: 5")


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _try_each_value(sweep: Sweep, lines: Mapping[str, int], where: str) -> None:
    """Check every value of the grid once, so that a mistake is told with its line before anything is run."""
    first = next(sweep.combinations())
    _try(first, (*sweep.fixed, *sweep.grid), lines, where)
    for key, values in sweep.grid.items():
        for value in values:
            _try({**first, key: value}, (key,), lines, where)


def _try(fields: Mapping[str, Any], suspects: Sequence[str], lines: Mapping[str, int], where: str) -> None:
    try:
        Run.from_dict(fields)
    except RekindleError as error:
        culprit = _culprit(error, fields, suspects)
        line = lines.get(f"grid.{culprit}", lines.get(culprit))
        place = f"{where}, line {line}" if line else where
        raise SweepError(expected=error.expected, got=f"{place}: {error.got}", fix=error.fix) from None


def _culprit(error: RekindleError, fields: Mapping[str, Any], suspects: Sequence[str]) -> str:
    """Return the field that a message is about: the one it names, else the one whose first word it repeats."""
    named = [key for key in suspects if re.search(rf"\b{key}\b", error.got)]
    words = {key: re.split(r"[:+]", str(fields[key]))[0] for key in suspects}
    repeated = [key for key, word in words.items() if len(word) > 1 and word in error.got]
    return next(iter([*named, *repeated, *(suspects if len(suspects) == 1 else ())]), "")


# --- YAML: numbers such as 1e-3 are numbers, a key stands once, and every key has its line ---


class _Loader(yaml.SafeLoader):
    """Reads 1e-3 as a number, which YAML 1.1 takes for a text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _load(text: str, where: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the mapping of a YAML text and the line of each of its keys."""
    try:
        node = yaml.compose(text, Loader=_Loader)
        lines = dict(_lines(node, where)) if isinstance(node, yaml.MappingNode) else {}
        given = yaml.load(text, Loader=_Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise SweepError(expected="YAML", got=f"{where}{line}: {problem}", fix="mend that line") from None
    if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
        raise SweepError(
            expected="a mapping of fields, one `field: value` a line",
            got=f"{where}: {str(given)[:60]!r}",
            fix="start with protocol, data and model; then grid and seeds",
        )
    return given, lines


def _lines(node: yaml.MappingNode, where: str, above: str = "") -> Iterator[tuple[str, int]]:
    seen: dict[str, int] = {}
    for key, value in node.value:
        name, line = f"{above}{key.value}", key.start_mark.line + 1
        if name in seen:
            raise SweepError(
                expected="each key once",
                got=f"{where}: {name} in line {seen[name]} and in line {line}",
                fix="take one of the two out",
            )
        seen[name] = line
        yield name, line
        if isinstance(value, yaml.MappingNode):
            yield from _lines(value, where, f"{name}.")
