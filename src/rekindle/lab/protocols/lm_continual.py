"""Continued pretraining of a language model: first on one text, then on a mixture of it with another (FIRE 4.2, E.2).

The longer a model is trained on the first text, past its best loss on held-out text, the worse it learns the mixture.
FIRE: a GPT of 124M parameters on WikiText-103, then on OpenWebText and WikiText-103, from the best checkpoint and from
those after 30,000 and 60,000 steps. How the two were mixed, and for how many steps, the paper does not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rekindle.errors import SettingsError
from rekindle.lab.data.bins import load_second
from rekindle.lab.data.dataset import Dataset
from rekindle.methods.frozen_settings import settings
from rekindle.training.schedules import Linear
from rekindle.training.stage import Stage
from rekindle.training.tokens import Tokens

Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
FIRST, SECOND = "first", "second"  # what the two texts are called in columns of rows


@settings
class LmContinual:
    """Two stages, with the loss on held-out parts of both texts at each evaluation.

    Args:
        to: Name of the second text, in tokens of the same tokenizer.
        to_tokens: Take only the first so many of its training tokens.
        share: Part of the windows that come from the first text in the second stage; by the sizes of both, as if they
            were one text, if left out.
        steps: Of the first stage.
        second_steps: Of the second stage.
        evaluate: Steps from one evaluation to the next.
        second_evaluate: The same in the second stage, if it differs.
        warmup: Steps over which the learning rate rises in the first stage.
        second_warmup: Part of the second stage over which it rises.
        floor: Part of the learning rate to which it falls, linearly, to the end of each stage.
        early: Step after which the checkpoint "early" is taken; the middle of the first stage if left out.
        start: Checkpoint from which the second stage begins: that with the lowest loss on held-out text ("best"),
            "early", the end of the first stage ("late"), or the weights that the network was drawn with ("initial").
    """

    key: ClassVar[str] = "lm_continual"
    after_boundary: ClassVar[tuple[str, ...]] = (
        *("to_tokens", "share", "second_steps", "second_warmup", "second_evaluate", "start"),
    )

    to: str = "openwebtext"
    to_tokens: Count | None = None
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    steps: Count = 60_000
    second_steps: Count = 30_000
    evaluate: Count = 1000
    second_evaluate: Count | None = None
    warmup: NotNegative = 2000
    second_warmup: Annotated[float, Field(ge=0, le=1)] = 0.1
    floor: Annotated[float, Field(gt=0, le=1)] = 0.1
    early: Count | None = None
    start: Literal["best", "early", "late", "initial"] = "late"

    @property
    def _early(self) -> int:
        middle = self.steps // 2 // self.evaluate * self.evaluate or min(self.evaluate, self.steps)
        return middle if self.early is None else self.early

    def __post_init__(self) -> None:
        """Refuse at the door what would be found out after hours of training."""
        if self._early > self.steps or (self._early % self.evaluate and self._early != self.steps):
            raise SettingsError(
                expected=f"early: a multiple of evaluate={self.evaluate}, and at most steps={self.steps}",
                got=f"early={self.early}",
                fix=f"leave it out for the middle, or take early={replace(self, early=None)._early}",
            )
        if self.warmup > self.steps:
            raise SettingsError(
                expected=f"warmup: at most steps={self.steps}, or the learning rate is never reached",
                got=f"warmup={self.warmup}",
                fix=f"take warmup={self.steps // 10}",
            )

    def stages(self, data: Dataset, seed: int) -> Iterator[Stage]:
        """Yield pretraining and continued pretraining."""
        first, held = _tokens(data)
        other, other_held = _tokens(load_second(self.to, data))
        if self.to_tokens is not None:
            other = _first_of(other, self.to_tokens)
        schedule = Linear(to=self.floor)
        yield Stage(
            "pretraining",
            _mixed(first, other, 1.0),
            _mixed(held, other_held, 1.0),
            steps=self.steps,
            boundary=False,
            schedule=schedule,
            warmup=self.warmup,
            epoch_steps=self.evaluate,
            keep={"best": None, "early": self._early},
        )
        share = len(first) / (len(first) + len(other)) if self.share is None else self.share
        yield Stage(
            "continued pretraining",
            _mixed(first, other, share),
            _mixed(held, other_held, share),
            steps=self.second_steps,
            schedule=schedule,
            warmup=round(self.second_warmup * self.second_steps),
            epoch_steps=self.second_evaluate or self.evaluate,
            start_from=None if self.start == "late" else self.start,
        )


def _tokens(data: Dataset) -> tuple[Tokens, Tokens]:
    if not isinstance(data.train, Tokens) or not isinstance(data.test, Tokens):
        raise SettingsError(
            expected="a text as data of lm_continual: a folder that `rekindle data prepare` made",
            got=f"{data.name!r}, which has no tokens",
            fix="prepare a text: rekindle data prepare NAME FILE",
        )
    return data.train, data.test


def _first_of(text: Tokens, count: int) -> Tokens:
    [(name, stream)] = text.streams.items()
    if count > len(stream):
        raise SettingsError(
            expected=f"to_tokens: at most the {len(stream):,} tokens to learn from in {name!r}",
            got=f"to_tokens={count:,}",
            fix="leave it out for all of them, or prepare a longer text",
        )
    return replace(text, streams={name: stream[:count]})


def _mixed(first: Tokens, second: Tokens, share: float) -> Tokens:
    [one], [other] = first.streams.values(), second.streams.values()
    return replace(first, streams={FIRST: one, SECOND: other}, shares=(share, 1.0 - share))
