"""What other groups pass by: several optimizers, named heads and blocks, stored data, commands, checks, the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from commands import command, ended, program
from lookup import find, part, spec
from observe_keepers import note_kept, train
from observe_methods import treat
from observe_runs import execute, run_of
from observe_seeds import examples
from observe_sweeps import stored
from recording import Seen, untimed
from safetensors.torch import save_file
from subjects import aged, batches, printed
from torch import nn

import rekindle as rk

ONE_RUN = 'protocol: "warm_start:before=2,after=1"\nmodel: "mlp:hidden=8"\nmethods: fire\n'
FAILING = 'protocol: "warm_start:before=2,after=1"\noptimizer: "sgd:lr=1e30"\n'


def observe(seen: Seen, room: Path) -> None:
    """Observe all of it."""
    _named_parts(seen)
    _two_optimizers(seen)
    _large(seen)
    _stored_data(seen, room)
    _commands(seen, room)
    _checks(seen)
    _computed(seen)
    told = ended(program("demo", "--seeds", "2", "--out", "demo", room=room)).splitlines()
    seen.note("demo", [line for line in told if not line.startswith("[")])  # two runs at once end in any order
    seen.note("demo/rows", stored(room / "demo"))


def _named_parts(seen: Seen) -> None:
    """Name heads and blocks instead of letting them be found."""
    member = rk.testing.ZOO["vgg"]
    names = [name for name, each in member.build().named_modules() if isinstance(each, (nn.Linear, nn.Conv2d))]
    given = {"example": member.example(), "data": batches(member)}
    for text in (f"plasticity_injection:head={names[-2]}", f"plasticity_injection:head={names[0]}"):
        treat(seen, text, text, member, **given)
    # Not "layerwise:blocks=none": that was read as a block of the name "none", and means the default now.
    for text in (f"layerwise:blocks={names[0]}|{names[2]},block=2", "layerwise:block=3"):
        treat(seen, text, text, member, **given)
    treat(seen, "no head", "plasticity_injection:head=none_such", member, **given)


def _two_optimizers(seen: Seen) -> None:
    """Keep a model that two optimizers train."""
    member = rk.testing.ZOO["cnn_bn"]
    model = member.build()
    names = list(model.parameters())
    both = [torch.optim.Adam(names[:4], lr=1e-2), torch.optim.SGD(names[4:], lr=1e-2, momentum=0.9)]
    keeper = rk.Keeper(model, both, ["redo:period=2,threshold=0.9", "fire", "l2"], example=member.example())
    for optimizer in both:
        seen.note(f"two/{type(optimizer).__name__}/penalties", train(model, optimizer, keeper, member, steps=4))
    (record,) = keeper.boundary()
    seen.note("two/record", printed(record))
    for optimizer in both:
        note_kept(seen, f"two/{type(optimizer).__name__}", model, optimizer, keeper)
    record.undo()
    seen.note("two/undone", model)


def _large(seen: Seen) -> None:
    """Treat a network whose matrices are large enough for the fast solvers."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 10))
    for method in ("fire", "rescale", "fire:tolerance=1e-2", "dsd:scope=global", "mutually_frozen"):
        record = rk.apply_(method, net, example=torch.zeros(2, 64), seed=3)
        seen.note(f"large/{method}", net)
        seen.note(f"large/{method}/record", record.to_dict())


def _stored_data(seen: Seen, room: Path) -> None:
    """Read data sets from files, also at another size, and change from one to the other."""
    random = np.random.default_rng(0)
    for name, size in (("first", 8), ("second", 12)):
        for where, count in (("train", 60), ("test", 30)):
            (room / "data" / name).mkdir(parents=True, exist_ok=True)
            images = random.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
            np.savez(room / "data" / name / f"{where}.npz", images=images, labels=np.arange(count) % 6)
    colored = spec("colour", find("rekindle.data.augment:augmentation"))
    with mock.patch.dict("os.environ", {"REKINDLE_DATA": str(room / "data")}):
        for name in ("first", "second", "second:size=5", "first:size=16", "third"):
            seen.attempt(f"data/{name}", lambda name=name: _note_data(seen, name))
        for change in ("task_change:to=second,epochs=1", "task_change:change=blur,second_change=rotate,epochs=1"):
            run = run_of(protocol=change, data="first", model="scnn:channels=2|2,hidden=8", augment=colored)
            seen.attempt(change, lambda run=run, change=change: seen.note(change, untimed(execute(run, None))))


def _note_data(seen: Seen, name: str) -> None:
    data = find("rekindle.data").load(name)
    normalized = part(data.train, "normalise")
    seen.note(f"data/{name}", [*examples(data.train), *examples(data.test), data.classes, normalized])


def _commands(seen: Seen, room: Path) -> None:
    """Run what the command line offers for one run and one checkpoint."""
    (room / "one.yaml").write_text(ONE_RUN)
    (room / "failing.yaml").write_text(FAILING)
    for number, words in enumerate((("run", "one.yaml"), ("run", "one.yaml"), ("sweep", "one.yaml", "--tensorboard"))):
        seen.note(f"command/{number}", command(*words, room=room))
    seen.note("command/rows", stored(room / "runs" / "one"))
    failed = command("run", "failing.yaml", room=room)
    seen.note("command/failed", [failed.splitlines()[0], *failed.splitlines()[-6:]])
    _audits(seen, room)


def _audits(seen: Seen, room: Path) -> None:
    model, _ = aged(rk.testing.ZOO["mlp"])
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (room / "sharded").mkdir()
    names = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(state)}
    for file in set(names.values()):
        save_file({name: state[name] for name in state if names[name] == file}, room / "sharded" / file)
    index = room / "sharded" / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    torch.save({"model": state, "step": 3}, room / "nested.pt")
    torch.save(_classifier(), room / "own.pt")
    (room / "audited.py").write_text(OWN)
    for words in (("sharded",), ("nested.pt",), ("sharded", "--metrics", "dfi", "srank"), ("own.pt", "--model", "x:y")):
        seen.note(f"audit/{' '.join(words)}", command("audit", *words, room=room))
    words = ("own.pt", "--model", "audited:make", "--data", "digits", "--batches", "2", "--json", "a.json")
    seen.note("audit/with data", command("audit", *words, room=room))


OWN = """
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
"""


def _classifier() -> dict[str, torch.Tensor]:
    """Return a checkpoint of what `OWN` makes, which is always the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)).state_dict()


def _checks(seen: Seen) -> None:
    """Let the public checks judge methods, and one that breaks its promises."""
    for name in ("fire", "wels", "plasticity_injection"):
        members = [rk.testing.ZOO[each] for each in ("mlp", "cnn_bn")]
        seen.attempt(f"check/{name}", lambda name=name, members=members: rk.testing.check_method(name, members))
    honest = rk.method("shrink_perturb")
    with mock.patch.object(type(honest), "identity", {"shrink": 0.5}):
        seen.attempt("check/broken", lambda: rk.testing.check_method("shrink_perturb", [rk.testing.ZOO["mlp"]]))
    seen.note("checks", [check.__name__ for check in rk.testing.CHECKS])


def _computed(seen: Seen) -> None:
    """Compute what entries of the catalogue compute without training; measured times are left out."""
    for name, entry in find("rekindle.bench.reproduce.catalogue:ENTRIES").items():
        study: Any = entry.study("cpu")
        if study is not None and study.compute is not None and "cost" not in study.compute.__name__:
            seen.note(f"computed/{name}", study.compute(1))
