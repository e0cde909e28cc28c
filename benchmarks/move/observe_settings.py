"""One-shot methods with other settings, seeds, optimizers and in chains; what they refuse; what stands beside them."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import torch
from lookup import part, spec
from observe_methods import note_treated, treat
from recording import Seen, weights
from subjects import aged, amsgrad, batches, one_shot, printed, sgd, small_outputs

import rekindle as rk

MODELS = ("mlp", "cnn_bn", "resnet_basic", "mobilenet", "vit_fused", "gpt", "weight_norm_mlp", "rms_norm_mlp")
SPECS = (
    *("dash:alpha=1,floor=0.3", "dash:skip=*bias"),
    *("dirac_reset:preset=cifar10_to_cifar100", "dirac_reset:strength=0.5,one_dimensional=set"),
    *("doubly_sparse:probability=0.9", "mono_sparse:probability=0.9", "mono_sparse:skip=*0*"),
    *("dsd:fraction=0.5,scope=global", "dsd:which=weights", "dsd:fresh=reference"),
    *("fire:solver=exact", "fire:solver=newton_schulz,iterations=4", "fire:solver=quintic", "fire:solver=muon"),
    *("fire:scale=norm,attention=all", "fire:scale=init,heads=each", "fire:first=false,last=false,blend=0.5"),
    *("fire:preset=paper", "fire:tolerance=1e-2"),
    *("full_reset:skip=*bias", "head_reset:layers=2", "head_reset:layers=all,fresh=reference"),
    *("layerwise:block=2", "layerwise:block=2,repeat=3,rescale=false", "layerwise:normalise=false"),
    *("layerwise:reinitialise=false,freeze=true", "layerwise:fresh=reference", "layerwise:block=9"),
    "mutually_frozen:probability=0.6,kinds=hidden|stream|gated|score",
    *("rescale:strength=0.5", "rescale:proportional=false", "rescale:skip=*0*"),
    *("shrink_perturb:shrink=0.5,noise=init", "shrink_perturb:noise=reference", "shrink_perturb:perturb=0.1"),
    *("wels:fraction=0.5,mask_seed=3", "wels:which=weights,fresh=reference", "welsr:fraction=0.7"),
    *("fire+rescale", "shrink_perturb:shrink=0.5+head_reset", "full_reset+plasticity_injection", "wels+dash+fire"),
)
# Not "fire:blend", of which the message had a whole card in it before.
REFUSED = (
    *("", "no_such_method", "fire:no_such=1", "fire:blend=2", "fire:solver=exact,iterations=3"),
    *("fire:preset=paper,scale=norm", "fire:tolerance=0.1,solver=exact", "shrink_perturb:shrink=-1", "redo:period=0"),
    *("dirac_reset:preset=none_such", "head_reset:layers=0", "muon", "l2", "layerwise:block=0", "fire+no_such_method"),
)


def observe(seen: Seen, room: Path) -> None:
    """Observe all of it."""
    for name in MODELS:
        member = rk.testing.ZOO[name]
        graph = rk.trace(member.build(), member.example())
        given = {"graph": graph, "reference": member.build, "data": batches(member), "loss": small_outputs}
        for number, text in enumerate((*SPECS, *_skips(), *_identities())):
            make = (torch.optim.Adam, sgd, amsgrad)[number % 3]
            treat(seen, f"{text}/{name}", spec(text, _accepts), member, make=make, seed=number % 2, **given)
    _refused(seen)
    _not_understood(seen)
    _beside(seen)
    _boundaries(seen)


def _skips() -> list[str]:
    """Return the methods that can leave tensors alone, told to do so."""
    fields = {card.key: {field.name for field in dataclasses.fields(rk.method(card.key))} for card in one_shot()}
    return [f"{key}:skip=*0*|*bias" for key, names in fields.items() if "skip" in names]


def _identities() -> list[str]:
    """Return the methods with the settings that change nothing."""
    given = {card.key: type(rk.method(card.key)).identity for card in one_shot()}
    return [f"{key}:{','.join(f'{n}={_written(v)}' for n, v in settings.items())}" for key, settings in given.items()]


def _written(value: object) -> str:
    return "|".join(value) if isinstance(value, tuple) else str(value)


def _accepts(text: str) -> None:
    for one in text.split("+"):
        rk.method(one)


def _refused(seen: Seen) -> None:
    """Note what is said of settings that make no sense, and of what is missing."""
    member = rk.testing.ZOO["mlp"]
    for text in REFUSED:
        seen.attempt(f"refused/{text}", lambda text=text: rk.apply_(text, member.build(), example=member.example()))
        seen.attempt(f"refused alone/{text}", lambda text=text: seen.note(f"method/{text}", rk.method(text)))
    for method in (card.key for card in rk.list_methods()):
        seen.attempt(f"bare/{method}", lambda method=method: rk.apply_(method, member.build()))
        seen.attempt(f"state/{method}", lambda method=method: rk.apply_(method, member.build().state_dict()))
    spoiled = member.build()
    next(spoiled.parameters()).data.view(-1)[0] = float("nan")
    seen.attempt("refused/nan", lambda: rk.apply_("shrink_perturb", spoiled))
    seen.attempt("refused/reference", lambda: rk.apply_("shrink_perturb", member.build(), reference=3))
    wrong = {"reference": {}, "example": member.example()}
    seen.attempt("refused/empty", lambda: rk.apply_("shrink_perturb:noise=reference", member.build(), **wrong))
    seen.attempt("refused/batch", lambda: rk.apply_("dash", member.build(), data=member.example(), **wrong))
    record = rk.apply_("shrink_perturb", member.build(), undo=False)
    seen.attempt("refused/undo", record.undo)


def _not_understood(seen: Seen) -> None:
    """Treat the models that a trace does not understand whole."""
    for name, member in part(rk.testing, "NOT_UNDERSTOOD").items():
        for method in ("fire", "shrink_perturb", "rescale", "head_reset", "mutually_frozen", "full_reset"):
            treat(seen, f"{method}/{name}", method, member, example=member.example(), reference=member.build)


def _beside(seen: Seen) -> None:
    """Observe what stands beside the methods: recalibrated statistics, restored structure, written tensors."""
    for name in ("cnn_bn", "densenet", "mlp"):
        model, _ = aged(rk.testing.ZOO[name])
        seen.attempt(f"recalibrate/{name}", lambda: rk.recalibrate_(model, batches(rk.testing.ZOO[name])))  # noqa: B023
        seen.note(f"recalibrate/{name}", weights(model))
    for method in ("plasticity_injection", "layerwise"):
        member = rk.testing.ZOO["mlp"]
        model, optimizer = aged(member)
        rk.apply_(method, model, optimizer, example=member.example(), data=batches(member))
        restored, its_optimizer = aged(member)
        seen.attempt(f"restore/{method}", lambda: rk.restore_(restored, model.state_dict(), its_optimizer))  # noqa: B023
        seen.note(f"restore/{method}", restored)
    record = rk.apply_("full_reset", model, optimizer)
    model.get_parameter(next(name for name, _ in model.named_parameters())).data.add_(1)
    seen.attempt("undo after a write", record.undo)
    seen.attempt("undo by force", lambda: record.undo(force=True))
    seen.note("undo by force", model)


def _boundaries(seen: Seen) -> None:
    """Let a Keeper treat a model at two boundaries, beside a per-step method."""
    for method in ("fire", "shrink_perturb", "plasticity_injection", "layerwise", "dash"):
        member = rk.testing.ZOO["mlp"]
        model, optimizer = aged(member)
        keeper = rk.Keeper(model, optimizer, [method, "soft_rescale"], example=member.example(), seed=2)
        for number in range(2):
            key, state = f"boundary/{method}/{number}", copy.deepcopy(keeper.state_dict())
            records = seen.attempt(key, lambda: keeper.boundary(batches(member), loss=small_outputs))  # noqa: B023
            for record in records or ():
                note_treated(seen, f"{key}/treated", model, optimizer, record)
            seen.note(f"{key}/keeper", state)
        seen.note(f"boundary/{method}/printed", printed(keeper.state_dict()["methods"]))
