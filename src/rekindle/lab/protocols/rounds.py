"""Rounds: the same data again and again, with a reinitialization before each but the first (LW 1.1, 2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rekindle.lab.data.dataset import Dataset, examples_of
from rekindle.lab.data.subsets import hold_out
from rekindle.methods.frozen_settings import settings
from rekindle.training.schedules import Plateau
from rekindle.training.stage import Stage

Count = Annotated[int, Field(ge=1)]


@settings
class Rounds:
    """K * N rounds of training on the same data: blocks k = 1..K, each N times.

    With `begin="train"` the first round trains the network as it was drawn and a boundary comes before every later one
    (section 1.1: "trains the model once for 200 steps after which ..."), so the last of the K * N boundaries is never
    reached. With "boundary" a boundary comes before the first round too (Algorithm 1). Methods that count rounds
    (`layerwise`) are told block and repeat of the boundary. The optimizer's state is cleared at each boundary. With
    methods "none" the boundaries do nothing, and `restart=false` keeps the optimizer's state too: the baseline that
    trains once for as long.

    Args:
        blocks: K, the number of blocks.
        repeats: N, the rounds at each block.
        steps: Optimizer steps of each round, the compute budget; 200 on the synthetic set, up to 100,000 on images.
        epochs: Passes over the data instead of steps.
        validation: Part of the training data held out; with it, the learning rate is halved whenever the validation
            loss was not better for 20 epochs, as on images.
        patience: Epochs without a better validation loss after which a round ends.
        begin: What comes first.
        restart: Whether the optimizer's state is cleared at boundaries.

    Example:
        >>> from rekindle.lab.data import load
        >>> [dict(stage.rounds) for stage in Rounds(blocks=2, repeats=2).stages(load("synthetic"), seed=0)]
        [{}, {'block': 1, 'repeat': 1}, {'block': 1, 'repeat': 2}, {'block': 2, 'repeat': 1}]
    """

    key: ClassVar[str] = "rounds"

    blocks: Count = 3
    repeats: Count = 3
    steps: Count | None = 200
    epochs: Count | None = None
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    patience: Count | None = None
    begin: Literal["train", "boundary"] = "train"
    restart: bool = True

    def stages(self, data: Dataset, seed: int) -> Iterator[Stage]:
        """Yield the rounds."""
        train, held = hold_out(examples_of(data.train), self.validation, seed)
        counted = [{"block": k + 1, "repeat": n + 1} for k in range(self.blocks) for n in range(self.repeats)]
        before = [{}, *counted[:-1]] if self.begin == "train" else counted
        for place, numbers in enumerate(before):
            yield Stage(
                f"round {place + 1}",
                train,
                examples_of(data.test),
                epochs=self.epochs,
                steps=None if self.epochs else self.steps,
                boundary=bool(numbers),
                fresh_optimizer=self.restart and place > 0,
                schedule=None if held is None else Plateau(patience=20, by=0.5),
                patience=self.patience,
                validation=held,
                evaluate_each=None if self.epochs else self.steps,
                rounds=numbers,
            )
