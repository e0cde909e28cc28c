"""What a user names on the command line."""

import sys
import textwrap

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rekindle.cli._user_code import batches_from, built, is_place, named, whole
from rekindle.errors import RekindleError
from rekindle.lab.data import load, prepare
from rekindle.lab.data.store import VARIABLE

CODE = """
    import torch
    from torch import nn

    number = 7

    def network():
        return nn.Linear(3, 2)

    def no_network():
        return "a text"

    def batches():
        while True:
            yield torch.ones(4, 3)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_to_name.py").write_text(textwrap.dedent(CODE))
    monkeypatch.delitem(sys.modules, "mine_to_name", raising=False)
    return tmp_path


def test_modules_of_the_working_folder_and_the_path_is_left_as_it_was(here):
    before = list(sys.path)
    assert named("mine_to_name:number") == 7 and named("torch.nn:Linear") is nn.Linear
    assert sys.path == before
    for wrong in ("mine_to_name", "mine_to_name:nothing", "no_such_module:f"):
        with pytest.raises(RekindleError, match="package.module:name") as caught:
            named(wrong)
        assert wrong in caught.value.got
    assert sys.path == before


def test_a_model_with_the_weights_of_a_checkpoint(here):
    weights = nn.Linear(3, 2).state_dict()
    save_file(weights, here / "old.safetensors")
    assert torch.equal(built("mine_to_name:network", "old.safetensors").weight, weights["weight"])
    with pytest.raises(RekindleError, match="to return a model"):
        built("mine_to_name:no_network", "old.safetensors")
    save_file({"weight": torch.ones(5, 5)}, here / "other.safetensors")
    with pytest.raises(RekindleError, match="a checkpoint of the model that the factory builds"):
        built("mine_to_name:network", "other.safetensors")


def test_batches_of_a_function_and_of_a_set_by_name(here):
    assert len(batches_from("mine_to_name:batches", 3, 128, 0)) == 3
    found = batches_from("digits", batches=2, batch_size=16, seed=0)
    assert [(tuple(x.shape), len(y)) for x, y in found] == [((16, 1, 8, 8), 16)] * 2
    images, labels = whole("digits", "train")
    for x, y in found:
        for image, label in zip(x, y, strict=True):
            same = (images == image).flatten(1).all(1)
            assert same.any() and (labels[same] == label).all(), "a label that is not its image's"
    again, other = (batches_from("digits", 2, 16, seed) for seed in (0, 1))
    assert torch.equal(found[0][0], again[0][0]) and not torch.equal(found[0][0], other[0][0])


def test_all_of_a_set(here):
    data = load("digits")
    for part in ("train", "test"):
        inputs, labels = whole("digits", part)
        examples = getattr(data, part)
        assert torch.equal(inputs, examples.batch(slice(None))) and torch.equal(labels, examples.labels)
    assert next(iter(whole("mine_to_name:batches", "train"))).shape == (4, 3)


def test_places_and_names():
    assert is_place("my.data:batches") and not is_place("digits") and not is_place("synthetic:signal=1")


def test_text_is_drawn_as_windows_and_never_as_a_whole(here, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(here))
    (here / "text").write_bytes(bytes(range(250)) * 4)
    prepare("mine", [here / "text"])
    first, again = (batches_from("mine:context=8", batches=3, batch_size=2, seed=1) for _ in range(2))
    assert len(first) == 3 and all(a.shape == b.shape == (2, 8) for a, b in first)
    assert all(np.array_equal((a + 1) % 250, b) for a, b in first)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], batches_from("mine:context=8", 3, 2, seed=2)[0][0])
    with pytest.raises(RekindleError, match="streams of tokens: mine"):
        whole("mine:context=8", "train")
