"""The code keeps to its rooms: import directions, writers, hooks, names and lengths, and no import cycles.

The table is `tests/rooms.py`. The checker reads source text only; it is itself tested on snippets that break each rule.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rooms import CONTRIBUTING, ROOMS, with_table

SOURCE = Path(__file__).resolve().parent.parent / "src" / "rekindle"
ROOT = "ROOT"  # the package itself, `import rekindle`: its lazy names reach everything
TOP = ""  # the file that is the package
NESTED = {"lab", "methods"}  # their folders are rooms of their own
# These find others by file name (that is their work), so the names they look up are not imports to be judged.
LOOKS_UP_BY_NAME = {"_lazy.py", "methods/registry.py", "methods/__init__.py", "cli/__init__.py", "__init__.py"}

WRITER = "edits/write.py"
KINDS = {f"methods/{kind}" for kind in ("one_shot", "per_step", "recyclers", "optimizers")}
MAY_NOT_WRITE = {"graph", "observe", "metrics", "diagnosis", "methods"} | KINDS
HOOKS = {
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_hook",
    "register_post_accumulate_grad_hook",
}
# The fixed normalization of `layerwise` stays in the model as a hook: a wrapper would rename all parameters below it.
MAY_HOOK = {"edits/standardize.py"}
# Stacked seeds are one step for many networks, which the plain loop, with its one model and its Keeper, should not have
# to know. The probe's copies may diverge, which is a reading and no error.
MAY_TRAIN = {"training/loop.py", "lab/runs/stacked_training.py", "metrics/trainability.py"}
FORBIDDEN_NAMES = {"utils", "helpers", "misc", "manager", "base", "common"}
LONGEST = 400


# --- the checker ---


def check(path: str, text: str) -> list[str]:
    """Return what is wrong with the file `path` (relative to src/rekindle) as `path:line: reason`."""
    tree = ast.parse(text)
    found = [*_names_and_length(path, text), *_imports(path, tree)]
    for node in ast.walk(tree):
        found += [(node.lineno, reason) for reason in _forbidden_act(path, room_of(path), node)]
    return [f"{path}:{line}: {reason}" for line, reason in sorted(found)]


def room_of(path: str) -> str:
    """Return the room of a file: its folder, or its own name when it stands in the package's top folder."""
    first, *rest = Path(path).with_suffix("").parts
    if first == "__init__" and not rest:
        return TOP
    return f"{first}/{rest[0]}" if first in NESTED and len(rest) > 1 else first


def _names_and_length(path: str, text: str) -> Iterator[tuple[int, str]]:
    for part in Path(path).with_suffix("").parts:
        if part.strip("_") in FORBIDDEN_NAMES:
            yield 0, f"`{part}` says nothing: a room is missing"
    if len(text.splitlines()) > LONGEST:
        yield LONGEST, f"longer than {LONGEST} lines: a room is missing"


def _imports(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    room = room_of(path)
    if room != TOP and room not in ROOMS:
        yield 0, f"room `{room}` is not in the table of tests/rooms.py"
        return
    for line, target in imported_rooms(path, tree):
        if room == TOP and target != "_renamed":
            yield line, f"the package is lazy: it may not import `{target}`"
        elif room != TOP and target != room and target not in ROOMS[room].imports:
            yield line, f"`{room}` may not import `{target}`"


def imported_rooms(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and room of every import of ours, wherever it stands; type-checking imports are knowledge too."""
    type_checking = _type_checking_lines(tree) if path in LOOKS_UP_BY_NAME else set()
    for node in ast.walk(tree):
        for module in _imported_modules(path, node):
            if module.split(".")[0] == "rekindle" and node.lineno not in type_checking:
                yield node.lineno, _room_of_module(module)


def _room_of_module(module: str) -> str:
    _, *parts = module.split(".")
    if not parts:
        return ROOT
    nested = len(parts) > 1 and f"{parts[0]}/{parts[1]}" in ROOMS
    return f"{parts[0]}/{parts[1]}" if nested else parts[0]


def _imported_modules(path: str, node: ast.AST) -> list[str]:
    """Return the absolute names of what a node imports; `from rekindle import graph` is `rekindle.graph`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        package = ["rekindle", *Path(path).parent.parts]
        start = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*start, *([node.module] if node.module else [])])
        inside = {alias.name for alias in node.names if _is_room(module, alias.name)}
        plain = {alias.name for alias in node.names} - inside
        return [f"{module}.{name}" for name in sorted(inside)] + ([module] if plain else [])
    if isinstance(node, ast.Call) and _dotted(node.func).split(".")[-1] in {"import_module", "__import__"}:
        literal = node.args[0] if node.args else None
        by_name = path in LOOKS_UP_BY_NAME or not isinstance(literal, ast.Constant)
        return [] if by_name else [str(literal.value)]
    return []


