import pytest

from rekindle.errors import RekindleError
from rekindle.lab.runs.presets import BEST
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.sweep import Sweep, SweepError, parse_sweep, read_sweep

SPEC = """
protocol: warm_start:fraction=0.1
warmup: 1e-1
grid:
  methods: [none, fire]
  model: [mlp, cnn]
seeds: 2
"""


def test_every_combination_once():
    runs = parse_sweep(SPEC).expand()
    assert [(run.seed, run.methods, run.model) for run in runs] == [
        (seed, methods, model) for seed in (0, 1) for methods in ("none", "fire") for model in ("mlp", "cnn")
    ]
    assert {run.warmup for run in runs} == {0.1}, "1e-1 is a number"
    assert len({run.key for run in runs}) == 8


def test_keys_do_not_depend_on_the_order_of_lines():
    turned = "\n".join(["seeds: [1, 0]", "grid: {model: [cnn, mlp], methods: [fire, none]}", *SPEC.splitlines()[1:3]])
    assert {r.key for r in parse_sweep(turned).expand()} == {r.key for r in parse_sweep(SPEC).expand()}


def test_seeds_and_seed():
    assert parse_sweep("data: digits").seeds == (0,)
    assert parse_sweep("seed: 4").expand() == [Run(seed=4)]
    assert parse_sweep("seeds: [5, 2]").seeds == (5, 2)


def test_the_name_is_the_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(SPEC)
    assert read_sweep(path).name == "mine"
    path.write_text("name: other\n" + SPEC)
    assert read_sweep(path).name == "other"


WRONG = [
    ("protocl: warm_start", "line 1: protocl"),
    ("data: digits\ngrid:\n  metods: [none]", "line 3: grid.metods"),
    ("data: digits\ngrid: []", "line 2: grid"),
    ("grid: {methods: []}", "grid.methods"),
    ("grid: {methods: none}", "grid.methods"),
    ("grid:\n  seed: [1]", "line 2: grid.seed"),
    ("methods: none\ngrid: {methods: [fire]}", "line 1: methods"),
    ("seeds: 0", "line 1: seeds"),
    ("seeds: []", "seeds"),
    ("seeds: [1, -1]", "seeds"),
    ("seeds: true", "seeds"),
    ("seeds: 1.5", "seeds"),
    ("seed: one", "seed"),
    ("seed: 1\nseeds: 2", "line 1: seed"),
    ("name: 3", "name"),
    ("data: digits\n\nbatch_size: many", "line 3: batch_size"),
    ("data: digits\ngrid:\n  batch_size: [1, 0]", "line 3: batch_size"),
    ("data: digits\ngrid:\n  methods: [no_such_method, none]", "line 3: "),
    ("data: digits\ngrid:\n  methods: [none, no_such_method]", "line 3: "),
    ("data: digits\n\nmodel: no_such_network", "line 3: "),
    ("data: digits\ndata: mnist", "line 1 and in line 2"),
    ("grid: {model: [mlp], model: [cnn]}", "grid.model in line 1"),
    ("data: [digits", "line 1"),
    ("- data", "spec"),
    ("", "spec"),
    ("1: 2", "spec"),
    ("preset: no_such_thing", "line 1: preset"),
]


@pytest.mark.parametrize(("text", "place"), WRONG)
def test_mistakes_are_told_with_their_place(text, place):
    with pytest.raises(SweepError) as caught:
        parse_sweep(text)
    assert place in caught.value.got, caught.value
    assert caught.value.expected and caught.value.fix


@pytest.mark.parametrize("text", ["seeds: [1, 1]", "grid: {methods: [none, none]}", "grid: {warmup: [0, 0.0]}"])
def test_the_same_run_twice_is_a_mistake(text):
    with pytest.raises(SweepError, match="twice"):
        parse_sweep(text).expand()


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SweepError, match="No such file"):
        read_sweep(tmp_path / "none.yaml")


def test_a_preset_stands_below_what_is_given():
    sweep = parse_sweep("preset: fire.warm_start.cifar10\nclip: 1\ngrid: {methods: [none, redo, fire:blend=0.5]}")
    assert sweep.grid == {"methods": ["none", "redo:threshold=0.5", "fire:blend=0.5"]}
    assert sweep.fixed["clip"] == 1 and sweep.fixed["warmup"] == 0.1 and sweep.fixed["model"] == "resnet18"
    turned = parse_sweep("preset: fire.warm_start.cifar10\nmethods: snr\ngrid: {model: [cnn, resnet18]}")
    assert turned.fixed["methods"] == "snr:threshold=0.01" and "model" not in turned.fixed


@pytest.mark.parametrize("name", sorted(BEST))
def test_a_preset_alone_takes_every_method_of_the_paper(name):
    runs = parse_sweep(f"preset: {name}").expand()
    assert [run.methods for run in runs] == ["none", "fresh", *BEST[name].values()]


def test_errors_of_the_runs_come_through():
    with pytest.raises(RekindleError):
        Sweep(fixed={"epochs": -1}).expand()
