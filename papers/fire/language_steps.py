"""How far a number of cubic steps goes, by the width of a matrix: a computation beside Fig. 3, which has five."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from papers.experiment import Experiment, Measure, Row, Study
from papers.fire import PAPER
from papers.fire.tables import means
from papers.rules import Within

WIDTHS = (96, 384, 768, 1600)
COUNTS = (2, 5, 10)
SHAPES = ("Gaussian", "falling", "one large")
MEDIAN, TENTH = "median", "lowest tenth"


def spectrum(shape: str, width: int, seed: int) -> Tensor:
    """Return singular values of a square matrix: drawn, falling as 1 / sqrt(i), or so with one of ten times as much."""
    if shape == "Gaussian":
        random = torch.Generator().manual_seed(seed)
        return torch.linalg.svdvals(torch.randn(width, width, generator=random))
    values = torch.arange(1, width + 1).float().rsqrt()
    return values if shape == "falling" else torch.cat([torch.tensor([10.0]), values[:-1]])


def after_steps(values: Tensor, steps: int) -> Tensor:
    """Return singular values after cubic steps, which begin with a matrix of norm one; those of an isometry are 1."""
    values = values / torch.linalg.vector_norm(values)
    for _ in range(steps):
        values = 1.5 * values - 0.5 * values**3
    return values


def how_far(seeds: int) -> list[Row]:
    """Return the median and the lowest tenth of the singular values after 2, 5 and 10 steps."""
    found: list[Row] = []
    for width, shape, seed in product(WIDTHS, SHAPES, range(seeds)):
        begin = spectrum(shape, width, seed)
        for steps in COUNTS:
            values = after_steps(begin, steps)
            numbers = {MEDIAN: float(values.quantile(0.5)), TENTH: float(values.quantile(0.1))}
            found.append({"condition": f"width {width}", "method": f"{shape}, {steps} steps", "seed": seed, **numbers})
    return found


def by_width(observations: Sequence[Row]) -> str:
    """Return medians and lowest tenths, a column for each width."""
    names = {f"width {width}": f"width {width}" for width in WIDTHS}
    return "\n\n".join(f"By width:\n\n{means(observations, [name], names)}" for name in (MEDIAN, TENTH))


def _median(claim: str, method: str, width: int, low: float, high: float) -> Within:
    return Within(claim, method, low, high, measure=MEDIAN, conditions=(f"width {width}",))


steps = Experiment(
    "fire-language-steps",
    PAPER,
    "4.2, what five iterations mean",
    "The wider a matrix, the less far the same number of cubic steps goes: five mean another thing at every width.",
    measures=(Measure(MEDIAN, MEDIAN), Measure(TENTH, TENTH)),
    cpu_study=Study(compute=how_far, seeds=3, minutes=1),
    rules=(
        _median("five steps on a Gaussian matrix of width 96: 0.5 to 0.65", "Gaussian, 5 steps", 96, 0.5, 0.65),
        _median("five steps on one of width 768: 0.15 to 0.25", "Gaussian, 5 steps", 768, 0.15, 0.25),
        _median("ten steps on one of width 768: 0.9 to 1", "Gaussian, 10 steps", 768, 0.9, 1.0),
        _median("ten steps with one large value, width 768: below 0.5", "one large, 10 steps", 768, 0.0, 0.5),
    ),
    notes=(
        "A computation without published numbers, of square matrices; singular values are told in parts of the scale. "
        "The bounds were written after a look at one draw.",
        "Trained matrices are looked at in two shapes: falling as 1 / sqrt(i), as queries of a small trained GPT do "
        "for a while (0.64, 0.48, 0.39 and 0.27 of the first at 2, 4, 8 and 16), and with one value of ten times as "
        "much, as its tied embedding has (the second is 0.11 of the first).",
    ),
    extra=by_width,
)
