"""What a line may do depends on where it stands: import directions, writers, hooks, names and lengths.

The checker reads source text only; it is itself tested on snippets that break each rule.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "rekindle"

METHODS = {"interventions", "steps", "recyclers"}
UP_TO_TREAT = {"core", "graph", "observe", "kernels", "metrics", "treat", "recycle"}
UP_TO_PROTOCOLS = UP_TO_TREAT | METHODS | {"models", "data", "keeper", "protocols"}
EVERYTHING_BUT_LEAVES = UP_TO_PROTOCOLS | {"bench", "report", "checkpoint", "testing", "auditing"}
ROOT = ""  # the package itself, `import rekindle`: its lazy names reach everything

# room -> the other rooms of ours that it may import, at the top of a file or inside a function.
MAY_IMPORT = {
    "kernels": set(),
    "core": {"kernels"},
    "graph": {"core", "kernels"},
    "observe": {"core", "graph", "kernels"},
    "metrics": {"core", "graph", "observe", "kernels"},
    "treat": {"core", "graph", "observe", "kernels"},
    "recalibrate": {"core", "observe"},
    "recycle": {"core", "graph"},
    **dict.fromkeys(METHODS, UP_TO_TREAT),
    "keeper": UP_TO_TREAT,
    "models": {"core"},
    "data": {"core"},
    "protocols": {"models", "data", "core", "graph", "observe", "metrics", "treat", "keeper"},
    "bench": UP_TO_PROTOCOLS,
    "report": {"bench", "core", "metrics", "graph"},
    "auditing": UP_TO_TREAT | {"checkpoint", "report"},
    "checkpoint": {"core", "graph", "kernels", "treat"},
    "testing": EVERYTHING_BUT_LEAVES | {ROOT},
    "integrations": EVERYTHING_BUT_LEAVES | {ROOT},
    "cli": EVERYTHING_BUT_LEAVES | {ROOT},
    "__main__": {"cli"},
}
# These find others by file name (that is their work), so the names they look up are not imports to be judged.
LOOKS_UP_BY_NAME = {"core/registry.py", "cli/__init__.py", "__init__.py"}

WRITER = "core/apply.py"
MAY_NOT_WRITE = {"graph", "observe", "metrics"} | METHODS
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
# The fixed normalisation of `layerwise` stays in the model as a hook: a wrapper would rename all parameters below it.
MAY_HOOK = {"core/grafting.py"}
# The probe trains copies of the model: that is its reading. Stacked seeds are one step for many networks, which the
# plain loop, with its one model and its Keeper, should not have to know.
MAY_TRAIN = {"protocols/loop.py", "protocols/stacked.py", "metrics/trainability.py"}
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
    return ROOT if first == "__init__" and not rest else first


def _names_and_length(path: str, text: str) -> Iterator[tuple[int, str]]:
    for part in Path(path).with_suffix("").parts:
        if part.strip("_") in FORBIDDEN_NAMES:
            yield 0, f"`{part}` says nothing: a room is missing"
    if len(text.splitlines()) > LONGEST:
        yield LONGEST, f"longer than {LONGEST} lines: a room is missing"


def _imports(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    room = room_of(path)
    if room != ROOT and room not in MAY_IMPORT:
        yield 0, f"room `{room}` is not in the table of this test"
        return
    for line, target in imported_rooms(path, tree):
        if room == ROOT:
            yield line, f"the package is lazy: it may not import `{target}`"
        elif target != room and target not in MAY_IMPORT[room]:
            yield line, f"`{room}` may not import `{target or 'rekindle'}`"


def imported_rooms(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and room of every import of ours, wherever it stands; type-checking imports are knowledge too."""
    type_checking = _type_checking_lines(tree) if room_of(path) == ROOT else set()
    for node in ast.walk(tree):
        for module in _imported_modules(path, node):
            head, *rest = module.split(".")
            if head == "rekindle" and node.lineno not in type_checking:
                yield node.lineno, rest[0] if rest else ROOT


