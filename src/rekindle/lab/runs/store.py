"""The result store: a folder with one folder a run, named by the run's key.

<key>/run.json        what was run, with which versions
<key>/rows.jsonl      the rows, written whole when the run ends
<key>/done.json       written last: with it the run is finished
<key>/failed.json     the traceback of a run that failed
<key>/checkpoint/     what a run needs to go on; removed when it is finished
<key>/claim.000001    who works on it now
shared_prefixes/      while a sweep runs: what its runs have in common, see `rekindle.lab.runs.shared_prefix`
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rekindle.errors import RekindleError
from rekindle.files import write_whole
from rekindle.lab.runs import claim as claims
from rekindle.lab.runs.claim import Claim
from rekindle.lab.runs.rows import Row, TornWarning, read_lines, read_mapping, to_lines
from rekindle.lab.runs.spec import Run

State = Literal["open", "finished", "failed"]
RECORDED = ("torch", "numpy", "scipy", "ray")


class StoreError(RekindleError):
    """Results cannot be read or written as asked."""


class Store:
    """Results in a folder that several processes may read and write at once.

    Args:
        folder: Where the runs' folders stand; made when the first run is claimed.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """Return the folder of a run."""
        return self.folder / key

    def checkpoint(self, key: str) -> Path:
        """Return the folder in which a run keeps what it needs to go on."""
        return self.path(key) / "checkpoint"

    def state(self, key: str) -> State:
        """Return whether a run is finished, has failed, or is still open."""
        done = read_mapping(self.path(key) / "done.json")
        if done is not None and self._is_whole(key, done):
            return "finished"
        return "failed" if (self.path(key) / "failed.json").exists() else "open"

    def _is_whole(self, key: str, done: Mapping[str, Any]) -> bool:
        rows = self.path(key) / "rows.jsonl"
        size = rows.stat().st_size if rows.exists() else -1
        if size != done.get("bytes"):
            text = f"{rows}: {size} bytes instead of the {done.get('bytes')} that were written; the run counts as open"
            warnings.warn(text, TornWarning, stacklevel=3)
        return size == done.get("bytes")

    def claim(self, run: Run) -> Claim | None:
        """Claim a run and note what it is; None while somebody else works on it."""
        claim = claims.take(self.path(run.key))
        if claim is not None and self.state(run.key) != "finished":
            try:
                content = {"run": run.to_dict(), "versions": versions()}
                write_whole(self.path(run.key) / "run.json", json.dumps(content, indent=1))
            except BaseException:
                claim.release()
                raise
        return claim

    def finish(self, claim: Claim, run: Run, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Write the rows of a run, then the marker, and give the claim back; False if another took the run over."""
        folder, text = self.path(run.key), to_lines(rows)
        if not claim.holds:
            return False
        write_whole(folder / "rows.jsonl", text)
        done = {"rows": len(rows), "bytes": len(text.encode()), "time": time.time(), "versions": versions()}
        write_whole(folder / "done.json", json.dumps(done))
        (folder / "failed.json").unlink(missing_ok=True)
        shutil.rmtree(self.checkpoint(run.key), ignore_errors=True)
        claim.release()
        return True

    def fail(self, claim: Claim, run: Run, reason: str) -> None:
        """Record why a run failed (a traceback), and give the claim back; its checkpoint stays."""
        content = {"traceback": reason, "time": time.time(), "versions": versions()}
        if claim.holds:
            write_whole(self.path(run.key) / "failed.json", json.dumps(content, indent=1))
            claim.release()

    def forgive(self, key: str) -> None:
        """Make a failed run open again."""
        (self.path(key) / "failed.json").unlink(missing_ok=True)

    def failure(self, key: str) -> str:
        """Return the traceback of a failed run, or an empty text."""
        return str((read_mapping(self.path(key) / "failed.json") or {}).get("traceback", ""))

    def keys(self) -> list[str]:
        """Return the keys of all runs that were ever claimed."""
        return sorted(path.parent.name for path in self.folder.glob("*/run.json"))

    def read_run(self, key: str) -> dict[str, Any]:
        """Return what a run was (`run`) and with which versions it was made (`versions`)."""
        return read_mapping(self.path(key) / "run.json") or {"run": {}, "versions": {}}

    def rows(self, key: str | None = None) -> list[Row]:
        """Return the rows of one finished run, or of all, each with the fields of its run.

        Raises:
            StoreError: The folder holds no run at all.
        """
        if key is None and not self.keys():
            raise StoreError(
                expected="a folder of runs, as `rekindle sweep` writes it",
                got=f"{self.folder}, which holds none",
                fix="give the folder that the sweep named at its end",
            )
        return [row for name in ([key] if key else self.keys()) for row in self._rows_of(name)]

    def _rows_of(self, key: str) -> Iterator[Row]:
        if self.state(key) == "finished":
            fields = self.read_run(key)["run"]
            for row in read_lines(self.path(key) / "rows.jsonl"):
                yield {"key": key, **fields, **row}


def versions() -> dict[str, str]:
    """Return the versions that a result may depend on.

    Example:
        >>> sorted(versions())[:2]
        ['machine', 'numpy']
    """
    ours = str(getattr(sys.modules[__name__.partition(".")[0]], "__version__", "unknown"))
    found = {"rekindle": ours, "python": platform.python_version(), "platform": platform.platform()}
    for name in RECORDED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**found, "machine": platform.machine()}
