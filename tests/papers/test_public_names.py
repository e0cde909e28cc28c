"""Papers use public names of rekindle only: what anybody with an installation could write."""

import ast
import importlib
from pathlib import Path

import pytest

import papers
import rekindle as rk

FOLDER = Path(papers.__file__).parent
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.py"))
PACKAGES = {
    "rekindle.errors",
    "rekindle.lab.data",
    "rekindle.lab.models",
    "rekindle.lab.protocols",
    "rekindle.lab.report",
    "rekindle.lab.runs",
    "rekindle.methods",
    "rekindle.statistics",
}


def problems(source: str) -> list[str]:
    """Return what a file uses of rekindle that is not public."""
    tree = ast.parse(source)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [f"import {name.name}" for name in node.names if _is_ours(name.name) and name.name != "rekindle"]
        elif isinstance(node, ast.ImportFrom) and (node.level or _is_ours(str(node.module))):
            found += [
                f"from {node.module} import {name.name}"
                for name in node.names
                if node.level or not is_public(str(node.module), name.name)
            ]
    return found + _private_attributes(tree)


def _private_attributes(tree: ast.AST) -> list[str]:
    """Return attributes with an underscore of whatever was imported from rekindle."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        name.asname or name.name
        for node in imports
        for name in node.names
        if _is_ours(name.name) or (isinstance(node, ast.ImportFrom) and _is_ours(str(node.module)))
    }
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
    return [ast.unparse(node) for node in attributes if ast.unparse(node).partition(".")[0] in names]


def is_public(module: str, name: str) -> bool:
    """Return whether a module is one that papers may use, and offers a name."""
    if name.startswith("_"):
        return False
    if module in PACKAGES:
        offered = getattr(importlib.import_module(module), "__all__", None)
        return name in offered if offered is not None else hasattr(importlib.import_module(module), name)
    package, _, metric = module.rpartition(".")
    return package == "rekindle.metrics" and metric in {card.key for card in rk.list_metrics()}


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "rekindle"


@pytest.mark.parametrize("path", FILES)
def test_only_public_names_are_used(path):
    assert problems((FOLDER / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import rekindle.lab.runs.store",
        "import rekindle.seeds as seeds",
        "from rekindle.lab.runs.store import Store",
        "from rekindle.lab.runs import shared_prefix",
        "from rekindle.lab.runs import _HOME",
        "from rekindle.files import write_whole",
        "from rekindle.metrics.stability import _counts",
        "from rekindle.metrics.registry import metric",
        "from rekindle.cli import main",
        "from ..rekindle import errors",
        "import rekindle as rk\nrk._HOME",
        "from rekindle.lab.runs import presets\npresets._BEST['fire']",
        "def late():\n    from rekindle.graph.modules import tensors_of",
    ],
)
def test_what_is_not_public_is_found(line):
    assert len(problems(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "import rekindle as rk\nrk.trace",
        "import torch\ntorch._C",
        "from rekindle.errors import SettingsError",
        "from rekindle.lab.runs import Store, presets",
        "from rekindle.metrics.stability import stability",
        "from papers.rules import Larger",
    ],
)
def test_what_is_public_is_not(line):
    assert problems(line) == []
