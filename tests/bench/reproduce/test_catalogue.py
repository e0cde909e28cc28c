"""Every entry's specs are checked without training anything: they expand, and their networks fit their data."""

import re
from types import SimpleNamespace

import pytest
import torch

from rekindle.bench.measure import measurer
from rekindle.bench.reproduce.catalogue import ENTRIES, PAPERS, entry
from rekindle.bench.reproduce.rules import Numbers
from rekindle.bench.run import how_of
from rekindle.core.errors import SettingsError
from rekindle.core.registry import method
from rekindle.core.spec import split
from rekindle.data.dataset import Dataset, Examples
from rekindle.models.catalogue import build
from rekindle.protocols.catalogue import protocol
from rekindle.protocols.loop import length_of

GRAY, COLOUR = (1, 28, 28), (3, 32, 32)
SHAPES = {
    **dict.fromkeys(("mnist", "fashion_mnist"), GRAY),
    **dict.fromkeys(("cifar10", "cifar100", "svhn"), COLOUR),
    **dict.fromkeys(
        ("oxford_pets", "stanford_dogs", "stanford_cars", "caltech101", "cassava", "birds2010"), (3, 224, 224)
    ),
    "imagenet": (3, 224, 224),
    "tiny_imagenet": (3, 64, 64),
    "synthetic": (128,),
}
RUNNABLE = [
    (name, preset) for name, e in ENTRIES.items() for preset in ("paper", "cpu") if e.study(preset) and not e.waits_for
]
FRACTIONS = {2: "half", 4: "quarter", 6: "sixth ", 8: "eighth", 16: "sixteenth"}
PICTURES = ("A figure", "A picture", "appendix alone", "curves", "without published numbers", "no numbers", "fractions")


def shape_of(data):
    name, settings = split(data)
    shape = SHAPES[name]
    return (shape[0], int(settings["size"]), int(settings["size"])) if "size" in settings else shape


def test_names_are_unique():
    assert len(ENTRIES) == sum(len(paper.ENTRIES) for paper in PAPERS)
    assert all(name == e.name and name == name.lower() and " " not in name for name, e in ENTRIES.items())


@pytest.mark.parametrize(("name", "preset"), RUNNABLE)
def test_specs_expand_and_networks_fit(name, preset):
    study = entry(name).study(preset)
    placed = study.runs(seeds=1)
    assert placed or study.compute, "nothing to run"
    keys = [run.key for _, runs in placed for run in runs]
    assert len(keys) == len({(cell.condition, cell.method) for cell, _ in placed})
    for data, model in {(run.data, run.model) for _, runs in placed for run in runs}:
        with torch.device("meta"):
            build(model, SimpleNamespace(shape=shape_of(data), classes=10))


def published_conditions(found):
    return {cell.condition for cell in found.paper_study.cells} if found.paper_study else set()


def width_of(model, data):
    """Return the channels of a network's first convolution."""
    with torch.device("meta"):
        built = build(model, SimpleNamespace(shape=shape_of(data), classes=10))
    return next((m.out_channels for m in built.modules() if isinstance(m, torch.nn.Conv2d)), None)


