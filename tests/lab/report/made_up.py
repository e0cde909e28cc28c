"""Folders of runs for the tests of the report, and what is shown of them."""

from rekindle.lab.report.runs_page import sections_of
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.pages.page import Text

PATH = "warm_start:fraction=0.2,before=2,after=2"
FIXED = {"protocol": PATH, "data": "digits", "batch_size": 64, "metrics": ["dfi", "sfe"]}
REASON = "Traceback (most recent call last):\n  File 'x'\nMemoryError: too <big>"


def items(found, kind):
    return [item for section in sections_of(found) for item in section.content if isinstance(item, kind)]


def words(found):
    return "\n".join(text.words for text in items(found, Text))


def made_up(folder, numbers, *, fields=None, extra=None):
    """Write finished runs with one row each: method -> a number for each seed."""
    store = Store(folder)
    for method, values in numbers.items():
        for seed, value in enumerate(values):
            run = Run(methods=method, seed=seed, **(fields or {}))
            row = {"stage": 0, "epoch": 1, "event": "end", "accuracy": value, **(extra or {})}
            assert store.finish(store.claim(run), run, [row])
    return store.folder
