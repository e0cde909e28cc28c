"""`rekindle reproduce`: a table or figure of a paper, published and measured side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from rekindle.bench.reproduce.entry import Entry


def run(
    name: Annotated[str, tyro.conf.Positional] = "",
    preset: Literal["paper", "cpu"] = "cpu",
    out: Path = Path("runs/reproduce"),
    workers: int | None = None,
    seeds: int | None = None,
    device: str | None = None,
    stack: bool = False,
    retry: bool = False,
    judge: bool = False,
    list: bool = False,
) -> None:
    """Run what a table or figure needs and judge it by its rule; stopped at any moment, the same command goes on.

    Args:
        name: Of the entry, as `--list` shows it.
        preset: The published settings (for a GPU), or the largest honest reduction for two cores.
        out: Folder of rows, observations and page; the runs are in its folder `runs`.
        workers: Local processes at once; one for each core when left out.
        seeds: Number of seeds, instead of the entry's own.
        device: Where to train: cpu, cuda.
        stack: Train the seeds of small MLPs together, where that can be done: faster, with the same results up to
            rounding.
        retry: Also run again what failed before.
        judge: Run nothing: judge the observations that are in `out` again, after a change of a rule or a note.
        list: Show all entries: name, minutes at cpu on two cores, data needed, paper and what is claimed.
    """
    from rekindle.bench.reproduce.catalogue import ENTRIES, entry

    if list or not name:
        show(tuple(ENTRIES.values()))
        return
    from rekindle.bench.local import LocalEngine
    from rekindle.bench.progress import Display
    from rekindle.bench.reproduce.making import judge_again, make, runs_of, study_of
    from rekindle.bench.stacking import StackingEngine
    from rekindle.bench.store import Store
    from rekindle.bench.work import Engine
    from rekindle.cli.sweep import conclude

    chosen = entry(name)
    if judge:
        made = judge_again(chosen, preset, out, seeds=seeds, device=device)
    else:
        with Display(runs_of(study_of(chosen, preset), seeds, device)) as display:
            engine: Engine = LocalEngine(workers=workers)
            engine = StackingEngine(engine, workers) if stack else engine
            made = make(chosen, preset, out, engine, seeds=seeds, device=device, retry=retry, listen=display)
    if made.observations:
        print(made.page)
    if made.files:
        print("Written: " + ", ".join(str(path) for path in made.files))
    else:
        print(f"Nothing was written to {out}: runs are missing, and what it has of {name} is not replaced by less.")
    if made.summary is not None:
        conclude(made.summary, Store(out / "runs"))


def show(entries: Sequence[Entry]) -> None:
    """Print the catalogue: a line for each entry, and its claim below."""
    import textwrap

    from rich.console import Console

    from rekindle.bench.reproduce.showing import listing

    console = Console(highlight=False, markup=False)
    for head, claim in listing(entries):
        console.print(head, style="bold")
        console.print(textwrap.fill(claim, console.width, initial_indent=" " * 4, subsequent_indent=" " * 4))
