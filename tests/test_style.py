"""Lint, format and types, so that one command tests all."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy", "src"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_clean(command, tmp_path):
    module, *rest = command
    cache = {"ruff": ["--no-cache"], "mypy": ["--cache-dir", str(tmp_path)]}[module]
    done = subprocess.run([sys.executable, "-m", module, *rest, *cache], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
