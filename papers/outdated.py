"""Committed results that the code of now would not give again, until they are made anew.

How they were found: every cell of every measured experiment, cut down to a few steps on small random images, was
trained by the code before a change and by the code after it, and the rows were compared bit by bit. What is not named
here came out the same; ReDo and SNR recycle nothing in the reduced settings of F Fig. 2: nothing is said of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outdated:
    """A result that was made by older code.

    Args:
        cells: Which cells of its table.
        why: What has changed.
    """

    cells: str
    why: str


PLACE = "layerwise normalizes after the activation and not on the logits"
RENEWED = "elements that a recycler renews have the steps of a fresh Adam, and units that are held back keep their age"
OUTDATED: dict[str, Outdated] = {
    "layerwise-table-1": Outdated("LW", PLACE),
    "layerwise-table-1-open": Outdated("LW in all its variants", PLACE),
    "layerwise-appendix-e": Outdated("frozen below", "what is frozen stays in later rounds, and is not rescaled"),
    "fire-fig-2a": Outdated("CBP", RENEWED),
    "fire-fig-2b": Outdated("CBP", RENEWED),
    "fire-fig-2c": Outdated("CBP", RENEWED),
    "fire-fig-8": Outdated("CBP", RENEWED),
}
