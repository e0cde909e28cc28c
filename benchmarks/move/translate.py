"""Sends texts of the code before the move through the renames."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import renames

LINES = "\u2500-\u257f"  # what tables are drawn with


class Translation:
    """The map of renames, made ready once."""

    def __init__(self) -> None:
        paths = {old.replace(".", "/"): new.replace(".", "/") for old, new in renames.MODULES.items()}
        self._steps: list[Callable[[str], str]] = [
            _replacer({**renames.MODULES, **paths}, r"(?<![\w.]){}(?!\w)"),
            _replacer(renames.NAMES, r"(?<!\w){}(?!\w)"),
            *(_word(pattern, new) for pattern, new in renames.WORDS),
        ]

    def of(self, text: str) -> str:
        """Return what a text must be after the move."""
        for step in self._steps:
            text = step(text)
        return text

    def equal(self, old: str, new: str) -> bool:
        """Tell whether a text is the old one with its names and words replaced; some of them may have been kept."""
        wanted = squeezed(self.of(old))
        return wanted == squeezed(new) or wanted == squeezed(self.of(new))


def squeezed(text: str) -> str:
    """Return a text with the lines and gaps of its tables at one length: a renamed word may be shorter or longer."""
    if not re.search(rf"[{LINES}]|-----", text):
        return text
    return re.sub(r" *\n *", "\n", re.sub(rf"([{LINES}-])\1+", r"\1", re.sub(" +", " ", text)))


def _replacer(names: Mapping[str, str], pattern: str) -> Callable[[str], str]:
    """Return a function that puts new names in the place of whole old ones, all at once, the longest first."""
    if not names:
        return lambda text: text
    choice = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    expression = re.compile(pattern.format(f"({choice})"))
    return lambda text: expression.sub(lambda found: names[found[1]], text)


def _word(pattern: str, new: str) -> Callable[[str], str]:
    expression = re.compile(pattern)
    return lambda text: expression.sub(lambda found: _like(found[0], found.expand(new)), text)


def _like(old: str, new: str) -> str:
    """Return the new word with a capital letter where the old one has it."""
    return new[:1].upper() + new[1:] if old[:1].isupper() and new[:1].islower() else new
