"""The examples in the docstrings of papers run."""

import doctest
import importlib
from pathlib import Path

import pytest

import papers

FOLDER = Path(papers.__file__).parent
MODULES = sorted(".".join(path.relative_to(FOLDER.parent).with_suffix("").parts) for path in FOLDER.rglob("*.py"))


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__init__")])
def test_docstring_examples(name):
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(importlib.import_module(name), optionflags=options).failed == 0
