"""Every one-shot method on every zoo model, with its default settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recording import Seen, digest, weights
from subjects import Make, aged, one_shot, printed, sgd, supply
from torch import optim

import rekindle as rk

ALSO_WITH_SGD = ("mlp", "cnn_bn", "vit_fused", "tied_autoencoder")
ALSO_AS_STATE = ("mlp", "cnn_bn", "weight_norm_mlp", "gpt2")


def observe(seen: Seen, room: Path) -> None:
    """Treat every zoo model with every one-shot method."""
    for member in rk.testing.ZOO.values():
        graph = rk.trace(member.build(), member.example())
        for card in one_shot():
            given = supply(card, member, graph)
            treat(seen, f"{card.key}/{member.name}", card.key, member, graph=graph, seed=5, **given)
            if member.name in ALSO_WITH_SGD:
                treat(seen, f"{card.key}/{member.name}/sgd", card.key, member, make=sgd, graph=graph, **given)
            if member.name in ALSO_AS_STATE and not card.structural:
                treat_state(seen, f"{card.key}/{member.name}/state", card.key, member, graph=graph, **given)
            if member.name == "mlp":
                by_function(seen, f"{card.key}/{member.name}/function", card.key, member, **given)


def treat(seen: Seen, key: str, method: Any, member: Any, make: Make = optim.Adam, **given: Any) -> None:
    """Plan and apply a method to an aged model, note all of it, and undo it."""
    model, optimizer = aged(member, make)
    before = everything(model, optimizer)
    planned = seen.attempt(f"{key}/plan", lambda: rk.plan(method, model, **given))
    seen.note(f"{key}/plan/printed", printed(planned) if planned else None)
    record = seen.attempt(key, lambda: rk.apply_(method, model, optimizer, **given))
    note_treated(seen, key, model, optimizer, record)
    if record is not None:
        seen.attempt(f"{key}/undo", record.undo)
        seen.note(f"{key}/undone", everything(model, optimizer) == before)


def note_treated(seen: Seen, key: str, model: Any, optimizer: Any, record: Any) -> None:
    """Note a record, and model and optimizer as they are now."""
    if record is not None:
        seen.note(f"{key}/record", record.to_dict())
        seen.note(f"{key}/printed", printed(record))
    seen.note(f"{key}/weights", weights(model))
    seen.note(f"{key}/trained", " ".join(name for name, p in model.named_parameters() if p.requires_grad))
    seen.note(f"{key}/optimizer", optimizer.state_dict())


def treat_state(seen: Seen, key: str, method: str, member: Any, **given: Any) -> None:
    """Treat a state dict instead of the model."""
    model, _ = aged(member)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seen.attempt(key, lambda: rk.apply_(method, state, **given))
    seen.note(key, state)


def by_function(seen: Seen, key: str, method: str, member: Any, **given: Any) -> None:
    """Treat by the function of the method's name, which traces the model itself."""
    model, optimizer = aged(member)
    function = getattr(rk, f"{method}_")
    record = seen.attempt(key, lambda: function(model, optimizer, example=member.example(), **given))
    note_treated(seen, key, model, optimizer, record)
    seen.note(f"{key}/printed as it is", str(record))


def everything(model: Any, optimizer: Any) -> list[str]:
    """Return the digests of all tensors of a model and its optimizer, in order."""
    moments = [
        digest(tensor)
        for p in model.parameters()
        for tensor in optimizer.state.get(p, {}).values()
        if hasattr(tensor, "dtype")
    ]
    return [f"{name} {digest(tensor)}" for name, tensor in weights(model).items()] + moments
