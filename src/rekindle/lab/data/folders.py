"""Folders that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from rekindle.errors import RekindleError
from rekindle.files import settle


@contextlib.contextmanager
def whole_folder(target: Path, replaces: Collection[str] | None = None) -> Iterator[Path]:
    """Give a folder to write into that becomes `target` when the block ends well, and is removed otherwise.

    A process that is killed leaves `<name>.part-<process>` behind, never half of it under its own name.

    Args:
        target: Where it shall stand.
        replaces: File names of which a folder may consist that stands there already; it is kept until the new one is
            complete. None if there must not be one.

    Raises:
        RekindleError: Something stands there that must not be replaced, or the disk refuses.
    """
    check_place(target, replaces)
    draft = target.with_name(f"{target.name}.part-{os.getpid()}")
    if draft.exists():
        raise RekindleError(
            expected=f"no folder {draft}",
            got="it is there: a killed process left it behind, or another thread prepares the same name",
            fix="delete it if nothing writes into it",
        )
    with told(draft):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
    try:
        yield draft
        settle(draft)
        check_place(target, replaces)  # another process may have been faster
        with told(target):
            _put(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_place(target: Path, replaces: Collection[str] | None = None) -> None:
    """Raise unless a folder can be put in a place without harm to anything but what it replaces."""
    if not target.exists() and not target.is_symlink():
        return
    if replaces is None:
        raise RekindleError(
            expected=f"a name that is free: {target.name}",
            got=f"{target} is there already",
            fix="take another name, or --replace to put the new one in its place",
        )
    plain = target.is_dir() and not target.is_symlink()
    others = sorted(path.name for path in target.iterdir() if path.name not in replaces) if plain else ["no folder"]
    if others:
        raise RekindleError(
            expected=f"nothing but {', '.join(replaces)} in {target}, to replace it",
            got=", ".join(others[:5]),
            fix="take another name, or move it away yourself: what is not of the same kind is not deleted here",
        )


def _put(draft: Path, target: Path) -> None:
    old = target.with_name(f"{target.name}.old-{os.getpid()}")
    try:
        if target.exists():
            target.rename(old)
        draft.rename(target)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)  # the new one could not take its place
        elif old.exists():
            shutil.rmtree(old)
    settle(target.parent)


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn an error of the disk inside the block into one of ours."""
    try:
        yield
    except OSError as error:
        raise RekindleError(
            expected=f"to write {path}",
            got=f"{error.strerror or error}",
            fix="make room or choose another --folder; nothing was left behind, and what was there is unchanged",
        ) from error
