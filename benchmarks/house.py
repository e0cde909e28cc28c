"""Figures of the house, to watch and not to bound: `python benchmarks/house.py`.

How many files and functions a call runs through, what a method file imports, what is long, what goes in circles. Fewer
hops are good where there is less to do, and not because files were glued together.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "rekindle"
KINDS = ("one_shot", "per_step", "recyclers", "optimizers")


def main() -> None:
    """Print the figures, one a line."""
    files, functions = behind_fire()
    per_file = sorted(len(imported(path)) for path in method_files())
    named = sorted(sum(map(len, imported(path).values())) for path in method_files())
    longest, longest_file = max(function_lengths()), max((lines(path), inside(path)) for path in SOURCE.rglob("*.py"))
    comments, code = comment_share()
    print(f"fire_ on a three-layer MLP: {files} files, {functions} functions of ours")
    print(
        f"a method file imports of ours: median {statistics.median(per_file):g} modules (most {per_file[-1]})", end=""
    )
    print(f", median {statistics.median(named):g} names")
    print(f"rk.compare loads {len(loaded('rk.compare'))} modules of ours, {in_lab('rk.compare')} of them in lab")
    print(
        f"longest function: {longest[0]} lines, {longest[1]}; longest file: {longest_file[0]} lines, {longest_file[1]}"
    )
    print(f"sets of modules that import each other: {len(cycles())}")
    print(f"comments: {comments / (comments + code):.1%} of the lines that are code or comment")
    print("lines: " + ", ".join(f"{name} {count}" for name, count in packages().items()))


def behind_fire() -> tuple[int, int]:
    """Return in how many files and functions of ours one `fire_` runs, in a process that has loaded all of them."""
    import torch
    from torch import nn

    import rekindle as rk

    def treat() -> None:
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.Adam(net.parameters())
        rk.fire_(net, optimizer, example=torch.zeros(2, 8))

    treat()
    seen: set[tuple[str, str]] = set()

    def note(frame: object, event: str, arg: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and code.co_filename.startswith(str(SOURCE)):
            seen.add((code.co_filename, code.co_qualname if hasattr(code, "co_qualname") else code.co_name))

    sys.setprofile(note)
    try:
        treat()
    finally:
        sys.setprofile(None)
    return len({file for file, _ in seen}), len(seen)


def method_files() -> list[Path]:
    """Return the files that hold a method."""
    return [path for kind in KINDS for path in (SOURCE / "methods" / kind).glob("*.py") if path.name[0] != "_"]


def imported(path: Path) -> dict[str, list[str]]:
    """Return the modules of ours that a file imports, with the names that it takes from each."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rekindle"):
            found.setdefault(str(node.module), []).extend(alias.name for alias in node.names)
    return found


def loaded(expression: str) -> list[str]:
    """Return the modules of ours that are there after an expression, in a fresh process."""
    code = f"import sys, rekindle as rk; {expression}; print(*[m for m in sys.modules if m.startswith('rekindle.')])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def in_lab(expression: str) -> int:
    """Return how many of them are in `lab`."""
    return sum(name.startswith("rekindle.lab") for name in loaded(expression))


def function_lengths() -> Iterator[tuple[int, str]]:
    """Yield the lines of each function, docstring left out, with its place."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                yield (node.end_lineno or 0) - first.lineno + 1, f"{inside(path)}:{node.name}"


def cycles() -> list[list[str]]:
    """Return the sets of modules that import each other, as the test of the rooms finds them."""
    sys.path.insert(0, str(ROOT))
    from tests.test_rooms import cycles as circular
    from tests.test_rooms import imports_of_all

    return circular(imports_of_all())


def comment_share() -> tuple[int, int]:
    """Return how many lines hold a comment, and how many hold code without one; docstrings are neither."""
    comments = code = 0
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        commented = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
        documented = {n for node in ast.walk(ast.parse(text)) for n in _docstring_lines(node)}
        written = {n for n, line in enumerate(text.splitlines(), 1) if line.strip()} - documented
        comments, code = comments + len(commented), code + len(written - commented)
    return comments, code


def _docstring_lines(node: ast.AST) -> range:
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None
    if not documented:
        return range(0)
    text = node.body[0]  # type: ignore[attr-defined]
    return range(text.lineno, text.end_lineno + 1)


def packages() -> dict[str, int]:
    """Return the lines of each package, and of what stands beside them."""
    found: dict[str, int] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = re.split(r"[/\\]", inside(path))[0].removesuffix(".py")
        name = name if (SOURCE / name).is_dir() else "top"
        found[name] = found.get(name, 0) + lines(path)
    papers = sum(map(lines, (ROOT / "papers").rglob("*.py")))
    return {**found, "papers (not installed)": papers, "tests": sum(map(lines, (ROOT / "tests").rglob("*.py")))}


def lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text("utf-8").splitlines())


def inside(path: Path) -> str:
    """Return a path as seen from the package."""
    return path.relative_to(SOURCE).as_posix()


if __name__ == "__main__":
    main()
