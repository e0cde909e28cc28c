"""`Run`: everything that decides what one run computes, as one frozen value with a hash of its content."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from rekindle.errors import SettingsError
from rekindle.lab.runs.validate import check
from rekindle.methods.frozen_settings import settings

Fraction = Annotated[float, Field(gt=0, le=1)]
# What was renamed after rows were stored, by field: keys are made of the first spelling, so that those rows stay valid.
FIRST_SPELLING = {
    "methods": {r"\bnormalize=": "normalise=", r"\breinitialize=": "reinitialise="},
    "augment": {r"\bcolor\b": "colour"},
    "protocol": {r"(?<=augment=)color\b|(?<=\+)color\b": "colour"},
}

# Fields that came after rows were stored, with what they were before: a run that has these keeps its key.
ADDED = {"accumulate": 1, "compile": False}


@settings
class Run:
    """One run: a protocol on data with a model, treated by methods, from one seed.

    Args:
        protocol: What is trained on what, in which order: "warm_start:fraction=0.1".
        data: "digits", "synthetic:signal=1", "mnist1d", or the name of a folder in `$REKINDLE_DATA`, as it is or with
            its images brought to another size: "cifar10:size=16"; of text "books:context=256".
        model: A network: "mlp", "cnn", "resnet18:width=16", and for text "gpt:dim=384,depth=6,heads=6".
        methods: "none", methods joined by "+", or "fresh": a new network at each boundary.
        optimizer: "adam:lr=1e-3", "adamw:...", "sgd:lr=0.003,momentum=0.9" or "muon:lr=0.02".
        batch_size: Examples a step; a smaller set is taken whole.
        epochs: Epochs of every stage, instead of the protocol's own number.
        clip: Largest norm of the whole gradient.
        warmup: Fraction of each stage over which the learning rate rises linearly from 0.
        schedule: What the learning rate does in a stage, unless the protocol says: "constant", "decay:by=0.95",
            "steps:at=100|150,by=0.1", "plateau:patience=20,by=0.5" or "linear:to=0.1".
        patience: Epochs without a better validation loss after which a stage ends, unless the protocol says.
        validation: Fraction of the training data held out for `patience` and "plateau".
        precision: "float32", or "bfloat16" for autocast; images are in channels_last order in both.
        accumulate: Parts of each batch that go through the network one after the other; their gradients are summed.
        compile: Train through `torch.compile`.
        augment: "none", or augmentations joined by "+": "flip+crop:padding=4".
        metrics: Names of metrics that are measured at the stages' ends.
        metrics_each: "stage", or "epoch" to measure at each evaluation.
        evaluate_each: Epochs from one evaluation, and row, to the next; the last epoch always has one.
        label_noise: Fraction of the training labels that is drawn at random, in every stage.
        sample_fraction: Fraction of the training examples that the run sees at all.
        seed: Decides weights, subsets, order, augmentations and every draw of a method.
        threads: Threads of one operation.
        device: "cpu", "cuda", "cuda:1", "mps".

    Example:
        >>> run = Run.from_dict({"protocol": "warm_start:fraction=0.1", "model": "mlp", "seed": 3})
        >>> run.seed, len(run.key), run.key == Run.from_dict(run.to_dict()).key
        (3, 16, True)
    """

    protocol: str = "warm_start"
    data: str = "digits"
    model: str = "mlp"
    methods: str = "none"
    optimizer: str = "adam:lr=1e-3"
    batch_size: Annotated[int, Field(ge=1)] = 256
    epochs: Annotated[int, Field(ge=1)] | None = None
    clip: Annotated[float, Field(gt=0)] | None = None
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.0
    schedule: str = "constant"
    patience: Annotated[int, Field(ge=1)] | None = None
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    augment: str = "none"
    metrics: tuple[str, ...] = ()
    metrics_each: Literal["stage", "epoch"] = "stage"
    evaluate_each: Annotated[int, Field(ge=1)] = 1
    label_noise: Annotated[float, Field(ge=0, le=1)] = 0.0
    sample_fraction: Fraction = 1.0
    seed: Annotated[int, Field(ge=0)] = 0
    threads: Annotated[int, Field(ge=1)] = 1
    device: str = "cpu"
    accumulate: Annotated[int, Field(ge=1)] = 1
    compile: bool = False

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Run:
        """Return the run that a mapping describes, after checking every name in it.

        Raises:
            RekindleError: A field, a name or a setting in a spec string does not exist or makes no sense.
        """
        if not isinstance(given, Mapping):
            raise SettingsError(
                expected=f"a mapping of fields: {', '.join(f.name for f in dataclasses.fields(cls))}",
                got=f"{given!r}",
                fix="write one `field: value` a line",
            )
        run = cls(**{str(name): value for name, value in given.items()})
        check(run.to_dict())
        return run

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain data, as `from_dict` takes it."""
        plain = dataclasses.asdict(self)
        return {**plain, "metrics": list(self.metrics)}

    @property
    def key(self) -> str:
        """The first 16 hex digits of the SHA-256 of the content, the same in every process and version."""
        content = self.to_dict()
        content = {name: value for name, value in content.items() if (name, value) not in ADDED.items()}
        for field, renamed in FIRST_SPELLING.items():
            for pattern, first in renamed.items():
                content[field] = re.sub(pattern, first, content[field])
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