def _is_room(module: str, name: str) -> bool:
    return (module == "rekindle" and name in ROOMS) or f"{module.removeprefix('rekindle.')}/{name}" in ROOMS


def _type_checking_lines(tree: ast.Module) -> set[int]:
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and _dotted(n.test).endswith("TYPE_CHECKING")]
    return {line for block in blocks for line in range(block.lineno, (block.end_lineno or block.lineno) + 1)}


def _forbidden_act(path: str, room: str, node: ast.AST) -> Iterator[str]:
    called = _dotted(node.func) if isinstance(node, ast.Call) else ""
    name = called.split(".")[-1]
    if path != WRITER and any(_is_data(target) for target in _targets(node)):
        yield f"only {WRITER} may assign to `.data`"
    if room in MAY_NOT_WRITE:
        yield from _writes(node, called)
    if name in HOOKS and room != "observe" and path not in MAY_HOOK:
        yield f"only observe may hook (`{name}`)"
    if room == "kernels" and _sees_modules(node):
        yield "kernels see tensors, not torch.nn"
    if name == "backward" and called != name and path not in MAY_TRAIN and room not in {"observe", "testing"}:
        yield "only training/loop.py and observe may call `backward`"
    if name == "step" and "optim" in called and path not in MAY_TRAIN and room != "testing":
        yield "only training/loop.py may step an optimizer"
    if called == "print" and room != "cli":
        yield "only the command line prints"


def _writes(node: ast.AST, called: str) -> Iterator[str]:
    *before, name = called.split(".")
    if name == "copy_" and before:
        yield f"only {WRITER} writes: no `copy_`"
    if before and before[-1] == "init" and name.endswith("_"):
        yield f"only {WRITER} writes: no `nn.init.{name}`"
    if isinstance(node, ast.ImportFrom) and node.module == "torch.nn.init":
        yield f"only {WRITER} writes: no torch.nn.init"
    if isinstance(node, ast.Attribute) and node.attr == "state" and "optim" in _dotted(node.value).split(".")[-1]:
        yield f"only {WRITER} touches an optimizer's state"


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [leaf for target in node.targets for leaf in getattr(target, "elts", [target])]
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def _is_data(target: ast.expr) -> bool:
    while isinstance(target, ast.Subscript):
        target = target.value
    # `self.data = ...` in a class of ours is an attribute like any other.
    return isinstance(target, ast.Attribute) and target.attr == "data" and _dotted(target.value) != "self"


