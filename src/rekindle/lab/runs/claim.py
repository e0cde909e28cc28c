"""Claims: who works on a run. One file a claim, numbered; the highest number holds.

A claim is taken by creating the next number, which the file system grants to one process only, so that two that find
the same dead owner cannot both take over. Its owner touches it while it works (the heartbeat). On the owner's own
machine the process number tells whether it lives; from another machine only the heartbeat does.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from rekindle.lab.runs.rows import read_mapping

BEAT = 5.0  # seconds from one touch to the next
SILENCE = 60.0  # seconds without a touch after which an owner that we cannot see counts as dead


class Claim:
    """The right to work on a folder, held by this process.

    Args:
        path: The claim's file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def holds(self) -> bool:
        """Whether nobody has taken it over, for example after this machine slept."""
        return _newest(self.path.parent) == self.path

    def touch(self) -> None:
        """Tell others that the owner lives."""
        with suppress(FileNotFoundError):
            os.utime(self.path)

    def release(self) -> None:
        """Give the claim back; earlier claims of the dead go with it."""
        if self.holds:
            for path in _claims(self.path.parent):  # ours last: until then nobody can take a number again
                path.unlink(missing_ok=True)


def take(folder: Path, *, silence: float = SILENCE) -> Claim | None:
    """Claim a folder, or return None while somebody else who lives holds it.

    Args:
        folder: What is claimed; made if it is not there.
        silence: Seconds without a heartbeat after which an owner on another machine counts as dead.
    """
    folder.mkdir(parents=True, exist_ok=True)
    newest = _newest(folder)
    if newest is not None and is_alive(newest, silence):
        return None
    number = 1 + (int(newest.suffix[1:]) if newest else 0)
    path = folder / f"claim.{number:06d}"
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return None  # somebody was faster
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(_owner(), file)
    except BaseException:  # a full disk: an empty claim would block the folder
        path.unlink(missing_ok=True)
        raise
    if any(is_alive(other, silence) for other in _claims(folder) if other != path):
        path.unlink(missing_ok=True)  # numbers began anew while we looked; whoever came first keeps it
        return None
    return Claim(path)


def is_alive(path: Path, silence: float = SILENCE) -> bool:
    """Return whether the owner of a claim still works."""
    owner = read_mapping(path)
    if owner is not None and owner.get("machine") == _machine():
        return _started(int(owner["pid"])) == owner.get("started")
    try:
        return time.time() - path.stat().st_mtime < silence
    except FileNotFoundError:
        return False  # released just now


@contextmanager
def beating(claims: set[Claim], every: float = BEAT) -> Iterator[None]:
    """Touch a set of claims, which may change meanwhile, until the block ends."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(every):
            for claim in tuple(claims):
                claim.touch()

    thread = threading.Thread(target=beat, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _claims(folder: Path) -> list[Path]:
    return sorted(folder.glob("claim.*"))


def _newest(folder: Path) -> Path | None:
    return next(reversed(_claims(folder)), None)


def _owner() -> dict[str, Any]:
    return {"machine": _machine(), "pid": os.getpid(), "started": _started(os.getpid())}


@cache
def _machine() -> str:
    """Name this boot of this machine and its process numbers: two containers may share a host name."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def _started(pid: int) -> str | None:
    """Return when a process started, in the system's own ticks, or None if there is none: numbers are used again."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]  # a zombie works no more
    except OSError:
        return None if Path("/proc/self/stat").exists() else _answers(pid)


def _answers(pid: int) -> str | None:
    """Ask where there is no /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # somebody else's, and alive
        return "unknown"
    return "unknown"
