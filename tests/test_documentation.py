"""What is written is run: examples in README, CONTRIBUTING and docstrings, and every relative link."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

from rekindle.lab.runs.sweep import parse_sweep

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PAGES = sorted(str(page.relative_to(ROOT)) for folder in (ROOT, ROOT / "docs") for page in folder.glob("*.md"))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SET_UP = re.compile(r"^<!-- (demo|test) -->\n```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def blocks(page: str, language: str) -> list[str]:
    return [text for kind, text in FENCED.findall((ROOT / page).read_text("utf-8")) if kind == language]


def modules() -> list[str]:
    paths = sorted((SOURCE / "rekindle").rglob("*.py"))
    names = [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/use.md", "docs/prove.md"])
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    assert found, f"{page} shows no Python"
    space: dict[str, object] = {"__name__": "example"}  # the blocks of a page are read one after the other
    for number, text in enumerate(found, 1):
        exec(compile(text, f"{page}, block {number}", "exec"), space)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")])
def test_yaml_blocks_are_sweeps(page):
    for text in blocks(page, "yaml"):
        assert parse_sweep(text, where=page).expand()


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), optionflags=options)
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples of {name} fail (see the output above)"


def test_readme_has_exactly_two_set_up_commands():
    readme = (ROOT / "README.md").read_text("utf-8")
    marked = dict(SET_UP.findall(readme))
    assert list(marked) == ["demo", "test"]
    assert len(blocks("README.md", "bash")) == len(SET_UP.findall(readme)) == 2
    assert all(len(command.splitlines()) == 1 for command in marked.values()), "one line each: they are copied whole"
    assert all("-c constraints.txt" in command for command in marked.values())
    assert "rekindle demo" in marked["demo"]
    assert "pytest" in marked["test"]


def test_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 60


def test_ci_runs_the_command_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "<!-- test -->" in script and "README.md" in script
    assert "pip install" not in script, "the command stands in README.md alone"


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_exist(page):
    path = ROOT / page
    targets = LINK.findall(path.read_text("utf-8"))
    missing = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert not missing
