"""The command line of the checkout that is observed, and the pages it writes."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

CHARTS = '<script type="module">'


def command(*words: str | Path, room: Path) -> str:
    """Run `rekindle <words>` in this process, in a folder; return exit code and output."""
    out, code = io.StringIO(), 0
    argv = ["rekindle", *map(str, words)]
    before = os.getcwd()
    os.chdir(room)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), mock.patch.object(sys, "argv", argv):
            runpy.run_module("rekindle", run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    finally:
        os.chdir(before)
    return f"exit code {code}\n{out.getvalue()}"


def program(*words: str | Path, room: Path) -> subprocess.Popen[str]:
    """Start `rekindle <words>` as a process of its own, as is needed where it starts others."""
    argv = [sys.executable, "-m", "rekindle", *map(str, words)]
    return subprocess.Popen(argv, cwd=room, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    """Wait for a process and return exit code and output."""
    out, _ = process.communicate()
    return f"exit code {process.returncode}\n{out}"


def page(path: Path) -> str:
    """Return a page without the library that draws its charts."""
    text = path.read_text(encoding="utf-8")
    start, _, rest = text.partition(CHARTS)
    return start + rest[-20_000:].rpartition(CHARTS)[2]
