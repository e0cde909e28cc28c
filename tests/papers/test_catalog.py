"""Every experiment's specs are checked without training anything: they expand, and their networks fit their data."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from papers.catalog import EXPERIMENTS, PAPERS, RENAMED, experiment
from papers.rules import Numbers
from rekindle.errors import SettingsError
from rekindle.lab.models.catalog import build
from rekindle.lab.runs.measure import measurer
from rekindle.methods.spec import split
from rekindle.training.examples import Examples

GRAY, COLOR = (1, 28, 28), (3, 32, 32)
TEXTS = ("wikitext103", "wikitext_bytes")
SHAPES = {
    **dict.fromkeys(("mnist", "fashion_mnist"), GRAY),
    **dict.fromkeys(("cifar10", "cifar100", "svhn"), COLOR),
    **dict.fromkeys(
        ("oxford_pets", "stanford_dogs", "stanford_cars", "caltech101", "cassava", "birds2010"), (3, 224, 224)
    ),
    "imagenet": (3, 224, 224),
    "tiny_imagenet": (3, 64, 64),
    "synthetic": (128,),
}
RUNNABLE = [
    (name, preset)
    for name, e in EXPERIMENTS.items()
    for preset in ("paper", "cpu")
    if e.study(preset) and not e.waits_for
]
FRACTIONS = {2: "half", 4: "quarter", 6: "sixth ", 8: "eighth", 16: "sixteenth"}
PICTURES = ("A figure", "A picture", "appendix alone", "curves", "without published numbers", "no numbers", "fractions")


def shape_of(data):
    name, settings = split(data)
    shape = SHAPES[name]
    return (shape[0], int(settings["size"]), int(settings["size"])) if "size" in settings else shape


def like(data, classes=10):
    """Return what a network must know of data that are not there."""
    if split(data)[0] in TEXTS:
        return SimpleNamespace(shape=(int(split(data)[1].get("context", 1024)),), classes=256, is_text=True)
    return SimpleNamespace(shape=shape_of(data), classes=classes)


def test_names_are_unique():
    assert len(EXPERIMENTS) == sum(len(paper.EXPERIMENTS) for paper in PAPERS)
    assert all(name == e.name and name == name.lower() and " " not in name for name, e in EXPERIMENTS.items())


@pytest.mark.parametrize(("name", "preset"), RUNNABLE)
def test_specs_expand_and_networks_fit(name, preset):
    study = experiment(name).study(preset)
    placed = study.runs(seeds=1)
    assert placed or study.compute, "nothing to run"
    keys = [run.key for _, runs in placed for run in runs]
    assert len(keys) == len({(cell.condition, cell.method) for cell, _ in placed})
    for data, model in {(run.data, run.model) for _, runs in placed for run in runs}:
        with torch.device("meta"):
            build(model, like(data))


def published_conditions(found):
    return {cell.condition for cell in found.paper_study.cells} if found.paper_study else set()


def width_of(model, data):
    """Return the channels of a network's first convolution."""
    with torch.device("meta"):
        built = build(model, like(data))
    return next((m.out_channels for m in built.modules() if isinstance(m, torch.nn.Conv2d)), None)


