"""`rekindle demo`: a warm start that hurts, and what helps, on the digits that come with the package.

The setting (200 images, half of their labels random, 500 steps; then 1,198 images with their own labels, 200 steps) was
chosen on other seeds than the ones shown, and chosen because warm starting hurts in it. With clean labels in the first
stage (`--random-labels 0`) it does not hurt on these digits. The runs are an ordinary sweep, and the page an ordinary
report: `rekindle report` on the same folder writes it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from rekindle.diagnosis.auditing import Audit
    from rekindle.lab.runs.spec import Run
    from rekindle.statistics.paired_tests import PairedTest, Results

WARM, FRESH = "none", "fresh"
METHODS = (WARM, FRESH, "shrink_perturb:shrink=0.8", "fire", "soft_rescale:strength=1e-3")
FIRST_IMAGES, FIRST_STEPS, THEN_STEPS = 200, 500, 200
CLEAR = 0.05  # chance, after Holm's correction, below which a difference is called one


def run(seeds: int = 10, random_labels: float = 0.5, out: Path = Path("rekindle-demo")) -> None:
    """Train a small network on a little data, then on more: untreated, fresh and treated. Takes one to three minutes.

    Args:
        seeds: Number of repetitions, each with its own split, weights, labels and batches; at least 2.
        random_labels: Fraction of the first stage's labels that is random; 0 for a first stage with clean labels.
        out: Folder for the runs and the page; runs that are there already are not trained again.
    """
    from rich.console import Console

    from rekindle.errors import RekindleError

    if seeds < 2:
        raise RekindleError(expected="at least 2 seeds, for a spread", got=f"{seeds}", fix="leave --seeds out for 10")
    console = Console(highlight=False)
    console.print(describe(random_labels))
    runs = runs_of(seeds, random_labels)
    page = train(runs, out)
    console.print(audits(runs[0]))
    results = measured(runs, out)
    console.print(table(results, seeds))
    for sentence in sentences(results):
        console.print(sentence)
    console.print(f"Report: {page}")


def describe(random_labels: float) -> str:
    """Say what is trained."""
    return (
        f"Warm start on handwritten digits: first {FIRST_IMAGES} images, {random_labels:.0%} of their labels random, "
        f"{FIRST_STEPS} steps; then all training images with their own labels, {THEN_STEPS} steps."
    )


def runs_of(seeds: int, random_labels: float, first_seed: int = 0) -> list[Run]:
    """Return all runs: every method with every seed."""
    from rekindle.lab.runs.spec import Run

    protocol = (
        f"warm_start:images={FIRST_IMAGES},random_labels={random_labels},"
        f"before_steps={FIRST_STEPS},after_steps={THEN_STEPS}"
    )
    asked = {"protocol": protocol, "evaluate_each": 10}
    return [
        Run.from_dict({**asked, "data": f"digits:division={seed}", "methods": method, "seed": seed})
        for seed in range(first_seed, first_seed + seeds)
        for method in METHODS
    ]


def train(runs: Sequence[Run], out: Path) -> Path:
    """Train what is not trained yet, on all cores, and write the report."""
    from rekindle.errors import RekindleError
    from rekindle.lab.report.load_runs import read_runs
    from rekindle.lab.report.runs_page import write_runs_page
    from rekindle.lab.runs.engines.local import LocalEngine
    from rekindle.lab.runs.execute import run_sweep
    from rekindle.lab.runs.progress import Display
    from rekindle.lab.runs.store import Store

    store = Store(out / "runs")
    with Display(runs) as display:
        summary = run_sweep(store, runs, LocalEngine(), retry=True, listen=display)
    if summary.interrupted or summary.failed:
        raise RekindleError(
            expected="all runs of the demo to end",
            got="an interrupt" if summary.interrupted else f"{len(summary.failed)} that failed",
            fix=f"run the same command again: it goes on; what failed is told in {store.folder}",
        )
    return write_runs_page(read_runs(store.folder, baseline=WARM), out / "report.html")


def measured(runs: Sequence[Run], out: Path) -> Results:
    """Return the accuracies in percent at the end of these runs."""
    from rekindle.lab.runs.store import Store
    from rekindle.statistics.paired_tests import collect

    store = Store(out / "runs")
    rows = [{**row, "accuracy": 100 * row["accuracy"]} for run in runs for row in store.rows(run.key)]
    return collect(rows, setting=())


def audits(run: Run) -> str:
    """Audit the network of a run after its first stage on the data of the second, before and after the remedy."""
    import rekindle as rk
    from rekindle.lab.runs.training_run import learner_of, stages_of

    stages, classes = stages_of(run)
    learner = learner_of(run, stages[:1], classes)
    learner.run()
    model, batches = learner.model, list(islice(stages[1].train.in_order(256), 4))
    before = rk.audit(model, batches)
    if before.healthy:
        return "Audit after the first stage, on the data to come: nothing found."
    remedy = before.findings[0].suggestion
    rk.apply_(remedy, model, example=batches[0][0], seed=run.seed)
    return f"{_told('Audit after the first stage', before)}\n{_told(f'Audit after {remedy}', rk.audit(model, batches))}"


def _told(title: str, found: Audit) -> str:
    return f"{title}, on the data to come: " + ("; ".join(f.sentence for f in found.findings) or "nothing found") + "."


def table(results: Results, seeds: int) -> Table:
    """Return the results as a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from rekindle.statistics.intervals import spread

    title = f"Test accuracy (%) at the end, {seeds} seeds: mean ± standard deviation, seeds won"
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    made.add_column("second stage from", no_wrap=True)
    for name in ("accuracy", "minus warm", "minus fresh"):
        made.add_column(name, justify="right", no_wrap=True)
    for method in results.methods:
        score = spread(results.pairs(method, method)[0])
        against = ["" if method == other else _gap(results, method, other) for other in (WARM, FRESH)]
        made.add_row(_name(method), f"{score.mean:.1f} ± {score.deviation:.1f}", *against)
    return made


