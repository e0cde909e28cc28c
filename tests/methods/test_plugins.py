"""Methods of other packages: installed, they are everywhere where ours are; broken ones are named and left out.

The packages are really installed, by pip into a folder; what uses them runs in processes of its own.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import rekindle as rk

ROOT = Path(__file__).resolve().parents[2]
SRC = Path(rk.__file__).parent.parent


def install(package, folder):
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run([*command, "--target", str(folder), str(package)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def run(folder, *arguments, text=None, code=0):
    """Run Python with the installed packages; return what it prints and what it warns of."""

    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{SRC}",
        "COLUMNS": "200",
        "PYTHONWARNINGS": "default",
    }
    command = [sys.executable, *(("-c", textwrap.dedent(text)) if text else ()), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """The template that stands in examples, installed."""
    copy = tmp_path_factory.mktemp("copy") / "package"
    shutil.copytree(ROOT / "examples" / "outside_package", copy)
    folder = tmp_path_factory.mktemp("installed")
    install(copy, folder)
    return folder


def test_spec_strings_names_and_treatment(outside):
    text = """
        import torch, rekindle as rk
        net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        old = net[0].weight.detach().clone()
        rk.apply_("soften:factor=0.5", net)
        assert torch.equal(net[0].weight, old / 2)
        rk.soften_(net, factor=0.5)
        assert torch.equal(net[0].weight, old / 4) and rk.Soften(factor=0.5) == rk.method("soften")
        assert rk.apply_("soften+fire", net, example=torch.zeros(1, 4)).changed
        assert {"soften_", "Soften", "Lasso", "Quietest", "Upgd", "upgd"} <= set(dir(rk))
        assert {"soften", "lasso", "quietest", "upgd"} <= {card.key for card in rk.list_methods()}
        import inspect
        assert "factor" in inspect.signature(rk.soften_).parameters
    """
    run(outside, text=text)


def test_a_keeper(outside):
    text = """
        import torch, rekindle as rk
        net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
        optimizer = rk.upgd(net, lr=0.01)
        keeper = rk.Keeper(net, optimizer, ["lasso", "quietest:period=1", "soften"], example=torch.zeros(1, 4))
        for _ in range(3):
            optimizer.zero_grad()
            (net(torch.randn(8, 4)).square().mean() + keeper.penalty()).backward()
            optimizer.step()
            keeper.step()
        assert keeper.recycled["0"] == 3 and keeper.boundary()[0].changed
        assert "begins again for the edited elements" in keeper.records[0].notices[0]
    """
    run(outside, text=text)


def test_the_command_line(outside):
    listed, _ = run(outside, "-m", "rekindle", "list")
    assert all(f"{key} " in listed for key in ("soften", "lasso", "quietest", "upgd", "fire"))
    card, _ = run(outside, "-m", "rekindle", "list", "soften")
    assert "Multiplies every parameter by a factor" in card and "| `factor` |" in card


SWEEP = """
protocol: "warm_start:before=1,after=1,fraction=0.2"
batch_size: 64
optimizer: "upgd:lr=0.01"
grid:
  methods: [none, "soften:factor=0.9", "lasso+soften", "quietest:period=3"]
seeds: 1
"""


def test_a_sweep(outside, tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(SWEEP)
    said, _ = run(outside, "-m", "rekindle", "sweep", str(spec), "--out", str(tmp_path / "out"), "--workers", "1")
    assert "4 finished" in said
    last = {row["methods"]: row["loss"] for row in rk.lab.runs.Store(tmp_path / "out").rows() if row["event"] == "end"}
    assert len(set(last.values())) == 4, "a method did nothing"


@pytest.mark.parametrize("spec", ["soften", "lasso:strength=0.1", "quietest:period=2", "upgd:beta_utility=0.9"])
def test_the_contract(outside, spec):
    text = f"""
        import rekindle as rk
        members = [rk.testing.ZOO[name] for name in ("mlp", "cnn_bn", "vit_fused")]
        rk.testing.check_method({spec!r}, members)
    """
    run(outside, text=text)


BROKEN = {
    "broken": "raise RuntimeError('it cannot be imported')",
    "nothing": "Nothing = 3",
    "misnamed": """
from rekindle.methods import Edits, one_shot_method
from rekindle.methods.one_shot.full_reset import CARD

@one_shot_method(CARD, identity={})
class Other:
    def plan(self, graph, evidence, seed):
        return Edits()

Misnamed = Other
""",
    "fire": """
from rekindle.methods import Edits, one_shot_method
from rekindle.methods.one_shot.full_reset import CARD

@one_shot_method(CARD, identity={})
class Fire:
    def plan(self, graph, evidence, seed):
        return Edits()
""",
}


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory, outside):
    package = tmp_path_factory.mktemp("spoiled")
    (package / "spoiled_methods").mkdir()
    (package / "spoiled_methods" / "__init__.py").write_text("")
    points = []
    for key, text in BROKEN.items():
        (package / "spoiled_methods" / f"{key}.py").write_text(text)
        points.append(f'{key} = "spoiled_methods.{key}:{key.capitalize()}"')
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "spoiled-methods"\nversion = "0.1"\n'
        '[project.entry-points."rekindle.methods"]\n'
        + "\n".join(points)
        + '\n[tool.setuptools]\npackages = ["spoiled_methods"]\n'
    )
    install(package, outside)
    return outside


def test_what_is_broken_or_clashes_is_named_and_takes_nothing_down(spoiled):
    text = """
        import rekindle as rk
        keys = {card.key for card in rk.list_methods()}
        assert {"soften", "fire"} <= keys and not {"broken", "nothing", "misnamed", "other"} & keys
        assert rk.Fire.__module__ == "rekindle.methods.one_shot.fire" and rk.method("fire:scale=norm").scale == "norm"
    """
    _, told = run(spoiled, text=text)
    for key in BROKEN:
        assert f"method {key} of spoiled-methods (spoiled_methods.{key}:" in told, told
    assert "RuntimeError: it cannot be imported" in told and "rekindle has a method of that name, which stays" in told
    assert "the key of Other, other" in told
