"""Randomness by name: every draw is seeded by (seed, tensor name, reason), never by order.

A live model, its state dict and a checkpoint file on disk therefore get the same numbers, whatever is drawn before.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import torch


def seed_of(seed: int, name: str, reason: str) -> int:
    """Return the 63-bit seed that belongs to a tensor and a reason."""
    digest = hashlib.sha256(f"{seed}\0{name}\0{reason}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, name: str, reason: str) -> torch.Generator:
    """Return a fresh CPU generator for one draw.

    Draws are made on the CPU and moved, so that the result does not depend on the device.

    Example:
        >>> a = torch.rand(2, generator=generator(0, "fc.weight", "reset"))
        >>> b = torch.rand(2, generator=generator(0, "fc.weight", "reset"))
        >>> bool((a == b).all())
        True
    """
    return torch.Generator().manual_seed(seed_of(seed, name, reason))


@contextlib.contextmanager
def global_seed(seed: int, name: str, reason: str) -> Iterator[None]:
    """Seed torch's global generators for foreign code that knows no other; they are put back afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(seed, name, reason))
        yield
