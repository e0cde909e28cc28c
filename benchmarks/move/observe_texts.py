"""What the library says of itself: cards, settings, names that can be imported, help, and what it says of mistakes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from commands import command
from lookup import find
from recording import Seen

import rekindle as rk

VERBS = ("audit", "compare", "demo", "list", "report", "run", "sweep")
WRONG_SPECS = (
    *("protocl: warm_start", "data: digits\ngrid:\n  metods: [none]", "data: digits\ngrid: []", "grid: {methods: []}"),
    *("grid: {methods: none}", "grid:\n  seed: [1]", "methods: none\ngrid: {methods: [fire]}", "seeds: 0"),
    *("seeds: 1.5", "seed: one", "seed: 1\nseeds: 2", "name: 3"),
    *("data: digits\n\nbatch_size: many", "data: digits\ndata: mnist"),
    *("data: digits\ngrid:\n  methods: [none, no_such_method]", "data: [digits", "- data", "", "1: 2", "preset: none"),
    *("seeds: [1, 1]", "grid: {warmup: [0, 0.0]}", "data: a b", "model: vit:depth=x", "optimizer: sgd:lr=-1"),
)


def observe(seen: Seen, room: Path) -> None:
    """Observe all of it."""
    seen.attempt("no such name", lambda: rk.no_such_name)
    for card in rk.list_methods():
        settings = type(rk.method(card.key))
        seen.note(f"card/{card.key}", card)
        seen.note(f"card/{card.key}/text", command("list", card.key, room=room))
        seen.note(f"settings/{card.key}", rk.method(card.key))
        seen.note(f"settings/{card.key}/identity", settings.identity)
        seen.note(f"settings/{card.key}/types", {f.name: str(f.type) for f in dataclasses.fields(settings)})
    for metric in rk.list_metrics():
        seen.note(f"metric/{metric.key}", metric)
    _commands(seen, room)
    for text in WRONG_SPECS:
        seen.attempt(f"spec/{text!r}", lambda text=text: find("rekindle.bench.sweep:parse_sweep")(text).expand())


def _commands(seen: Seen, room: Path) -> None:
    """Note help, and what is said of wrong words."""
    seen.note("version", command("--version", room=room))
    seen.note("list", command("list", room=room))
    for verb in VERBS:
        seen.note(f"help/{verb}", command(verb, "--help", room=room))
    wrong = (("list", "none"), ("sweep", "none.yaml"), ("report", "none"), ("audit", "none.pt"))
    for words in (*wrong, ("no_such_verb",), ("run", "none.yaml"), ("compare", "none.pt")):
        seen.note(f"wrong/{' '.join(words)}", command(*words, room=room))
