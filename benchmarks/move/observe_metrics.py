"""Every metric on every zoo model, by way of the audit: readings, findings, what was not run, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from commands import page
from recording import Seen
from safetensors.torch import save_file
from subjects import aged, batches, outputs, printed, small_outputs
from torch.utils import _pytree as pytree

import rekindle as rk

STORED = ("mlp", "cnn_bn", "gpt", "vit_mha")


def observe(seen: Seen, room: Path) -> None:
    """Audit every zoo model with data: by a loss of ours, and with labels where outputs are logits."""
    for member in rk.testing.ZOO.values():
        model, _ = aged(member)
        given = {"loss": small_outputs, "reference": member.build}
        audit(seen, f"{member.name}/outputs", model, batches(member), seed=1, **given)
        if (labelled := labels(member)) is not None:
            audit(seen, f"{member.name}/labels", model, labelled, reference=member.build, probe=False)
        if member.name in STORED:
            _stored(seen, member, model, room)
    _sick(seen, room)
    _refused(seen)


def audit(seen: Seen, key: str, *args: Any, **given: Any) -> Any:
    """Audit and note everything that came of it."""
    found = seen.attempt(key, lambda: rk.audit(*args, **given))
    if found is not None:
        seen.note(key, found.to_dict())
        seen.note(f"{key}/printed", printed(found))
    return found


def labels(member: Any) -> list[Any] | None:
    """Return batches of a tensor and integer labels; None for models whose outputs are no logits of classes."""
    example = member.example()
    if not isinstance(example, torch.Tensor) or not example.is_floating_point():
        return None
    found = outputs(member.build(), example)
    if len(found) != 1 or found[0].ndim != 2:
        return None
    targets = torch.arange(len(example)) % found[0].shape[1]
    return [(example, targets), pytree.tree_map(lambda tensor: tensor[::2], (example, targets))]


def _stored(seen: Seen, member: Any, model: Any, room: Path) -> None:
    """Audit a state dict, a safetensors file, and what torch.save wrote."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(state, room / f"{member.name}.safetensors")
    torch.save(state, room / f"{member.name}.pt")
    for what in (state, room / f"{member.name}.safetensors", room / f"{member.name}.pt"):
        kind = "state" if isinstance(what, dict) else what.suffix
        audit(seen, f"{member.name}/{kind}", what, reference=member.build().state_dict())


def _sick(seen: Seen, room: Path) -> None:
    """Audit a network with dead units, frozen units and large weights, so that the rules speak; and its files."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU())
    net.append(torch.nn.Linear(32, 4))
    with torch.no_grad():
        net[0].weight.mul_(20)
        net[0].bias[:12] = -1000
        net[2].weight[:, :16] = net[2].weight[:, :1] @ torch.ones(1, 16)
        net[2].weight[5:9], net[4].weight[:, 5:9] = 0, 0
    data = [(torch.randn(64, 8), torch.randint(4, (64,))) for _ in range(3)]
    found = audit(seen, "sick", net, data, seed=4)
    seen.note("sick/as it is", str(found))
    seen.note("sick/json", json.loads(found.to_json(room / "audit.json").read_text()))
    seen.note("sick/page", page(found.to_html(room / "audit.html")))
    audit(seen, "sick/thresholds", net, data, thresholds={"large_norms": 1e6}, probe=False)
    audit(seen, "sick/alone", net, data, compare=False, metrics=["dormant", "frozen", "srank"])


def _refused(seen: Seen) -> None:
    """Note what an audit says of what it cannot use."""
    net = torch.nn.Linear(3, 2)
    seen.attempt("refused/metric", lambda: rk.audit(net, metrics=["no_such_metric"]))
    seen.attempt("refused/rule", lambda: rk.audit(net, thresholds={"no_such_rule": 1.0}))
    seen.attempt("refused/batch", lambda: rk.audit(net, torch.zeros(2, 3)))
    seen.attempt("refused/model", lambda: rk.audit(3))
    seen.attempt("refused/file", lambda: rk.audit("no_such_file.safetensors"))
    net.weight.data[0, 0] = float("inf")
    seen.attempt("refused/infinite", lambda: rk.audit(net))
    audit(seen, "bare", rk.testing.ZOO["mlp"].build())
