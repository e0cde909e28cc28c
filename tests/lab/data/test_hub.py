import io
import json
import sys

import numpy as np
import pytest

from rekindle.errors import RekindleError
from rekindle.lab.data import Source, download
from rekindle.lab.data.hub import SOURCES
from rekindle.lab.data.store import load_stored


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder with parquet files as the hub has them: images as encoded bytes, labels under a name of their own."""
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    rng = np.random.default_rng(0)
    pixels = {part: rng.integers(0, 256, (count, 5, 4, 3), np.uint8) for part, count in (("train", 6), ("valid", 2))}
    features = {"img": {"_type": "Image"}, "fine": {"dtype": "int64", "_type": "Value"}}
    folder = tmp_path / "hub"
    folder.mkdir()
    for part, images in pixels.items():
        rows = {"img": [{"bytes": png(image, one), "path": None} for one in images], "fine": list(range(len(images)))}
        kinds = [
            ("img", arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])),
            ("fine", arrow.int64()),
        ]
        schema = arrow.schema(kinds, metadata={"huggingface": json.dumps({"info": {"features": features}})})
        parquet.write_table(arrow.table(rows, schema=schema), folder / f"{part}.parquet")
    return folder, pixels


def png(image, pixels):
    buffer = io.BytesIO()
    image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def source(folder, **given):
    return Source(str(folder), **{"label": "fine", "test": "validation", **given})


def test_download_fills_the_cache(hub, tmp_path):
    folder, pixels = hub
    target = download("small", source=source(folder), folder=tmp_path / "cache")
    data = load_stored("small", tmp_path / "cache")
    assert target == tmp_path / "cache" / "small"
    assert np.array_equal(data.train.inputs.permute(0, 2, 3, 1).numpy(), pixels["train"])
    assert np.array_equal(data.test.inputs.permute(0, 2, 3, 1).numpy(), pixels["valid"])
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_is_there_is_not_fetched_again(hub, tmp_path):
    folder, _ = hub
    target = download("small", source=source(folder), folder=tmp_path / "cache")
    before = {path.name: path.stat().st_mtime_ns for path in target.iterdir()}
    assert download("small", source=Source("nobody/nothing"), folder=tmp_path / "cache") == target
    assert {path.name: path.stat().st_mtime_ns for path in target.iterdir()} == before


def test_size_and_gray(hub, tmp_path):
    folder, _ = hub
    download("small", source=source(folder, size=8, gray=True), folder=tmp_path / "cache")
    assert load_stored("small", tmp_path / "cache").shape == (1, 8, 8)


def test_a_wrong_column_is_told(hub, tmp_path):
    folder, _ = hub
    with pytest.raises(RekindleError, match="img, fine"):
        download("small", source=source(folder, label="coarse"), folder=tmp_path / "cache")


def test_a_split_that_is_not_there_is_told(hub, tmp_path):
    folder, _ = hub
    with pytest.raises(RekindleError, match="split 'test'"):
        download("small", source=source(folder, test="test"), folder=tmp_path / "cache")
    assert not (tmp_path / "cache" / "small" / "test.npz").exists()


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(RekindleError, match=r"rekindle\[hub\]"):
        download("mnist", folder=tmp_path)


def test_unknown_name(tmp_path):
    with pytest.raises(RekindleError, match="fashion_mnist"):
        download("nothing", folder=tmp_path)
    assert {"mnist", "cifar10", "cifar100", "svhn", "kmnist", "tiny_imagenet"} <= set(SOURCES)
