"""The card of a method: the same headings for all, and an example that runs."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, Literal

from rekindle.methods.frozen_settings import type_of

Kind = Literal["one-shot", "per-step", "recycler", "optimizer"]

# Words that cards share: what becomes of an optimizer's state where a tensor is edited in part.
ELEMENTS_BEGIN_AGAIN = (
    "Moments are cleared for the elements that changed and no others. Adam and its relatives have one step count for a "
    "whole tensor: their steps on such elements are set to those of a fresh optimizer until the count no longer "
    "matters. Optimizers that mix elements (Adafactor, Muon, 8-bit ones, LBFGS) begin again for the whole tensor or "
    "altogether."
)


@dataclasses.dataclass(frozen=True)
class Card:
    """What a user must know before using a method.

    Args:
        title: Its full name.
        source: Paper, section and equation.
        what: What it does, with the formula.
        when: When to use it, and when not.
        cost: What it takes.
        deviations: What we do differently from the source, numbered from 1.
        example: Python that runs as it stands (doctest form).
        needs: What it needs beside the model: "example", "reference", "data", "loss".
        structural: Whether it changes the model's structure, so that it works on live models only.
        aliases: Other spellings that people type; they are answered with the one spelling.
        key: The one spelling: registry key, file name, CLI word. Filled in by the decorator, from the class's name.
        kind: When it acts. Filled in by the decorator.
    """

    title: str
    source: str
    what: str
    when: str
    cost: str
    deviations: tuple[str, ...]
    example: str
    needs: tuple[str, ...] = ()
    structural: bool = False
    aliases: tuple[str, ...] = ()
    key: str = ""
    kind: Kind = "one-shot"

    @property
    def summary(self) -> str:
        """The first sentence of what it does."""
        return self.what.split(". ")[0].rstrip(".") + "."

    def missing(self) -> list[str]:
        """Return the headings that were left empty; a complete card has none."""
        return [
            field.name
            for field in dataclasses.fields(self)
            if field.default is dataclasses.MISSING and not getattr(self, field.name)
        ]

    def to_markdown(self, settings: type[Any] | None = None) -> str:
        """Return the card as Markdown; with the settings class also a table of the settings."""
        numbered = "\n".join(f"{n}. {text}" for n, text in enumerate(self.deviations, 1))
        parts = [
            f"# {self.title} (`{self.key}`, {self.kind})",
            f"## What it does\n\n{self.what}",
            f"## When to use it\n\n{self.when}",
        ]
        if settings is not None:
            parts.append(f"## Settings\n\n{settings_table(settings)}")
        parts += [
            f"## Needs\n\n{', '.join(self.needs) or 'nothing but the model'}",
            f"## Cost\n\n{self.cost}",
            f"## What we do differently\n\n{numbered}",
            f"## Example\n\n```python\n{self.example.strip()}\n```",
            f"## Source\n\n{self.source}",
        ]
        return "\n\n".join(parts) + "\n"


def settings_table(settings: type[Any]) -> str:
    """Return the fields of a settings class as a Markdown table: name, type, default, meaning."""
    meaning = meanings(settings)
    rows = [
        f"| `{field.name}` | `{type_of(field)}` | `{field.default!r}` | {meaning.get(field.name, '')} |"
        for field in dataclasses.fields(settings)
    ]
    return "\n".join(["| setting | type | default | meaning |", "|---|---|---|---|", *rows])


def meanings(documented: Any) -> dict[str, str]:
    """Return what the docstring of a class or function says of each argument: its `Args:` part, in Google's style."""
    found: dict[str, str] = {}
    name = ""
    text = inspect.getdoc(documented) or ""
    for line in re.split(r"\n\n\w+:\n", text.partition("Args:")[2])[0].splitlines():
        head, colon, words = line.strip().partition(": ")
        if colon and head.isidentifier():
            name = head
            found[name] = words
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found
