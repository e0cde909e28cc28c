"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that every reader, and every crash, sees the old one or all of the new one.

    Args:
        path: Where it shall stand; its folder must exist.
        text: All of its content.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # the rename may reach the disk before the content does
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    settle(path.parent)


def settle(folder: Path) -> None:
    """Make renames in a folder last through a power cut, where the system can do that."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems refuse; the rename itself is done
            os.fsync(handle)
    finally:
        os.close(handle)
