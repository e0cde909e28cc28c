"""Every module has its test where one would look, every test file belongs to something, and every test asserts.

The test of `src/rekindle/edits/plan.py` is `tests/edits/test_plan.py`, that of `papers/fire/cost.py` is
`tests/papers/fire/test_cost.py`. `_x.py` is tested by `test_x.py`, and `test_x_theorems.py` is about `x.py` too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
LONGEST = 400

# Folders whose files are tested together, where a file has no test of its own.
TOGETHER = {
    "graph/operations": "graph/test_operations.py",
    "graph/scaling": "graph/scaling/test_walk.py",
    "lab/models": "lab/models/test_models.py",
    "lab/protocols": "lab/protocols/test_stages.py",
    **{
        f"papers/{paper}": "papers/test_catalog.py"  # experiments as values: all of them are checked there
        for paper in ("fire", "frozen", "layerwise", "other_papers", "soft_rescaling")
    },
}
# What is tested elsewhere: module to test file.
EXCEPTIONS = {
    "__main__.py": "cli/test_main.py",
    "graph/assemble.py": "graph/test_groups.py",
    "graph/rules.py": "graph/test_operations.py",
    "lab/runs/learner.py": "lab/runs/test_training_run.py",
    "methods/one_shot/_sparse.py": "methods/one_shot/test_doubly_sparse.py",
    "methods/one_shot/_subset.py": "methods/one_shot/test_welsr.py",
    "methods/recyclers/_units.py": "methods/recyclers/test_redo.py",
    "metrics/_rank.py": "metrics/test_effective_rank.py",
    "testing/contract.py": "contract/test_the_contract_itself.py",
    "testing/one_shot_checks.py": "contract/test_the_contract_itself.py",
    "testing/zoo_attention.py": "testing/test_zoo.py",
    "testing/zoo_convolutional.py": "testing/test_zoo.py",
    "testing/zoo_dense.py": "testing/test_zoo.py",
    "testing/zoo_recurrent.py": "testing/test_zoo.py",
}
# What is about many modules, about a whole package, or about the repository.
OF_MANY = {
    "benchmarks/test_tables.py",
    "cli/test_main.py",
    "contract/test_contract.py",
    "contract/test_interrupts.py",
    "contract/test_not_plain.py",
    "contract/test_recyclers.py",
    "contract/test_the_contract_itself.py",
    "contract/test_wrappers.py",
    "graph/test_foreign_models.py",
    "graph/test_operations.py",
    "graph/test_policies.py",
    "graph/test_unseen_readers.py",
    "keeper/test_boundaries.py",
    "keeper/test_processes.py",
    "lab/models/test_models.py",
    "lab/protocols/test_stages.py",
    "lab/test_public_names.py",
    "methods/per_step/test_common_promises.py",
    "methods/test_deviations.py",
    "methods/test_plugins.py",
    "metrics/test_glossary.py",
    "metrics/test_theorems.py",
    "metrics/test_untouched.py",
    "papers/test_committed.py",
    "test_examples.py",
    "papers/test_examples.py",
    "papers/test_public_names.py",
    "test_documentation.py",
    "test_imports.py",
    "test_layout.py",
    "test_rooms.py",
    "test_style.py",
}
# Functions that assert, beside `pytest.raises` and `pytest.warns`.
ASSERTING = {
    "agrees",
    "assert_as_alone",
    "assert_close",
    "check_card",
    "check_interrupts",
    "check_method",
    "check_on",
    "check_settings",
    "finish_what_is_left",
    "raises",
    "run",
    "same",
    "same_as_autograd",
    "warns",
}


def modules() -> list[str]:
    """Return all source files but those of packages, which only gather names."""
    own, papers = ROOT / "src" / "rekindle", ROOT / "papers"
    found = [str(path.relative_to(own)) for path in own.rglob("*.py")]
    found += [str(path.relative_to(ROOT)) for path in papers.rglob("*.py")]
    return sorted(path for path in found if not path.endswith("__init__.py"))


def found_tests() -> list[Path]:
    """Return all files with tests."""
    return sorted(TESTS.rglob("test_*.py"))


def place_of_test(module: str) -> str:
    """Return where one would look for the test of a module."""
    path = Path(module)
    return str(path.with_name(f"test_{path.name.lstrip('_')}"))


def is_about(test: str, module: str) -> bool:
    """Tell whether a test file is about a module: its own, or about one aspect of it."""
    own = place_of_test(module).removesuffix(".py")
    return test == f"{own}.py" or test.startswith(f"{own}_")


def test_every_module_has_its_test():
    without = [module for module in modules() if not (TESTS / place_of_test(module)).exists()]
    elsewhere = {module: EXCEPTIONS.get(module) or TOGETHER.get(str(Path(module).parent)) for module in without}
    missing = [place_of_test(module) for module, test in elsewhere.items() if test is None]
    assert not missing, "write these, or say in EXCEPTIONS where the module is tested"
    gone = {module: test for module, test in elsewhere.items() if not (TESTS / str(test)).exists()}
    assert not gone, "said to be tested by files that are not there"
    assert set(EXCEPTIONS) <= set(without), "no exceptions any more: they have a test, or are gone"


def test_every_test_file_is_about_something():
    names = [str(path.relative_to(TESTS)) for path in found_tests()]
    known = modules()
    lost = [name for name in names if name not in OF_MANY and not any(is_about(name, module) for module in known)]
    assert not lost, "rename them after what they test, or add them to OF_MANY"
    assert OF_MANY <= set(names)


@pytest.mark.parametrize(
    ("test", "module", "about"),
    [
        ("edits/test_plan.py", "edits/plan.py", True),
        ("methods/one_shot/test_blocks.py", "methods/one_shot/_blocks.py", True),
        ("methods/per_step/test_soft_rescale_theorems.py", "methods/per_step/soft_rescale.py", True),
        ("papers/fire/test_cost.py", "papers/fire/cost.py", True),
        ("edits/test_planning.py", "edits/plan.py", False),
        ("graph/test_plan.py", "edits/plan.py", False),
    ],
)
def test_what_a_test_file_is_about(test, module, about):
    assert is_about(test, module) is about


def test_no_file_is_too_long():
    lengths = {str(path.relative_to(TESTS)): len(path.read_text("utf-8").splitlines()) for path in TESTS.rglob("*.py")}
    assert not {name: length for name, length in lengths.items() if length > LONGEST}


# --- every test asserts ---


def without_assertion(text: str) -> Iterator[str]:
    """Yield the names of tests that cannot fail but by accident."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not _asserts(node):
            yield node.name


def _asserts(test: ast.FunctionDef) -> bool:
    inside = [node for statement in test.body for node in ast.walk(statement)]
    called = {_last(node.func) for node in inside if isinstance(node, ast.Call)}
    return bool(called & ASSERTING) or any(isinstance(node, ast.Assert) for node in inside)


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_every_test_asserts():
    silent = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in found_tests()
        for name in without_assertion(path.read_text("utf-8"))
    ]
    assert not silent, "assert something, or add the function that does to ASSERTING"


@pytest.mark.parametrize(
    ("body", "silent"),
    [
        ("f()", True),
        ("f() == 3", True),
        ("x = [a.assertion for a in b]", True),
        ("with raises_nothing(): f()", True),
        ("assert f()", False),
        ("for x in y:\n        assert x", False),
        ("with pytest.raises(ValueError): f()", False),
        ("torch.testing.assert_close(a, b)", False),
        ("same(a, b, 'differs')", False),
    ],
)
def test_the_check_can_fail(body, silent):
    text = f"@pytest.mark.parametrize('x', check_method())\ndef test_x():\n    {body}\n"
    assert list(without_assertion(text)) == (["test_x"] if silent else [])
