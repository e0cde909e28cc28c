"""Names of packages that are loaded when they are first asked for."""

import subprocess
import sys

import pytest

import rekindle
from rekindle import lab, methods
from rekindle._lazy import lazy
from rekindle.lab import runs


def test_names_modules_and_what_is_neither():
    get, names = lazy("rekindle", {"seed_of": "seeds", "finite": "kernels.finite"}, ["text"])
    from rekindle import seeds, text
    from rekindle.kernels.finite import finite

    assert get("seed_of") is seeds.seed_of and get("finite") is finite and get("text") is text
    assert names() == ["finite", "seed_of", "text"]
    with pytest.raises(AttributeError, match="module 'rekindle' has no attribute 'nothing'"):
        get("nothing")


@pytest.mark.parametrize("package", [rekindle, methods, lab, runs], ids=lambda package: package.__name__)
def test_every_public_name_of_a_lazy_package_is_there(package):
    assert set(getattr(package, "__all__", ())) <= set(dir(package)) and dir(package) == sorted(dir(package))
    for name in dir(package):
        assert getattr(package, name) is not None, name


def test_nothing_is_loaded_before_it_is_asked_for():
    code = "import sys, rekindle; assert 'torch' not in sys.modules and 'rekindle.graph' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
