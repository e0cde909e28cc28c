"""What an editor and a type checker see is what is there."""

import subprocess
import sys
from pathlib import Path

import rekindle as rk
from rekindle._stub import stub
from rekindle.methods.registry import places

STUB = Path(rk.__file__).with_suffix(".pyi")
SCRIPT = Path(__file__).parent / "every_public_name.py"


def test_the_stub_is_the_generated_one():
    assert STUB.read_text("utf-8") == stub(), "python -m rekindle._stub writes it anew"


def test_every_public_name_is_in_it():
    text = STUB.read_text("utf-8")
    others = {key for key, place in places().items() if place.package != "rekindle"}
    for name in dir(rk):
        if name.removesuffix("_").lower() not in others:
            assert f" as {name}\n" in text or f"def {name}(" in text or f"{name}: " in text, name


def test_a_script_that_uses_every_public_name_passes_a_strict_type_checker(tmp_path):
    used = SCRIPT.read_text("utf-8")
    missing = [name for name in dir(rk) if f"rk.{name}" not in used and name != "__version__"]
    assert not missing, "use them in the script"
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(SCRIPT)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_wrong_setting_is_seen_by_the_type_checker(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text('import torch\nimport rekindle as rk\nrk.fire_(torch.nn.Linear(2, 2), scale="large")\n')
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(wrong)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and 'Argument "scale"' in done.stdout
