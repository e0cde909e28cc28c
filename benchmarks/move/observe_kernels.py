"""Formulas on plain tensors, of sizes that the small models do not reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lookup import find
from recording import Seen
from torch import Tensor

SHAPES = ((8, 8), (32, 64), (4, 48, 48), (2, 3, 100, 60), (200, 200), (300, 500), (64, 2000), (700, 64), (9, 5, 3))


def observe(seen: Seen, room: Path) -> None:
    """Observe all of it."""
    for shape in SHAPES:
        for kind, matrices in _matrices(shape).items():
            for name, given in MATRIX.items():
                seen.attempt(f"{name}/{kind}/{shape}", lambda: _note(seen, f"{name}/{kind}/{shape}", given, matrices))  # noqa: B023
    for name, function in OTHERS.items():
        seen.note(name, function())


def kernel(place: str) -> Callable[..., Any]:
    """Return a formula by its place."""
    found: Callable[..., Any] = find(f"rekindle.kernels.{place}")
    return found


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Return normal numbers that are always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _matrices(shape: tuple[int, ...]) -> dict[str, Tensor]:
    plain = drawn(*shape)
    ones, zeros = torch.ones(shape), torch.zeros(shape)
    return {"normal": plain, "ones": ones, "zeros": zeros, "double": plain.double(), "bfloat16": plain.bfloat16()}


def _note(seen: Seen, key: str, function: Callable[[Tensor], Any], matrices: Tensor) -> None:
    before = matrices.clone()
    seen.note(key, function(matrices))
    seen.note(f"{key}/given is kept", torch.equal(before, matrices))


MATRIX: dict[str, Callable[[Tensor], Any]] = {
    "polar": lambda x: kernel("polar:polar")(x),
    "polar, rough": lambda x: kernel("polar:polar")(x, tolerance=1e-2),
    "polar_exact": lambda x: kernel("polar:polar_exact")(x),
    "newton_schulz": lambda x: kernel("polar:newton_schulz")(x, 5),
    "deviation": lambda x: kernel("isometry:deviation_from_isometry")(x),
    "deviation, scale free": lambda x: kernel("isometry:deviation_from_isometry")(x, scale_free=True),
    "singular_values": lambda x: kernel("spectra:singular_values")(x),
    "frobenius_norm": lambda x: kernel("isometry:frobenius_norm")(x),
    "magnitude": lambda x: kernel("per_feature:magnitude")(kernel("per_feature:by_feature")(x, 1)),
    "largest": lambda x: kernel("per_feature:largest")(kernel("per_feature:by_feature")(x, 1)),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "magnitude of many": lambda: kernel("per_feature:magnitude")(drawn(300, 40, 300)),
    "largest of many": lambda: kernel("per_feature:largest")(drawn(300, 40, 300)),
    "channels last": lambda: kernel("per_feature:by_feature")(
        drawn(4, 3, 5, 5).to(memory_format=torch.channels_last), 1
    ),
    "least_chain": lambda: kernel("balance:least_chain")([drawn(7, 5), drawn(6, 7), drawn(3, 6)]),
    "least_chain, 1 and 2": lambda: kernel("balance:least_chain")([drawn(7, 5), drawn(3, 7)], 1.0, 2.0),
    "layer_balance": lambda: kernel("balance:layer_balance")((1.0, 2.0), (3.0, 5.5)),
    "smallest": lambda: kernel("subsets:smallest")(drawn(1000), 37),
    "random_mask": lambda: kernel("subsets:random_mask")((30, 20), 0.3, torch.Generator().manual_seed(1)),
    "random_subset": lambda: kernel("subsets:random_subset")(90, 20, torch.Generator().manual_seed(1)),
    "add_dirac": lambda: kernel("dirac:add_dirac")(drawn(9, 6, 4), 0.3, kernel=(3, 3)),
    "cosine": lambda: kernel("direction:cosine")(drawn(6, 9), drawn(6, 9, seed=1), (1,)),
    "shrink_by_direction": lambda: kernel("direction:shrink_by_direction")(drawn(6, 9), drawn(6, 9, seed=1), 0.1, (1,)),
    "rank_by_energy": lambda: kernel("spectra:rank_by_energy")(torch.linspace(9, 0.01, 40)),
    "convolution_bound": lambda: kernel("spectra:convolution_bound")(drawn(9, 4).abs()),
}
