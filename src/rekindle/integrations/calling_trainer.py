"""The Trainer that calls a callback: it hands on everything but itself.

Needed of it are `log`, so that readings reach every logger; the dataset that the user has given, which the loader has
only in another form; the loss; and the checkpoint that is being resumed, of which callbacks are told nothing.
"""

from __future__ import annotations

import inspect
from typing import Any

from rekindle.errors import KeeperError

RESUMED = "resume_from_checkpoint"  # the argument's name in `Trainer.train` and in the loop inside


def calling_trainer(kind: type[Any]) -> tuple[Any, str | None]:
    """Return the Trainer that is beginning to train, further up in the calls, and the checkpoint that it resumes.

    Args:
        kind: The class of trainers.

    Raises:
        KeeperError: No Trainer is calling.
    """
    frame = inspect.currentframe()
    try:
        while frame is not None:
            found, known = frame.f_locals.get("self"), frame.f_locals
            if isinstance(found, kind) and RESUMED in known:
                return found, known[RESUMED] or None
            frame = frame.f_back
    finally:
        del frame  # a frame that refers to itself lives until the next collection
    raise KeeperError(
        expected=f"a call by {kind.__name__}.train",
        got="one from elsewhere",
        fix=f"pass the callback to a {kind.__name__}, callbacks=[...]; in a loop of your own use rk.Keeper",
    )
