"""What is loaded when, in fresh processes: the package is lazy, and nothing that treats a model needs the lab."""

import subprocess
import sys

import pytest

NEEDS_NO_LAB = ("rk.compare", "rk.audit", "rk.fire_", "rk.Keeper", "rk.recalibrate_", "rk.list_methods()")


def loaded(code):
    shown = f"import sys, rekindle as rk; {code}; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True).stdout.split()


def test_the_package_alone_loads_nothing():
    modules = loaded("pass")
    assert "torch" not in modules and "numpy" not in modules and "pydantic" not in modules
    assert [name for name in modules if name.startswith("rekindle.")] == ["rekindle._renamed"]


@pytest.mark.parametrize("expression", NEEDS_NO_LAB)
def test_nothing_of_the_lab_is_loaded(expression):
    modules = loaded(expression)
    assert "torch" in modules
    assert not [name for name in modules if name.startswith(("rekindle.lab", "papers"))]


def test_a_comparison_and_its_page_load_nothing_of_the_lab(tmp_path):
    pytest.importorskip("scipy")
    pytest.importorskip("vl_convert")
    code = (
        "import torch; data = (torch.randn(16, 3), torch.randint(2, (16,))); "
        "found = rk.compare(torch.nn.Linear(3, 2), data, data, ['l2'], budget=1, seeds=2); "
        "from rekindle.pages.comparison_page import write_comparison_page; "
        f"write_comparison_page(found, {str(tmp_path / 'a.html')!r}); "
        f"rk.audit(torch.nn.Linear(3, 2)).to_html({str(tmp_path / 'b.html')!r})"
    )
    assert not [name for name in loaded(code) if name.startswith("rekindle.lab")]
    assert (tmp_path / "a.html").stat().st_size > 1000 and (tmp_path / "b.html").stat().st_size > 1000
