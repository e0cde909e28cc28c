import numpy as np
import pytest
import torch

from rekindle.errors import RekindleError
from rekindle.lab.data import load
from rekindle.lab.data.store import VARIABLE, load_stored, write_stored


def write(folder, part, images, labels):
    return write_stored(folder / "small", part, np.asarray(images), np.asarray(labels))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_round_trip(cache):
    images = np.arange(2 * 4 * 5 * 3).reshape(2, 4, 5, 3)
    write(cache, "train", images, [0, 2])
    write(cache, "test", images[:1], [1])
    data = load("small")
    assert (data.name, data.classes, data.shape) == ("small", 3, (3, 4, 5))
    assert data.train.inputs.dtype == torch.uint8
    assert data.train.inputs[1, 2, 3, 4] == images[1, 3, 4, 2]  # [N, H, W, C] became [N, C, H, W]


def test_batches_are_normalized_by_the_training_images(cache):
    write(cache, "train", np.array([0, 255]).reshape(2, 1, 1, 1), [0, 1])
    write(cache, "test", np.full((1, 1, 1, 1), 255), [1])
    data = load("small")
    assert data.train.batch(slice(2)).flatten().tolist() == [-1.0, 1.0]
    assert data.test.batch(slice(1)).item() == 1.0


def test_images_can_be_brought_to_another_size(cache):
    images = np.kron(np.arange(0, 200, 50).reshape(1, 2, 2, 1), np.ones((1, 2, 2, 1)))  # four squares of one color
    write(cache, "train", images, [0])
    write(cache, "test", images, [0])
    small, stored = load("small:size=1"), load("small")
    assert stored.shape == (1, 4, 4) and small.shape == (1, 1, 1)
    assert small.train.inputs.item() == small.test.inputs.item() == 75  # the mean of all
    assert small.train.inputs.dtype == torch.uint8


def test_a_set_is_read_once_and_again_when_it_was_written_anew(cache):
    write(cache, "train", np.zeros((1, 2, 2, 1)), [0])
    write(cache, "test", np.zeros((1, 2, 2, 1)), [0])
    first = load("small")
    assert load("small") is first
    write(cache, "train", np.zeros((3, 2, 2, 1)), [0, 0, 0])
    assert len(load("small").train) == 3


@pytest.mark.parametrize(("spec", "told"), [("small:size=0", "size=0"), ("small:size=big", "size=big")])
def test_sizes_that_make_no_sense(cache, spec, told):
    with pytest.raises(RekindleError) as error:
        load(spec)
    assert told in error.value.got


def test_missing_data_say_what_to_do(cache):
    with pytest.raises(RekindleError) as told:
        load("cifar10")
    assert "no such file" in told.value.got and "download('cifar10')" in told.value.fix and VARIABLE in told.value.fix


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ({"images": np.zeros((2, 4, 4, 1), np.float32), "labels": np.zeros(2, int)}, "float32"),
        ({"images": np.zeros((2, 4, 4), np.uint8), "labels": np.zeros(2, int)}, "(2, 4, 4)"),
        ({"images": np.zeros((2, 4, 4, 1), np.uint8), "labels": np.zeros(3, int)}, "(3,)"),
        ({"images": np.zeros((2, 4, 4, 1), np.uint8), "labels": np.array([0, -1])}, "from -1"),
        ({"images": np.zeros((2, 4, 4, 1), np.uint8)}, "cannot be read"),
    ],
)
def test_wrong_files(cache, arrays, part):
    (cache / "small").mkdir()
    np.savez(cache / "small" / "train.npz", **arrays)
    with pytest.raises(RekindleError) as told:
        load_stored("small")
    assert part in told.value.got


def test_torn_file(cache):
    file = write(cache, "train", np.zeros((50, 4, 4, 1)), np.zeros(50))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RekindleError, match="cannot be read"):
        load_stored("small")


def test_shapes_must_agree(cache):
    write(cache, "train", np.zeros((1, 4, 4, 1)), [0])
    write(cache, "test", np.zeros((1, 5, 5, 1)), [0])
    with pytest.raises(RekindleError, match="one shape"):
        load("small")


@pytest.mark.parametrize("spec", ["", "a/b", "../etc", "cifar10:x=1"])
def test_names_stay_inside_the_cache(cache, spec):
    with pytest.raises(RekindleError, match="plain name"):
        load(spec)
