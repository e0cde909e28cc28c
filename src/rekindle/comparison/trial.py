"""A trial: one way to go on from a checkpoint with one seed, as a value with a hash of its content."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """What was trained.

    Attributes:
        methods: Spec of the treatment; "none" for going on untreated, "fresh" for a fresh start.
        seed: Decides the order of the batches, dropout and every draw.
        steps: Steps of the training.
        data: "own:" and a digest of the training and test data.
        model: Class of the model, and a digest of its weights.
        optimizer: Spec of the optimizer, or "own".
        batch_size: Examples of a step.
    """

    methods: str
    seed: int
    steps: int
    data: str
    model: str
    optimizer: str
    batch_size: int

    @property
    def protocol(self) -> str:
        """What a report shows as the protocol."""
        return f"compare:steps={self.steps}"

    @property
    def key(self) -> str:
        """The first 16 hex digits of the SHA-256 of the content."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def columns(self) -> Row:
        """Return the columns that all rows of the trial begin with."""
        names = ("protocol", "data", "model", "methods", "seed")
        return {"key": self.key, **{name: getattr(self, name) for name in names}}
