"""What the packages of the lab offer, and what it costs to import them."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = ["data", "models", "protocols", "report", "runs", "runs.engines"]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_that_is_offered_is_there(name):
    package = importlib.import_module(f"rekindle.lab.{name}")
    assert package.__all__ and all(getattr(package, offered) is not None for offered in package.__all__)
    with pytest.raises(AttributeError):
        package.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", PACKAGES)
def test_optional_packages_are_not_imported(name):
    heavy = ["ray", "scipy", "sklearn", "transformers", "datasets", *(["torch"] if name.startswith("runs") else [])]
    code = f"import sys, rekindle.lab.{name}; print(*[heavy for heavy in {heavy} if heavy in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
