"""Task change: task A, an intervention, task B (frozen weights, 6.4 to 6.6 and Tables 6 to 8).

Blurred to sharp images, one data set to another, plain to shifted images, a tenth of the data to all of it. Each task
has its own learning rate, decay, weight decay and patience. The rows of the tables are in `rekindle.lab.runs.presets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from rekindle.lab.data.augment import augmentation
from rekindle.lab.data.catalog import load
from rekindle.lab.data.dataset import Dataset, Normalize, examples_of
from rekindle.lab.data.fit import Fit
from rekindle.lab.data.subsets import fraction, hold_out
from rekindle.methods.frozen_settings import settings
from rekindle.training.examples import Examples
from rekindle.training.schedules import Decay
from rekindle.training.stage import Stage
from rekindle.training.tokens import Tokens

Count = Annotated[int, Field(ge=1)]
Part = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


@settings
class TaskChange:
    """Two stages. Settings that start with `second_` are those of task B; None is the same as in task A.

    Args:
        to: Data of task B; that of the run if left out. It is brought to the shape of the run's data, and the head has
            as many outputs as the larger of both has classes.
        change: What is always done to the images of task A: "none", "blur".
        second_change: The same for task B; "none" if left out.
        augment: Augmentation in task A; that of the run if left out.
        second_augment: Augmentation in task B; that of the run if left out.
        sample: Part of the training data in task A.
        second_sample: Part of the training data in task B; all if left out.
        learning_rate: In task A; the optimizer's own if left out.
        second_learning_rate: In task B.
        decay: Factor of the learning rate after each epoch of task A; the run's schedule if left out.
        second_decay: In task B.
        weight_decay: In task A; the optimizer's own if left out.
        second_weight_decay: In task B.
        validation: Part of the training data that is held out in both tasks.
        patience: Epochs without a better validation loss after which task A ends.
        second_patience: In task B.
        epochs: Largest number of epochs of task A.
        second_epochs: In task B.
    """

    key: ClassVar[str] = "task_change"

    to: str | None = None
    change: str = "none"
    second_change: str = "none"
    augment: str | None = None
    second_augment: str | None = None
    sample: Part = 1.0
    second_sample: Part = 1.0
    learning_rate: Rate | None = None
    second_learning_rate: Rate | None = None
    decay: Part | None = None
    second_decay: Part | None = None
    weight_decay: NotNegative | None = None
    second_weight_decay: NotNegative | None = None
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    patience: Count | None = 40
    second_patience: Count | None = None
    epochs: Count = 200
    second_epochs: Count | None = None

    def stages(self, data: Dataset, seed: int) -> Iterator[Stage]:
        """Yield task A and task B."""
        second = _shaped_like(data, load(self.to, seed)) if self.to is not None else data
        first_test = _changed(data.test, self.change)
        yield self._stage("A", data.train, first_test, self.sample, seed)
        stage = self._stage("B", second.train, _changed(second.test, self.second_change), self.second_sample, seed)
        yield replace(stage, also={"first": first_test})

    def _stage(self, name: str, train: Examples | Tokens, test: Examples, sample: float, seed: int) -> Stage:
        learned, held = hold_out(
            fraction(_changed(train, self._of(name, "change")), sample, seed), self.validation, seed
        )
        decay, augment = self._of(name, "decay"), self._of(name, "augment")
        return Stage(
            f"task {name}",
            learned,
            test,
            epochs=self._of(name, "epochs"),
            boundary=name == "B",
            learning_rate=self._of(name, "learning_rate"),
            weight_decay=self._of(name, "weight_decay"),
            schedule=None if decay is None else Decay(by=decay),
            patience=None if held is None else self._of(name, "patience"),
            validation=held,
            augment=None if augment is None else augmentation(augment) or _unchanged,
        )

    def _of(self, name: str, setting: str) -> Any:
        """Return a setting of a task; task B falls back to task A, except for what is done to its images."""
        first, second = getattr(self, setting), getattr(self, f"second_{setting}")
        falls_back = name == "A" or (second is None and setting != "augment")
        return first if falls_back else second


def _unchanged(images: Tensor, random: object) -> Tensor:
    return images


def _changed(data: Examples | Tokens, spec: str) -> Examples:
    steps, examples = augmentation(spec), examples_of(data)
    if steps is None:
        return examples
    before = examples.change

    def change(images: Tensor) -> Tensor:
        return steps(images if before is None else before(images), None)  # type: ignore[arg-type]

    return replace(examples, change=change)


def _shaped_like(data: Dataset, other: Dataset) -> Dataset:
    if other.shape == data.shape:
        return other
    parts = {}
    for name in ("train", "test"):
        examples = examples_of(getattr(other, name))
        normalize = examples.normalize
        if isinstance(normalize, Normalize) and data.shape[0] == 1:
            normalize = normalize.of_gray()
        parts[name] = replace(examples, change=Fit(data.shape), normalize=normalize)
    return replace(other, train=parts["train"], test=parts["test"])
