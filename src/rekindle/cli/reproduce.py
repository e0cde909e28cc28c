"""`rekindle reproduce`: a table or figure of a paper, published and measured side by side.

The experiments are in the folder `papers` of the repository, which is not installed.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

CLONE = Path(__file__).resolve().parents[3]  # clone/src/rekindle/cli/reproduce.py: what an editable install points into


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

    Works in a clone of the repository, which has the experiments in its folder `papers`.

    Args:
        name: Of the experiment, as `--list` shows it.
        preset: The published settings (for a GPU), or the largest honest reduction for two cores.
        out: Folder of rows, observations and page (in `<out>/<paper>/results` if it is the folder `papers`); the runs
            are in its folder `runs`.
        workers: Local processes at once; one for each core when left out.
        seeds: Number of seeds, instead of the experiment's own.
        device: Where to train: cpu, cuda.
        stack: Train the seeds of small MLPs together, where that can be done: faster, with the same results up to
            rounding.
        retry: Also run again what failed before.
        judge: Run nothing: judge the observations that are in `out` again, after a change of a rule or a note.
        list: Show all experiments: name, minutes at cpu on two cores, data needed, paper and what is claimed.
    """
    make_importable(find_papers(CLONE, Path.cwd()))
    catalog = importlib.import_module("papers.catalog")
    if list or not name:
        show(catalog.EXPERIMENTS)
        return
    pipeline = importlib.import_module("papers.pipeline")
    experiment = catalog.experiment(name)
    if judge:
        result = pipeline.judge_again(experiment, preset, out, seeds=seeds, device=device)
    else:
        from rekindle.lab.runs import Engine, LocalEngine, StackingEngine
        from rekindle.lab.runs.progress import Display

        with Display(pipeline.list_runs(pipeline.study_with_data(experiment, preset), seeds, device)) as display:
            engine: Engine = LocalEngine(workers=workers)
            engine = StackingEngine(engine, workers) if stack else engine
            options = {"seeds": seeds, "device": device, "retry": retry, "listen": display}
            result = pipeline.run_experiment(experiment, preset, out, engine, **options)
    conclude(result, name, out)


def find_papers(*places: Path) -> Path:
    """Return the folder `papers` that is in the first of some places.

    Raises:
        RekindleError: None of them has one.
    """
    for place in places:
        if (place / "papers" / "catalog.py").is_file():
            return place / "papers"
    from rekindle.errors import RekindleError

    raise RekindleError(
        expected="a clone of rekindle's repository, which has the experiments in its folder papers",
        got=f"an installation without it: it is neither in {' nor in '.join(map(str, places))}",
        fix="clone the repository and run `rekindle reproduce` in its folder; `pip install -e .` there makes it work "
        "from everywhere",
    )


def make_importable(papers: Path) -> None:
    """Let `import papers` find a folder."""
    if str(papers.parent) not in sys.path:
        sys.path.insert(0, str(papers.parent))


def show(experiments: dict[str, Any]) -> None:
    """Print the catalog: a line for each experiment, and its claim below."""
    import textwrap

    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for head, claim in importlib.import_module("papers.markdown").listing([*experiments.values()]):
        console.print(head, style="bold")
        console.print(textwrap.fill(claim, console.width, initial_indent=" " * 4, subsequent_indent=" " * 4))


def conclude(result: Any, name: str, out: Path) -> None:
    """Print the page, what was written, and what came of the runs, which decides the exit code."""
    if result.observations:
        print(result.page)
    if result.files:
        print("Written: " + ", ".join(str(path) for path in result.files))
    else:
        print(f"Nothing was written to {out}: runs are missing, and what it has of {name} is not replaced by less.")
    if result.summary is not None:
        from rekindle.cli import sweep
        from rekindle.lab.runs import Store

        sweep.conclude(result.summary, Store(out / "runs"))
