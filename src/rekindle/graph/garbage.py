"""Let go of what `torch.export` leaves behind.

Its tracers and closures refer to themselves and hold the model and its parameters, so that a model whose last name is
gone would stay in memory until Python next collects all garbage: on a GPU, long enough to run out of it. What is made
while the collector waits is all young, and collecting the young alone takes less than a millisecond (all: 150 ms).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_garbage_left() -> Iterator[None]:
    """Collect the garbage that is made inside at its end; the collector waits meanwhile."""
    enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        gc.collect(0)
        switch_collector(enabled)


def switch_collector(enabled: bool) -> None:
    """Let Python collect garbage by itself, or not."""
    (gc.enable if enabled else gc.disable)()