def _sees_modules(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.startswith("torch.nn") for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return module.startswith("torch.nn") or (module == "torch" and any(alias.name == "nn" for alias in node.names))
    return isinstance(node, ast.Attribute) and _dotted(node) == "torch.nn"


def _dotted(node: ast.AST) -> str:
    """Return `a.b.c` of a name or attribute; parts that are neither become `?`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return "?"


# --- the rule ---


def test_every_file_keeps_to_its_room():
    files = sorted(SOURCE.rglob("*.py"))
    assert files
    wrong = [line for file in files for line in check(file.relative_to(SOURCE).as_posix(), file.read_text("utf-8"))]
    assert not wrong, "\n" + "\n".join(wrong)


def test_nobody_imports_a_leaf():
    leaves = {"integrations", "cli", "__main__"}
    assert [name for name, room in ROOMS.items() if room.imports & leaves] == ["__main__"]  # it starts the program


def test_the_rooms_are_in_order():
    """A room imports only rooms that stand above it in the table."""
    order = list(ROOMS)
    wrong = [
        (name, other)
        for name, room in ROOMS.items()
        for other in room.imports - {ROOT}
        if order.index(other) >= order.index(name)
    ]
    assert not wrong


def test_nothing_that_treats_a_model_imports_the_lab():
    may = {name for name, room in ROOMS.items() if any(other.startswith("lab") for other in room.imports)}
    assert {name for name in may if not name.startswith("lab/")} == {"cli", "testing"}


def test_modules_import_each_other_in_one_direction():
    assert not cycles(imports_of_all())


def test_cycles_are_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_the_table_in_contributing_is_that_of_the_rooms():
    text = CONTRIBUTING.read_text("utf-8")
    assert with_table(text) == text, "python tests/rooms.py writes it anew"


def test_no_module_is_hidden_by_a_function_of_its_package():
    """`rekindle.graph.trace` must be one thing, not a function or a module by the order of imports."""
    hidden = []
    for init in SOURCE.rglob("__init__.py"):
        names = {file.stem for file in init.parent.glob("*.py")} | {d.name for d in init.parent.iterdir() if d.is_dir()}
        hidden += [f"{init.parent.name}.{name}" for name in names & _bound(ast.parse(init.read_text("utf-8")))]
    assert not hidden


def _bound(tree: ast.Module) -> set[str]:
    """Return the names that a package takes from modules below, other than the modules themselves."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.asname or alias.name for node in found for alias in node.names if not _is_module(node, alias.name)}


def _is_module(node: ast.ImportFrom, name: str) -> bool:
    folder = SOURCE.parent / Path(*str(node.module).split("."))
    return (folder / f"{name}.py").exists() or (folder / name).is_dir()


def imports_of_all() -> dict[str, set[str]]:
    """Return for each module of ours the others that it imports."""
    files = {module_of(file): file for file in SOURCE.rglob("*.py")}
    return {name: _imports_of(name, file, set(files)) for name, file in files.items()}


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_of(name: str, file: Path, known: set[str]) -> set[str]:
    """Return the modules of ours that a file imports anywhere; the lazy packages name theirs for type checkers only."""
    path, found = file.relative_to(SOURCE).as_posix(), set()
    tree = ast.parse(file.read_text("utf-8"))
    lazy = _type_checking_lines(tree) if path in LOOKS_UP_BY_NAME or file.name == "__init__.py" else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.lineno not in lazy:
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & known
            found |= inside or {node.module} & known
    return found - {name}


def cycles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, by what can be reached from each."""
    reach = {name: _reached(name, imports) for name in imports}
    found = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in imports if name in reach[name]
    }
    return sorted(sorted(each) for each in found)


def _reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    found, todo = set(), [start]
    while todo:
        new = imports.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


# --- the checker can fail ---

BAD = [
    ("kernels/polar.py", "from rekindle.errors import RekindleError", "`kernels` may not import `errors`"),
    ("graph/tracing.py", "import rekindle.edits.write", "`graph` may not import `edits`"),
    ("graph/tracing.py", "from ..edits import write", "`graph` may not import `edits`"),
    ("graph/tracing.py", "from .. import edits", "`graph` may not import `edits`"),
    ("graph/tracing.py", "from rekindle import edits", "`graph` may not import `edits`"),
    ("edits/write.py", "def f():\n    from rekindle.methods.one_shot import fire", "may not import `methods/one_shot`"),
    ("edits/write.py", "import rekindle as rk", "`edits` may not import `ROOT`"),
    ("edits/write.py", "from rekindle import trace", "`edits` may not import `ROOT`"),
    ("edits/write.py", "importlib.import_module('rekindle.methods.per_step.l2')", "may not import `methods/per_step`"),
    ("edits/edit.py", "if TYPE_CHECKING:\n    from rekindle.methods.card import Card", "may not import `methods`"),
    ("methods/one_shot/fire.py", "from rekindle.methods.per_step.l2 import L2", "may not import `methods/per_step`"),
    ("methods/apply.py", "from rekindle.methods.one_shot.fire import Fire", "may not import `methods/one_shot`"),
    ("methods/apply.py", "from rekindle.methods import one_shot", "may not import `methods/one_shot`"),
    ("lab/models/mlp.py", "from rekindle.graph import trace", "`lab/models` may not import `graph`"),
    ("lab/runs/rows.py", "from rekindle.lab.report.tables import mark", "`lab/runs` may not import `lab/report`"),
    ("training/loop.py", "from rekindle.methods.per_step.l2 import L2", "may not import `methods/per_step`"),
    ("comparison/trials.py", "from rekindle.lab.runs.store import Store", "`comparison` may not import `lab/runs`"),
    ("diagnosis/auditing.py", "import rekindle.lab.data", "`diagnosis` may not import `lab/data`"),
    ("testing/zoo.py", "from rekindle.cli import main", "`testing` may not import `cli`"),
    ("testing/zoo.py", "from rekindle.integrations import lightning", "`testing` may not import `integrations`"),
    ("cli/list.py", "import rekindle.integrations.lightning", "`cli` may not import `integrations`"),
    ("attic/thing.py", "x = 1", "room `attic` is not in the table"),
    ("__init__.py", "from rekindle.graph.tracing import trace", "the package is lazy"),
    ("methods/one_shot/fire.py", "p.data = q", "may assign to `.data`"),
    ("training/loop.py", "p.weight.data[0] *= 2", "may assign to `.data`"),
    ("methods/per_step/l2.py", "a, p.data = 1, q", "may assign to `.data`"),
    ("methods/per_step/l2.py", "p.copy_(q)", "no `copy_`"),
    ("methods/recyclers/redo.py", "params[0].copy_(q)", "no `copy_`"),
    ("methods/one_shot/fire.py", "from torch import nn\nnn.init.zeros_(p)", "no `nn.init.zeros_`"),
    ("methods/one_shot/fire.py", "import torch\ntorch.nn.init.zeros_(p)", "no `nn.init.zeros_`"),
    ("metrics/sfe.py", "from torch.nn.init import zeros_", "no torch.nn.init"),
    ("methods/one_shot/fire.py", "self.optimizer.state[p].clear()", "touches an optimizer's state"),
    ("metrics/dormant.py", "m.register_forward_hook(f)", "only observe may hook"),
    ("integrations/lightning.py", "m.register_full_backward_hook(f)", "only observe may hook"),
    ("graph/tracing.py", "m.register_forward_pre_hook(f)", "only observe may hook"),
    ("edits/write.py", "m.register_forward_hook(f)", "only observe may hook"),
    ("kernels/polar.py", "import torch.nn", "not torch.nn"),
    ("kernels/polar.py", "from torch import nn", "not torch.nn"),
    ("kernels/polar.py", "from torch.nn import functional", "not torch.nn"),
    ("kernels/polar.py", "import torch\ntorch.nn.functional.relu(x)", "not torch.nn"),
    ("metrics/sfe.py", "loss.backward()", "may call `backward`"),
    ("lab/protocols/warm_start.py", "optimizer.step()", "may step an optimizer"),
    ("metrics/sfe.py", "print(1)", "only the command line prints"),
    ("edits/utils.py", "x = 1", "`utils` says nothing"),
    ("graph/_common.py", "x = 1", "`_common` says nothing"),
    ("helpers/x.py", "x = 1", "`helpers` says nothing"),
    ("edits/edit.py", "x = 1\n" * 401, "longer than 400 lines"),
]

GOOD = [
    ("edits/write.py", "from rekindle.kernels import polar\np.data = q\np.copy_(q)\noptimizer.state[p].clear()"),
    ("methods/registry.py", "import importlib\nimportlib.import_module('rekindle.methods.one_shot')"),
    ("__init__.py", "if TYPE_CHECKING:\n    from rekindle.graph.tracing import trace"),
    ("methods/one_shot/fire.py", "from rekindle.methods.apply import apply_\nfrom torch import nn\nx = p.data.clone()"),
    ("observe/activations.py", "m.register_forward_hook(f)\nloss.backward()"),
    ("edits/standardize.py", "m.register_forward_hook(f)\nm.register_forward_pre_hook(f)"),
    ("training/loop.py", "loss.backward()\noptimizer.step()"),
    ("lab/data/digits.py", "from ...errors import RekindleError\nself.data = 1\nimport rekindleish"),
    (
        "lab/report/curves.py",
        "from rekindle.lab.runs.rows import Row\nimport rekindle.lab.report.load_runs",
    ),
    ("cli/demo.py", "import rekindle as rk\nprint(rk)"),
    ("lab/models/mlp.py", "from torch import nn\nnn.init.zeros_(p)\nfrom .mlp import MLP\nfrom . import vgg"),
    ("edits/edit.py", "x = 1\n" * 400),
]


@pytest.mark.parametrize(("path", "text", "reason"), BAD)
def test_checker_sees(path, text, reason):
    assert any(reason in line for line in check(path, text)), check(path, text)


@pytest.mark.parametrize(("path", "text"), GOOD)
def test_checker_lets_pass(path, text):
    assert check(path, text) == []