@pytest.mark.parametrize("name", [name for name, e in EXPERIMENTS.items() if e.study("cpu") and not e.waits_for])
def test_narrower_networks_are_described(name):
    study = experiment(name).study("cpu")
    for data, model in {(run.data, run.model) for _, runs in study.runs(seeds=1) for run in runs}:
        whole = data if split(data)[0] in TEXTS else f"{split(data)[0]}:size=64"
        narrow, wide = width_of(model, whole), width_of(split(model)[0], whole)
        if narrow != wide:
            assert FRACTIONS[wide // narrow] in study.reduced, model


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_says_what_it_compares_with(name):
    found = experiment(name)
    assert found.published or any(word in note for word in PICTURES for note in found.notes)
    assert found.rules or found.waits_for
    assert found.claim.endswith(".")
    assert found.study("cpu") is None or found.study("cpu").minutes, "minutes must be stated"
    if (
        found.cpu_study is not None
        and found.paper_study is not None
        and found.cpu_study.cells != found.paper_study.cells
    ):
        assert found.cpu_study.reduced != "nothing"


@pytest.mark.parametrize("name", [name for name, e in EXPERIMENTS.items() if not e.waits_for])
def test_rules_name_what_is_measured(name):
    found = experiment(name)
    measures = {measure.name for measure in found.measures}
    assert all(isinstance(rule, Numbers) or rule.claim for rule in (*found.gates, *found.rules))
    rules = [one for rule in (*found.gates, *found.rules) for one in getattr(rule, "rules", (rule,))]
    for rule in rules:
        assert rule.measure in measures
    study = found.study("cpu")
    if study.cells:
        methods, conditions = ({getattr(c, what) for c in study.cells} for what in ("method", "condition"))
        for rule in (rule for rule in rules if not isinstance(rule, Numbers)):
            others = {*getattr(rule, "than", ()), getattr(rule, "minus", None)} - {None}
            assert {rule.method, *others} <= methods
            assert rule.conditions is None or set(rule.conditions) & conditions
            assert set(rule.conditions or ()) <= conditions | published_conditions(found)


def test_published_numbers_stand_in_the_catalog_as_printed():
    table = experiment("layerwise-table-1").published
    assert len(table) == 18
    assert (table["1.0", "LW"].mean, table["1.0", "LW"].deviation) == (72.3, 3.6)
    assert experiment("layerwise-table-5").published["0.05", "Baseline"].mean == 0.77
    mnist = experiment("soft-rescaling-table-5-mnist").published
    assert mnist["MNIST (MLP)", "SWR + re-init"].mean == 0.9829
    assert mnist["MNIST (MLP)", "SWR + re-init"].n == 5


def test_published_cells_are_run_by_the_paper_preset():
    for found in EXPERIMENTS.values():
        if found.published and found.paper_study and found.paper_study.cells:
            run = {(cell.condition, cell.method) for cell in found.paper_study.cells}
            assert set(found.published) <= run, found.name


def test_data_that_must_be_there():
    assert experiment("layerwise-table-1").study("cpu").data() == ()
    assert set(experiment("frozen-table-2").study("cpu").data()) == {"cifar10", "mnist", "fashion_mnist"}


def test_an_unknown_name_is_an_error():
    with pytest.raises(SettingsError, match="layerwise-table-1"):
        experiment("table-1")


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_answered_with_the_new_one(old, new):
    assert old not in EXPERIMENTS and new in EXPERIMENTS
    with pytest.raises(SettingsError) as error:
        experiment(old)
    assert new in error.value.expected and error.value.fix == f"rekindle reproduce {new}"


def test_every_paper_has_its_folder():
    for paper in PAPERS:
        folder = Path(paper.__file__).parent
        assert {one.paper.folder for one in paper.EXPERIMENTS} == {folder.name}


MEASURED = sorted(
    {
        (run.data, run.model, run.metrics)
        for e in EXPERIMENTS.values()
        if e.study("cpu") and not e.waits_for
        for _, runs in e.study("cpu").runs(seeds=1)
        for run in runs
        if run.metrics
    }
)


@pytest.mark.parametrize(("data", "model", "metrics"), MEASURED)
def test_what_is_measured_can_be_read_off_the_network(data, model, metrics):
    """A metric that a network does not have would raise after its first stage only."""
    shape = shape_of(data)
    made = build(model, SimpleNamespace(shape=shape, classes=10))
    random = torch.Generator().manual_seed(0)
    train = Examples(torch.randn(64, *shape, generator=random), torch.arange(64) % 10)
    initial = {name: value.clone() for name, value in made.state_dict().items()}
    found = measurer(metrics, seed=0)(made, SimpleNamespace(train=train), initial)
    assert set(found) == {f"metric.{name}" for name in metrics}
    assert all(number == number for number in found.values())
