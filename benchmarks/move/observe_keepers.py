"""Every per-step method and every recycler on every zoo model, in a Keeper; and Muon."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from lookup import part, spec
from recording import Seen, weights
from subjects import Make, aged, learn, sgd, small_outputs

import rekindle as rk

STEPS = 12
# Settings with which a method acts within a few steps; what is not listed acts with its own.
LIVELY = {
    "cbp": ("cbp:rate=0.4,maturity=0", "cbp:rate=0.2,maturity=3,decay=0.9"),
    "hare_tortoise": ("hare_tortoise:momentum=0.9,period=4", "hare_tortoise:period=3,clear_moments=true"),
    "l2": ("l2:strength=0.01", "l2:strength=0.1,which=weights"),
    "l2_init": ("l2_init:strength=0.01", "l2_init:strength=0.1,form=full,which=weights"),
    "parseval": ("parseval:strength=0.01", "parseval:scale=2,skip=*0*"),
    "redo": ("redo:period=2,threshold=0.9", "redo:period=5,threshold=0.3"),
    "regrama": ("regrama:period=2,threshold=0.9", "regrama:period=5,threshold=0.3"),
    "selective_reinit": ("selective_reinit:period=2,rate=0.1", "selective_reinit:period=3,rate=0.02"),
    "snr": ("snr:threshold=0.5,firings=2,longest=3,period=2", "snr:longest=1,firings=50"),
    "soft_rescale": ("soft_rescale:strength=0.2", "soft_rescale:proportional=false,strength=0.2"),
    "spectral": ("spectral:strength=0.01", "spectral:power=3"),
    "weight_clip": ("weight_clip:kappa=0.5", "weight_clip:skip=*0*"),
}
RESUMED = ("mlp", "cnn_bn", "vit_fused")
MUON = ({}, {"lr": 0.1, "momentum": 0.5, "nesterov": False, "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"})


def observe(seen: Seen, room: Path) -> None:
    """Train every zoo model beside every method, and with Muon."""
    for member in rk.testing.ZOO.values():
        graph = rk.trace(member.build(), member.example())
        for card in rk.list_methods():
            if card.kind in ("per-step", "recycler"):
                for number, text in enumerate(LIVELY.get(card.key, (card.key,))):
                    spoil = number == 1 and card.kind == "recycler"
                    keep(seen, f"{text}/{member.name}", spec(text, rk.method), member, graph, spoil=spoil)
                if member.name in RESUMED:
                    resume(seen, f"{card.key}/{member.name}/resumed", LIVELY.get(card.key, (card.key,))[0], member)
        muon(seen, member)
    _several(seen)
    _refused(seen)


def keep(
    seen: Seen, key: str, methods: Any, member: Any, graph: Any, make: Make = torch.optim.Adam, spoil: bool = False
) -> None:
    """Train a model in a short loop beside a Keeper; a spoiled one has dead units."""
    model, optimizer = aged(member, make, steps=1)
    for name, parameter in model.named_parameters() if spoil else ():
        if parameter.ndim == 1 and len(parameter) > 3 and "bias" in name or name in ("b1", "b2"):
            parameter.data[:2] = -100.0
    given = {"example": member.example(), "graph": graph, "seed": 3}
    keeper = seen.attempt(key, lambda: rk.Keeper(model, optimizer, methods, **given))
    if keeper is not None:
        seen.attempt(key, lambda: seen.note(f"{key}/penalties", train(model, optimizer, keeper, member)))
        note_kept(seen, key, model, optimizer, keeper)
        keeper.close()


def train(model: Any, optimizer: Any, keeper: Any, member: Any, steps: int = STEPS) -> str:
    """Take some steps and return the penalty of each, bit by bit."""
    penalties = []
    for _ in range(steps):
        penalty = keeper.penalty()
        penalties.append(float(torch.as_tensor(penalty).detach()).hex())
        optimizer.zero_grad()
        (small_outputs(model, member.example()) + penalty).backward()
        optimizer.step()
        keeper.step()
    return " ".join(penalties)


def note_kept(seen: Seen, key: str, model: Any, optimizer: Any, keeper: Any) -> None:
    """Note model, optimizer and Keeper as they are now."""
    seen.note(f"{key}/weights", weights(model))
    seen.note(f"{key}/optimizer", optimizer.state_dict())
    seen.note(f"{key}/keeper", keeper.state_dict())
    seen.note(f"{key}/left alone", dict(part(keeper, "left_alone")))


def resume(seen: Seen, key: str, text: str, member: Any) -> None:
    """Save everything in the middle, go on from what was saved, and rebase on the way."""
    parts = _started(text, member)
    train(*parts, member, steps=5)
    file = io.BytesIO()
    torch.save([each.state_dict() for each in parts], file)
    file.seek(0)
    again = _started(text, member)
    for each, state in zip(again, torch.load(file, weights_only=True), strict=True):
        each.load_state_dict(state)
    seen.note(f"{key}/penalties", train(*again, member, steps=3))
    again[2].rebase()
    seen.note(f"{key}/rebased", train(*again, member, steps=2))
    note_kept(seen, key, *again)


def _started(text: str, member: Any) -> tuple[Any, Any, Any]:
    model, optimizer = aged(member, sgd, steps=1)
    return model, optimizer, rk.Keeper(model, optimizer, spec(text, rk.method), example=member.example(), seed=1)


def muon(seen: Seen, member: Any) -> None:
    """Train a model with Muon."""
    for number, given in enumerate(MUON):
        key, model = f"muon/{number}/{member.name}", member.build()
        optimizer = seen.attempt(key, lambda: rk.muon(model, example=member.example(), **given))  # noqa: B023
        if optimizer is not None:
            for _ in range(5):
                learn(model, member.example(), optimizer)
            seen.note(f"{key}/weights", weights(model))
            seen.note(f"{key}/optimizer", optimizer.state_dict())


def _several(seen: Seen) -> None:
    """Several methods at once, several optimizers, recyclers beside Muon."""
    member = rk.testing.ZOO["cnn_bn"]
    graph = rk.trace(member.build(), member.example())
    keep(seen, "several", ["redo:period=2,threshold=0.9", "l2", "soft_rescale", "fire"], member, graph, sgd)
    keep(seen, "no graph", ["weight_clip:kappa=0.5", "spectral"], member, None, sgd)
    model = member.build()
    optimizer = rk.muon(model, example=member.example())
    keeper = rk.Keeper(model, optimizer, "cbp:rate=0.4,maturity=0", example=member.example())
    seen.note("muon and cbp/penalties", train(model, optimizer, keeper, member))
    note_kept(seen, "muon and cbp", model, optimizer, keeper)


def _refused(seen: Seen) -> None:
    """Note what a Keeper says of misuse."""
    member = rk.testing.ZOO["mlp"]
    model, optimizer = aged(member)
    for method in (card.key for card in rk.list_methods()):
        seen.attempt(f"refused/{method}", lambda method=method: rk.Keeper(model, optimizer, method))
    keeper = rk.Keeper(model, optimizer, "redo", example=member.example())
    seen.attempt("refused/state", lambda: keeper.load_state_dict({}))
    seen.attempt("refused/other seed", lambda: keeper.load_state_dict({**keeper.state_dict(), "seed": 9}))
    seen.attempt("refused/other methods", lambda: keeper.load_state_dict({**keeper.state_dict(), "methods": []}))
    seen.attempt("refused/running", lambda: (getattr(keeper, "state", None) or keeper.running)("fire"))
    seen.attempt("refused/attach", lambda: keeper.attach(model))
    model.double()
    seen.attempt("refused/replaced", keeper.step)
    keeper.close()
    seen.attempt("refused/closed", keeper.step)
    seen.attempt("refused/no model", rk.Keeper().step)
    seen.attempt("refused/other optimizer", lambda: rk.Keeper(member.build(), optimizer, "fire"))
