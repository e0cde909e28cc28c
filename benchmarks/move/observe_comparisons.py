"""`rk.compare` on tiny networks with a fixed budget: rows, outcomes, verdict, table and page. Its clock is ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from commands import command, page
from lookup import find
from recording import Seen
from subjects import printed, steady_clock
from torch import nn

import rekindle as rk


def observe(seen: Seen, room: Path) -> None:
    """Compare in several ways, so that every kind of verdict is heard."""
    with steady_clock():
        for name, make in CASES.items():
            found = seen.attempt(name, make)
            if found is not None:
                note_comparison(seen, name, found)
        _refused(seen)
        _page(seen, room)


def net(seed: int = 0, extra: tuple[nn.Module, ...] = ()) -> nn.Module:
    """Return a small network for digits."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), *extra, nn.Linear(16, 10))


def dead() -> nn.Module:
    """Return a network whose hidden units are silent for good."""
    model = net()
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    return model


def learned() -> nn.Module:
    """Return a network that knows the data."""
    model, (inputs, labels) = net(), train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def train(count: int = 600) -> tuple[torch.Tensor, torch.Tensor]:
    """Return digits to learn from."""
    examples = find("rekindle.data").load("digits").train
    return examples.batch(slice(0, count)).flatten(1), examples.labels[:count]


def small(model: nn.Module, methods: Any, **given: Any) -> Any:
    """Compare on few data with few steps."""
    return rk.compare(model, train(64), train(64), methods, **{"budget": 3, "seeds": 2, "batch_size": 16, **given})


def _adam(model: nn.Module) -> Any:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def _with_its_optimizer() -> Any:
    model = learned()
    optimizer = _adam(model)
    nn.functional.cross_entropy(model(train()[0]), train()[1]).backward()
    optimizer.step()
    return small(model, ["fire", "full_reset"], optimizer=optimizer)


def _squared(model: nn.Module, batch: Any) -> torch.Tensor:
    return model(batch[0]).square().mean()


NORMED = (nn.BatchNorm1d(16), nn.Dropout(0.5))
OWN_MODEL = """
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""
SICK = {"budget": 30, "optimizer": "adam:lr=1e-2", "batch_size": 64, "seeds": 5}
CASES: dict[str, Callable[[], Any]] = {
    "dead": lambda: rk.compare(dead(), train(), train(200), ["redo:period=5", "full_reset", "redo:skip=*"], **SICK),
    "fresh wins": lambda: rk.compare(dead(), train(), train(200), ["l2"], **SICK),
    "learned": lambda: rk.compare(learned(), train(), train(200), ["head_reset"], budget=2),
    "default": lambda: rk.compare(net(), train(64), train(64), budget="1 epoch", seeds=(3, 7), batch_size=16),
    "constant": lambda: small(net(), ["fire"], metric=lambda model, batches: 0.5, seeds=5),
    "one fails": lambda: small(net(), ["fire", "layerwise:block=9", "fire+soft_rescale"]),
    "norms": lambda: small(net(extra=NORMED), ["fire", "dash", "cbp:rate=0.5,maturity=0"]),
    "loss": lambda: small(net(), "shrink_perturb", loss=_squared, optimizer=_adam, fresh=lambda: net(5)),
    "its optimizer": _with_its_optimizer,
}


def note_comparison(seen: Seen, key: str, found: Any) -> None:
    """Note everything that a comparison tells."""
    told = found.to_dict()
    told["rows"] = [{name: value for name, value in row.items() if name != "key"} for row in told["rows"]]
    seen.note(key, told)
    seen.note(f"{key}/outcomes", found.outcomes)
    seen.note(f"{key}/printed", printed(found))
    seen.note(f"{key}/cells", found.cells())


def _refused(seen: Seen) -> None:
    """Note what cannot be compared."""
    seen.attempt("refused/methods", lambda: small(net(), []))
    seen.attempt("refused/name", lambda: small(net(), ["no_such_method"]))
    seen.attempt("refused/muon", lambda: small(net(), ["muon"]))
    seen.attempt("refused/budget", lambda: small(net(), ["fire"], budget="long"))
    seen.attempt("refused/seeds", lambda: small(net(), ["fire"], seeds=1))
    seen.attempt("refused/optimizer", lambda: small(net(), ["fire"], optimizer=3))
    seen.attempt("refused/model", lambda: small(net().state_dict(), ["fire"]))
    seen.attempt("refused/loss", lambda: rk.compare(net(), [torch.zeros(4, 64)], [torch.zeros(4, 64)], ["fire"]))


def _page(seen: Seen, room: Path) -> None:
    """Write the page and the rows of a comparison, and report on them."""
    found = small(dead(), ["redo:period=1", "full_reset"], budget=8, seeds=3)
    write = find("rekindle.report.compare_page:write_compare_page")
    seen.note("page", page(write(found, room / "compare.html")))
    _save(found, room / "saved")
    seen.note(
        "saved/runs", {path.parent.name: path.read_text() for path in sorted((room / "saved").glob("*/rows.jsonl"))}
    )
    words = ("report", "saved", "--measure", "score", "--markdown", "saved.md")
    seen.note("saved/told", command(*words, room=room))
    seen.note("saved/table", (room / "saved.md").read_text())
    (room / "own_model.py").write_text(OWN_MODEL)
    torch.save(nn.Sequential(nn.Flatten(), *net()).state_dict(), room / "own.pt")
    words = ("compare", "own.pt", "--model", "own_model:make", "--train", "digits", "--steps", "3", "--seeds", "2")
    seen.note("command", command(*words, room=room))


def _save(found: Any, folder: Path) -> None:
    """Write a comparison into a folder of runs: a method of it before the move, a function after."""
    save = getattr(found, "save", None)
    save(folder) if save is not None else find("rekindle.lab.runs.saved_comparison:save_comparison")(found, folder)