@pytest.mark.parametrize("name", [name for name, e in ENTRIES.items() if e.study("cpu") and not e.waits_for])
def test_narrower_networks_are_told_as_what_they_are(name):
    study = entry(name).study("cpu")
    for data, model in {(run.data, run.model) for _, runs in study.runs(seeds=1) for run in runs}:
        whole = f"{split(data)[0]}:size=64"
        narrow, wide = width_of(model, whole), width_of(split(model)[0], whole)
        if narrow != wide:
            assert FRACTIONS[wide // narrow] in study.reduced, model


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_says_what_it_compares_with(name):
    found = entry(name)
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


@pytest.mark.parametrize("name", [name for name, e in ENTRIES.items() if not e.waits_for])
def test_rules_name_what_is_measured(name):
    found = entry(name)
    measures = {measure.name for measure in found.measures}
    for rule in found.rules:
        assert rule.measure in measures
    study = found.study("cpu")
    if study.cells:
        methods, conditions = ({getattr(c, what) for c in study.cells} for what in ("method", "condition"))
        for rule in (rule for rule in found.rules if not isinstance(rule, Numbers)):
            assert {rule.method, *getattr(rule, "than", ())} <= methods
            assert rule.conditions is None or set(rule.conditions) & conditions
            assert set(rule.conditions or ()) <= conditions | published_conditions(found)


def test_published_numbers_stand_in_the_catalogue_as_printed():
    table = entry("layerwise-table-1").published
    assert len(table) == 18
    assert (table["1.0", "LW"].mean, table["1.0", "LW"].deviation) == (72.3, 3.6)
    assert entry("layerwise-table-5").published["0.05", "Baseline"].mean == 0.77
    mnist = entry("soft-rescaling-table-5-mnist").published
    assert mnist["MNIST (MLP)", "SWR + re-init"].mean == 0.9829
    assert mnist["MNIST (MLP)", "SWR + re-init"].n == 5


def test_published_cells_are_run_by_the_paper_preset():
    for found in ENTRIES.values():
        if found.published and found.paper_study and found.paper_study.cells:
            run = {(cell.condition, cell.method) for cell in found.paper_study.cells}
            assert set(found.published) <= run, found.name


def test_data_that_must_be_there():
    assert entry("layerwise-table-1").study("cpu").data() == ()
    assert set(entry("frozen-table-2").study("cpu").data()) == {"cifar10", "mnist", "fashion_mnist"}


def test_an_unknown_name_is_told():
    with pytest.raises(SettingsError, match="layerwise-table-1"):
        entry("table-1")


def steps_of(run):
    """Return the steps of a run on 50,000 examples, counted from its stages."""
    count = round(50_000 * run.sample_fraction)
    labels = torch.arange(count) % (100 if run.data == "cifar100" else 10)
    examples = Examples(torch.zeros(count, 1), labels)
    stages = protocol(run.protocol).stages(Dataset("", examples, examples, int(labels.max()) + 1), 0)
    return sum(length_of(stage, how_of(run)).total for stage in stages)


@pytest.mark.parametrize("name", ["fire-fig-2a", "fire-fig-2b", "fire-fig-2c"])
def test_what_goes_by_steps_is_hastened_as_much_as_runs_are_shortened(name):
    study = entry(name).study("cpu")
    runs = {cell.method: of_cell[0] for cell, of_cell in study.runs(seeds=1)}
    published = entry(name).study("paper").runs(seeds=1)[0][1][0]
    shorter = steps_of(published) / steps_of(runs["no intervention"])
    told = int(re.search(r"ReDo (\d+) times as often", study.reduced)[1])
    assert told == round(shorter)
    assert method(runs["ReDo"].methods).period == pytest.approx(1000 / told, abs=1)
    assert method(runs["CBP"].methods).maturity == pytest.approx(1000 / told, abs=1)
    assert 1e-5 * 0.9 < method(runs["CBP"].methods).rate / shorter < 1e-4 * 1.1


MEASURED = sorted(
    {
        (run.data, run.model, run.metrics)
        for e in ENTRIES.values()
        if e.study("cpu") and not e.waits_for
        for _, runs in e.study("cpu").runs(seeds=1)
        for run in runs
        if run.metrics
    }
)


@pytest.mark.parametrize(("data", "model", "metrics"), MEASURED)
def test_what_is_measured_can_be_read_off_the_network(data, model, metrics):
    """A metric that a network does not have would be told after its first stage only."""
    shape = shape_of(data)
    made = build(model, SimpleNamespace(shape=shape, classes=10))
    random = torch.Generator().manual_seed(0)
    train = Examples(torch.randn(64, *shape, generator=random), torch.arange(64) % 10)
    initial = {name: value.clone() for name, value in made.state_dict().items()}
    found = measurer(metrics, seed=0)(made, SimpleNamespace(train=train), initial)
    assert set(found) == {f"metric.{name}" for name in metrics}
    assert all(number == number for number in found.values())
