"""Single runs of every kind, whole and interrupted: their rows, and all that their checkpoints hold at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lookup import find
from recording import Seen, untimed

SHORT = {"protocol": "warm_start:fraction=0.2,before=3,after=2", "model": "mlp:hidden=16|16", "batch_size": 64}
IMAGES = {"model": "scnn:channels=2|2,hidden=8"}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one-shot": {"methods": "shrink_perturb:shrink=0.5+fire", "seed": 1},
    "recycler": {"methods": "redo:period=3,threshold=0.3"},
    "per-step": {"methods": "soft_rescale+l2_init", "metrics": ["dfi", "sfe", "hessian_top"]},
    "fresh": {"methods": "fresh"},
    "structure": {"methods": "plasticity_injection"},
    "data": {"methods": "dash", "label_noise": 0.3, "sample_fraction": 0.5},
    "decay": {"schedule": "decay:by=0.8", "warmup": 0.3, "optimizer": "sgd:lr=0.1,momentum=0.9", "clip": 0.5},
    "steps": {"schedule": "steps:at=1|2,by=0.3", "optimizer": "adamw:lr=0.01,weight_decay=0.1"},
    "stopping": {"validation": 0.2, "patience": 1, "schedule": "plateau:patience=1", "optimizer": "adam:lr=0.05"},
    "muon": {"optimizer": "muon"},
    "augmented": {"augment": "flip+crop:padding=1", **IMAGES},
    "norms": {"model": "resnet18:width=2", "batch_size": 120, "protocol": "warm_start:fraction=0.2,before=1,after=1"},
    "dropout": {"model": "scnn:channels=2|2,hidden=8,dropout=0.5"},
    "bfloat16": {"precision": "bfloat16", **IMAGES},
    "rounds": {"protocol": "rounds:blocks=2,repeats=2,steps=3", "data": "synthetic:test=64", "methods": "layerwise"},
    "continual": {"protocol": "continual:chunks=3,epochs=1", "methods": "cbp:rate=0.1,maturity=2"},
    "classes": {"protocol": "class_incremental:phases=5,epochs=1", "methods": "hare_tortoise:period=4"},
    "permuted": {"protocol": "permuted:tasks=3,images=200", "methods": "snr:threshold=0.3,firings=2,longest=4"},
    "task change": {"protocol": "task_change:change=blur,epochs=2", "methods": "dirac_reset"},
    "generalization": {"protocol": "generalization:epochs=2", "data": "mnist1d", "methods": "weight_clip:kappa=0.5"},
}


class Stopped(BaseException):
    """A run was stopped on purpose."""


def observe(seen: Seen, room: Path) -> None:
    """Run every kind, whole and interrupted."""
    for kind, given in KINDS.items():
        run = seen.attempt(f"{kind}/run", lambda: run_of(**given))  # noqa: B023
        if run is None:
            continue
        seen.note(f"{kind}/run", {"key": run.key, **run.to_dict()})
        whole = seen.attempt(f"{kind}/whole", lambda: execute(run, room / kind / "whole"))  # noqa: B023
        seen.note(f"{kind}/whole", untimed(whole))
        if whole is not None:
            seen.note(f"{kind}/whole/end", untimed(checkpoint(room / kind / "whole")))
            stop(run, room / kind / "stopped", rows=1)
            stop(run, room / kind / "stopped", rows=len(whole) // 2)
            again = execute(run, room / kind / "stopped", every=0)
            seen.note(f"{kind}/stopped is whole", untimed(again) == untimed(whole))
            seen.note(f"{kind}/stopped/end", untimed(checkpoint(room / kind / "stopped")["learner"]))
    _refused(seen)


def run_of(**given: Any) -> Any:
    """Return a short run."""
    return find("rekindle.bench.spec:Run").from_dict({**SHORT, **given})


def execute(run: Any, folder: Path | None, **given: Any) -> list[dict[str, Any]]:
    """Train a run."""
    rows: list[dict[str, Any]] = find("rekindle.bench.run:execute")(run, folder, **given)
    return rows


def stop(run: Any, folder: Path, rows: int) -> None:
    """Train a run with a checkpoint after each step, and stop it when it has told of so many more rows."""
    try:
        execute(run, folder, every=0, progress=_stopper(rows))
    except Stopped:
        pass


def _stopper(rows: int) -> Callable[[Any], None]:
    told: list[Any] = []

    def hear(row: Any) -> None:
        told.append(row)
        if len(told) >= rows:
            raise Stopped

    return hear


def checkpoint(folder: Path) -> dict[str, Any]:
    """Return the checkpoint of a run."""
    found: dict[str, Any] = torch.load(next(folder.glob("*.pt")), weights_only=True)
    return found


def _refused(seen: Seen) -> None:
    """Note what is said of runs that make no sense."""
    wrong = ("protocol", "data", "model", "methods", "optimizer", "schedule", "augment", "precision", "device")
    for name in wrong:
        seen.attempt(f"refused/{name}", lambda name=name: execute(run_of(**{name: "no_such_thing"}), None))
        seen.attempt(f"refused/{name}/setting", lambda name=name: run_of(**{name: f"{KNOWN.get(name, 'x')}:none=1"}))
    for name, value in (("metrics", ["no_such"]), ("batch_size", 0), ("epochs", -1), ("warmup", 2), ("nothing", 1)):
        seen.attempt(f"refused/{name}", lambda name=name, value=value: run_of(**{name: value}))
    seen.attempt("refused/too small", lambda: execute(run_of(model="vgg16"), None))
    seen.attempt("refused/diverged", lambda: execute(run_of(optimizer="sgd:lr=1e30"), None))


KNOWN = {
    "protocol": "warm_start",
    "data": "synthetic",
    "model": "mlp",
    "methods": "fire",
    "optimizer": "adam",
    "schedule": "decay",
    "augment": "crop",
}
