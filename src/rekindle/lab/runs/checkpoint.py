"""The checkpoint of a run: one file that is either the old one or the new one, never half of it."""

from __future__ import annotations

import io
import os
import pickle
import uuid
from pathlib import Path
from typing import Any

import torch

from rekindle.errors import RekindleError

NAME = "checkpoint.pt"


class CheckpointError(RekindleError):
    """A checkpoint cannot be written or read."""


def write(folder: Path, content: dict[str, Any]) -> None:
    """Put a checkpoint in the place of the last one: written under another name, flushed to the disk, then renamed.

    Raises:
        CheckpointError: It cannot be written, as on a full disk; the last one is still there.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)  # to memory first: a full disk is then an OSError and not torch's own kind
    part = folder / f"{NAME}.{uuid.uuid4().hex[:8]}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / NAME)
        _flush_folder(folder)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CheckpointError(
            expected=f"{buffer.tell():,} bytes of room for a checkpoint in {folder}",
            got=f"{error.strerror or error}",
            fix="make room and start the same run again: it goes on from its last checkpoint, which is unharmed",
        ) from error


def read(folder: Path) -> dict[str, Any] | None:
    """Return the last checkpoint, or None if there is none yet.

    Raises:
        CheckpointError: The file is damaged.
    """
    file = folder / NAME
    if not file.is_file():
        return None
    try:
        content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            expected=f"a checkpoint in {file}",
            got=f"a file that cannot be read: {error}",
            fix="delete it to start the run from the beginning",
        ) from error
    return content


def tidy(folder: Path) -> None:
    """Delete what killed processes left half written."""
    for part in folder.glob(f"{NAME}.*.part"):
        part.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Make the new name last through a power failure, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
