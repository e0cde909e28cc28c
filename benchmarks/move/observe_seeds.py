"""Where numbers come from: seeds, initial weights, data sets and their parts, stages of protocols, first batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from lookup import find, spec
from observe_runs import KINDS, execute, run_of
from recording import Seen, digest

import rekindle as rk

INPUTS = ((0, "fc.weight", "reset"), (1, "fc.weight", "reset"), (0, "", ""), (2**40, "stage 1", "é"), (-3, "a", "b"))
NETWORKS = {
    (64,): ("mlp", "mlp:hidden=8|4,init=he", "mlp_synthetic:init=glorot", "simba:dim=8,depth=2"),
    (3, 16, 16): ("cnn", "cnn_bn", "all_cnn", "resnet18:width=2", "mobilenet:width=0.1,shallow=true"),
    (3, 8, 8): ("scnn:channels=2|3,hidden=5,init=glorot", "vit:dim=12,depth=2"),
    (3, 9, 9): ("resnet50:width=2,imagenet_stem=false,norm=layer",),
    (1, 36, 36): ("nature_cnn", "vgg16:width=16,hidden=160,norm=batch,dropout=0.1,init=he"),
}
DATA = ("digits", "digits:test_fraction=0.5,division=2", "synthetic", "synthetic:signal=0.5,train=64", "mnist1d")
SUBSETS = {"shuffled": (2,), "fraction": (0.3, 2), "noisy_labels": (0.5, 10, 2), "of_classes": ([1, 7],)}
PROTOCOLS = (
    *("warm_start:fraction=0.3,random_labels=0.5", "warm_start:images=100,before_steps=3", "continual:chunks=4"),
    *("continual:chunks=3,access=limited", "class_incremental:phases=5", "class_incremental:phases=5,access=limited"),
    *("generalization", "generalization:decay=true,rebase=true", "rounds", "rounds:epochs=2,steps=none,validation=0.2"),
    *("permuted:tasks=3", "permuted:tasks=2,images=50,boundary=true", "task_change:sample=0.5,second_sample=0.2"),
    *("task_change:change=blur,second_augment=flip", "task_change:to=digits"),
)
AUGMENTATIONS = ("flip", "crop:padding=2", "shift", "enlarge_crop", "blur", "random_blur", "affine", "rotate", "colour")


def observe(seen: Seen, room: Path) -> None:
    """Observe all of it."""
    for given in INPUTS:
        seen.note(f"seed/{given}", find("rekindle.core.seeds:seed_of")(*given))
        draw = find("rekindle.core.seeds:generator")(*given)
        seen.note(f"draw/{given}", torch.rand(5, generator=draw))
    _networks(seen)
    _data(seen)
    _stages(seen)
    _batches(seen)


def _networks(seen: Seen) -> None:
    for shape, names in NETWORKS.items():
        for name in names:
            for seed in (0, 1):
                torch.manual_seed(seed)
                seen.note(
                    f"network/{name}/{seed}",
                    find("rekindle.models").build(name, SimpleNamespace(shape=shape, classes=7)),
                )
    for name in ("mlp", "no_such_network", "vgg16", "mlp:none=1"):
        text = SimpleNamespace(shape=(3, 4, 5), classes=2)
        seen.attempt(f"unfit/{name}", lambda name=name, text=text: find("rekindle.models").build(name, text) and None)
    for name, member in rk.testing.ZOO.items():
        seen.note(f"zoo/{name}", member.build())
        seen.note(f"zoo/{name}/example", member.example())


def _data(seen: Seen) -> None:
    for name in DATA:
        for seed in (0, 3):
            data = find("rekindle.data").load(name, seed)
            seen.note(f"data/{name}/{seed}", [*examples(data.train), *examples(data.test), data.classes, data.shape])
    train = find("rekindle.data").load("digits").train
    for name, given in SUBSETS.items():
        seen.note(f"subset/{name}", examples(find(f"rekindle.data.subsets:{name}")(train, *given)))
    kept, held = find("rekindle.data.subsets:hold_out")(train, 0.2, 2)
    seen.note("subset/hold_out", [*examples(kept), *examples(held)])
    images = torch.rand(6, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    for name in AUGMENTATIONS:
        make = find("rekindle.data.augment:augmentation")
        augment = make(spec(name, make))
        seen.note(f"augment/{name}", augment(images.clone(), torch.Generator().manual_seed(1)))


def examples(given: Any) -> list[str]:
    """Return digests of inputs as a network gets them, and of labels."""
    return [digest(given.batch(slice(None))), digest(given.labels)]


def _stages(seen: Seen) -> None:
    data = find("rekindle.data").load("digits")
    for text in PROTOCOLS:
        for seed in (0, 1):
            stages = seen.attempt(f"stages/{text}/{seed}", lambda text=text, seed=seed: _listed(text, data, seed))
            for number, stage in enumerate(stages or ()):
                seen.note(f"stages/{text}/{seed}/{number}", stage)
                seen.note(f"stages/{text}/{seed}/{number}/seen", [*examples(stage.train), *examples(stage.test)])


def _listed(text: str, data: Any, seed: int) -> list[Any]:
    return list(find("rekindle.protocols.catalogue:protocol")(text).stages(data, seed))


def _batches(seen: Seen) -> None:
    """Note the first batches that runs are trained on, in order."""
    for kind, given in KINDS.items():
        taken: list[str] = []
        with _watched(taken):
            execute(run_of(**{**given, "epochs": 1, "metrics": []}), None)
        seen.note(f"batches/{kind}", taken[:12])


@contextmanager
def _watched(taken: list[str]) -> Iterator[None]:
    usual = find("rekindle.data").Examples.batch

    def watched(self: Any, *args: Any, **given: Any) -> torch.Tensor:
        found: torch.Tensor = usual(self, *args, **given)
        taken.append(digest(found))
        return found

    with mock.patch.object(find("rekindle.data").Examples, "batch", watched):
        yield
