"""A copy of what is the user's, so that theirs is not trained."""

from __future__ import annotations

import copy
from typing import TypeVar

from rekindle.errors import RekindleError

Thing = TypeVar("Thing")


def copied(thing: Thing, error: type[RekindleError]) -> Thing:
    """Return a deep copy of a model, or of a model with its optimizer.

    Args:
        thing: What to copy.
        error: What to raise if it cannot be copied.

    Example:
        >>> copied([1, 2], RekindleError)
        [1, 2]
    """
    try:
        return copy.deepcopy(thing)
    except Exception as cause:
        raise error(
            expected="a model that copy.deepcopy can copy, so that copies are trained and not yours",
            got=f"{type(cause).__name__}: {cause}",
            fix="give the model without what cannot be copied (open files, locks, tensors that are not leaves)",
        ) from cause