def _gap(results: Results, method: str, other: str) -> str:
    from rekindle.statistics.intervals import spread

    ours, theirs = results.pairs(method, other)
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    found = spread(gaps)
    return f"{found.mean:+.1f} ± {found.deviation:.1f}, {sum(gap > 0 for gap in gaps)}/{len(gaps)}"


def _name(method: str) -> str:
    from rekindle.methods.spec import name_of

    return {WARM: "warm, untreated", FRESH: "fresh weights"}.get(method, name_of(method))


def sentences(results: Results) -> list[str]:
    """Say what it means in two sentences: whether the warm start hurt, and whether a treatment beats fresh weights.

    One-sided sign tests against the warm start, and against fresh weights, each family with Holm's correction.
    """
    over_warm, over_fresh = (_clearly_better(results, than) for than in (WARM, FRESH))
    warm, fresh = results.pairs(WARM, FRESH)
    gap = sum(warm) / len(warm) - sum(fresh) / len(fresh)
    if FRESH in over_warm or WARM in over_fresh:
        comparison = over_warm[FRESH] if FRESH in over_warm else over_fresh[WARM]
        seeds = f"{comparison.wins} of {comparison.pairs} seeds, p = {comparison.p_holm:.2g} after Holm's correction"
        first = f"The warm start ended {abs(gap):.1f} points {'below' if gap < 0 else 'above'} fresh weights ({seeds})."
    else:
        first = f"With these seeds warm start and fresh weights cannot be told apart ({gap:+.1f} points)."
    treated, above = ([method for method in METHODS[2:] if method in found] for found in (over_warm, over_fresh))
    helped = f"Clearly above the warm start: {', '.join(treated)}" if treated else "No treatment is clearly above it"
    more = f"above fresh weights too: {', '.join(above)}" if above else "none is clearly above fresh weights"
    return [first, f"{helped}; {more}."]


def _clearly_better(results: Results, than: str) -> dict[str, PairedTest]:
    from rekindle.statistics.paired_tests import compare_all

    found = compare_all(results, baseline=than, intervals=False)
    return {comparison.better: comparison for comparison in found if comparison.p_holm < CLEAR}