def _imported_modules(path: str, node: ast.AST) -> list[str]:
    """Return the absolute names of what a node imports; `from rekindle import core` is `rekindle.core`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        package = ["rekindle", *Path(path).parent.parts]
        start = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*start, *([node.module] if node.module else [])])
        known = {alias.name for alias in node.names} & set(MAY_IMPORT) if module == "rekindle" else set()
        plain = {alias.name for alias in node.names} - known
        return [f"rekindle.{name}" for name in sorted(known)] + ([module] if plain else [])
    if isinstance(node, ast.Call) and _dotted(node.func).split(".")[-1] in {"import_module", "__import__"}:
        literal = node.args[0] if node.args else None
        by_name = path in LOOKS_UP_BY_NAME or not isinstance(literal, ast.Constant)
        return [] if by_name else [str(literal.value)]
    return []


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
        yield "only protocols/loop.py and observe may call `backward`"
    if name == "step" and "optim" in called and path not in MAY_TRAIN and room != "testing":
        yield "only protocols/loop.py may step an optimizer"
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
    assert [room for room, allowed in MAY_IMPORT.items() if allowed & leaves] == ["__main__"]  # it starts the program


def test_the_rooms_are_in_order():
    """No two rooms import each other."""
    pairs = {(a, b) for a, allowed in MAY_IMPORT.items() for b in allowed if b in MAY_IMPORT}
    assert not [(a, b) for a, b in pairs if (b, a) in pairs and a != b]


# --- the checker can fail ---

BAD = [
    ("kernels/polar.py", "from rekindle.core.errors import RekindleError", "`kernels` may not import `core`"),
    ("core/apply.py", "import rekindle.graph.trace", "`core` may not import `graph`"),
    ("core/apply.py", "from ..graph import trace", "`core` may not import `graph`"),
    ("core/apply.py", "from .. import graph", "`core` may not import `graph`"),
    ("core/apply.py", "from rekindle import graph", "`core` may not import `graph`"),
    ("core/apply.py", "def f():\n    from rekindle.interventions import fire", "`core` may not import `interventions`"),
    ("core/apply.py", "import rekindle as rk", "`core` may not import `rekindle`"),
    ("core/apply.py", "from rekindle import trace", "`core` may not import `rekindle`"),
    (
        "core/apply.py",
        "importlib.import_module('rekindle.steps.l2')",
        "`core` may not import `steps`",
    ),
    ("core/edit.py", "if TYPE_CHECKING:\n    from rekindle.graph.trace import G", "`core` may not import `graph`"),
    ("interventions/fire.py", "from rekindle.steps.l2 import L2", "`interventions` may not import `steps`"),
    ("models/mlp.py", "from rekindle.graph import trace", "`models` may not import `graph`"),
    ("treat.py", "from rekindle.interventions.fire import Fire", "`treat` may not import `interventions`"),
    ("bench/rows.py", "from rekindle.report.page import page", "`bench` may not import `report`"),
    ("protocols/loop.py", "from rekindle.steps.l2 import L2", "`protocols` may not import `steps`"),
    ("testing/zoo.py", "from rekindle.cli import main", "`testing` may not import `cli`"),
    ("testing/zoo.py", "from rekindle.integrations import lightning", "`testing` may not import `integrations`"),
    ("cli/list.py", "import rekindle.integrations.lightning", "`cli` may not import `integrations`"),
    ("attic/thing.py", "x = 1", "room `attic` is not in the table"),
    ("__init__.py", "from rekindle.graph.trace import trace", "the package is lazy"),
    ("interventions/fire.py", "p.data = q", "may assign to `.data`"),
    ("protocols/loop.py", "p.weight.data[0] *= 2", "may assign to `.data`"),
    ("steps/l2.py", "a, p.data = 1, q", "may assign to `.data`"),
    ("steps/l2.py", "p.copy_(q)", "no `copy_`"),
    ("recyclers/redo.py", "params[0].copy_(q)", "no `copy_`"),
    ("interventions/fire.py", "from torch import nn\nnn.init.zeros_(p)", "no `nn.init.zeros_`"),
    ("interventions/fire.py", "import torch\ntorch.nn.init.zeros_(p)", "no `nn.init.zeros_`"),
    ("metrics/sfe.py", "from torch.nn.init import zeros_", "no torch.nn.init"),
    ("interventions/fire.py", "self.optimizer.state[p].clear()", "touches an optimizer's state"),
    ("metrics/dormant.py", "m.register_forward_hook(f)", "only observe may hook"),
    ("integrations/lightning.py", "m.register_full_backward_hook(f)", "only observe may hook"),
    ("graph/trace.py", "m.register_forward_pre_hook(f)", "only observe may hook"),
    ("core/apply.py", "m.register_forward_hook(f)", "only observe may hook"),
    ("kernels/polar.py", "import torch.nn", "not torch.nn"),
    ("kernels/polar.py", "from torch import nn", "not torch.nn"),
    ("kernels/polar.py", "from torch.nn import functional", "not torch.nn"),
    ("kernels/polar.py", "import torch\ntorch.nn.functional.relu(x)", "not torch.nn"),
    ("metrics/sfe.py", "loss.backward()", "may call `backward`"),
    ("protocols/warm_start.py", "optimizer.step()", "may step an optimizer"),
    ("metrics/sfe.py", "print(1)", "only the command line prints"),
    ("core/utils.py", "x = 1", "`utils` says nothing"),
    ("graph/_common.py", "x = 1", "`_common` says nothing"),
    ("helpers/x.py", "x = 1", "`helpers` says nothing"),
    ("core/edit.py", "x = 1\n" * 401, "longer than 400 lines"),
]

GOOD = [
    ("core/apply.py", "from rekindle.kernels import polar\np.data = q\np.copy_(q)\noptimizer.state[p].clear()"),
    ("core/registry.py", "import importlib\nimportlib.import_module('rekindle.interventions')"),
    ("__init__.py", "if TYPE_CHECKING:\n    from rekindle.graph.trace import trace"),
    ("interventions/fire.py", "from rekindle.treat import apply_\nfrom torch import nn\nx = p.data.clone()"),
    ("observe/activations.py", "m.register_forward_hook(f)\nloss.backward()"),
    ("core/grafting.py", "m.register_forward_hook(f)"),
    ("protocols/loop.py", "loss.backward()\noptimizer.step()"),
    ("data/digits.py", "from .. import core\nself.data = 1\nimport rekindleish"),
    ("cli/demo.py", "import rekindle as rk\nprint(rk)"),
    ("models/mlp.py", "from torch import nn\nnn.init.zeros_(p)\nfrom .mlp import MLP\nfrom . import vgg"),
    ("core/edit.py", "x = 1\n" * 400),
]


@pytest.mark.parametrize(("path", "text", "reason"), BAD)
def test_checker_sees(path, text, reason):
    assert any(reason in line for line in check(path, text)), check(path, text)


@pytest.mark.parametrize(("path", "text"), GOOD)
def test_checker_lets_pass(path, text):
    assert check(path, text) == []
