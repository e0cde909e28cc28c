"""The state of a hosted Keeper in a folder of a host's checkpoint."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rekindle.errors import KeeperError

NAME = "rekindle.pt"


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write the state into a folder, whole or not at all."""
    draft = folder / f".{NAME}.{uuid.uuid4().hex}"
    try:
        torch.save(dict(state), draft)
        os.replace(draft, folder / NAME)
    finally:
        draft.unlink(missing_ok=True)


def read_state(folder: Path, step: int) -> dict[str, Any]:
    """Return the state in a folder.

    Args:
        folder: The checkpoint.
        step: The host's own step of the checkpoint.

    Raises:
        KeeperError: There is none, it cannot be read, or it is of another step.
    """
    path = folder / NAME
    if not path.is_file():
        raise KeeperError(
            expected=f"{NAME} in {folder}, without which a training with rekindle cannot be resumed",
            got="none: the checkpoint was saved without rekindle's callback, as a model only, or not to its end",
            fix="resume from a checkpoint that has it; to begin with rekindle on these weights, load them into the "
            'model and train without resuming, with at="start" to treat them first',
        )
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise KeeperError(
            expected=f"a state that rekindle has written, in {path}",
            got=f"{type(error).__name__}: {error}",
            fix="resume from another checkpoint",
        ) from error
    if not isinstance(state, dict) or state.get("host_step") != step:
        found = state.get("host_step") if isinstance(state, dict) else type(state).__name__
        raise KeeperError(
            expected=f"a state of step {step} in {path}",
            got=f"one of step {found}",
            fix="resume from a checkpoint as it was saved, with all of its files",
        )
    return state
